//! DirectML's operators.

use super::*;
use wgpu_norm::operators::directml::*;

fn check<T: DataType>() {
    // Channels, one mean for all, and axes that cannot be merged.
    for scale_dimensions in [[1, 3, 1, 1], [1, 1, 1, 1], [2, 1, 5, 1]] {
        let shape = [2, 3, 5, 4];
        let params = scale_dimensions.iter().product();
        let layer = Layer::<T, T>::random(&shape, params, 3);
        let norm = Norm::Batch(Channels::Broadcast(scale_dimensions.to_vec()));
        let want = layer.compute(norm, Forward::default(), (true, true), &[]);
        for subject in taking::<T>() {
            let what = format!("{scale_dimensions:?} {} on {}", T::DTYPE, subject.name);
            let inputs = TrainingInputs {
                input_dimensions: &shape,
                scale_dimensions: &scale_dimensions,
                input_tensor: &layer.src,
                scale_tensor: &layer.gamma,
                bias_tensor: &layer.beta,
                fused_add_tensor: None,
            };
            let op = BatchNormalizationTraining::new(EPSILON);
            let got = block_on(op.forward(&subject.gpu, inputs)).unwrap();
            close(&got.output_tensor, &want, Tensor::Dst, &what);
            close(&got.output_mean_tensor, &want, Tensor::Mean, &what);
            close(&got.output_variance_tensor, &want, Tensor::Variance, &what);
        }
    }
}

fn check_own_sizes<T: DataType>() {
    const INPUT: [usize; 3] = [2, 3, 5];
    let all: [[[usize; 3]; 4]; 5] = [
        [[1, 3, 1]; 4],
        [[1, 3, 1], [1, 3, 1], [1, 1, 1], [1, 1, 1]],
        [[2, 1, 1], [1, 1, 5], [1, 3, 1], [1, 1, 1]],
        [[2, 3, 5], [1, 1, 1], [2, 1, 5], [1, 3, 5]],
        [[1, 1, 1]; 4],
    ];
    for dimensions in all {
        let mut random = Random::new(4);
        let mut tensor = |index: usize, scale, offset| {
            random.vec::<T>(dimensions[index].iter().product(), scale, offset)
        };
        let (mean, variance) = (tensor(0, 1.0, 3.0), tensor(1, 0.5, 1.0));
        let (scale, bias) = (tensor(2, 1.0, 0.5), tensor(3, 1.0, 0.0));
        let [mean, variance, scale, bias] = [(0, &mean), (1, &variance), (2, &scale), (3, &bias)]
            .map(|(index, tensor)| Parameter {
                dimensions: &dimensions[index],
                tensor,
            });
        let src: Vec<T> = Random::new(5).vec(30, 2.0, 3.0);
        let layer = Layer::<T, T> {
            shape: INPUT.to_vec(),
            src: src.clone(),
            gamma: written_out(scale.dimensions, scale.tensor, INPUT),
            beta: written_out(bias.dimensions, bias.tensor, INPUT),
            mean: written_out(mean.dimensions, mean.tensor, INPUT),
            variance: written_out(variance.dimensions, variance.tensor, INPUT),
        };
        let norm = Norm::Batch(Channels::Broadcast(INPUT.to_vec()));
        let want = layer.compute(norm, Pass::Inference, (true, true), &[]);
        let inputs = BatchNormalizationInputs {
            input_dimensions: &INPUT,
            input_tensor: &src,
            mean_tensor: mean,
            variance_tensor: variance,
            scale_tensor: scale,
            bias_tensor: bias,
        };
        for subject in taking::<T>() {
            let what = format!("{dimensions:?} {} on {}", T::DTYPE, subject.name);
            let op = BatchNormalization::new(EPSILON);
            let got = block_on(op.forward(&subject.gpu, inputs)).unwrap();
            close(&got, &want, Tensor::Dst, &what);
        }
    }
}

#[test]
fn training_is_as_the_reference() {
    check::<f32>();
    check::<f16>();
}

#[test]
fn parameters_broadcast_each_on_its_own() {
    check_own_sizes::<f32>();
    check_own_sizes::<f16>();
}

#[test]
fn operations_are_those_made_by_hand() {
    let (input, own) = (&[4, 6, 2], &[1, 6, 1]);
    let types = DTypes::from(DType::F16).with_statistics(DType::F16);
    let norm = || Norm::Batch(Channels::Broadcast(own.to_vec()));
    let want = Operation::new(norm(), Forward::default(), input, types);
    let want = want.with_epsilon(EPSILON.into());
    let op = BatchNormalizationTraining::new(EPSILON);
    same(op.operation::<f16>(input, own, false), want);
    let want = Operation::new(norm(), Pass::Inference, input, types);
    let want = want.with_epsilon(EPSILON.into());
    let op = BatchNormalization::new(EPSILON);
    same(op.operation::<f16>(input, own, own, own, own), want);
    let other = op.operation::<f16>(input, own, own, own, &[1, 1, 2]);
    let parts = ["mean's sizes, [1, 6, 1]", "got [1, 1, 2]"];
    is_argument(other, "beta", &parts);
}

#[test]
fn lengths_are_checked() {
    let gpu = &subjects()[0].gpu;
    let inputs = TrainingInputs {
        input_dimensions: &[2, 2],
        scale_dimensions: &[1, 2],
        input_tensor: &[1.0_f32; 4],
        scale_tensor: &[1.0; 2],
        bias_tensor: &[1.0; 2],
        fused_add_tensor: None,
    };
    let op = BatchNormalizationTraining::new(1e-5);
    let run = |op: BatchNormalizationTraining, inputs| block_on(op.forward(gpu, inputs));
    assert!(run(op, inputs).is_ok());
    let short = TrainingInputs {
        fused_add_tensor: Some(&[0.0; 3]),
        ..inputs
    };
    is_length(run(op, short), "residual", 4, 3);
    let short = TrainingInputs {
        bias_tensor: &[1.0; 1],
        ..inputs
    };
    is_length(run(op, short), "beta", 2, 1);
}

#[test]
fn a_parameter_of_wrong_sizes_is_named() {
    let gpu = &subjects()[0].gpu;
    let right = Parameter {
        dimensions: &[1, 3],
        tensor: &[1.0_f32; 3],
    };
    let inputs = BatchNormalizationInputs {
        input_dimensions: &[2, 3],
        input_tensor: &[1.0_f32; 6],
        mean_tensor: right,
        variance_tensor: right,
        scale_tensor: right,
        bias_tensor: right,
    };
    let run = |inputs| block_on(BatchNormalization::new(1e-5).forward(gpu, inputs));
    assert!(run(inputs).is_ok());
    let of = |dimensions, tensor| Parameter { dimensions, tensor };
    let wrong = BatchNormalizationInputs {
        variance_tensor: of(&[1, 2], &[1.0; 2]),
        ..inputs
    };
    let parts = ["size 1 or 3 along axis 1", "got 2"];
    is_argument(run(wrong), "variance", &parts);
    let wrong = BatchNormalizationInputs {
        scale_tensor: of(&[3], &[1.0; 3]),
        ..inputs
    };
    let error = run(wrong).unwrap_err();
    assert!(matches!(error, Error::Rank { .. }), "{error:?}");
    assert_eq!(error.to_string(), "gamma: expected rank 2, got rank 1");
    let wrong = BatchNormalizationInputs {
        bias_tensor: of(&[2, 1], &[1.0; 3]),
        ..inputs
    };
    is_length(run(wrong), "beta", 2, 3);
    let wrong = BatchNormalizationInputs {
        mean_tensor: of(&[2, 1], &[]),
        ..inputs
    };
    is_length(run(wrong), "mean", 2, 0);
    // An axis of size 0 is not divided by.
    let empty = BatchNormalizationInputs {
        input_dimensions: &[0, 3],
        input_tensor: &[],
        mean_tensor: of(&[0, 1], &[]),
        ..inputs
    };
    assert_eq!(run(empty), Ok(Vec::new()));
}

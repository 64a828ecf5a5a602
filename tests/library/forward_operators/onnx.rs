//! ONNX's operators.

use super::*;
use wgpu_norm::operators::onnx::*;

#[test]
fn defaults_are_the_documents() {
    let op = BatchNormalization::default();
    assert_eq!((op.epsilon, op.momentum), (1e-5, 0.9));
    assert!(!op.training_mode);
    let op = LayerNormalization::default();
    assert_eq!((op.axis, op.epsilon), (-1, 1e-5));
    let op = RmsNormalization::default();
    assert_eq!((op.axis, op.epsilon), (-1, 1e-5));
}

fn batch_norm<T: Element, P: ParamOf<T>>() {
    let layer = Layer::<T, P>::random(&[3, 5, 7], 5, 14);
    for training_mode in [true, false] {
        let op = BatchNormalization {
            epsilon: EPSILON,
            momentum: 0.75,
            training_mode,
        };
        let pass = match training_mode {
            true => training(0.25, RunningVariance::Biased).into(),
            false => Pass::Inference,
        };
        let want = layer.compute(Norm::batch(DataFormat::Ncx), pass, (true, true), &[]);
        for subject in taking::<T>() {
            let what = format!("training {training_mode} {} on {}", T::DTYPE, subject.name);
            let inputs = BatchNormalizationInputs {
                shape: &layer.shape,
                x: &layer.src,
                scale: &layer.gamma,
                b: &layer.beta,
                input_mean: &layer.mean,
                input_var: &layer.variance,
            };
            let got = block_on(op.forward(&subject.gpu, inputs)).unwrap();
            close(&got.y, &want, Tensor::Dst, &what);
            assert_eq!(got.running_mean.is_some(), training_mode, "{what}");
            assert_eq!(got.running_var.is_some(), training_mode, "{what}");
            if let (Some(mean), Some(variance)) = (got.running_mean, got.running_var) {
                close(&mean, &want, Tensor::RunningMean, &what);
                close(&variance, &want, Tensor::RunningVariance, &what);
            }
        }
    }
}

fn rows<T: ParamOf<T>>() {
    let layer = Layer::<T, T>::random(&[4, 3, 10], 30, 15);
    for b in [true, false] {
        let op = LayerNormalization {
            axis: -2,
            epsilon: EPSILON,
        };
        let norm = Norm::Layer { begin_axis: 1 };
        let want = layer.compute(norm, Forward::default(), (true, b), &[]);
        for subject in taking::<T>() {
            let what = format!("B {b} {} on {}", T::DTYPE, subject.name);
            let inputs = LayerNormalizationInputs {
                shape: &layer.shape,
                x: &layer.src,
                scale: &layer.gamma,
                b: b.then_some(&layer.beta),
            };
            let got = block_on(op.forward(&subject.gpu, inputs)).unwrap();
            close(&got.y, &want, Tensor::Dst, &what);
            close(&got.mean, &want, Tensor::Mean, &what);
            close_inverse(&got.inv_std_dev, &want, &what);
        }
    }
    let op = RmsNormalization {
        axis: 1,
        epsilon: EPSILON,
    };
    let norm = Norm::Rms { begin_axis: 1 };
    let want = layer.compute(norm, Forward::default(), (true, false), &[]);
    for subject in taking::<T>() {
        let inputs = RmsNormalizationInputs {
            shape: &layer.shape,
            x: &layer.src,
            scale: &layer.gamma,
        };
        let got = block_on(op.forward(&subject.gpu, inputs)).unwrap();
        close(&got, &want, Tensor::Dst, &subject.name);
    }
}

#[test]
fn batch_norm_is_as_the_reference() {
    batch_norm::<f32, f32>();
    batch_norm::<f16, f16>();
    batch_norm::<bf16, f32>();
}

#[test]
fn rows_are_as_the_reference() {
    rows::<f32>();
    rows::<f16>();
}

/// momentum is the old statistics' weight, and the variance is the biased one: by hand. (N) has one channel.
#[test]
fn momentum_weighs_what_was_there() {
    for shape in [&[2, 1][..], &[2], &[1, 1, 2]] {
        let inputs = BatchNormalizationInputs {
            shape,
            x: &[1.0_f32, 3.0],
            scale: &[2.0_f32],
            b: &[5.0],
            input_mean: &[10.0_f32],
            input_var: &[5.0],
        };
        for (momentum, mean, variance) in [(0.75, 8.0, 4.0), (0.0, 2.0, 1.0), (1.0, 10.0, 5.0)] {
            let op = BatchNormalization {
                momentum,
                training_mode: true,
                epsilon: 1e-6,
            };
            for subject in subjects() {
                let got = block_on(op.forward(&subject.gpu, inputs)).unwrap();
                near(&got.running_mean.unwrap(), &[mean], &subject.name);
                near(&got.running_var.unwrap(), &[variance], &subject.name);
                near(&got.y, &[3.0, 7.0], &subject.name);
            }
        }
    }
}

#[test]
fn operations_are_those_made_by_hand() {
    let types = DTypes::from((DType::F16, DType::F16)).with_statistics(DType::F32);
    let op = |training_mode| BatchNormalization {
        epsilon: EPSILON,
        momentum: 0.5,
        training_mode,
    };
    let norm = || Norm::batch(DataFormat::Ncx);
    let pass = training(0.5, RunningVariance::Biased);
    let want = Operation::new(norm(), pass, &[7, 1], types);
    let want = want.with_epsilon(EPSILON.into());
    same(op(true).operation::<f16, f16, f32>(&[7]), want);
    let want = Operation::new(norm(), Pass::Inference, &[2, 3, 4], types);
    let want = want.with_epsilon(EPSILON.into());
    same(op(false).operation::<f16, f16, f32>(&[2, 3, 4]), want);
    let op = LayerNormalization::default();
    let kept = op.operation::<f16>(&[2, 3], false, true);
    assert_eq!(size(&kept, Tensor::Variance), Some(8));
    assert_eq!(size(&kept, Tensor::Beta), None);
    let bare = op.operation::<f16>(&[2, 3], false, false);
    assert_eq!(size(&bare, Tensor::Variance), None);
    let op = RmsNormalization::default();
    let operation = op.operation::<f16, f32>(&[2, 3]);
    assert_eq!(size(&operation, Tensor::Gamma), Some(12));
    assert_eq!(size(&operation, Tensor::MeanSquare), None);
    let types = DTypes::from(DType::F16); // statistics in the type of sums
    let (groups, format) = (3, DataFormat::Ncx);
    let (norm, pass) = (Norm::Group { groups, format }, Forward::default());
    let mut want = Operation::new(norm, pass, &[2, 6, 4], types).with_epsilon(1e-5_f32.into());
    let op = GroupNormalization::new(3);
    same(op.operation::<f16>(&[2, 6, 4]), want.clone());
    want.norm = Norm::Instance { format };
    let op = InstanceNormalization::default();
    same(op.operation::<f16>(&[2, 6, 4]), want);
}

#[test]
fn bad_arguments_are_named() {
    let gpu = &subjects()[0].gpu;
    let inputs = BatchNormalizationInputs {
        shape: &[2, 2],
        x: &[1.0_f32; 4],
        scale: &[1.0_f32; 2],
        b: &[1.0; 2],
        input_mean: &[1.0_f32; 3],
        input_var: &[1.0; 2],
    };
    for (training_mode, name) in [(true, "running_mean"), (false, "mean")] {
        let op = BatchNormalization {
            training_mode,
            ..BatchNormalization::default()
        };
        is_length(block_on(op.forward(gpu, inputs)), name, 2, 3);
        let short = BatchNormalizationInputs {
            b: &[1.0; 1],
            ..inputs
        };
        let result = block_on(op.forward(gpu, short));
        assert!(matches!(result, Err(Error::Length { .. })));
    }
    let op = BatchNormalization {
        momentum: 1.1,
        training_mode: true,
        ..BatchNormalization::default()
    };
    let parts = ["from 0 to 1", "got 1.1"];
    is_argument(block_on(op.forward(gpu, inputs)), "momentum", &parts);
    // 32-bit statistics go with all types, 16-bit ones only with parameters of the same type.
    let op = BatchNormalization::default();
    assert!(matches!(
        op.operation::<f16, f32, f16>(&[2, 2]),
        Err(Error::StatisticsDType { .. })
    ));
    let inputs = LayerNormalizationInputs {
        shape: &[2, 3],
        x: &[1.0_f32; 6],
        scale: &[1.0; 3],
        b: Some(&[1.0; 2]),
    };
    let op = LayerNormalization::default();
    is_length(block_on(op.forward(gpu, inputs)), "beta", 3, 2);
    let op = RmsNormalization {
        axis: -3,
        ..Default::default()
    };
    is_argument(op.operation::<f32, f32>(&[2, 3]), "begin_norm_axis", &[]);
}

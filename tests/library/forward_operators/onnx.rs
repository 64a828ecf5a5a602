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

/// A parameter of this shape.
fn of<'a, T>(shape: &'a [usize], tensor: &'a [T]) -> Parameter<'a, T> {
    Parameter { shape, tensor }
}

fn rows<T: ParamOf<T>>() {
    let layer = Layer::<T, T>::random(&[4, 3, 10], 30, 15);
    for b in [true, false] {
        let op = LayerNormalization {
            axis: -2,
            epsilon: EPSILON,
        };
        let norm = Norm::layer(1);
        let want = layer.compute(norm, Forward::default(), (true, b), &[]);
        for subject in taking::<T>() {
            let what = format!("B {b} {} on {}", T::DTYPE, subject.name);
            let inputs = LayerNormalizationInputs {
                shape: &layer.shape,
                x: &layer.src,
                scale: of(&[3, 10], &layer.gamma),
                b: b.then_some(of(&[3, 10], &layer.beta)),
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
    let norm = Norm::rms(1);
    let want = layer.compute(norm, Forward::default(), (true, false), &[]);
    for subject in taking::<T>() {
        let inputs = RmsNormalizationInputs {
            shape: &layer.shape,
            x: &layer.src,
            scale: of(&[3, 10], &layer.gamma),
        };
        let got = block_on(op.forward(&subject.gpu, inputs)).unwrap();
        close(&got, &want, Tensor::Dst, &subject.name);
    }
}

/// Scale and B of these shapes, with statistics from `axis` on, as the reference has them with a parameter for each
/// element.
fn broadcast<T: ParamOf<T>>(axis: i64, scale_shape: &[usize], b_shape: &[usize]) {
    const SHAPE: [usize; 3] = [2, 3, 5];
    let mut random = Random::new(16);
    let mut tensor = |shape: &[usize]| random.vec::<T>(shape.iter().product(), 1.0, 0.5);
    let (scale, b) = (tensor(scale_shape), tensor(b_shape));
    let layer = Layer::<T, T> {
        gamma: written_out(scale_shape, &scale, SHAPE),
        beta: written_out(b_shape, &b, SHAPE),
        ..Layer::random(&SHAPE, 0, 17)
    };
    let norm = |centered| Norm::axes(&(axis..0).collect::<Vec<_>>(), &[0, 1, 2]).centered(centered);
    let of_layer = layer.compute(norm(true), Forward::default(), (true, true), &[]);
    let of_rms = layer.compute(norm(false), Forward::default(), (true, false), &[]);
    for subject in taking::<T>() {
        let types = format!("{} on {}", T::DTYPE, subject.name);
        let what = format!("axis {axis} {scale_shape:?} {b_shape:?} {types}");
        let op = LayerNormalization {
            axis,
            epsilon: EPSILON,
        };
        let inputs = LayerNormalizationInputs {
            shape: &SHAPE,
            x: &layer.src,
            scale: of(scale_shape, &scale),
            b: Some(of(b_shape, &b)),
        };
        let got = block_on(op.forward(&subject.gpu, inputs)).unwrap();
        close(&got.y, &of_layer, Tensor::Dst, &what);
        close(&got.mean, &of_layer, Tensor::Mean, &what);
        close_inverse(&got.inv_std_dev, &of_layer, &what);
        let op = RmsNormalization {
            axis,
            epsilon: EPSILON,
        };
        let inputs = RmsNormalizationInputs {
            shape: &SHAPE,
            x: &layer.src,
            scale: of(scale_shape, &scale),
        };
        let got = block_on(op.forward(&subject.gpu, inputs)).unwrap();
        close(&got, &of_rms, Tensor::Dst, &what);
    }
}

#[test]
fn scale_and_b_broadcast_each_on_its_own() {
    let pairs: [[&[usize]; 2]; 8] = [
        [&[5], &[1, 5]],          // layer norm's own
        [&[2, 1, 5], &[2, 1, 5]], // each sample's
        [&[], &[]],
        [&[3, 1], &[1, 3, 1]],
        [&[1, 1, 1], &[5]],
        [&[5], &[3, 1]],
        [&[2, 1, 1], &[1, 3, 5]],
        [&[2, 3, 5], &[1]],
    ];
    for [scale, b] in pairs {
        broadcast::<f32>(-1, scale, b);
        broadcast::<f32>(-2, scale, b);
    }
    broadcast::<f16>(-1, &[2, 1, 5], &[2, 1, 1]);
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
    let kept = op.operation::<f16>(&[2, 3], &[3], None, true);
    assert_eq!(size(&kept, Tensor::Variance), Some(8));
    assert_eq!(size(&kept, Tensor::Beta), None);
    let bare = op.operation::<f16>(&[2, 3], &[3], None, false);
    assert_eq!(size(&bare, Tensor::Variance), None);
    let op = RmsNormalization::default();
    let operation = op.operation::<f16, f32>(&[2, 3], &[3]);
    assert_eq!(size(&operation, Tensor::Gamma), Some(12));
    assert_eq!(size(&operation, Tensor::MeanSquare), None);
    let types = DTypes::from(DType::F16); // statistics in the type of sums
    let (groups, format) = (3, DataFormat::Ncx);
    let (norm, pass) = (Norm::group(groups, format), Forward::default());
    let mut want = Operation::new(norm, pass, &[2, 6, 4], types).with_epsilon(1e-5_f32.into());
    let op = GroupNormalization::new(3);
    same(op.operation::<f16>(&[2, 6, 4]), want.clone());
    want.norm = Norm::instance(format);
    let op = InstanceNormalization::default();
    same(op.operation::<f16>(&[2, 6, 4]), want);
}

/// Parameters along exactly the normalized axes make layer or RMS norm, others axes norm.
#[test]
fn shapes_choose_the_norm() {
    let of_rows: [[&[usize]; 2]; 5] = [
        [&[2, 3, 4], &[4]],
        [&[2, 3, 4], &[1, 1, 4]],
        [&[1, 3, 4], &[1, 1, 4]],
        [&[2, 3, 1], &[]],
        [&[2, 3, 0], &[0]],
    ];
    for [shape, own] in of_rows {
        let norm = Norm::layer(-1);
        let pass = Forward::default().without_statistics();
        let want = Operation::new(norm, pass, shape, DType::F32).with_epsilon(1e-5_f32.into());
        let op = LayerNormalization::default();
        same(op.operation::<f32>(shape, own, Some(own), false), want);
        let norm = Norm::rms(-1);
        let want = Operation::new(norm, pass, shape, DType::F32).with_epsilon(1e-5_f32.into());
        let op = RmsNormalization::default();
        same(op.operation::<f32, f32>(shape, own), want);
    }
    let others: [(&[usize], &[usize], &[i64]); 5] = [
        (&[2, 3, 4], &[], &[]),
        (&[2, 3, 4], &[2, 1, 4], &[0, 2]),
        (&[2, 3, 4], &[3, 4], &[1, 2]),
        (&[1, 3, 4], &[1, 3, 1], &[1]),
        (&[0, 3, 4], &[0, 1, 4], &[0, 2]),
    ];
    for (shape, own, param_axes) in others {
        let norm = |centered| Norm::axes(&[2], param_axes).centered(centered);
        let operation = |centered| {
            let pass = Forward::default();
            let operation = Operation::new(norm(centered), pass, shape, DType::F32);
            let operation = operation.with_params(true, false);
            operation.with_epsilon(1e-5_f32.into())
        };
        let op = LayerNormalization::default();
        same(
            op.operation::<f32>(shape, own, None, false),
            operation(true),
        );
        let op = RmsNormalization::default();
        same(op.operation::<f32, f32>(shape, own), operation(false));
    }
}

#[test]
fn a_scale_or_b_that_does_not_broadcast_is_named() {
    let op = LayerNormalization::default();
    let rms = RmsNormalization::default();
    for (shape, own, message) in [
        (
            &[2, 3, 4][..],
            &[3][..],
            "gamma: expected size 1 or 4 along axis 2, got 3",
        ),
        (
            &[2, 3, 4],
            &[3, 1, 4],
            "gamma: expected size 1 or 2 along axis 0, got 3",
        ),
        (
            &[3, 4],
            &[1, 3, 4],
            "gamma: expected a rank from 0 to 2, got rank 3",
        ),
        (&[], &[4], "src: expected a rank from 1 to 8, got rank 0"),
        (&[1; 9], &[], "src: expected a rank from 1 to 8, got rank 9"),
    ] {
        let error = op.operation::<f32>(shape, own, None, true).unwrap_err();
        assert_eq!(error.to_string(), message);
        let error = rms.operation::<f32, f32>(shape, own).unwrap_err();
        assert_eq!(error.to_string(), message);
    }
    let with_b = |b: &[usize]| op.operation::<f32>(&[2, 3], &[3], Some(b), true);
    assert!(with_b(&[1, 3]).is_ok());
    for (b, message) in [
        (&[2][..], "beta: expected size 1 or 3 along axis 1, got 2"),
        (&[1; 3], "beta: expected a rank from 0 to 2, got rank 3"),
        (
            &[2, 1],
            "beta: expected gamma's sizes, [1, 3] (only forward, on host memory, takes different ones), got [2, 1]",
        ),
    ] {
        assert_eq!(with_b(b).unwrap_err().to_string(), message);
    }

    let gpu = &subjects()[0].gpu;
    let inputs = LayerNormalizationInputs {
        shape: &[2, 3],
        x: &[1.0_f32; 6],
        scale: of(&[2, 1], &[1.0; 2]),
        b: Some(of(&[3], &[1.0; 2])),
    };
    is_length(block_on(op.forward(gpu, inputs)), "beta", 3, 2);
    let long = LayerNormalizationInputs {
        scale: of(&[2, 1], &[1.0; 3]),
        ..inputs
    };
    is_length(block_on(op.forward(gpu, long)), "gamma", 2, 3);
    let inputs = RmsNormalizationInputs {
        shape: &[2, 3],
        x: &[1.0_f32; 6],
        scale: of(&[2, 1], &[1.0_f32; 3]),
    };
    is_length(block_on(rms.forward(gpu, inputs)), "gamma", 2, 3);
    let empty = LayerNormalizationInputs {
        shape: &[0, 3],
        x: &[] as &[f32],
        scale: of(&[0, 1], &[]),
        b: Some(of(&[3], &[1.0; 3])),
    };
    assert!(block_on(op.forward(gpu, empty)).unwrap().y.is_empty());
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
        scale: of(&[3], &[1.0; 3]),
        b: Some(of(&[3], &[1.0; 2])),
    };
    let op = LayerNormalization::default();
    is_length(block_on(op.forward(gpu, inputs)), "beta", 3, 2);
    let op = RmsNormalization {
        axis: -3,
        ..Default::default()
    };
    for scale_shape in [&[3][..], &[2, 1]] {
        let operation = op.operation::<f32, f32>(&[2, 3], scale_shape);
        let parts = ["an axis from -2 to 1", "got -3"];
        is_argument(operation, "begin_norm_axis", &parts);
    }
}

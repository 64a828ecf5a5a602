//! oneDNN Graph's operators.

use super::*;
use wgpu_norm::operators::onednn::*;

#[test]
fn defaults_are_the_documents() {
    let training = BatchNormForwardTraining::new(0.5);
    assert_eq!((training.epsilon, training.momentum), (0.5, None));
    assert_eq!(training.data_format, DataFormat::Nxc);
    assert_eq!(BatchNormInference::new(0.5).data_format, DataFormat::Nxc);
    let layer_norm = LayerNorm::default();
    assert!(layer_norm.keep_stats && layer_norm.use_affine);
    assert_eq!((layer_norm.begin_norm_axis, layer_norm.epsilon), (-1, 1e-5));
}

fn check<T: Element, P: ParamOf<T>>() {
    for (shape, channels, data_format) in [
        ([3, 5, 4], 4, DataFormat::Nxc),
        ([3, 5, 4], 5, DataFormat::Ncx),
    ] {
        let norm = Norm::batch(data_format);
        let layer = Layer::<T, P>::random(&shape, channels, 1);
        for (affine, momentum) in [(true, Some(0.75)), (false, None)] {
            let op = BatchNormForwardTraining {
                momentum,
                data_format,
                ..BatchNormForwardTraining::new(EPSILON)
            };
            let weight = 1.0 - f64::from(momentum.unwrap_or(0.5));
            let pass = training(weight, RunningVariance::Biased);
            let want = layer.compute(norm.clone(), pass, (affine, affine), &[]);
            for subject in taking::<T>() {
                let what = format!("{} {data_format} on {}", T::DTYPE, subject.name);
                let inputs = BatchNormForwardTrainingInputs {
                    shape: &shape,
                    src: &layer.src,
                    mean: &layer.mean,
                    variance: &layer.variance,
                    gamma: affine.then_some(&layer.gamma),
                    beta: affine.then_some(&layer.beta),
                };
                let got = block_on(op.forward(&subject.gpu, inputs)).unwrap();
                close(&got.dst, &want, Tensor::Dst, &what);
                close(&got.batch_mean, &want, Tensor::Mean, &what);
                close(&got.batch_variance, &want, Tensor::Variance, &what);
                close(&got.running_mean, &want, Tensor::RunningMean, &what);
                let running = &got.running_variance;
                close(running, &want, Tensor::RunningVariance, &what);
            }
        }
        let op = BatchNormInference {
            data_format,
            ..BatchNormInference::new(EPSILON)
        };
        let want = layer.compute(norm, Pass::Inference, (true, true), &[]);
        for subject in taking::<T>() {
            let inputs = BatchNormInferenceInputs {
                shape: &shape,
                src: &layer.src,
                gamma: &layer.gamma,
                beta: &layer.beta,
                mean: &layer.mean,
                variance: &layer.variance,
            };
            let got = block_on(op.forward(&subject.gpu, inputs)).unwrap();
            close(&got, &want, Tensor::Dst, &subject.name);
        }
    }
    let layer = Layer::<T, P>::random(&[4, 3, 10], 30, 2);
    for (use_affine, keep_stats) in [(true, true), (false, false)] {
        let op = LayerNorm {
            keep_stats,
            begin_norm_axis: 1,
            use_affine,
            epsilon: EPSILON,
        };
        let norm = Norm::layer(1);
        let affine = (use_affine, use_affine);
        let want = layer.compute(norm, Forward::default(), affine, &[]);
        for subject in taking::<T>() {
            let what = &subject.name;
            let inputs = LayerNormInputs {
                shape: &layer.shape,
                src: &layer.src,
                gamma: use_affine.then_some(&layer.gamma),
                beta: use_affine.then_some(&layer.beta),
            };
            let got = block_on(op.forward(&subject.gpu, inputs)).unwrap();
            close(&got.dst, &want, Tensor::Dst, what);
            assert_eq!(got.mean.is_some(), keep_stats);
            assert_eq!(got.variance.is_some(), keep_stats);
            if let (Some(mean), Some(variance)) = (got.mean, got.variance) {
                close(&mean, &want, Tensor::Mean, what);
                close(&variance, &want, Tensor::Variance, what);
            }
        }
    }
}

#[test]
fn as_the_reference() {
    check::<f32, f32>();
    check::<bf16, f32>();
    check::<bf16, bf16>();
}

/// momentum is the old statistics' weight, and the variance is the biased one: by hand.
#[test]
fn momentum_weighs_what_was_there() {
    let inputs = BatchNormForwardTrainingInputs {
        shape: &[2, 1],
        src: &[1.0_f32, 3.0],
        mean: &[10.0_f32],
        variance: &[5.0],
        gamma: None,
        beta: None,
    };
    for (momentum, mean, variance) in [
        (Some(0.75), 8.0, 4.0),
        (None, 6.0, 3.0),
        (Some(1.0), 10.0, 5.0),
    ] {
        let op = BatchNormForwardTraining {
            momentum,
            ..BatchNormForwardTraining::new(1e-5)
        };
        for subject in subjects() {
            let got = block_on(op.forward(&subject.gpu, inputs)).unwrap();
            near(&got.running_mean, &[mean], &subject.name);
            near(&got.running_variance, &[variance], &subject.name);
            assert_eq!((got.batch_mean[0], got.batch_variance[0]), (2.0, 1.0));
        }
    }
}

#[test]
fn operations_are_those_made_by_hand() {
    let types = DTypes::from((DType::Bf16, DType::F32)).with_statistics(DType::F32);
    let norm = || Norm::batch(DataFormat::Nxc);
    let pass = training(0.5, RunningVariance::Biased);
    let want = Operation::new(norm(), pass, &[7, 6], types);
    let want = want.with_epsilon(EPSILON.into());
    let op = BatchNormForwardTraining::new(EPSILON);
    same(op.operation::<bf16, f32>(&[7, 6], true), want.clone());
    let bare = op.operation::<bf16, f32>(&[7, 6], false);
    let size_of = |tensor| size(&bare, tensor);
    assert_eq!(
        (size_of(Tensor::Gamma), size_of(Tensor::Beta)),
        (None, None)
    );
    assert_eq!(size_of(Tensor::RunningMean), Some(24));
    same(bare, want.with_params(false, false));
    let want = Operation::new(norm(), Pass::Inference, &[7, 6], types);
    let op = BatchNormInference::new(EPSILON);
    let want = want.with_epsilon(EPSILON.into());
    same(op.operation::<bf16, f32>(&[7, 6]), want);
    let norm = Norm::layer(-1);
    let want = Operation::new(norm, Forward::default(), &[7, 6], types);
    // 1e-5 in f32 differs from 1e-5 in f64.
    let want = want.with_epsilon(1e-5_f32.into());
    same(LayerNorm::default().operation::<bf16, f32>(&[7, 6]), want);
    // 16-bit statistics, like the parameters.
    let op = BatchNormInference::new(EPSILON);
    let types = op.operation::<bf16, bf16>(&[7, 6]).unwrap().types;
    assert_eq!(types.statistics, DType::Bf16);
}

#[test]
fn bad_arguments_are_named() {
    let gpu = &subjects()[0].gpu;
    let inputs = BatchNormForwardTrainingInputs {
        shape: &[2, 2],
        src: &[1.0_f32; 4],
        mean: &[0.0_f32; 2],
        variance: &[1.0; 2],
        gamma: Some(&[1.0; 2]),
        beta: Some(&[1.0; 2]),
    };
    let op = BatchNormForwardTraining::new(1e-5);
    let run = |op: BatchNormForwardTraining, inputs| block_on(op.forward(gpu, inputs));
    let no_beta = BatchNormForwardTrainingInputs {
        beta: None,
        ..inputs
    };
    let parts = ["expected a tensor", "gamma is given", "got none"];
    is_argument(run(op, no_beta), "beta", &parts);
    let no_gamma = BatchNormForwardTrainingInputs {
        gamma: None,
        ..inputs
    };
    is_argument(run(op, no_gamma), "gamma", &["beta is given", "got none"]);
    let short = BatchNormForwardTrainingInputs {
        mean: &[0.0; 1],
        ..inputs
    };
    is_length(run(op, short), "running_mean", 2, 1);
    let long = BatchNormForwardTrainingInputs {
        variance: &[0.0; 3],
        ..inputs
    };
    is_length(run(op, long), "running_variance", 2, 3);
    for momentum in [0.0, -1.0, 1.5, f32::NAN, f32::INFINITY] {
        let op = BatchNormForwardTraining {
            momentum: Some(momentum),
            ..op
        };
        is_argument(run(op, inputs), "momentum", &[&format!("got {momentum}")]);
        is_argument(op.operation::<f32, f32>(&[2, 2], true), "momentum", &[]);
    }
    assert!(run(op, inputs).is_ok());

    let inputs = BatchNormInferenceInputs {
        shape: &[2, 2],
        src: &[1.0_f32; 4],
        gamma: &[1.0_f32; 2],
        beta: &[1.0; 3],
        mean: &[1.0; 2],
        variance: &[1.0; 2],
    };
    let infer = |inputs| block_on(BatchNormInference::new(1e-5).forward(gpu, inputs));
    is_length(infer(inputs), "beta", 2, 3);

    let affine = LayerNormInputs {
        shape: &[2, 2],
        src: &[1.0_f32; 4],
        gamma: Some(&[1.0_f32; 2]),
        beta: None,
    };
    let op = LayerNorm::default();
    let parts = ["expected a tensor, as use_affine is true", "got none"];
    is_argument(block_on(op.forward(gpu, affine)), "beta", &parts);
    let plain = LayerNorm {
        use_affine: false,
        ..op
    };
    let parts = ["expected none, as use_affine is false", "got a tensor"];
    is_argument(block_on(plain.forward(gpu, affine)), "gamma", &parts);
    let axis = LayerNorm {
        begin_norm_axis: 2,
        ..op
    };
    is_argument(axis.operation::<f32, f32>(&[2, 2]), "begin_norm_axis", &[]);
}

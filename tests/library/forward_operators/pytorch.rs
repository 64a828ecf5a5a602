//! PyTorch's operators.

use super::*;
use wgpu_norm::operators::pytorch::*;

fn batch_norm_op(training: bool, momentum: Option<f64>) -> NativeBatchNorm {
    NativeBatchNorm {
        training,
        momentum,
        num_batches_tracked: Some(4),
        eps: EPSILON.into(),
    }
}

/// The running statistics have the accumulator's type, not the parameters'.
fn old_statistics<T: Element>(channels: usize) -> [Vec<T::Sum>; 2] {
    let mut random = Random::new(8);
    [
        random.vec(channels, 1.0, 3.0),
        random.vec(channels, 0.5, 1.0),
    ]
}

/// Input and parameters of a layer, and running statistics.
fn inputs<'a, T: Element, P: ParamOf<T>>(
    layer: &'a Layer<T, P>,
    affine: bool,
    [mean, variance]: &'a mut [Vec<T::Sum>; 2],
) -> NativeBatchNormInputs<'a, T, P> {
    NativeBatchNormInputs {
        shape: &layer.shape,
        input: &layer.src,
        weight: affine.then_some(&layer.gamma),
        bias: affine.then_some(&layer.beta),
        running_mean: Some(mean),
        running_var: Some(variance),
    }
}

/// Asserts that the gradients that are returned are within their tolerance.
fn close_grads<T: Element, P: Element>(
    got: &GradOutputs<T, P>,
    want: &[Computed],
    given: [bool; 3],
    what: &str,
) {
    assert_eq!(
        [
            got.grad_input.is_some(),
            got.grad_weight.is_some(),
            got.grad_bias.is_some()
        ],
        given,
        "{what}"
    );
    if let Some(grad_input) = &got.grad_input {
        close(grad_input, want, Tensor::DiffSrc, what);
    }
    if let Some(grad_weight) = &got.grad_weight {
        close(grad_weight, want, Tensor::DiffGamma, what);
    }
    if let Some(grad_bias) = &got.grad_bias {
        close(grad_bias, want, Tensor::DiffBeta, what);
    }
}

/// The variances that belong to 1/√(variance + epsilon).
fn variances<S: Element>(inverse_deviations: &[S]) -> Vec<f64> {
    let r = to_f64(inverse_deviations).into_iter();
    r.map(|r| 1.0 / (r * r) - f64::from(EPSILON)).collect()
}

fn batch_norm<T: Element, P: ParamOf<T>>() {
    let layer = Layer::<T, P>::random(&[3, 5, 7], 5, 7);
    let old = old_statistics::<T>(5);
    let [old_mean, old_variance] = old.each_ref().map(|old| to_f64(old));
    for (affine, momentum) in [(true, Some(0.1)), (false, None)] {
        // None is the cumulative average, of four batches here.
        let weight = momentum.unwrap_or(0.25);
        let want = |pass: Pass| {
            let others = [
                (Tensor::Mean, &*old_mean),
                (Tensor::Variance, &old_variance),
                (Tensor::RunningMean, &old_mean),
                (Tensor::RunningVariance, &old_variance),
            ];
            let norm = Norm::batch(DataFormat::Ncx);
            layer.compute(norm, pass, (affine, affine), &others)
        };
        let batch = want(training(weight, RunningVariance::Unbiased).into());
        let inferred = want(Pass::Inference);
        for subject in taking::<T>() {
            let what = format!("{}-{} on {}", T::DTYPE, P::DTYPE, subject.name);
            let mut running = old.clone();
            let op = batch_norm_op(true, momentum);
            let given = inputs(&layer, affine, &mut running);
            let got = block_on(op.forward(&subject.gpu, given)).unwrap();
            close(&got.output, &batch, Tensor::Dst, &what);
            close(&got.save_mean, &batch, Tensor::Mean, &what);
            close_inverse(&got.save_invstd, &batch, &what);
            close(&running[0], &batch, Tensor::RunningMean, &what);
            close(&running[1], &batch, Tensor::RunningVariance, &what);

            let mut running = old.clone();
            let op = batch_norm_op(false, momentum);
            let given = inputs(&layer, affine, &mut running);
            let got = block_on(op.forward(&subject.gpu, given)).unwrap();
            close(&got.output, &inferred, Tensor::Dst, &what);
            assert!(got.save_mean.is_empty() && got.save_invstd.is_empty());
            assert!(running == old, "{what}");
        }
    }
}

fn batch_norm_backward<T: Element, P: ParamOf<T>>() {
    let layer = Layer::<T, P>::random(&[3, 5, 7], 5, 9);
    let grad_out: Vec<T> = Random::new(10).vec(105, 1.0, 0.1);
    let [running_mean, running_var] = old_statistics::<T>(5);
    for train in [true, false] {
        for subject in taking::<T>() {
            let what = format!("train {train}, {} on {}", T::DTYPE, subject.name);
            let inputs = NativeBatchNormInputs {
                shape: &layer.shape,
                input: &layer.src,
                weight: Some(&layer.gamma),
                bias: None,
                running_mean: None,
                running_var: None,
            };
            let forward = batch_norm_op(true, Some(0.1));
            let forward = block_on(forward.forward(&subject.gpu, inputs)).unwrap();
            let (mean, variance, through) = match train {
                true => (
                    to_f64(&forward.save_mean),
                    variances(&forward.save_invstd),
                    Through::Batch,
                ),
                false => (
                    to_f64(&running_mean),
                    to_f64(&running_var),
                    Through::Constant,
                ),
            };
            let others = [
                (Tensor::DiffDst, &*to_f64(&grad_out)),
                (Tensor::Mean, &mean),
                (Tensor::Variance, &variance),
            ];
            let pass = Backward::default().with_through(through);
            let norm = Norm::batch(DataFormat::Ncx);
            let want = layer.compute(norm, pass, (true, false), &others);
            let inputs = NativeBatchNormBackwardInputs {
                shape: &layer.shape,
                grad_out: &grad_out,
                input: &layer.src,
                weight: Some(&layer.gamma),
                running_mean: (!train).then_some(&running_mean),
                running_var: (!train).then_some(&running_var),
                save_mean: train.then_some(&forward.save_mean),
                save_invstd: train.then_some(&forward.save_invstd),
            };
            // Leaving a gradient out changes nothing else: weight scales grad_input even without its own gradient.
            for output_mask in [
                [true; 3],
                [true, false, false],
                [false, true, false],
                [true, false, true],
            ] {
                let op = NativeBatchNormBackward {
                    train,
                    eps: EPSILON.into(),
                    output_mask,
                };
                let got = block_on(op.backward(&subject.gpu, inputs)).unwrap();
                close_grads(&got, &want, output_mask, &what);
            }
        }
    }
}

fn layer_norm<T: Element, P: ParamOf<T>>() {
    let layer = Layer::<T, P>::random(&[4, 3, 10], 30, 11);
    let norm = Norm::layer(1);
    let grad_out: Vec<T> = Random::new(12).vec(120, 1.0, 0.1);
    let ones = vec![1.0; 30];
    for (weight, bias) in [(true, true), (true, false), (false, true), (false, false)] {
        // A bias alone is used with a weight of 1s.
        let ones = match weight {
            true => vec![],
            false => vec![(Tensor::Gamma, &*ones)],
        };
        let params = (weight || bias, bias);
        let want = layer.compute(norm.clone(), Forward::default(), params, &ones);
        for subject in taking::<T>() {
            let what = format!(
                "weight {weight}, bias {bias}, {}-{} on {}",
                T::DTYPE,
                P::DTYPE,
                subject.name
            );
            let inputs = NativeLayerNormInputs {
                shape: &layer.shape,
                input: &layer.src,
                normalized_shape: &[3, 10],
                weight: weight.then_some(&layer.gamma),
                bias: bias.then_some(&layer.beta),
            };
            let op = NativeLayerNorm {
                eps: EPSILON.into(),
            };
            let got = block_on(op.forward(&subject.gpu, inputs)).unwrap();
            close(&got.output, &want, Tensor::Dst, &what);
            close(&got.mean, &want, Tensor::Mean, &what);
            close_inverse(&got.rstd, &want, &what);

            let others = [
                (Tensor::DiffDst, &*to_f64(&grad_out)),
                (Tensor::Mean, &to_f64(&got.mean)),
                (Tensor::Variance, &variances(&got.rstd)),
            ];
            let others = [&others, &ones[..]].concat();
            let pass = Backward::default();
            let reference = layer.compute(norm.clone(), pass, (params.0, false), &others);
            let inputs = NativeLayerNormBackwardInputs {
                shape: &layer.shape,
                grad_out: &grad_out,
                input: &layer.src,
                normalized_shape: &[3, 10],
                mean: &got.mean,
                rstd: &got.rstd,
                weight: inputs.weight,
                bias: inputs.bias,
            };
            for output_mask in [[true; 3], [true, false, false], [false, true, true]] {
                let op = NativeLayerNormBackward { output_mask };
                let got = block_on(op.backward(&subject.gpu, inputs)).unwrap();
                let [input, of_weight, of_bias] = output_mask;
                let given = [input, of_weight && weight, of_bias && bias];
                close_grads(&got, &reference, given, &what);
            }
        }
    }
}

fn rms_norm<T: Element, P: ParamOf<T>>() {
    let layer = Layer::<T, P>::random(&[4, 3, 10], 10, 13);
    for weight in [true, false] {
        let norm = Norm::rms(2);
        let want = layer.compute(norm, Forward::default(), (weight, false), &[]);
        for subject in taking::<T>() {
            let inputs = RmsNormInputs {
                shape: &layer.shape,
                input: &layer.src,
                normalized_shape: &[10],
                weight: weight.then_some(&layer.gamma),
            };
            let op = RmsNorm {
                eps: EPSILON.into(),
            };
            let got = block_on(op.forward(&subject.gpu, inputs)).unwrap();
            close(&got, &want, Tensor::Dst, &subject.name);
        }
    }
}

#[test]
fn batch_norm_is_as_the_reference() {
    batch_norm::<f32, f32>();
    batch_norm::<f16, f16>();
    batch_norm::<bf16, f32>();
}

#[test]
fn batch_norm_backward_is_as_the_reference() {
    batch_norm_backward::<f32, f32>();
    batch_norm_backward::<f16, f16>();
    batch_norm_backward::<f64, f64>();
}

#[test]
fn layer_norm_is_as_the_reference() {
    layer_norm::<f32, f32>();
    layer_norm::<f16, f16>();
    layer_norm::<bf16, f32>();
}

#[test]
fn rms_norm_is_as_the_reference() {
    rms_norm::<f32, f32>();
    rms_norm::<bf16, bf16>();
}

/// momentum is the batch's weight, and the running variance is the unbiased one: by hand.
#[test]
fn momentum_weighs_the_batch() {
    for (momentum, batches, mean, variance) in [
        (Some(0.25), None, 8.0, 4.25),
        (None, Some(2), 6.0, 3.5),
        (None, Some(1), 2.0, 2.0),
        (Some(0.0), None, 10.0, 5.0),
    ] {
        for subject in subjects() {
            let (mut running_mean, mut running_var) = ([10.0], [5.0]);
            let inputs = NativeBatchNormInputs {
                shape: &[2, 1],
                input: &[1.0_f32, 3.0],
                weight: None::<&[f32]>,
                bias: None,
                running_mean: Some(&mut running_mean),
                running_var: Some(&mut running_var),
            };
            let op = NativeBatchNorm {
                momentum,
                num_batches_tracked: batches,
                ..NativeBatchNorm::default()
            };
            let got = block_on(op.forward(&subject.gpu, inputs)).unwrap();
            near(&running_mean, &[mean], &subject.name);
            near(&running_var, &[variance], &subject.name);
            near(&got.save_invstd, &[1.0 / 1.00001_f32.sqrt()], &subject.name);
        }
    }
}

/// A variance of 0 is recovered with rounding error, and the gradient is still correct.
#[test]
fn a_variance_that_is_tiny_beside_eps() {
    let src = [3.0_f32; 4];
    for subject in subjects() {
        let inputs = NativeBatchNormInputs {
            shape: &[4, 1],
            input: &src,
            weight: None::<&[f32]>,
            bias: None,
            running_mean: None,
            running_var: None,
        };
        let forward = NativeBatchNorm::default();
        let forward = block_on(forward.forward(&subject.gpu, inputs)).unwrap();
        let inputs = NativeBatchNormBackwardInputs {
            shape: &[4, 1],
            grad_out: &[1.0, 0.0, 0.0, 0.0],
            input: &src,
            weight: None::<&[f32]>,
            running_mean: None,
            running_var: None,
            save_mean: Some(&forward.save_mean),
            save_invstd: Some(&forward.save_invstd),
        };
        let op = NativeBatchNormBackward::default();
        let got = block_on(op.backward(&subject.gpu, inputs)).unwrap();
        let r = 1e-5_f32.sqrt().recip();
        let want = [0.75 * r, -0.25 * r, -0.25 * r, -0.25 * r];
        near(&got.grad_input.unwrap(), &want, &subject.name);
        let inputs = NativeLayerNormBackwardInputs {
            shape: &[1, 4],
            grad_out: &[1.0, 0.0, 0.0, 0.0],
            input: &src,
            normalized_shape: &[4],
            mean: &forward.save_mean,
            rstd: &forward.save_invstd,
            weight: None::<&[f32]>,
            bias: None,
        };
        let op = NativeLayerNormBackward::default();
        let got = block_on(op.backward(&subject.gpu, inputs)).unwrap();
        near(&got.grad_input.unwrap(), &want, &subject.name);
    }
}

#[test]
fn operations_are_those_made_by_hand() {
    let types = DTypes::from((DType::F16, DType::F16)).with_statistics(DType::F32);
    let shape = [2, 3, 4];
    let made = |norm: Norm, pass: Pass, gamma, beta| {
        let operation = Operation::new(norm, pass, &shape, types).with_params(gamma, beta);
        operation.with_epsilon(EPSILON.into())
    };
    let batch_norm = || Norm::batch(DataFormat::Ncx);
    let pass = training(0.25, RunningVariance::Unbiased);
    let want = made(batch_norm(), pass.into(), true, false);
    let op = batch_norm_op(true, None);
    same(op.operation::<f16, f16>(&shape, true, false, true), want);
    let want = made(batch_norm(), Pass::Inference, false, true);
    let op = batch_norm_op(false, None);
    same(op.operation::<f16, f16>(&shape, false, true, true), want);
    let none = op.operation::<f16, f16>(&shape, false, true, false);
    is_argument(none, "running_mean", &["without training", "got none"]);
    let want = made(batch_norm(), Backward::default().into(), true, false);
    let op = NativeBatchNormBackward {
        eps: EPSILON.into(),
        ..Default::default()
    };
    same(op.operation::<f16, f16>(&shape, true), want);

    let layer_norm = || Norm::layer(1);
    let forward = Forward::default();
    let want = made(layer_norm(), forward.into(), true, true);
    let op = NativeLayerNorm {
        eps: EPSILON.into(),
    };
    let of = |weight, bias| op.operation::<f16, f16>(&shape, &[3, 4], weight, bias);
    same(of(true, true), want);
    same(
        of(false, true),
        made(layer_norm(), forward.into(), false, true),
    );
    assert_eq!(size(&of(false, false), Tensor::Gamma), None);
    let want = made(layer_norm(), Backward::default().into(), true, false);
    let op = NativeLayerNormBackward::default();
    same(
        op.operation::<f16, f16>(&shape, &[3, 4], true, EPSILON.into()),
        want,
    );
    let op = RmsNorm { eps: 1e-5 };
    let operation = op.operation::<f16, f32>(&shape, &[4], true, true);
    assert_eq!(size(&operation, Tensor::Gamma), Some(16));
    assert_eq!(size(&operation, Tensor::MeanSquare), Some(24));

    let (groups, format) = (3, DataFormat::Ncx);
    let group_norm = || Norm::group(groups, format);
    let want = made(group_norm(), forward.into(), false, true);
    let op = NativeGroupNorm {
        group: 3,
        eps: EPSILON.into(),
    };
    same(op.operation::<f16, f16>(shape, false, true), want);
    let frozen = Backward::default().with_param_grads(false);
    let want = made(group_norm(), frozen.into(), true, false);
    let op = NativeGroupNormBackward {
        group: 3,
        output_mask: [true, false, false],
    };
    same(op.operation::<f16, f16>(shape, true, EPSILON.into()), want);
}

#[test]
fn bad_arguments_are_named() {
    let gpu = &subjects()[0].gpu;
    let run = |op: NativeBatchNorm, shape: &[usize], mean: usize, variance: usize| {
        let (mut mean, mut variance) = (vec![0.0; mean], vec![1.0; variance]);
        let inputs = NativeBatchNormInputs {
            shape,
            input: &vec![1.0_f32; shape.iter().product()],
            weight: Some(&[1.0_f32; 2]),
            bias: None,
            running_mean: (!mean.is_empty()).then_some(&mut mean),
            running_var: (!variance.is_empty()).then_some(&mut variance),
        };
        block_on(op.forward(gpu, inputs))
    };
    let op = NativeBatchNorm::default();
    assert!(run(op, &[3, 2], 2, 2).is_ok() && run(op, &[3, 2], 0, 0).is_ok());
    is_length(run(op, &[3, 2], 3, 2), "running_mean", 2, 3);
    is_length(run(op, &[3, 2], 2, 1), "running_variance", 2, 1);
    is_length(run(op, &[2, 3], 3, 3), "gamma", 3, 2);
    is_argument(
        run(op, &[3, 2], 0, 2),
        "running_mean",
        &["as running_var is given", "got none"],
    );
    is_argument(run(op, &[3, 2], 2, 0), "running_var", &["got none"]);
    let infer = NativeBatchNorm {
        training: false,
        ..op
    };
    is_argument(
        run(infer, &[3, 2], 0, 0),
        "running_mean",
        &["without training"],
    );
    // One element in a channel has no unbiased variance, but that is no error unless one is requested.
    let parts = ["two elements", "unbiased", "got channels of one"];
    is_argument(run(op, &[1, 2], 2, 2), "running variance", &parts);
    assert!(run(op, &[1, 2], 0, 0).is_ok() && run(infer, &[1, 2], 2, 2).is_ok());
    for (momentum, batches) in [(None, None), (None, Some(0))] {
        let op = NativeBatchNorm {
            momentum,
            num_batches_tracked: batches,
            ..op
        };
        is_argument(run(op, &[3, 2], 2, 2), "num_batches_tracked", &[]);
        assert!(run(op, &[3, 2], 0, 0).is_ok());
    }
    let op = NativeBatchNorm {
        momentum: Some(-0.1),
        ..op
    };
    is_argument(run(op, &[3, 2], 2, 2), "momentum", &["got -0.1"]);

    let inputs = NativeBatchNormBackwardInputs {
        shape: &[3, 2],
        grad_out: &[1.0_f32; 6],
        input: &[1.0; 6],
        weight: None::<&[f32]>,
        running_mean: None,
        running_var: None,
        save_mean: Some(&[0.0; 2]),
        save_invstd: Some(&[1.0, f32::INFINITY]),
    };
    let op = NativeBatchNormBackward::default();
    let error = block_on(op.backward(gpu, inputs)).unwrap_err();
    assert!(
        matches!(error, Error::Variance { channel: 1, .. }),
        "{error}"
    );
    let none = NativeBatchNormBackwardInputs {
        save_invstd: None,
        ..inputs
    };
    let parts = ["with train", "got none"];
    is_argument(block_on(op.backward(gpu, none)), "save_invstd", &parts);
    let constant = NativeBatchNormBackward { train: false, ..op };
    let result = block_on(constant.backward(gpu, inputs));
    is_argument(result, "running_mean", &["without train"]);

    let inputs = NativeLayerNormInputs {
        shape: &[2, 3],
        input: &[1.0_f32; 6],
        normalized_shape: &[2],
        weight: None,
        bias: Some(&[1.0_f32; 2]),
    };
    let forward = |inputs| block_on(NativeLayerNorm { eps: 1e-5 }.forward(gpu, inputs));
    let parts = ["last sizes of [2, 3]", "got [2]"];
    is_argument(forward(inputs), "normalized_shape", &parts);
    let inputs = NativeLayerNormInputs {
        normalized_shape: &[3],
        ..inputs
    };
    is_length(forward(inputs), "beta", 3, 2);
    let op = RmsNorm { eps: 1e-5 };
    for normalized_shape in [&[][..], &[1, 2, 3], &[3, 2]] {
        let operation = op.operation::<f32, f32>(&[2, 3], normalized_shape, false, false);
        is_argument(operation, "normalized_shape", &[]);
    }
}

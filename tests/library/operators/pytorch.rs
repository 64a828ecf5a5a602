//! PyTorch's operators.

use super::*;
use wgpu_norm::operators::pytorch::*;

const INPUT: (&str, Tensor) = ("input", Tensor::Src);
const WEIGHT: (&str, Tensor) = ("weight", Tensor::Gamma);
const BIAS: (&str, Tensor) = ("bias", Tensor::Beta);
const GRAD_OUT: (&str, Tensor) = ("grad_out", Tensor::DiffDst);
const GRADS: [(&str, Tensor); 3] = [
    ("grad_input", Tensor::DiffSrc),
    ("grad_weight", Tensor::DiffGamma),
    ("grad_bias", Tensor::DiffBeta),
];
/// Output masks. weight scales grad_input even without its own gradient.
const MASKS: [[bool; 3]; 4] = [
    [true; 3],
    [true, false, false],
    [false, true, false],
    [true, false, true],
];

/// The gradients that a mask selects, and the pass that computes them.
fn masked(mask: [bool; 3]) -> (Vec<(&'static str, Tensor)>, Backward) {
    let selected = GRADS
        .into_iter()
        .zip(mask)
        .filter(|(_, selected)| *selected);
    let names = selected.map(|(name, _)| name).collect();
    (
        names,
        Backward::default().with_param_grads(mask[1] || mask[2]),
    )
}

#[test]
fn batch_norm_is_as_the_reference() {
    for types in of_sums() {
        let by_hand = |pass: Pass| by_hand(Norm::batch(DataFormat::Ncx), pass, &[3, 5, 7], types);
        for (momentum, num_batches_tracked, weight) in
            [(Some(0.1), None, 0.1), (None, Some(4), 0.25)]
        {
            let op = NativeBatchNorm {
                training: true,
                momentum,
                num_batches_tracked,
                eps: EPSILON.into(),
            };
            let [mean, variance] = ["running_mean", "running_var"];
            let running = [
                (mean, Tensor::RunningMean),
                (variance, Tensor::RunningVariance),
            ];
            let saved = [
                ("save_mean", Tensor::Mean),
                ("save_invstd", Tensor::Variance),
            ];
            let pass = training(weight, RunningVariance::Unbiased);
            let outputs = [
                ("output", Tensor::Dst),
                saved[0],
                saved[1],
                running[0],
                running[1],
            ];
            let inputs = [INPUT, WEIGHT, BIAS, running[0], running[1]];
            check(&op, &by_hand(pass.into()), &inputs, &outputs);
            let plain = by_hand(Forward::default().into());
            check(&op, &plain, &inputs[..3], &outputs[..3]);
            let without_bias = plain.with_params(true, false);
            check(&op, &without_bias, &inputs[..2], &outputs[..3]);
            let op = NativeBatchNorm {
                training: false,
                ..op
            };
            let inputs = [
                INPUT,
                WEIGHT,
                BIAS,
                (mean, Tensor::Mean),
                (variance, Tensor::Variance),
            ];
            check(&op, &by_hand(Pass::Inference), &inputs, &outputs[..1]);
        }
        for output_mask in MASKS {
            let (outputs, pass) = masked(output_mask);
            let op = NativeBatchNormBackward {
                train: true,
                eps: EPSILON.into(),
                output_mask,
            };
            let saved = [
                ("save_mean", Tensor::Mean),
                ("save_invstd", Tensor::Variance),
            ];
            let inputs = [GRAD_OUT, INPUT, WEIGHT, saved[0], saved[1]];
            let gradient = by_hand(pass.into()).with_params(true, false);
            check(&op, &gradient, &inputs, &outputs);
            let op = NativeBatchNormBackward { train: false, ..op };
            let running = [
                ("running_mean", Tensor::Mean),
                ("running_var", Tensor::Variance),
            ];
            let inputs = [GRAD_OUT, INPUT, WEIGHT, running[0], running[1]];
            let gradient = by_hand(pass.with_through(Through::Constant).into());
            check(&op, &gradient.with_params(true, false), &inputs, &outputs);
        }
    }
}

#[test]
fn rows_and_groups_are_as_the_reference() {
    let (mean, rstd) = (("mean", Tensor::Mean), ("rstd", Tensor::Variance));
    let outputs = [("output", Tensor::Dst), mean, rstd];
    for types in of_sums() {
        for (weight, bias) in [(true, true), (true, false), (false, true), (false, false)] {
            if !(weight || bias) && types.params != types.data {
                continue; // Without parameters these have the data's type.
            }
            let given = |names: &[(&'static str, Tensor)]| {
                let more = [(weight, WEIGHT), (bias, BIAS)].into_iter();
                let more = more.filter(|(is, _)| *is).map(|(_, name)| name);
                names.iter().copied().chain(more).collect::<Vec<_>>()
            };
            let eps = EPSILON.into();
            let layer = |pass: Pass| {
                by_hand(Norm::layer(1), pass, &[4, 3, 10], types).with_params(weight, bias)
            };
            let group = |pass: Pass, bias| {
                let norm = Norm::group(3, DataFormat::Ncx);
                by_hand(norm, pass, &[2, 6, 5], types).with_params(weight, bias)
            };
            let pass = || Pass::from(Forward::default());
            let op = NativeLayerNorm {
                eps,
                ..NativeLayerNorm::new(vec![3, 10])
            };
            check(&op, &layer(pass()), &given(&[INPUT]), &outputs);
            let op = NativeGroupNorm {
                eps,
                ..NativeGroupNorm::new(3)
            };
            check(&op, &group(pass(), bias), &given(&[INPUT]), &outputs);
            for output_mask in MASKS {
                let (grads, pass) = masked(output_mask);
                let op = NativeLayerNormBackward {
                    output_mask,
                    eps: Some(eps),
                    ..NativeLayerNormBackward::new(vec![3, 10])
                };
                let gradient = layer(pass.into());
                let any = if weight || bias { 3 } else { 1 };
                let returned = grads
                    .iter()
                    .copied()
                    .filter(|name| GRADS[..any].contains(name));
                let inputs = given(&[GRAD_OUT, INPUT, mean, rstd]);
                check(&op, &gradient, &inputs, &returned.collect::<Vec<_>>());
                let op = NativeGroupNormBackward {
                    output_mask,
                    eps: Some(eps),
                    ..NativeGroupNormBackward::new(3)
                };
                if !bias {
                    let gradient = group(pass.into(), false);
                    check(&op, &gradient, &inputs, &grads);
                }
            }
        }
        for weight in [true, false] {
            if !weight && types.params != types.data {
                continue;
            }
            let pass = Forward::default().without_statistics();
            let rms = by_hand(Norm::rms(2), pass, &[4, 3, 10], types).with_params(weight, false);
            let op = RmsNorm::new(vec![10], EPSILON.into());
            let inputs = [INPUT, WEIGHT];
            check(
                &op,
                &rms,
                if weight { &inputs } else { &inputs[..1] },
                &outputs[..1],
            );
        }
    }
}

/// momentum is the batch's weight, and the running variance is the unbiased one: by hand.
#[test]
fn momentum_weighs_the_batch() {
    let inputs = Inputs::new()
        .with("input", &[2, 1], &[1.0_f32, 3.0])
        .with("running_mean", &[1], &[10.0_f32])
        .with("running_var", &[1], &[5.0_f32]);
    for (momentum, num_batches_tracked, mean, variance) in [
        (Some(0.25), None, 8.0, 4.25),
        (None, Some(2), 6.0, 3.5),
        (None, Some(1), 2.0, 2.0),
        (Some(0.0), None, 10.0, 5.0),
    ] {
        let op = NativeBatchNorm {
            momentum,
            num_batches_tracked,
            ..NativeBatchNorm::default()
        };
        for subject in subjects() {
            let outputs = block_on(op.run(&subject.gpu, &inputs)).unwrap();
            near(&outputs, "running_mean", &[mean]);
            near(&outputs, "running_var", &[variance]);
            near(&outputs, "save_invstd", &[1.0 / 1.00001_f32.sqrt()]);
        }
    }
}

/// A variance of 0 is recovered with rounding error, and the gradient is still correct.
#[test]
fn a_variance_that_is_tiny_beside_eps() {
    let (src, grad_out) = ([3.0_f32; 4], [1.0_f32, 0.0, 0.0, 0.0]);
    let r = 1e-5_f32.sqrt().recip();
    let want = [0.75 * r, -0.25 * r, -0.25 * r, -0.25 * r];
    for subject in subjects() {
        let inputs = Inputs::new().with("input", &[4, 1], &src);
        let saved = block_on(NativeBatchNorm::default().run(&subject.gpu, &inputs)).unwrap();
        let [mean, invstd] =
            ["save_mean", "save_invstd"].map(|name| saved.get::<f32>(name).unwrap());
        let inputs = inputs
            .with("grad_out", &[4, 1], &grad_out)
            .with("save_mean", &[1], mean)
            .with("save_invstd", &[1], invstd);
        let op = NativeBatchNormBackward::default();
        let outputs = block_on(op.run(&subject.gpu, &inputs)).unwrap();
        near(&outputs, "grad_input", &want);
        let inputs = Inputs::new()
            .with("grad_out", &[1, 4], &grad_out)
            .with("input", &[1, 4], &src)
            .with("mean", &[1], mean)
            .with("rstd", &[1], invstd);
        let op = NativeLayerNormBackward::new(vec![4]);
        let outputs = block_on(op.run(&subject.gpu, &inputs)).unwrap();
        near(&outputs, "grad_input", &want);
        let message = "eps: expected the forward pass's, as buffers hold the variance in place of rstd, got none";
        fails(op.operation(&inputs), message);
    }
}

#[test]
fn bad_arguments_are_named() {
    let gpu = &subjects()[0].gpu;
    let all = [
        ("input", &[3, 2][..], &[1.0; 6][..]),
        ("weight", &[2], &[1.0; 2]),
        ("running_mean", &[2], &[0.0; 2]),
        ("running_var", &[2], &[1.0; 2]),
    ];
    let run = |op: &NativeBatchNorm, inputs: Inputs<'_>| block_on(op.run(gpu, &inputs));
    let op = NativeBatchNorm::default();
    assert!(run(&op, without(&all, "")).is_ok() && run(&op, without(&all[..2], "")).is_ok());
    let long = replaced(&all, ("running_mean", &[3], &[0.0; 3]));
    says(
        &run(&op, long).unwrap_err(),
        &["running_mean: expected 2 elements", "got 3"],
    );
    let long = replaced(&all, ("weight", &[3], &[0.0; 3]));
    says(
        &run(&op, long).unwrap_err(),
        &["weight: expected 2 elements", "got 3"],
    );
    let message = "running_mean: expected a tensor, as running_var is given, got none";
    fails(run(&op, without(&all, "running_mean")), message);
    let infer = NativeBatchNorm {
        training: false,
        ..op.clone()
    };
    let message = "running_var: expected a tensor, without training, got none";
    fails(run(&infer, without(&all, "running_var")), message);
    // One element in a channel has no unbiased variance, but that is no error unless one is requested.
    let single = [("input", &[1, 2][..], &[1.0; 2][..]), all[2], all[3]];
    let error = run(&op, without(&single, "")).unwrap_err();
    says(
        &error,
        &[
            "running variance",
            "two elements",
            "unbiased",
            "got channels of one",
        ],
    );
    assert!(
        run(&op, without(&single[..1], "")).is_ok() && run(&infer, without(&single, "")).is_ok()
    );
    for num_batches_tracked in [None, Some(0)] {
        let op = NativeBatchNorm {
            momentum: None,
            num_batches_tracked,
            ..op.clone()
        };
        says(
            &run(&op, without(&all, "")).unwrap_err(),
            &["num_batches_tracked: expected the number"],
        );
        assert!(run(&op, without(&all[..2], "")).is_ok());
    }
    let negative = NativeBatchNorm {
        momentum: Some(-0.1),
        ..op
    };
    let message = "momentum: expected a number from 0 to 1, got -0.1";
    fails(run(&negative, without(&all, "")), message);

    let infinity = [1.0, f32::INFINITY];
    let backward = [
        all[0],
        ("grad_out", &[3, 2], all[0].2),
        ("save_mean", &[2], &[0.0; 2]),
        ("save_invstd", &[2], &infinity),
    ];
    let op = NativeBatchNormBackward::default();
    let run = |op: &NativeBatchNormBackward, inputs: Inputs<'_>| block_on(op.run(gpu, &inputs));
    let message = "save_invstd: expected finite numbers above 0, got inf at 1";
    fails(run(&op, without(&backward, "")), message);
    let message = "save_invstd: expected a tensor, with train, got none";
    fails(run(&op, without(&backward, "save_invstd")), message);
    // Statistics of the other case are not read.
    let finite = replaced(&backward, ("save_invstd", &[2], &[1.0; 2]));
    let want = run(&op, finite.clone()).unwrap();
    let more =
        finite
            .with("running_mean", &[2], &[f32::NAN; 2])
            .with("running_var", &[2], &[-1.0_f32; 2]);
    assert_eq!(run(&op, more).unwrap(), want);
    let constant = NativeBatchNormBackward { train: false, ..op };
    let message = "running_mean: expected a tensor, without train, got none";
    fails(run(&constant, without(&backward, "")), message);

    let inputs = |shape| Inputs::new().described("input", shape, DType::F32);
    for normalized_shape in [&[2][..], &[], &[1, 2, 3], &[3, 2]] {
        let message = format!(
            "normalized_shape: expected one or more of the last sizes of [2, 3], got {normalized_shape:?}"
        );
        let op = NativeLayerNorm::new(normalized_shape.to_vec());
        fails(op.operation(&inputs(&[2, 3])), &message);
        let op = RmsNorm::new(normalized_shape.to_vec(), 1e-5);
        fails(op.operation(&inputs(&[2, 3])), &message);
    }
    let short = [
        ("input", &[2, 3][..], &[1.0; 6][..]),
        ("bias", &[2], &[1.0; 2]),
    ];
    let op = NativeLayerNorm::new(vec![3]);
    fails(
        block_on(op.run(gpu, &without(&short, ""))),
        "bias: expected 3 elements (shape [3] for data of [2, 3]), got 2",
    );
}

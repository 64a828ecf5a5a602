//! oneDNN's operators.

use super::*;
use crate::common::data::assert_close;
use crate::common::vectors::{Vector, of_operator};
use wgpu_norm::operators::onednn::*;
use wgpu_norm::{Activation, Epilogue, Residual};

const SRC: (&str, Tensor) = ("src", Tensor::Src);
const DST: (&str, Tensor) = ("dst", Tensor::Dst);
const DIFF_SRC: (&str, Tensor) = ("diff_src", Tensor::DiffSrc);
const DIFF_DST: (&str, Tensor) = ("diff_dst", Tensor::DiffDst);
const MEAN: (&str, Tensor) = ("mean", Tensor::Mean);
const VARIANCE: (&str, Tensor) = ("variance", Tensor::Variance);
const GAMMA: (&str, Tensor) = ("gamma", Tensor::Gamma);
const BETA: (&str, Tensor) = ("beta", Tensor::Beta);
const SCALE: (&str, Tensor) = ("scale", Tensor::Gamma);
const SHIFT: (&str, Tensor) = ("shift", Tensor::Beta);

#[test]
fn defaults_are_the_documents() {
    let training = BatchNormForwardTraining::new(0.5);
    assert_eq!((training.epsilon, training.momentum), (0.5, None));
    assert_eq!(training.data_format, DataFormat::Nxc);
    assert_eq!(BatchNormInference::new(0.5).data_format, DataFormat::Nxc);
    let layer_norm = LayerNorm::default();
    assert!(layer_norm.keep_stats && layer_norm.use_affine);
    assert_eq!((layer_norm.begin_norm_axis, layer_norm.epsilon), (-1, 1e-5));
    let batch_norm = BatchNormTrainingBackward::new(0.5);
    assert_eq!(
        (batch_norm.epsilon, batch_norm.data_format),
        (0.5, DataFormat::Nxc)
    );
    assert_eq!(batch_norm.outputs, BatchNormOutputs::All);
    let layer_norm = LayerNormBackward::default();
    assert!(layer_norm.use_affine && layer_norm.outputs == LayerNormOutputs::All);
    assert_eq!((layer_norm.begin_norm_axis, layer_norm.epsilon), (-1, 1e-5));
}

#[test]
fn batch_norm_of_graphs_is_as_the_reference() {
    for data_format in [DataFormat::Nxc, DataFormat::Ncx] {
        for types in of_params() {
            let by_hand = |pass: Pass| by_hand(Norm::batch(data_format), pass, &[3, 5, 4], types);
            for (affine, momentum) in [(true, Some(0.75)), (false, None)] {
                let op = BatchNormForwardTraining {
                    momentum,
                    data_format,
                    ..BatchNormForwardTraining::new(EPSILON)
                };
                let weight = 1.0 - f64::from(momentum.unwrap_or(0.5));
                let pass = training(weight, RunningVariance::Biased).into();
                let old = [
                    ("mean", Tensor::RunningMean),
                    ("variance", Tensor::RunningVariance),
                ];
                let inputs = [SRC, old[0], old[1], GAMMA, BETA];
                check(
                    &op,
                    &by_hand(pass).with_params(affine, affine),
                    if affine { &inputs } else { &inputs[..3] },
                    &[
                        DST,
                        ("running_mean", Tensor::RunningMean),
                        ("running_variance", Tensor::RunningVariance),
                        ("batch_mean", Tensor::Mean),
                        ("batch_variance", Tensor::Variance),
                    ],
                );
            }
            let op = BatchNormInference {
                data_format,
                ..BatchNormInference::new(EPSILON)
            };
            let inputs = [SRC, GAMMA, BETA, MEAN, VARIANCE];
            check(&op, &by_hand(Pass::Inference), &inputs, &[DST]);
            let op = BatchNormTrainingBackward {
                data_format,
                ..BatchNormTrainingBackward::new(EPSILON)
            };
            let inputs = [SRC, DIFF_DST, MEAN, VARIANCE, GAMMA];
            let grads = [
                DIFF_SRC,
                ("diff_gamma", Tensor::DiffGamma),
                ("diff_beta", Tensor::DiffBeta),
            ];
            for gamma in [true, false] {
                let by_hand = by_hand(Backward::default().into()).with_params(gamma, false);
                check(
                    &op,
                    &by_hand,
                    if gamma { &inputs } else { &inputs[..4] },
                    &grads,
                );
            }
            let alone = BatchNormTrainingBackward {
                outputs: BatchNormOutputs::DiffSrc,
                ..op
            };
            let pass = Backward::default().with_param_grads(false).into();
            let by_hand = by_hand(pass).with_params(false, false);
            check(&alone, &by_hand, &inputs[..4], &[DIFF_SRC]);
        }
    }
}

#[test]
fn layer_norm_is_as_the_reference() {
    for types in of_params() {
        let by_hand = |pass: Pass| by_hand(Norm::layer(1), pass, &[4, 3, 10], types);
        for (use_affine, keep_stats) in [(true, true), (false, false)] {
            let op = LayerNorm {
                keep_stats,
                begin_norm_axis: 1,
                use_affine,
                epsilon: EPSILON,
            };
            if !use_affine && types != DTypes::from(types.data.accumulator()) {
                continue; // Nothing says which types the parameters have.
            }
            let pass = Forward::default();
            let pass = if keep_stats {
                pass
            } else {
                pass.without_statistics()
            };
            let by_hand = by_hand(pass.into()).with_params(use_affine, use_affine);
            let (inputs, outputs) = ([SRC, GAMMA, BETA], [DST, MEAN, VARIANCE]);
            let inputs = if use_affine {
                &inputs[..]
            } else {
                &inputs[..1]
            };
            let outputs = if keep_stats {
                &outputs[..]
            } else {
                &outputs[..1]
            };
            check(&op, &by_hand, inputs, outputs);
        }
        let grads = [
            DIFF_SRC,
            ("diff_gamma", Tensor::DiffGamma),
            ("diff_beta", Tensor::DiffBeta),
        ];
        // No result depends on beta.
        let inputs = [SRC, DIFF_DST, MEAN, VARIANCE, GAMMA, BETA];
        for (use_affine, outputs, inputs, results) in [
            (true, LayerNormOutputs::All, &inputs[..], &grads[..]),
            (true, LayerNormOutputs::DiffSrc, &inputs[..5], &grads[..1]),
            (false, LayerNormOutputs::All, &inputs[..4], &grads[..1]),
        ] {
            let op = LayerNormBackward {
                begin_norm_axis: 1,
                use_affine,
                epsilon: EPSILON,
                outputs,
            };
            let all = outputs == LayerNormOutputs::All;
            let pass = Backward::default().with_param_grads(all).into();
            let by_hand = by_hand(pass).with_params(use_affine, use_affine);
            check(&op, &by_hand, inputs, results);
        }
    }
}

#[test]
fn primitives_are_as_the_reference() {
    let diff_scale = ("diff_scale", Tensor::DiffGamma);
    let diff_shift = ("diff_shift", Tensor::DiffBeta);
    let fused = [
        (FuseNorm::None, Epilogue::default()),
        (
            FuseNorm::Relu,
            Epilogue::new(Residual::None, Activation::Relu),
        ),
        (
            FuseNorm::AddRelu,
            Epilogue::new(Residual::After, Activation::Relu),
        ),
    ];
    for types in of_params() {
        for (fuse_norm, epilogue) in fused {
            let by_hand = |pass: Pass| {
                let norm = Norm::batch(DataFormat::Ncx);
                by_hand(norm, pass, &[3, 5, 7], types).with_epilogue(epilogue)
            };
            let op = BatchNormalization {
                fuse_norm,
                ..BatchNormalization::new(EPSILON)
            };
            let adds = fuse_norm == FuseNorm::AddRelu;
            let (src_1, workspace) = (("src_1", Tensor::Residual), ("workspace", Tensor::Mask));
            let with = |names: &[_], more| {
                let more = Some(more).filter(|_| adds);
                names.iter().copied().chain(more).collect::<Vec<_>>()
            };
            let inputs = with(&[SRC, SCALE, SHIFT], src_1);
            let outputs = with(&[DST, MEAN, VARIANCE], workspace);
            check(&op, &by_hand(Forward::default().into()), &inputs, &outputs);
            let op = BatchNormalization {
                use_global_stats: true,
                ..op
            };
            let inputs = with(&[SRC, MEAN, VARIANCE, SCALE, SHIFT], src_1);
            check(&op, &by_hand(Pass::Inference), &inputs, &[DST]);
            let op = BatchNormalizationBackward {
                fuse_norm,
                ..BatchNormalizationBackward::new(EPSILON)
            };
            let mut inputs = with(&[SRC, MEAN, VARIANCE, DIFF_DST, SCALE], workspace);
            let relu = fuse_norm == FuseNorm::Relu;
            if relu {
                inputs.push(SHIFT);
            }
            let mut outputs = with(&[DIFF_SRC], ("diff_src_1", Tensor::DiffResidual));
            outputs.extend([diff_scale, diff_shift]);
            let by_hand = by_hand(Backward::default().into()).with_params(true, relu);
            check(&op, &by_hand, &inputs, &outputs);
        }
        let by_hand = |pass: Pass| {
            let norm = Norm::group(3, DataFormat::Nxc);
            by_hand(norm, pass, &[3, 5, 6], types)
        };
        let data_format = DataFormat::Nxc;
        let op = GroupNormalization {
            data_format,
            ..GroupNormalization::new(3, EPSILON)
        };
        let pass = Forward::default().into();
        check(
            &op,
            &by_hand(pass),
            &[SRC, SCALE, SHIFT],
            &[DST, MEAN, VARIANCE],
        );
        let op = GroupNormalization {
            use_global_stats: true,
            ..op
        };
        let inputs = [SRC, MEAN, VARIANCE, SCALE, SHIFT];
        check(&op, &by_hand(Pass::Inference), &inputs, &[DST]);
        for data_alone in [false, true] {
            let op = GroupNormalizationBackward {
                data_format,
                data_alone,
                ..GroupNormalizationBackward::new(3, EPSILON)
            };
            let pass = Backward::default().with_param_grads(!data_alone).into();
            let by_hand = by_hand(pass).with_params(true, false);
            let outputs = [DIFF_SRC, diff_scale, diff_shift];
            let outputs = if data_alone { &outputs[..1] } else { &outputs };
            check(
                &op,
                &by_hand,
                &[SRC, MEAN, VARIANCE, DIFF_DST, SCALE],
                outputs,
            );
        }
    }
}

/// Checks an operator against a vector's float64 numbers.
fn check_vector(op: &impl Operator, vector: &Vector, inputs: Names<'_>, params: bool) {
    let (problem, want) = vector.problem();
    let given = Given::from(problem);
    let problem = &given.problem;
    let outputs = [
        DIFF_SRC,
        ("diff_gamma", Tensor::DiffGamma),
        ("diff_beta", Tensor::DiffBeta),
    ];
    let outputs = if params { &outputs[..] } else { &outputs[..1] };
    let inputs = given.named(None, inputs);
    for subject in taking(problem.operation.types.data) {
        let got = op.run(&subject.gpu, &inputs).unwrap();
        let what = format!("{} on {}", vector.name, subject.name);
        assert_close(&values(problem, &got, outputs), &want, &what);
    }
}

#[test]
fn vectors() {
    let mut tested = 0;
    for vector in of_operator("batch_norm_backward") {
        let (format, statistics) = (
            &vector.metadata["data_format"],
            &vector.metadata["statistics"],
        );
        if format == "broadcast" || statistics != "batch" {
            continue;
        }
        if vector.dtype("src") == DType::F64 {
            continue; // nGraph's: an f32 epsilon is another number.
        }
        tested += 1;
        let (problem, _) = vector.problem();
        let (Norm::Batch(Channels::Axis(format)), Pass::Backward(backward)) =
            (&problem.operation.norm, problem.operation.pass)
        else {
            panic!("{}", problem.operation);
        };
        let op = BatchNormTrainingBackward {
            epsilon: problem.operation.epsilon as f32,
            data_format: *format,
            outputs: if backward.param_grads {
                BatchNormOutputs::All
            } else {
                BatchNormOutputs::DiffSrc
            },
        };
        let inputs = [SRC, DIFF_DST, MEAN, VARIANCE, GAMMA];
        let given = if problem.has(Tensor::Gamma) { 5 } else { 4 };
        check_vector(&op, &vector, &inputs[..given], backward.param_grads);
    }
    for vector in of_operator("layer_norm_backward") {
        tested += 1;
        let use_affine = vector.metadata["use_affine"] == "true";
        let op = LayerNormBackward {
            begin_norm_axis: vector.metadata["begin_norm_axis"].parse().unwrap(),
            use_affine,
            epsilon: vector.epsilon() as f32,
            ..LayerNormBackward::default()
        };
        let inputs = [SRC, DIFF_DST, MEAN, VARIANCE, GAMMA, BETA];
        check_vector(
            &op,
            &vector,
            if use_affine { &inputs } else { &inputs[..4] },
            use_affine,
        );
    }
    assert!(tested >= 20, "only {tested} vectors");
}

/// The document's rule, and its opposite, which the document does not have.
#[test]
fn gamma_is_ignored_without_its_gradient_and_counts_where_it_is_frozen() {
    let all = [
        ("src", &[3, 2][..], &[1.0, 2.0, 3.0, 6.0, 2.0, 1.0][..]),
        ("diff_dst", &[3, 2], &[1.0, 0.0, 0.0, 2.0, 3.0, 1.0]),
        ("mean", &[2], &[2.0, 3.0]),
        ("variance", &[2], &[1.0, 4.0]),
        ("gamma", &[2], &[3.0, 5.0]),
    ];
    let op = BatchNormTrainingBackward::new(1e-5);
    let alone = BatchNormTrainingBackward {
        outputs: BatchNormOutputs::DiffSrc,
        ..op.clone()
    };
    let frozen = op
        .operation(&replaced(&all, all[0]))
        .unwrap()
        .without_param_grads();
    for subject in subjects() {
        let run = |op: &BatchNormTrainingBackward, inputs: Inputs<'_>| {
            let outputs = block_on(op.run(&subject.gpu, &inputs)).unwrap();
            outputs.get::<f32>("diff_src").unwrap().to_vec()
        };
        let scaled = run(&op, replaced(&all, all[0]));
        let unscaled = run(&op, without(&all, "gamma"));
        assert_eq!(run(&alone, replaced(&all, all[0])), unscaled);
        assert_eq!(run(&alone, without(&all, "gamma")), unscaled);
        assert_ne!(scaled, unscaled);
        let tensors = [
            Tensor::Src,
            Tensor::DiffDst,
            Tensor::Mean,
            Tensor::Variance,
            Tensor::Gamma,
        ];
        let bytes = tensors
            .into_iter()
            .zip(all.map(|(.., values)| bytemuck::cast_slice(values)));
        let mut diff_src = [0.0_f32; 6];
        let mut outputs = [(Tensor::DiffSrc, bytemuck::cast_slice_mut(&mut diff_src))];
        let inputs: Vec<_> = bytes.collect();
        block_on(frozen.run_into(&subject.gpu, &inputs, &mut outputs)).unwrap();
        assert_eq!(diff_src, *scaled);
    }
    let long = replaced(&all, ("gamma", &[3], &[1.0; 3]));
    let error = block_on(alone.run(&subjects()[0].gpu, &long)).unwrap_err();
    says(&error, &["gamma: expected 2 elements", "got 3"]);
}

/// oneDNN's own test of the operator, `BatchNormBackpropFp32`. Its epsilon is 0, which we refuse; one that does not
/// change 1.25 does the same.
#[test]
fn batch_norm_as_onednn_prints_it() {
    let inputs = Inputs::new()
        .with("src", &[1, 1, 2, 2], &[1.0_f32, 2.0, 3.0, 4.0])
        .with("diff_dst", &[1, 1, 2, 2], &[0.1_f32, 0.1, 0.2, 0.2])
        .with("mean", &[1], &[2.5_f32])
        .with("variance", &[1], &[1.25_f32])
        .with("gamma", &[1], &[2.0_f32]);
    let op = BatchNormTrainingBackward {
        data_format: DataFormat::Ncx,
        ..BatchNormTrainingBackward::new(1e-30)
    };
    for subject in subjects() {
        let outputs = block_on(op.run(&subject.gpu, &inputs)).unwrap();
        let diff_src = [0.01788854, -0.05366563, 0.05366563, -0.01788854];
        assert_near(&outputs, "diff_src", &diff_src, 0.0, 1e-6);
        assert_near(&outputs, "diff_gamma", &[0.178_885_44], 0.0, 1e-6);
        assert_near(&outputs, "diff_beta", &[0.6], 0.0, 1e-6);
    }
}

/// oneDNN's own test of the operator, `LayerNormBackpropFp32`: statistics other than src's, and variance + epsilon a
/// power of four. gamma is used even if no other output is requested.
#[test]
fn layer_norm_as_onednn_prints_it() {
    let shape = &[2, 2, 2][..];
    let affine = [
        (
            "src",
            shape,
            &[1.0, -1.0, 2.0, 0.0, 1.0, -1.0, 2.0, 0.0][..],
        ),
        (
            "diff_dst",
            shape,
            &[12.0, -2.0, 6.0, -1.0, 3.0, -0.5, 1.5, -0.25],
        ),
        ("mean", &[2, 2], &[0.0, 1.0, 0.0, 1.0]),
        ("variance", &[2, 2], &[3.9375, 0.9375, 0.1875, 3.9375]),
        ("gamma", &[2], &[0.125, 0.25]),
        ("beta", &[2], &[0.0, 0.0]),
    ];
    let scaled = [1.5, -0.5, 0.75, -0.25, 0.375, -0.125, 0.1875, -0.0625];
    let plain = [
        affine[0],
        ("diff_dst", shape, &scaled),
        affine[2],
        affine[3],
    ];
    let diff_src = [0.375, -0.375, 0.0, 0.0, -1.5, 1.5, 0.046875, -0.046875];
    for (use_affine, outputs, given) in [
        (true, LayerNormOutputs::All, &affine[..]),
        (true, LayerNormOutputs::DiffSrc, &affine[..]),
        (false, LayerNormOutputs::All, &plain[..]),
    ] {
        let op = LayerNormBackward {
            use_affine,
            epsilon: 0.0625,
            outputs,
            ..LayerNormBackward::default()
        };
        for subject in subjects() {
            let got = block_on(op.run(&subject.gpu, &without(given, ""))).unwrap();
            assert_near(&got, "diff_src", &diff_src, 1e-6, 1e-6);
            if use_affine && outputs == LayerNormOutputs::All {
                assert_near(&got, "diff_gamma", &[18.75, 3.125], 1e-6, 0.0);
                assert_near(&got, "diff_beta", &[22.5, -3.75], 1e-6, 0.0);
            } else {
                assert_eq!(got.iter().count(), 1);
            }
        }
    }
}

/// momentum is the old statistics' weight, and the variance is the biased one: by hand.
#[test]
fn momentum_weighs_what_was_there() {
    let inputs = Inputs::new()
        .with("src", &[2, 1], &[1.0_f32, 3.0])
        .with("mean", &[1], &[10.0_f32])
        .with("variance", &[1], &[5.0_f32]);
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
            let outputs = block_on(op.run(&subject.gpu, &inputs)).unwrap();
            near(&outputs, "running_mean", &[mean]);
            near(&outputs, "running_variance", &[variance]);
            near(&outputs, "batch_mean", &[2.0]);
            near(&outputs, "batch_variance", &[1.0]);
        }
    }
}

#[test]
fn bad_arguments_are_named() {
    let gpu = &subjects()[0].gpu;
    let all = [
        ("src", &[2, 2][..], &[1.0; 4][..]),
        ("mean", &[2], &[0.0; 2]),
        ("variance", &[2], &[1.0; 2]),
        ("gamma", &[2], &[1.0; 2]),
        ("beta", &[2], &[1.0; 2]),
    ];
    let op = BatchNormForwardTraining::new(1e-5);
    let run = |op: &BatchNormForwardTraining, inputs| block_on(op.run(gpu, &inputs));
    assert!(run(&op, replaced(&all, all[0])).is_ok());
    let message = "beta: expected a tensor, as gamma is given, got none";
    fails(run(&op, without(&all, "beta")), message);
    let message = "gamma: expected a tensor, as beta is given, got none";
    fails(run(&op, without(&all, "gamma")), message);
    let short = replaced(&all, ("mean", &[1], &[0.0]));
    says(
        &run(&op, short).unwrap_err(),
        &["mean: expected 2 elements", "got 1"],
    );
    let long = replaced(&all, ("variance", &[3], &[0.0; 3]));
    says(
        &run(&op, long).unwrap_err(),
        &["variance: expected 2 elements", "got 3"],
    );
    for momentum in [0.0, -1.0, 1.5, f32::NAN, f32::INFINITY] {
        let op = BatchNormForwardTraining {
            momentum: Some(momentum),
            ..op.clone()
        };
        let error = run(&op, replaced(&all, all[0])).unwrap_err();
        says(
            &error,
            &["momentum: expected a number", &format!("got {momentum}")],
        );
        assert!(op.operation(&replaced(&all, all[0])).is_err());
    }
    let negative = replaced(&all, ("variance", &[2], &[1.0, -1.0]));
    let error = block_on(BatchNormInference::new(1e-5).run(gpu, &negative)).unwrap_err();
    assert!(
        matches!(error, Error::Variance { channel: 1, .. }),
        "{error}"
    );

    let all = [all[0], all[3], all[4]];
    let op = LayerNorm::default();
    let run = |op: &LayerNorm, inputs: Inputs<'_>| block_on(op.run(gpu, &inputs));
    let message = "beta: expected a tensor, as use_affine is true, got none";
    fails(run(&op, without(&all, "beta")), message);
    let plain = LayerNorm {
        use_affine: false,
        ..op.clone()
    };
    let message = "gamma: expected none, as use_affine is false, got a tensor";
    fails(run(&plain, without(&all, "beta")), message);
    let axis = LayerNorm {
        begin_norm_axis: 2,
        ..op
    };
    let error = axis.operation(&without(&all, "")).unwrap_err();
    says(&error, &["begin_norm_axis", "got 2"]);

    let src = all[0].2;
    let backward = [
        all[0],
        ("diff_dst", &[2, 2], src),
        ("mean", &[2], &[1.0; 2]),
        ("variance", &[2], &[1.0; 2]),
        all[1],
    ];
    let op = LayerNormBackward::default();
    let run = |op: &LayerNormBackward, inputs: Inputs<'_>| block_on(op.run(gpu, &inputs));
    assert!(run(&op, without(&backward, "")).is_ok());
    let message = "gamma: expected a tensor, as use_affine is true, got none";
    fails(run(&op, without(&backward, "gamma")), message);
    let long = replaced(&backward, ("beta", &[3], &[0.0; 3]));
    fails(
        run(&op, long),
        "beta: expected 2 elements (shape [2] for data of [2, 2]), got 3",
    );
    let plain = LayerNormBackward {
        use_affine: false,
        ..op
    };
    let beta = replaced(&backward[..4], ("beta", &[2], &[0.0; 2]));
    fails(
        run(&plain, beta),
        "beta: expected none, as use_affine is false, got a tensor",
    );

    let backward = &backward[..4];
    for (fuse_norm, wrong, message) in [
        (
            FuseNorm::None,
            "shift",
            "shift: expected none, as fuse_norm_relu is false, got a tensor",
        ),
        (
            FuseNorm::AddRelu,
            "scale",
            "workspace: expected a tensor, as fuse_norm_add_relu is true, got none",
        ),
    ] {
        let op = BatchNormalizationBackward {
            fuse_norm,
            ..BatchNormalizationBackward::new(1e-5)
        };
        let inputs = replaced(backward, (wrong, &[2], &[1.0; 2]));
        fails(block_on(op.run(gpu, &inputs)), message);
    }
    let op = BatchNormalization::new(1e-5);
    let given = without(&backward[2..], "").with("src", &[2, 2], src);
    let message = "mean: expected none, as use_global_stats is false, got a tensor";
    fails(block_on(op.run(gpu, &given)), message);
}

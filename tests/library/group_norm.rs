//! Group norm and instance norm: numbers worked out by hand, identities, random problems against the reference, errors.
//! Every kernel whatever the shape: verify.rs.

use crate::common::errors::{says, still_works};
use crate::common::{Noop, Subject, one, random_cases, subjects};
use half::f16;
use pollster::block_on;
use proptest::prelude::*;
use proptest::test_runner::{Config, RngSeed, TestRunner};
use wgpu_norm::reference::scaled_error;
use wgpu_norm::{
    Algorithm, BufferRange, DType, DTypes, DataFormat, Error, GpuGroupNorm, GpuInstanceNorm,
    GroupNormBackwardArgs, GroupNormBackwardBuffers, GroupNormForwardArgs,
    GroupNormForwardOperands, GroupNormInferenceArgs, GroupNormOptions, InstanceNormOptions,
    ParamGrads, reference,
};
use wgpu_norm_verify::{Case, Outcome, Random};

fn options(groups: usize) -> GroupNormOptions {
    GroupNormOptions {
        epsilon: 1.0,
        ..GroupNormOptions::new(groups)
    }
}

fn near(got: &[f32], want: &[f32]) {
    assert_eq!(got.len(), want.len());
    let mut pairs = got.iter().zip(want);
    assert!(
        pairs.all(|(got, want)| (got - want).abs() < 1e-5),
        "{got:?}, not {want:?}"
    );
}

/// Two samples of four channels with one element, in two groups. With epsilon 1 a group of ±√3 about its mean has r = 1/2.
#[test]
fn numbers_worked_out_by_hand() {
    let d = 3_f32.sqrt();
    let src = [1.0 - d, 1.0 + d, 5.0 + d, 5.0 - d, -d, d, 2.0, 2.0];
    let mean = [1.0, 5.0, 0.0, 2.0];
    let variance = [3.0, 3.0, 3.0, 0.0];
    let (gamma, beta) = ([2.0, 0.0, 1.0, 4.0], [0.0, 7.0, 1.0, 0.0]);
    let half = d / 2.0; // |x̂|
    let dst = [-d, 7.0, 1.0 + half, -4.0 * half, -d, 7.0, 1.0, 0.0];
    for subject in subjects() {
        let layer = GpuGroupNorm::new(&subject.gpu, options(2)).unwrap();
        let output = layer.forward(GroupNormForwardArgs {
            shape: &[2, 4],
            src: &src,
            gamma: Some(&gamma),
            beta: Some(&beta),
            residual: None,
        });
        let output = block_on(output).unwrap();
        near(&output.mean, &mean);
        near(&output.variance, &variance);
        near(&output.dst, &dst);
        let given = layer.infer(GroupNormInferenceArgs {
            shape: &[2, 4],
            src: &src,
            mean: &mean,
            variance: &variance,
            gamma: Some(&gamma),
            beta: Some(&beta),
            residual: None,
        });
        near(&block_on(given).unwrap(), &dst);

        let grads = layer.backward(GroupNormBackwardArgs {
            shape: &[2, 4],
            src: &src,
            diff_dst: &[1.0, 5.0, 2.0, 0.0, 0.0, 0.0, 1.0, 1.0],
            mean: &mean,
            variance: &variance,
            gamma: Some(&gamma),
            beta: None,
            mask: None,
        });
        let grads = block_on(grads).unwrap();
        // First group: gamma · d = (2, 0), so that a = 1, and b = (2 · -x̂ + 0) / 2 = -half. Of x̂ = ∓half
        // r · ((2 - 1) - half²) and r · ((0 - 1) + half²), half² being 3/4.
        let first = [0.125, -0.125];
        // Second group: (2, 0) too, x̂ = ±half.
        let second = [0.125, -0.125];
        // Of the last, x̂ is 0 and r is 1: (1, 4) less its mean.
        let diff_src = [first, second, [0.0, 0.0], [-1.5, 1.5]].concat();
        near(&grads.diff_src, &diff_src);
        near(&grads.diff_beta.unwrap(), &[1.0, 5.0, 3.0, 1.0]);
        let diff_gamma = [-half, 5.0 * half, 2.0 * half, 0.0];
        near(&grads.diff_gamma.unwrap(), &diff_gamma);
    }
}

/// Of one sample, instance norm is batch norm; of G = 1 and gamma that is constant, group norm is layer norm.
#[test]
fn special_cases_are_other_norms() {
    let mut random = Random::new(7);
    let mut values = |n| -> Vec<f64> { (0..n).map(|_| f64::from(random.unit() as f32)).collect() };
    let (src, diff_dst, gamma) = (values(120), values(120), values(8));
    let f32s = |values: &[f64]| -> Vec<f32> { values.iter().map(|&x| x as f32).collect() };
    let (src32, diff32, gamma32) = (f32s(&src), f32s(&diff_dst), f32s(&gamma));
    let batch = reference::BatchNormForward {
        shape: &[1, 8, 15],
        channel_axes: &[false, true, false],
        src: &src,
        gamma: Some(&gamma),
        beta: None,
        epsilon: 1e-5,
    };
    let want = batch.train().unwrap();
    let rows = reference::LayerNormForward {
        shape: &[2, 60],
        begin_norm_axis: 1,
        src: &src,
        residual: None,
        gamma: None,
        beta: None,
        epsilon: 1e-5,
    };
    let of_rows = rows.forward().unwrap();
    for subject in subjects() {
        let layer = GpuInstanceNorm::new(&subject.gpu, InstanceNormOptions::default()).unwrap();
        let output = layer.forward(GroupNormForwardArgs {
            shape: &[1, 8, 15],
            src: &src32,
            gamma: Some(&gamma32),
            beta: None,
            residual: None,
        });
        let output = block_on(output).unwrap();
        assert!(scaled_error(&output.dst, &want.dst, &want.dst_scale) <= 1.0);
        assert!(scaled_error(&output.mean, &want.mean, &want.mean_scale) <= 1.0);
        let gradient = reference::BatchNorm {
            shape: &[1, 8, 15],
            channel_axes: &[false, true, false],
            src: &src,
            diff_dst: &diff_dst,
            mean: &want.mean,
            variance: &want.variance,
            gamma: Some(&gamma),
            epsilon: 1e-5,
            statistics: wgpu_norm::Through::Batch,
            param_grads: ParamGrads::Both,
        };
        let wanted = gradient.backward().unwrap();
        let (mean32, variance32) = (f32s(&want.mean), f32s(&want.variance));
        let grads = layer.backward(GroupNormBackwardArgs {
            shape: &[1, 8, 15],
            src: &src32,
            diff_dst: &diff32,
            mean: &mean32,
            variance: &variance32,
            gamma: Some(&gamma32),
            beta: None,
            mask: None,
        });
        let grads = block_on(grads).unwrap();
        let errors = [
            scaled_error(&grads.diff_src, &wanted.diff_src, &wanted.diff_src_scale),
            scaled_error(
                &grads.diff_gamma.unwrap(),
                &wanted.diff_gamma,
                &wanted.diff_gamma_scale,
            ),
        ];
        assert!(errors.into_iter().all(|error| error <= 1.0), "{errors:?}");

        let layer = GpuGroupNorm::new(&subject.gpu, GroupNormOptions::new(1)).unwrap();
        let output = layer.forward(GroupNormForwardArgs::<f32, f32> {
            shape: &[2, 4, 15],
            src: &src32,
            gamma: None,
            beta: None,
            residual: None,
        });
        let output = block_on(output).unwrap();
        assert!(scaled_error(&output.dst, &of_rows.dst, &of_rows.dst_scale) <= 1.0);
        assert!(scaled_error(&output.variance, &of_rows.variance, &of_rows.variance_scale) <= 1.0);
    }
}

/// Any operator, layout, length, type, number of groups, cut into windows or not.
#[test]
fn random_problems() {
    let operators = prop_oneof![
        Just("group_norm_backward"),
        Just("group_norm_forward"),
        Just("group_norm_inference"),
        Just("instance_norm_backward"),
        Just("instance_norm_forward"),
    ];
    let types = prop_oneof![
        3 => Just("f32"),
        1 => Just("f16-f32"),
        1 => Just("bf16"),
        1 => Just("f16-f16-f32"),
        1 => Just("f64")
    ];
    let settings = prop_oneof![
        Just("gpu"),
        Just("software"),
        Just("tiny"),
        Just("gpu/max_storage_buffers=4"),
        Just("tiny/window_unit=256"),
        Just("gpu/fused_blocks=0,fused_block=4294967295"),
        Just("software/fused_blocks=0"),
    ];
    let sizes = (1..6usize, 1..5usize, 1..9usize, 1..4usize, 1..60usize);
    let inputs = (operators, types, settings, sizes, any::<bool>(), 0..4u8);
    let mut runner = TestRunner::new(Config {
        cases: random_cases(200),
        rng_seed: RngSeed::Fixed(23),
        failure_persistence: None,
        ..Config::default()
    });
    let subject = one(false);
    let result = runner.run(
        &inputs,
        |(operator, types, setting, (n, groups, of_group, height, width), ncx, choice)| {
            let channels = groups * of_group;
            let (shape, format) = match ncx {
                true => (format!("{n}x{channels}x{height}x{width}"), "ncx"),
                false => (format!("{n}x{height}x{width}x{channels}"), "nxc"),
            };
            let of_groups = match operator.starts_with("group") {
                true => format!("/groups_{groups}"),
                false => String::new(),
            };
            let extra = match choice {
                0 => "/no_gamma",
                1 => "/exact",
                2 => "/pooled",
                _ => "",
            };
            let id = format!("{operator}/{shape}/{format}{of_groups}/{types}/{setting}{extra}");
            let case: Case = id.parse().unwrap();
            match block_on(case.run(&subject.gpu)).unwrap() {
                Outcome::Ran { fault: None, .. } | Outcome::Unsupported { .. } => {}
                other => panic!("{id}: {other:?}"),
            }
            Ok(())
        },
    );
    result.unwrap();
}

#[test]
fn groups_that_fit_a_workgroup_take_one_dispatch_and_the_sums() {
    let subject = one(false);
    for (shape, groups, fused) in [
        (&[32, 64, 56, 56][..], 32, true),
        (&[8, 256, 14, 14], 32, true),
        (&[2, 256, 128, 128], 32, false), // groups too large
        (&[2, 512, 4, 4], 1, false),      // groups of too many channels
    ] {
        let gpu = subject.with_tuning("gpu", wgpu_norm::Tuning::GPU).gpu;
        let plan = GpuGroupNorm::new(&gpu, GroupNormOptions::new(groups))
            .unwrap()
            .plan_backward(shape, DType::F32, true)
            .unwrap();
        let want = match gpu.profile().max_storage_buffers >= 8 && fused {
            true => Algorithm::FusedChannelsFirst,
            false => Algorithm::ChannelsFirst,
        };
        assert_eq!(plan.algorithm(), want, "{shape:?}");
        if want == Algorithm::FusedChannelsFirst {
            assert_eq!(plan.kernels(), ["channels_first_fused", "finish"]);
        }
    }
}

fn lengths_of(subject: &Subject, lengths: [usize; 5]) -> Result<(), Error> {
    let [src, diff_dst, mean, variance, gamma] = lengths.map(|length| vec![1.0_f32; length]);
    let layer = GpuGroupNorm::new(&subject.gpu, options(2)).unwrap();
    let grads = layer.backward(GroupNormBackwardArgs {
        shape: &[2, 4, 3],
        src: &src,
        diff_dst: &diff_dst,
        mean: &mean,
        variance: &variance,
        gamma: Some(&gamma),
        beta: None,
        mask: None,
    });
    block_on(grads).map(drop)
}

#[test]
fn bad_arguments_are_named() {
    let noop = Noop::default();
    let subject = &noop.subject;
    let expected = [24, 24, 4, 4, 4];
    assert_eq!(lengths_of(subject, expected), Ok(()));
    let names = ["src", "diff_dst", "mean", "variance", "gamma"];
    for (index, tensor) in names.into_iter().enumerate() {
        for got in [0, expected[index] - 1, expected[index] + 1] {
            let mut lengths = expected;
            lengths[index] = got;
            let expected = expected[index];
            let error = lengths_of(subject, lengths).unwrap_err();
            if matches!(tensor, "mean" | "variance") {
                says(&error, &[tensor, "[N, G] = [2, 2]", &got.to_string()]);
            } else {
                let want = Error::Length {
                    tensor,
                    expected,
                    got,
                };
                assert_eq!(error, want);
            }
            still_works(subject);
        }
    }
    for (groups, format) in [
        (0, DataFormat::Ncx),
        (3, DataFormat::Ncx),
        (usize::MAX, DataFormat::Ncx),
        (2, DataFormat::Nxc),
    ] {
        let options = GroupNormOptions {
            data_format: format,
            ..options(groups)
        };
        let layer = GpuGroupNorm::new(&subject.gpu, options).unwrap();
        let error = layer.plan_backward(&[2, 4, 3], DType::F32, true);
        let error = error.unwrap_err();
        let channels = if format == DataFormat::Ncx { "4" } else { "3" };
        says(
            &error,
            &["groups", "divides", channels, &groups.to_string()],
        );
        assert!(matches!(
            error,
            Error::Argument {
                argument: "groups",
                ..
            }
        ));
    }
    for shape in [&[][..], &[4], &[1; 9]] {
        let layer = GpuGroupNorm::new(&subject.gpu, options(1)).unwrap();
        let error = layer.plan_backward(shape, DType::F32, true).unwrap_err();
        assert!(
            matches!(error, Error::Rank { min: 2, max: 8, .. }),
            "{error}"
        );
        let layer = GpuInstanceNorm::new(&subject.gpu, InstanceNormOptions::default()).unwrap();
        let error = layer.plan_backward(shape, DType::F32, true).unwrap_err();
        assert!(
            matches!(error, Error::Rank { min: 2, max: 8, .. }),
            "{error}"
        );
    }
    for shape in [
        [1 << 20, 1 << 20, 1],
        [usize::MAX, 4, 0],
        [2, 4, usize::MAX],
    ] {
        let layer = GpuGroupNorm::new(&subject.gpu, options(2)).unwrap();
        let error = layer.plan_backward(&shape, DType::F32, true).unwrap_err();
        assert!(matches!(error, Error::SizeOverflow { .. }), "{error}");
    }
    for epsilon in [0.0, -1.0, f64::NAN] {
        let options = InstanceNormOptions {
            epsilon,
            ..InstanceNormOptions::default()
        };
        let error = GpuInstanceNorm::new(&subject.gpu, options).unwrap_err();
        assert!(matches!(error, Error::Epsilon { .. }), "{error}");
    }
    let layer = GpuGroupNorm::new(&subject.gpu, options(2)).unwrap();
    let grads = layer.backward(GroupNormBackwardArgs::<f32, f32> {
        shape: &[1, 2, 1],
        src: &[0.0; 2],
        diff_dst: &[0.0; 2],
        mean: &[0.0; 2],
        variance: &[1.0, -1.0],
        gamma: None,
        beta: None,
        mask: None,
    });
    let error = block_on(grads).unwrap_err();
    says(&error, &["variance", "group 1"]);
    let layer = GpuInstanceNorm::new(&subject.gpu, InstanceNormOptions::default()).unwrap();
    for (variance, wrong) in [
        (&[1.0, -1.0][..], "channel 1"),
        (&[1.0, f32::INFINITY], "channel 1"),
        (&[1.0], "[N, C] = [1, 2]"),
    ] {
        let grads = layer.backward(GroupNormBackwardArgs::<f32, f32> {
            shape: &[1, 2, 1],
            src: &[0.0; 2],
            diff_dst: &[0.0; 2],
            mean: &[0.0; 2],
            variance,
            gamma: None,
            beta: None,
            mask: None,
        });
        let error = block_on(grads).unwrap_err();
        says(&error, &["variance", wrong]);
    }
}

/// By given statistics there are no partial sums, which long planes read as columns would have too many of.
#[test]
fn inference_takes_any_walk() {
    let noop = Noop::default();
    let subject = noop.subject.with_profile("columns", |profile| {
        profile.algorithm = Some(Algorithm::ChannelsLast);
    });
    let layer = GpuGroupNorm::new(&subject.gpu, options(2)).unwrap();
    let plan = layer.plan_inference(&[2, 4, 3000], DType::F32, (true, true));
    assert_eq!(plan.unwrap().algorithm(), Algorithm::ChannelsLast);
}

/// Buffers of the caller's: their sizes, what is missing or not wanted, diff_src over diff_dst.
#[test]
fn buffers_of_the_caller() {
    let subject = one(false);
    let gpu = &subject.gpu;
    let layer = GpuGroupNorm::new(gpu, options(2)).unwrap();
    let types = DTypes::from(DType::F16).with_statistics(DType::F16);
    let plan = layer.plan_backward(&[3, 4, 5], types, false).unwrap();
    let sizes = plan.sizes();
    assert_eq!((sizes.src, sizes.mean, sizes.gamma), (120, 12, None));
    assert_eq!((sizes.diff_gamma, sizes.diff_beta), (Some(8), Some(8)));
    assert_eq!(plan.padded_sizes().mean, 16);
    let forward = GroupNormForwardOperands::default();
    let forward = layer.plan_forward(&[3, 4, 5], types, forward).unwrap();
    assert_eq!((forward.sizes().dst, forward.sizes().mean), (120, 12));

    let halves = |values: &[f32]| -> Vec<u8> {
        let halves: Vec<f16> = values.iter().map(|&x| f16::from_f32(x)).collect();
        bytemuck::cast_slice(&halves).to_vec()
    };
    let src: Vec<f32> = (0..60).map(|i| (i * 7 % 13) as f32).collect();
    let diff: Vec<f32> = (0..60).map(|i| (i * 5 % 11) as f32 - 5.0).collect();
    let [src, diff] = [src, diff].map(|values| subject.buffer(120, &halves(&values)));
    let [mean, variance] = [6.0, 13.0].map(|value| subject.buffer(12, &halves(&[value; 6])));
    let [diff_gamma, diff_beta] = [(); 2].map(|()| subject.buffer(8, &[]));
    let apart = subject.buffer(120, &[]);
    let bind = |diff_src: &wgpu::Buffer, gamma: Option<&wgpu::Buffer>, beta: bool| {
        plan.bind(
            gpu,
            &GroupNormBackwardBuffers {
                src: (&src).into(),
                diff_dst: (&diff).into(),
                mean: (&mean).into(),
                variance: (&variance).into(),
                gamma: gamma.map(BufferRange::from),
                diff_src: diff_src.into(),
                diff_gamma: Some((&diff_gamma).into()),
                diff_beta: beta.then(|| (&diff_beta).into()),
                workspace: None,
                beta: None,
                mask: None,
                diff_residual: None,
            },
        )
    };
    says(&bind(&apart, Some(&mean), true).unwrap_err(), &["gamma"]);
    says(&bind(&apart, None, false).unwrap_err(), &["diff_beta"]);
    says(&bind(&mean, None, true).unwrap_err(), &["diff_src"]);
    let run = |diff_src: &wgpu::Buffer| {
        let bound = bind(diff_src, None, true).unwrap();
        let mut encoder = gpu.device().create_command_encoder(&Default::default());
        bound.record(&mut encoder);
        gpu.queue().submit([encoder.finish()]);
        subject.read(diff_src)
    };
    // Into another buffer, and in place.
    assert_eq!(run(&apart), run(&diff));
}

/// The operators of other libraries give what the layer gives, under their own names.
#[test]
fn operators_are_the_layer() {
    use wgpu_norm::operators::{onednn, onnx, pytorch};
    let gpu = &one(false).gpu;
    let mut random = Random::new(9);
    let shape = &[3, 6, 10];
    let (src, diff_dst): (Vec<f32>, Vec<f32>) =
        (random.vec(180, 1.0, 0.5), random.vec(180, 1.0, 0.0));
    let (gamma, beta): (Vec<f32>, Vec<f32>) = (random.vec(6, 1.0, 0.0), random.vec(6, 1.0, 0.0));
    let layer = GpuGroupNorm::new(gpu, GroupNormOptions::new(3)).unwrap();
    let want = layer.forward(GroupNormForwardArgs {
        shape,
        src: &src,
        gamma: Some(&gamma),
        beta: Some(&beta),
        residual: None,
    });
    let want = block_on(want).unwrap();
    let grads = layer.backward(GroupNormBackwardArgs {
        shape,
        src: &src,
        diff_dst: &diff_dst,
        mean: &want.mean,
        variance: &want.variance,
        gamma: Some(&gamma),
        beta: None,
        mask: None,
    });
    let grads = block_on(grads).unwrap();

    let op = pytorch::NativeGroupNorm {
        group: 3,
        eps: 1e-5,
    };
    let inputs = pytorch::NativeGroupNormInputs {
        input: &src,
        weight: Some(&gamma[..]),
        bias: Some(&beta),
        sizes: *shape,
    };
    let saved = block_on(op.forward(gpu, inputs)).unwrap();
    assert_eq!((&saved.output, &saved.mean), (&want.dst, &want.mean));
    let op = pytorch::NativeGroupNormBackward {
        group: 3,
        output_mask: [true, false, true],
    };
    let inputs = pytorch::NativeGroupNormBackwardInputs {
        grad_out: &diff_dst,
        input: &src,
        mean: &saved.mean,
        rstd: &saved.rstd,
        weight: Some(&gamma[..]),
        sizes: *shape,
    };
    let outputs = block_on(op.backward(gpu, inputs)).unwrap();
    near(&outputs.grad_input.unwrap(), &grads.diff_src);
    assert_eq!(outputs.grad_weight, None);
    near(
        &outputs.grad_bias.unwrap(),
        grads.diff_beta.as_ref().unwrap(),
    );

    let inputs = onnx::GroupNormalizationInputs {
        shape,
        x: &src,
        scale: &gamma,
        bias: &beta,
    };
    let y = block_on(onnx::GroupNormalization::new(3).forward(gpu, inputs)).unwrap();
    assert_eq!(y, want.dst);
    let instance = block_on(onnx::InstanceNormalization::default().forward(gpu, inputs)).unwrap();
    let of_channels = block_on(onnx::GroupNormalization::new(6).forward(gpu, inputs)).unwrap();
    assert_eq!(instance, of_channels);

    let op = onednn::GroupNormalization::new(3, 1e-5);
    let inputs = onednn::GroupNormalizationInputs {
        shape,
        src: &src,
        mean: None,
        variance: None,
        scale: Some(&gamma[..]),
        shift: Some(&beta),
    };
    let outputs = block_on(op.forward(gpu, inputs)).unwrap();
    near(&outputs.dst, &want.dst);
    let (mean, variance) = (outputs.mean.unwrap(), outputs.variance.unwrap());
    let global = onednn::GroupNormalization {
        use_global_stats: true,
        ..op
    };
    let error = block_on(global.forward(gpu, inputs)).unwrap_err();
    says(&error, &["mean", "use_global_stats"]);
    let given = onednn::GroupNormalizationInputs {
        mean: Some(&mean[..]),
        variance: Some(&variance),
        ..inputs
    };
    let outputs = block_on(global.forward(gpu, given)).unwrap();
    near(&outputs.dst, &want.dst);
    assert_eq!(outputs.mean, None);
    assert!(block_on(op.forward(gpu, given)).is_err());
    let backward = onednn::GroupNormalizationBackward::new(3, 1e-5);
    let inputs = onednn::GroupNormalizationBackwardInputs {
        shape,
        src: &src,
        mean: &mean,
        variance: &variance,
        diff_dst: &diff_dst,
        scale: Some(&gamma[..]),
    };
    let outputs = block_on(backward.backward(gpu, inputs)).unwrap();
    near(&outputs.diff_src, &grads.diff_src);
    near(&outputs.diff_scale.unwrap(), &grads.diff_gamma.unwrap());
}

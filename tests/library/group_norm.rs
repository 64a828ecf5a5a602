//! Group norm and instance norm: numbers worked out by hand, identities, random problems compared with the reference,
//! errors. For every kernel with any shape, see verify.rs.

use crate::common::buffers::{Buffers, Room, submit, with};
use crate::common::data::{Problem, assert_close, close, near};
use crate::common::errors::{says, still_works};
use crate::common::{Noop, Subject, one, random_cases, subjects};
use pollster::block_on;
use proptest::prelude::*;
use proptest::test_runner::{Config, RngSeed, TestRunner};
use wgpu_norm::{
    Algorithm, Backward, BackwardArgs, BufferRange, BufferUse, DType, DTypes, DataFormat, Error,
    Forward, ForwardArgs, GpuGroupNorm, GpuInstanceNorm, GroupNormOptions, InferenceArgs,
    InstanceNormOptions, Norm, Operation, Pass, SavedRef, Tensor, Tuning,
};
use wgpu_norm_verify::{Case, Outcome};

fn options(groups: usize) -> GroupNormOptions {
    GroupNormOptions::new(groups, DataFormat::Ncx).epsilon(1.0)
}

fn operation(pass: impl Into<Pass>, groups: usize, shape: &[usize]) -> Operation {
    let format = DataFormat::Ncx;
    Operation::new(Norm::group(groups, format), pass, shape, DType::F32).with_epsilon(1.0)
}

/// Two samples of four channels with one element, in two groups. With epsilon 1, a group of ±√3 around its mean has
/// r = 1/2.
#[test]
fn numbers_worked_out_by_hand() {
    let d = 3_f32.sqrt();
    let (shape, src) = (
        [2, 4],
        [1.0 - d, 1.0 + d, 5.0 + d, 5.0 - d, -d, d, 2.0, 2.0],
    );
    let (mean, variance) = ([1.0, 5.0, 0.0, 2.0], [3.0, 3.0, 3.0, 0.0]);
    let (gamma, beta) = ([2.0, 0.0, 1.0, 4.0], [0.0, 7.0, 1.0, 0.0]);
    let half = d / 2.0; // |x̂|
    let dst = [-d, 7.0, 1.0 + half, -4.0 * half, -d, 7.0, 1.0, 0.0];
    let diff_dst = [1.0, 5.0, 2.0, 0.0, 0.0, 0.0, 1.0, 1.0];
    for subject in subjects() {
        let layer = GpuGroupNorm::new(&subject.gpu, options(2)).unwrap();
        let args = ForwardArgs::new(&shape, &src).gamma(&gamma).beta(&beta);
        let output = block_on(layer.forward(args)).unwrap();
        near(&output.saved.mean, &mean);
        near(&output.saved.variance, &variance);
        near(&output.dst, &dst);
        let args = InferenceArgs::new(&shape, &src, SavedRef::moments(&mean, &variance));
        let args = args.gamma(&gamma).beta(&beta);
        near(&block_on(layer.infer(args)).unwrap(), &dst);

        let args = BackwardArgs::new(&shape, &src, &diff_dst, SavedRef::moments(&mean, &variance));
        let grads = block_on(layer.backward(args.gamma(&gamma))).unwrap();
        // First group: gamma · d = (2, 0), so a = 1 and b = (2 · -x̂ + 0) / 2 = -half. With x̂ = ∓half:
        // r · ((2 - 1) - half²) and r · ((0 - 1) + half²), where half² is 3/4.
        let first = [0.125, -0.125];
        // Second group: also (2, 0), with x̂ = ±half.
        let second = [0.125, -0.125];
        // In the last group x̂ is 0 and r is 1: (1, 4) minus its mean.
        let diff_src = [first, second, [0.0, 0.0], [-1.5, 1.5]].concat();
        near(&grads.diff_src, &diff_src);
        near(&grads.diff_beta.unwrap(), &[1.0, 5.0, 3.0, 1.0]);
        let diff_gamma = [-half, 5.0 * half, 2.0 * half, 0.0];
        near(&grads.diff_gamma.unwrap(), &diff_gamma);
    }
}

/// For one sample, instance norm is batch norm; for G = 1 and constant gamma, group norm is layer norm.
#[test]
fn special_cases_are_other_norms() {
    let shape = &[1, 8, 15];
    let batch = Norm::batch(DataFormat::Ncx);
    let forward = Operation::new(batch, Forward::default(), shape, DType::F32);
    let forward = forward.with_params(true, false);
    let gradient = forward.gradient().unwrap();
    let [forward, gradient] = [forward, gradient].map(|operation| Problem::random(&operation, 7));
    let rows = Norm::layer(1);
    let rows = Operation::new(rows, Forward::default(), &[2, 60], DType::F32);
    let rows = Problem::random(&rows.with_params(false, false), 7);
    let [want, wanted, of_rows] = [&forward, &gradient, &rows].map(Problem::reference);
    for subject in subjects() {
        let what = &subject.name;
        let layer =
            GpuInstanceNorm::new(&subject.gpu, InstanceNormOptions::new(DataFormat::Ncx)).unwrap();
        let [src, gamma] = [Tensor::Src, Tensor::Gamma].map(|t| forward.elements::<f32>(t));
        let args = ForwardArgs::new(shape, &src).gamma(&gamma);
        let output = block_on(layer.forward(args)).unwrap();
        close(&output.dst, &want, Tensor::Dst, what);
        close(&output.saved.mean, &want, Tensor::Mean, what);
        let given = [
            Tensor::Src,
            Tensor::DiffDst,
            Tensor::Gamma,
            Tensor::Mean,
            Tensor::Variance,
        ];
        let [src, diff_dst, gamma, mean, variance] = given.map(|t| gradient.elements::<f32>(t));
        let args = BackwardArgs::new(shape, &src, &diff_dst, SavedRef::moments(&mean, &variance));
        let grads = block_on(layer.backward(args.gamma(&gamma))).unwrap();
        close(&grads.diff_src, &wanted, Tensor::DiffSrc, what);
        close(&grads.diff_gamma.unwrap(), &wanted, Tensor::DiffGamma, what);

        let layer =
            GpuGroupNorm::new(&subject.gpu, GroupNormOptions::new(1, DataFormat::Ncx)).unwrap();
        let src = rows.elements::<f32>(Tensor::Src);
        let output = block_on(layer.forward(ForwardArgs::new(&[2, 4, 15], &src))).unwrap();
        close(&output.dst, &of_rows, Tensor::Dst, what);
        close(&output.saved.variance, &of_rows, Tensor::Variance, what);
    }
}

/// Any operator, layout, length, type and number of groups, with and without windows.
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
    let inputs = (operators, types, settings, sizes, any::<bool>(), 0..4usize);
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
            let shape = match ncx {
                true => format!("{n}x{channels}x{height}x{width}/ncx"),
                false => format!("{n}x{height}x{width}x{channels}/nxc"),
            };
            let of_groups = match operator.starts_with("group") {
                true => format!("/groups_{groups}"),
                false => String::new(),
            };
            let extra = ["/no_gamma", "/exact", "/pooled", ""][choice];
            let id = format!("{operator}/{shape}{of_groups}/{types}/{setting}{extra}");
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
        let gpu = subject.with_tuning("gpu", Tuning::GPU).gpu;
        let operation = operation(Backward::default(), groups, shape);
        let plan = operation.plan(gpu.profile()).unwrap();
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
    let args = BackwardArgs::new(
        &[2, 4, 3],
        &src,
        &diff_dst,
        SavedRef::moments(&mean, &variance),
    );
    block_on(layer.backward(args.gamma(&gamma))).map(drop)
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
            let error = lengths_of(subject, lengths).unwrap_err();
            assert!(matches!(error, Error::Length { .. }), "{error}");
            let want = format!("{tensor}: expected {} elements", expected[index]);
            says(&error, &[&want, &format!(", got {got}")]);
            still_works(subject);
        }
    }
    let of_groups = |options, shape: &[usize]| -> Error {
        let layer = GpuGroupNorm::new(&subject.gpu, options).unwrap();
        let args = BackwardArgs::<f32>::new(shape, &[], &[], SavedRef::moments(&[], &[]));
        block_on(layer.backward(args)).unwrap_err()
    };
    let of_channels = |shape: &[usize], src: &[f32], variance: &[f32]| -> Error {
        let layer =
            GpuInstanceNorm::new(&subject.gpu, InstanceNormOptions::new(DataFormat::Ncx)).unwrap();
        let args = BackwardArgs::new(shape, src, src, SavedRef::moments(&[0.0; 2], variance));
        block_on(layer.backward(args)).unwrap_err()
    };
    for (groups, format, channels) in [
        (0, DataFormat::Ncx, "4"),
        (3, DataFormat::Ncx, "4"),
        (usize::MAX, DataFormat::Ncx, "4"),
        (2, DataFormat::Nxc, "3"),
    ] {
        let error = of_groups(GroupNormOptions::new(groups, format), &[2, 4, 3]);
        says(
            &error,
            &["groups: expected", "divides", channels, &groups.to_string()],
        );
    }
    for shape in [&[][..], &[4], &[1; 9]] {
        for error in [of_groups(options(1), shape), of_channels(shape, &[], &[])] {
            let is_rank = matches!(error, Error::Rank { min: 2, max: 8, .. });
            assert!(is_rank, "{error}");
        }
    }
    for shape in [
        [1 << 20, 1 << 20, 1],
        [usize::MAX, 4, 0],
        [2, 4, usize::MAX],
    ] {
        let error = of_groups(options(2), &shape);
        assert!(matches!(error, Error::SizeOverflow { .. }), "{error}");
    }
    for epsilon in [0.0, -1.0, f64::NAN] {
        let options = InstanceNormOptions::new(DataFormat::Ncx).epsilon(epsilon);
        let error = GpuInstanceNorm::new(&subject.gpu, options).unwrap_err();
        assert!(matches!(error, Error::Epsilon { .. }), "{error}");
    }
    let layer = GpuGroupNorm::new(&subject.gpu, options(2)).unwrap();
    let statistics = SavedRef::moments(&[0.0; 2], &[1.0, -1.0]);
    let args = BackwardArgs::new(&[1, 2, 1], &[0.0_f32; 2], &[0.0; 2], statistics);
    let error = block_on(layer.backward(args)).unwrap_err();
    says(&error, &["variance", "group 1"]);
    for (variance, wrong) in [
        (&[1.0, -1.0][..], "channel 1"),
        (&[1.0, f32::INFINITY], "channel 1"),
        (
            &[1.0],
            "expected 2 elements (shape [1, 2] for data of [1, 2, 1]), got 1",
        ),
    ] {
        let error = of_channels(&[1, 2, 1], &[0.0; 2], variance);
        says(&error, &["variance", wrong]);
    }
}

/// With given statistics there are no partial sums; long planes read as columns would have too many.
#[test]
fn inference_takes_any_walk() {
    let noop = Noop::default();
    let subject = noop.subject.with_profile("columns", |profile| {
        profile.algorithm = Some(Algorithm::ChannelsLast);
    });
    let plan = operation(Pass::Inference, 2, &[2, 4, 3000]).plan(subject.gpu.profile());
    assert_eq!(plan.unwrap().algorithm(), Algorithm::ChannelsLast);
}

/// The caller's buffers: their sizes, missing and unwanted ones, diff_src over diff_dst.
#[test]
fn buffers_of_the_caller() {
    let subject = one(false);
    let gpu = &subject.gpu;
    let of_halves = |pass: Pass| {
        let mut operation = operation(pass, 2, &[3, 4, 5]).with_params(false, false);
        operation.types = DTypes::from(DType::F16).with_statistics(DType::F16);
        let plan = operation.plan(gpu.profile()).unwrap();
        (Problem::random(&operation, 5), plan)
    };
    let (problem, plan) = of_halves(Backward::default().into());
    let (_, forward) = of_halves(Forward::default().into());
    let size = |used: Vec<BufferUse>, tensor| {
        let found = used.into_iter().find(|used| used.tensor == tensor);
        found.map(|used| (used.bytes, used.padded_bytes))
    };
    for (tensor, want) in [
        (Tensor::Src, Some((120, 120))),
        (Tensor::Mean, Some((12, 16))),
        (Tensor::Gamma, None),
        (Tensor::DiffGamma, Some((8, 8))),
        (Tensor::DiffBeta, Some((8, 8))),
    ] {
        assert_eq!(size(plan.buffers(), tensor), want, "{tensor:?}");
    }
    for (tensor, want) in [(Tensor::Dst, (120, 120)), (Tensor::Mean, (12, 16))] {
        assert_eq!(size(forward.buffers(), tensor), Some(want), "{tensor:?}");
    }

    let buffers = Buffers::new(subject, &problem, &plan, Room::Exact);
    let ranges = buffers.ranges();
    let mean = BufferRange::from(buffers.of(Tensor::Mean));
    let fails = |tensor: Tensor, range| {
        let error = plan.bind(gpu, &with(&ranges, tensor, range)).unwrap_err();
        says(&error, &[tensor.name()]);
    };
    fails(Tensor::Gamma, Some(mean));
    fails(Tensor::DiffBeta, None);
    fails(Tensor::DiffSrc, Some(mean));
    // Into another buffer, and in place.
    submit(subject, &plan.bind(gpu, &ranges).unwrap());
    let what = &subject.name;
    assert_close(
        &buffers.results(subject, &problem),
        &problem.reference(),
        what,
    );
    let diff_dst = buffers.of(Tensor::DiffDst);
    let in_place = with(&ranges, Tensor::DiffSrc, Some(diff_dst.into()));
    submit(subject, &plan.bind(gpu, &in_place).unwrap());
    let apart = subject.read(buffers.of(Tensor::DiffSrc));
    assert_eq!(apart, subject.read(diff_dst));
}

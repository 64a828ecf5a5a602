//! Every bad input is a typed error that names the argument, what was expected and what was given, and
//! leaves the context working.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod common;

use common::buffers::{Buffers, Room, plan, range};
use common::data::{Case, options_in};
use common::{Noop, OwnDevices, Subject, one, subjects};
use half::{bf16, f16};
use pollster::block_on;
use std::future::Future;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};
use std::task::{Context, Poll, Waker};
use std::time::Duration;
use wgpu_norm::{
    BatchNormArgs, BatchNormBuffers, BatchNormOptions, BufferRange, ContextOptions, DType,
    DataFormat, DeviceOptions, Element, Error, GpuBatchNorm, GpuContext, GpuLayerNorm,
    LayerNormBuffers, LayerNormOptions, ParamGrads, ParamOf, Profile,
};

fn case() -> Case<f32, f32> {
    Case::random(&[2, 3, 5], options_in(DataFormat::Ncx), 1)
}

/// The context takes a right call after a wrong one.
fn still_works(subject: &Subject) {
    let case = case();
    let grads = case.run(subject).unwrap();
    assert_eq!(grads.diff_src.len(), 30);
    assert_eq!(grads.diff_gamma.unwrap().len(), 3);
    let buffers = Buffers::new(subject, &case, Room::Exact);
    let _ = plan(subject, &case)
        .bind(&subject.gpu, &buffers.ranges())
        .unwrap();
}

/// The error's message has all these parts.
#[track_caller]
fn says(error: &Error, parts: &[&str]) {
    let message = error.to_string();
    for part in parts {
        assert!(message.contains(part), "'{message}' lacks '{part}'");
    }
}

#[test]
fn lengths() {
    let noop = Noop::default();
    let change = |tensor: &str, by: isize| {
        let mut case = case();
        let values = match tensor {
            "src" => &mut case.src,
            "diff_dst" => &mut case.diff_dst,
            "mean" => &mut case.mean,
            "variance" => &mut case.variance,
            _ => case.gamma.as_mut().unwrap(),
        };
        let got = values.len().checked_add_signed(by).unwrap();
        values.resize(got, 1.0);
        (case, got)
    };
    for (tensor, expected) in [
        ("src", 30),
        ("diff_dst", 30),
        ("mean", 3),
        ("variance", 3),
        ("gamma", 3),
    ] {
        for by in [-1, 1, -(expected as isize)] {
            let (case, got) = change(tensor, by);
            let error = case.run(&noop.subject).unwrap_err();
            let want = Error::Length {
                tensor,
                expected,
                got,
            };
            assert_eq!(error, want);
            let (expected, got) = (expected.to_string(), got.to_string());
            says(&error, &[tensor, &expected, &got]);
            still_works(&noop.subject);
        }
    }
}

#[test]
fn ranks() {
    let noop = Noop::default();
    for rank in [0, 1, 9] {
        let mut case = case();
        case.shape = vec![1; rank];
        let error = case.run(&noop.subject).unwrap_err();
        let want = Error::Rank {
            tensor: "src",
            min: 2,
            max: 8,
            got: rank,
        };
        assert_eq!(error, want);
        says(&error, &["src", "2", "8", &rank.to_string()]);
        still_works(&noop.subject);
    }
}

#[test]
fn epsilons() {
    let noop = Noop::default();
    let gpu = &noop.subject.gpu;
    for epsilon in [0.0, -0.0, -1e-5, f64::NAN, f64::INFINITY, -f64::INFINITY] {
        let error = GpuBatchNorm::new(gpu, BatchNormOptions::new(epsilon)).unwrap_err();
        let Error::Epsilon { got, .. } = error else {
            panic!("{error:?}");
        };
        assert_eq!(got.to_bits(), epsilon.to_bits());
        says(&error, &["epsilon", "above 0", &format!("{epsilon:e}")]);
    }
    // In the type that it is used in: as f32 0, subnormal (which an adapter may take for 0) and infinity.
    for (epsilon, used) in [
        (1e-60, 0.0),
        (1e-40, f64::from(1e-40_f32)),
        (1e60, f64::INFINITY),
    ] {
        let layer = GpuBatchNorm::new(gpu, BatchNormOptions::new(epsilon)).unwrap();
        let want = Error::Epsilon {
            got: epsilon,
            used,
            dtype: DType::F32,
        };
        for dtype in [DType::F32, DType::F16, DType::Bf16] {
            let error = layer.plan(&[2, 3], dtype, dtype, false).unwrap_err();
            assert_eq!(error, want);
        }
        let mut case = case();
        case.options.epsilon = epsilon;
        let error = case.run(&noop.subject).unwrap_err();
        assert_eq!(error, want);
        says(&error, &["epsilon", &format!("{epsilon:e}"), "f32"]);
        still_works(&noop.subject);
    }
    // f64 data can use them.
    let noop = Noop::new(wgpu::Limits::default(), wgpu::Features::SHADER_F64);
    for epsilon in [1e-60, 1e60] {
        let layer = GpuBatchNorm::new(&noop.subject.gpu, BatchNormOptions::new(epsilon)).unwrap();
        let _ = layer.plan(&[2, 3], DType::F64, DType::F64, true).unwrap();
    }
}

#[test]
fn variances() {
    let noop = Noop::default();
    let epsilon = 1e-5;
    // The last is 0 in f32, where kernels add, though not in f64.
    for bad in [-1.0, -2e-5, f32::NEG_INFINITY, -(epsilon as f32)] {
        let mut case = case();
        case.variance[1] = bad;
        case.variance[2] = -7.0;
        let error = case.run(&noop.subject).unwrap_err();
        let want = Error::Variance {
            group: "channel",
            channel: 1,
            variance: f64::from(bad),
            epsilon,
        };
        assert_eq!(error, want);
        says(&error, &["variance", "channel 1", "above 0", "0.00001"]);
        still_works(&noop.subject);
    }
    fn halves<T: Element, P: ParamOf<T>>(noop: &Noop) {
        let mut case = Case::<T, P>::random(&[2, 3, 5], options_in(DataFormat::Ncx), 1);
        case.variance[2] = P::from_f64(-0.5);
        let error = case.run(&noop.subject).unwrap_err();
        assert!(
            matches!(error, Error::Variance { channel: 2, .. }),
            "{error:?}"
        );
    }
    halves::<f16, f16>(&noop);
    halves::<bf16, bf16>(&noop);
    // Not an error: zero, small negative noise within epsilon, and what the data may be.
    for good in [0.0, -0.0, -1e-6, f32::NAN, f32::INFINITY, f32::MAX] {
        let mut case = case();
        case.variance[1] = good;
        case.run(&noop.subject).unwrap();
    }
}

#[test]
fn element_types() {
    let noop = Noop::default();
    let mut case = Case::<f64, f64>::random(&[2, 3, 5], options_in(DataFormat::Ncx), 1);
    let error = case.run(&noop.subject).unwrap_err();
    let adapter = noop.subject.gpu.profile().adapter.clone();
    let want = Error::UnsupportedDType {
        dtype: DType::F64,
        needs: "SHADER_F64",
        adapter,
    };
    assert_eq!(error, want);
    says(
        &error,
        &["f64", "SHADER_F64", &noop.subject.gpu.profile().adapter],
    );
    still_works(&noop.subject);
    let with_f64 = Noop::new(wgpu::Limits::default(), wgpu::Features::SHADER_F64);
    case.run(&with_f64.subject).unwrap();
    case.gamma = None;
    case.run(&with_f64.subject).unwrap();

    let layer = GpuBatchNorm::new(&with_f64.subject.gpu, BatchNormOptions::new(1e-5)).unwrap();
    for data in DType::ALL {
        for params in DType::ALL {
            let narrow = matches!(data, DType::F16 | DType::Bf16);
            let allowed = data == params || (narrow && params == DType::F32);
            match layer.plan(&[2, 3], data, params, true) {
                Ok(_) => assert!(allowed, "{data}/{params}"),
                Err(error) => {
                    assert!(!allowed, "{data}/{params}");
                    assert_eq!(error, Error::ParamDType { data, params });
                    let (data, params) = (data.to_string(), params.to_string());
                    says(&error, &["mean, variance and gamma", &data, &params]);
                }
            }
        }
    }
}

#[test]
fn sizes_that_overflow() {
    let noop = Noop::default();
    let layer = GpuBatchNorm::new(&noop.subject.gpu, BatchNormOptions::new(1e-5)).unwrap();
    for shape in [
        vec![usize::MAX, 2],
        vec![1 << 32, 1 << 32],
        vec![1 << 16, 1 << 16],
        vec![usize::MAX; 8],
        vec![0, usize::MAX, usize::MAX],
        vec![1 << 31, 0, 1 << 31],
    ] {
        let error = layer
            .plan(&shape, DType::F32, DType::F32, true)
            .unwrap_err();
        let Error::SizeOverflow {
            what, shape: got, ..
        } = &error
        else {
            panic!("{error:?}");
        };
        assert_eq!(*what, "src");
        assert_eq!(*got, shape);
        says(&error, &["src", &format!("{shape:?}")]);
        let mut case = case();
        case.shape = shape;
        assert_eq!(case.run(&noop.subject).unwrap_err(), error);
        still_works(&noop.subject);
    }
}

/// All buffers of the case, each by its name.
const NAMES: [&str; 8] = [
    "src",
    "diff_dst",
    "mean",
    "variance",
    "gamma",
    "diff_src",
    "diff_gamma",
    "diff_beta",
];

/// The argument of this name.
fn argument<'r, 'a>(ranges: &'r mut BatchNormBuffers<'a>, name: &str) -> &'r mut BufferRange<'a> {
    match name {
        "src" => &mut ranges.src,
        "diff_dst" => &mut ranges.diff_dst,
        "mean" => &mut ranges.mean,
        "variance" => &mut ranges.variance,
        "gamma" => ranges.gamma.as_mut().unwrap(),
        "diff_src" => &mut ranges.diff_src,
        "diff_gamma" => ranges.diff_gamma.as_mut().unwrap(),
        "diff_beta" => ranges.diff_beta.as_mut().unwrap(),
        "sums" => ranges.sums.as_mut().unwrap(),
        "workspace" => ranges.workspace.as_mut().unwrap(),
        other => panic!("{other}"),
    }
}

/// Binds the case's buffers after a change to one of them, which `replacement` may be put into.
struct Binding {
    noop: Noop,
    case: Case<f32, f32>,
}

impl Binding {
    fn new() -> Self {
        Self {
            noop: Noop::default(),
            case: case(),
        }
    }

    fn bytes(&self, name: &str) -> u64 {
        let plan = plan(&self.noop.subject, &self.case);
        match name {
            "src" | "diff_dst" | "diff_src" => 120,
            "sums" => plan.sums_size(),
            "workspace" => plan.workspace_size(),
            _ => 12,
        }
    }

    /// The error of binding, after which the right buffers still bind.
    fn error(&self, change: impl FnOnce(&mut BatchNormBuffers<'_>)) -> Error {
        let subject = &self.noop.subject;
        let buffers = Buffers::new(subject, &self.case, Room::Exact);
        let plan = plan(subject, &self.case);
        let sums = subject.buffer(plan.sums_size(), &[]);
        let workspace = subject.buffer(plan.workspace_size(), &[]);
        let right = || BatchNormBuffers {
            sums: Some((&sums).into()),
            workspace: Some((&workspace).into()),
            ..buffers.ranges()
        };
        // The closure may only put in what lives as long as these.
        let mut wrong = right();
        change(&mut wrong);
        let error = plan.bind(&subject.gpu, &wrong).map(|_| ()).unwrap_err();
        let _ = plan.bind(&subject.gpu, &right()).unwrap();
        still_works(subject);
        error
    }

    /// The error of binding with another range in one argument's place.
    fn with(&self, name: &str, range: BufferRange<'_>) -> Error {
        let subject = &self.noop.subject;
        let buffers = Buffers::new(subject, &self.case, Room::Exact);
        let plan = plan(subject, &self.case);
        let sums = subject.buffer(plan.sums_size(), &[]);
        let workspace = subject.buffer(plan.workspace_size(), &[]);
        let mut ranges = BatchNormBuffers {
            sums: Some((&sums).into()),
            workspace: Some((&workspace).into()),
            ..buffers.ranges()
        };
        *argument(&mut ranges, name) = range;
        let error = plan.bind(&subject.gpu, &ranges).map(|_| ()).unwrap_err();
        still_works(subject);
        error
    }

    fn names() -> impl Iterator<Item = &'static str> {
        NAMES.into_iter().chain(["sums", "workspace"])
    }
}

#[test]
fn buffers_too_small() {
    let test = Binding::new();
    let subject = &test.noop.subject;
    for name in Binding::names() {
        let expected = test.bytes(name);
        let large = subject.buffer(1 << 12, &[]);
        for (range, got) in [
            ((&subject.buffer(expected - 4, &[])).into(), expected - 4),
            (range(&large, 0, expected - 4), expected - 4),
            (range(&large, 256, 0), 0),
            (range(&large, 1 << 12, 0), 0),
        ] {
            let error = test.with(name, range);
            let want = Error::BufferSize {
                tensor: name_of(name),
                expected,
                got,
            };
            assert_eq!(error, want);
            says(&error, &[name, &expected.to_string(), &got.to_string()]);
        }
        // Beyond the buffer, also where the tensor itself would fit.
        for (offset, size) in [
            (256, 1 << 20),
            (0, (1 << 12) + 4),
            (1 << 12, 1 << 20),
            (1 << 20, 1 << 20),
            (1 << 20, 0),
            (u64::MAX - 255, 1 << 20),
        ] {
            let error = test.with(name, range(&large, offset, size));
            let want = Error::BufferRange {
                tensor: name_of(name),
                offset,
                size,
                buffer: 1 << 12,
            };
            assert_eq!(error, want);
            says(
                &error,
                &[name, "4096", &size.to_string(), &offset.to_string()],
            );
        }
    }
}

/// The same name as the error's.
fn name_of(name: &str) -> &'static str {
    Binding::names().find(|n| *n == name).unwrap()
}

#[test]
fn buffers_misaligned() {
    let test = Binding::new();
    let large = test.noop.subject.buffer(1 << 16, &[]);
    let alignment = u64::from(wgpu::Limits::default().min_storage_buffer_offset_alignment);
    for name in Binding::names() {
        for offset in [1, 4, 32, alignment - 4, alignment + 16] {
            let error = test.with(name, range(&large, offset, 1 << 12));
            let want = Error::BufferAlignment {
                tensor: name_of(name),
                offset,
                alignment,
            };
            assert_eq!(error, want);
            says(&error, &[name, &offset.to_string(), &alignment.to_string()]);
        }
    }
}

#[test]
fn buffers_without_storage() {
    let test = Binding::new();
    let usage = wgpu::BufferUsages::COPY_DST | wgpu::BufferUsages::UNIFORM;
    let plain = test
        .noop
        .subject
        .gpu
        .device()
        .create_buffer(&wgpu::BufferDescriptor {
            label: None,
            size: 1 << 12,
            usage,
            mapped_at_creation: false,
        });
    for name in Binding::names() {
        let error = test.with(name, (&plain).into());
        let want = Error::BufferUsage {
            tensor: name_of(name),
            expected: wgpu::BufferUsages::STORAGE,
            got: usage,
        };
        assert_eq!(error, want);
        says(&error, &[name, "STORAGE", "UNIFORM"]);
    }
}

#[test]
fn buffers_missing_or_superfluous() {
    let test = Binding::new();
    let missing = |tensor| Error::BufferPresence {
        tensor,
        expected: true,
    };
    assert_eq!(test.error(|b| b.gamma = None), missing("gamma"));
    assert_eq!(test.error(|b| b.diff_gamma = None), missing("diff_gamma"));
    assert_eq!(test.error(|b| b.diff_beta = None), missing("diff_beta"));
    says(&missing("gamma"), &["gamma"]);

    let mut test = Binding::new();
    test.case.gamma = None;
    test.case.options.param_grads = ParamGrads::Frozen;
    for name in ["gamma", "diff_gamma", "diff_beta"] {
        let error = test.error(|b| {
            let extra = Some(b.variance);
            match name {
                "gamma" => b.gamma = extra,
                "diff_gamma" => b.diff_gamma = extra,
                _ => b.diff_beta = extra,
            }
        });
        let want = Error::BufferPresence {
            tensor: name_of(name),
            expected: false,
        };
        assert_eq!(error, want);
        says(&error, &[name]);
    }
}

#[test]
fn buffers_of_another_device() {
    let test = Binding::new();
    let sibling = test.noop.sibling();
    let foreign = sibling.buffer(1 << 12, &[]);
    let destroyed = test.noop.subject.buffer(1 << 12, &[]);
    destroyed.destroy();
    for name in Binding::names() {
        for buffer in [&foreign, &destroyed] {
            let error = test.with(name, buffer.into());
            let Error::ForeignBuffer { tensor, .. } = &error else {
                panic!("{name}: {error:?}");
            };
            assert_eq!(*tensor, name);
            says(&error, &[name, "this context's device"]);
        }
    }
    // On its own device it is right.
    still_works(&sibling);
}

#[test]
fn ranges_that_overlap() {
    let mut test = Binding::new();
    test.case = Case::random(&[2, 70, 5], options_in(DataFormat::Ncx), 1); // 2800 and 280 bytes
    let overlap = |first, second| Error::Overlap { first, second };
    let subject = &test.noop.subject;
    let error = test.error(|b| b.diff_src = b.src);
    assert_eq!(error, overlap("src", "diff_src"));
    says(&error, &["src", "diff_src"]);
    let error = test.error(|b| b.diff_gamma = b.diff_beta);
    assert_eq!(error, overlap("diff_gamma", "diff_beta"));
    let error = test.error(|b| b.diff_beta = b.gamma);
    assert_eq!(error, overlap("gamma", "diff_beta"));
    let error = test.error(|b| b.sums = b.workspace);
    assert_eq!(error, overlap("workspace", "sums"));
    let error = test.error(|b| b.mean = b.workspace.unwrap());
    assert_eq!(error, overlap("workspace", "mean"));

    // diff_src over a part of diff_dst, and one byte too near; then right beside it.
    let plan = plan(subject, &test.case);
    let pool = subject.buffer(1 << 14, &[]);
    let own = Buffers::new(subject, &test.case, Room::Exact);
    let pooled = |diff_src| BatchNormBuffers {
        diff_dst: range(&pool, 0, 2800),
        diff_src: range(&pool, diff_src, 2800),
        ..own.ranges()
    };
    for offset in [256, 2560] {
        let error = plan.bind(&subject.gpu, &pooled(offset)).map(|_| ());
        assert_eq!(error.unwrap_err(), overlap("diff_dst", "diff_src"));
    }
    for offset in [0, 2816, 8192] {
        let _ = plan.bind(&subject.gpu, &pooled(offset)).unwrap();
    }
    // Sums at the end of a buffer, half inside of the workspace.
    let (sums, workspace) = (plan.sums_size(), plan.workspace_size());
    let offset = (workspace - 256) / 256 * 256;
    let end = subject.buffer((offset + sums).max(workspace), &[]);
    let ranges = BatchNormBuffers {
        workspace: Some(range(&end, 0, workspace)),
        sums: Some(range(&end, offset, sums)),
        ..own.ranges()
    };
    let error = plan.bind(&subject.gpu, &ranges).map(|_| ());
    assert_eq!(error.unwrap_err(), overlap("workspace", "sums"));
    // What is only read may overlap.
    let ranges = BatchNormBuffers {
        src: own.ranges().diff_dst,
        mean: own.ranges().variance,
        gamma: Some(own.ranges().variance),
        ..own.ranges()
    };
    let _ = plan.bind(&subject.gpu, &ranges).unwrap();
    // Tensors without elements overlap nothing.
    let empty = Case::<f32, f32>::random(&[0, 3, 5], options_in(DataFormat::Ncx), 1);
    let buffers = Buffers::new(subject, &empty, Room::Exact);
    let workspace = subject.buffer(4096, &[]);
    let ranges = BatchNormBuffers {
        workspace: Some((&workspace).into()),
        src: range(&workspace, 256, 0),
        diff_dst: range(&workspace, 512, 0),
        diff_src: range(&workspace, 768, 0),
        ..buffers.ranges()
    };
    let _ = common::buffers::plan(subject, &empty)
        .bind(&subject.gpu, &ranges)
        .unwrap();
    still_works(subject);
}

#[test]
fn layer_norm_has_no_halves() {
    let noop = Noop::default();
    let subject = &noop.subject;
    let options = LayerNormOptions {
        use_affine: false,
        ..LayerNormOptions::default()
    };
    let layer = GpuLayerNorm::new(&subject.gpu, options).unwrap();
    let plan = layer.plan(&[3, 4], DType::F32, DType::F32).unwrap();
    let [src, diff_dst, mean, variance, diff_src] = [48; 5].map(|size| subject.buffer(size, &[]));
    let ranges = LayerNormBuffers {
        src: (&src).into(),
        diff_dst: (&diff_dst).into(),
        mean: (&mean).into(),
        variance: (&variance).into(),
        gamma: None,
        diff_src: (&diff_src).into(),
        diff_gamma: None,
        diff_beta: None,
        workspace: None,
    };
    let bound = plan.bind(&subject.gpu, &ranges).unwrap();
    let device = subject.gpu.device();
    let mut encoder = device.create_command_encoder(&Default::default());
    let reduced = bound.record_reduce(&mut encoder);
    let applied = bound.record_apply(&mut encoder);
    for error in [reduced, applied].map(Result::unwrap_err) {
        assert!(matches!(error, Error::Argument { .. }), "{error:?}");
        says(&error, &["record_reduce", "batch norm", "layer norm"]);
    }
    bound.record(&mut encoder);
    subject.gpu.queue().submit([encoder.finish()]);
}

#[test]
fn limits_of_the_adapter() {
    let noop = Noop::default();
    let small = noop.subject.with_profile("small", |profile| {
        profile.max_buffer = 4096;
    });
    let large = Case::<f32, f32>::random(&[2, 3, 500], options_in(DataFormat::Ncx), 1);
    let error = large.run(&small).unwrap_err();
    let want = Error::Limit {
        what: "src".to_owned(),
        limit: "max_buffer_size",
        needed: 12_000,
        available: 4096,
    };
    assert_eq!(error, want);
    says(&error, &["src", "max_buffer_size", "12000", "4096"]);
    let tiny = Case::<f32, f32>::random(&[1, 1], options_in(DataFormat::Ncx), 1);
    tiny.run(&small).unwrap();
    // A device that does not allow four storage buffers cannot run the kernels.
    let limits = wgpu::Limits {
        max_storage_buffers_per_shader_stage: 3,
        ..wgpu::Limits::default()
    };
    let three = Noop::new(limits, wgpu::Features::empty());
    let error = case().run(&three.subject).unwrap_err();
    let want = Error::Limit {
        what: "a plan".to_owned(),
        limit: "max_storage_buffers_per_shader_stage",
        needed: 4,
        available: 3,
    };
    assert_eq!(error, want);
    let layer = GpuBatchNorm::new(&three.subject.gpu, case().options).unwrap();
    let error = layer.plan(&[2, 3, 5], DType::F32, DType::F32, true);
    assert_eq!(error.unwrap_err(), want);
    let layer = GpuLayerNorm::new(&three.subject.gpu, LayerNormOptions::default()).unwrap();
    let error = layer.plan(&[2, 3], DType::F32, DType::F32).unwrap_err();
    assert_eq!(error, want);
    says(
        &error,
        &["plan", "max_storage_buffers_per_shader_stage", "3"],
    );
    // Nor can one with smaller workgroups than any kernel has: it is the device's fault, not the plan's.
    let alone = wgpu::Limits {
        max_compute_invocations_per_workgroup: 1,
        max_compute_workgroup_size_x: 1,
        ..wgpu::Limits::default()
    };
    let unshared = wgpu::Limits {
        max_compute_workgroup_storage_size: 0,
        ..wgpu::Limits::default()
    };
    for (limits, limit, needed, available) in [
        (alone, "max_compute_invocations_per_workgroup", 4, 1),
        (unshared, "max_compute_workgroup_storage_size", 256, 0),
    ] {
        let noop = Noop::new(limits, wgpu::Features::empty());
        let want = Error::Limit {
            what: "a plan".to_owned(),
            limit,
            needed,
            available,
        };
        assert_eq!(case().run(&noop.subject).unwrap_err(), want);
    }
}

#[test]
fn a_plan_of_another_context() {
    // Made for wide workgroups, bound where they are not allowed.
    let wide = Noop::new(
        wgpu::Limits {
            max_compute_invocations_per_workgroup: 1024,
            max_compute_workgroup_size_x: 1024,
            max_compute_workgroup_storage_size: 1 << 16,
            ..wgpu::Limits::default()
        },
        wgpu::Features::empty(),
    );
    let wide = wide.subject.with_profile("wide", |profile| {
        profile.tuning.runs_workgroup = 1024;
    });
    let narrow = Noop::default();
    let case = Case::<f32, f32>::random(&[2, 3, 500], options_in(DataFormat::Ncx), 1);
    let buffers = Buffers::new(&narrow.subject, &case, Room::Exact);
    let error = plan(&wide, &case).bind(&narrow.subject.gpu, &buffers.ranges());
    let error = error.map(|_| ()).unwrap_err();
    let want = Error::Limit {
        what: "a plan of another context".to_owned(),
        limit: "max_compute_invocations_per_workgroup",
        needed: 1024,
        available: 256,
    };
    assert_eq!(error, want);
    still_works(&narrow.subject);
    // Made for larger bindings, and for more workgroup memory.
    let limited = |what, change: fn(&mut Profile)| {
        let limited = narrow.subject.with_profile(what, change);
        let error = plan(&narrow.subject, &case).bind(&limited.gpu, &buffers.ranges());
        still_works(&limited);
        error.map(|_| ()).unwrap_err()
    };
    let want = Error::Limit {
        what: "a binding of src".to_owned(),
        limit: "max_storage_buffer_binding_size",
        needed: 12_000,
        available: 8192,
    };
    assert_eq!(limited("bindings", |p| p.max_binding = 8192), want);
    says(&want, &["src", "max_storage_buffer_binding_size", "8192"]);
    let error = limited("workgroups", |p| p.max_workgroup_storage = 256);
    let Error::Limit {
        limit: "max_compute_workgroup_storage_size",
        needed,
        available: 256,
        ..
    } = error
    else {
        panic!("{error:?}");
    };
    assert!(needed > 256);
    // Of rows so many that a binding does not hold their means: known when planning.
    let short = narrow.subject.with_profile("short bindings", |profile| {
        profile.max_binding = 4096;
        profile.tuning.window_unit = 256;
    });
    let layer = GpuLayerNorm::new(&short.gpu, LayerNormOptions::default()).unwrap();
    let error = layer.plan(&[2000, 4], DType::F32, DType::F32).unwrap_err();
    says(
        &error,
        &[
            "a binding of mean",
            "max_storage_buffer_binding_size",
            "8000",
            "4096",
        ],
    );
    // A profile cannot promise more than the device has.
    let boasting = narrow.subject.with_profile("boasting", |profile| {
        profile.tuning.runs_workgroup = 1024;
        profile.max_invocations = 1024;
        profile.max_workgroups = u32::MAX;
        profile.max_binding = u64::MAX;
        profile.max_buffer = u64::MAX;
        profile.alignment = 1;
        profile.max_storage_buffers = u32::MAX;
        profile.f64 = true;
        profile.int64 = true;
    });
    let limits = |subject: &Subject| {
        let mut profile = subject.gpu.profile().clone();
        profile.tuning = wgpu_norm::Tuning::GPU;
        profile
    };
    assert_eq!(limits(&boasting), limits(&narrow.subject));
    case.run(&boasting).unwrap();
}

fn assert_send<F: Future + Send>(future: F) -> F {
    future
}

#[test]
fn futures_are_send_and_can_be_dropped() {
    let case = case();
    for subject in subjects() {
        let layer = GpuBatchNorm::new(&subject.gpu, case.options).unwrap();
        // Dropped unpolled, and dropped when everything is submitted.
        drop(assert_send(layer.backward(case.args())));
        let mut started = Box::pin(assert_send(layer.backward(case.args())));
        let _ = started
            .as_mut()
            .poll(&mut Context::from_waker(Waker::noop()));
        drop(started);
        case.check(subject, "after dropped futures");
    }
    drop(assert_send(GpuContext::new()));
    drop(assert_send(GpuContext::with_options(
        ContextOptions::default(),
    )));
}

/// The closure's result, or a failure after a long time.
fn promptly<T: Send + 'static>(what: &str, run: impl FnOnce() -> T + Send + 'static) -> T {
    let (sender, receiver) = mpsc::channel();
    std::thread::spawn(move || sender.send(run()));
    receiver
        .recv_timeout(Duration::from_secs(60))
        .unwrap_or_else(|error| panic!("{what}: {error}"))
}

#[test]
fn lost_devices() {
    let backends = wgpu::Backends::from_env().unwrap_or(wgpu::Backends::all());
    for adapter in block_on(wgpu_norm::adapters(backends)) {
        for ours in [true, false] {
            let open = || -> GpuContext {
                if ours {
                    let context = GpuContext::from_adapter(&adapter, DeviceOptions::default());
                    return block_on(context).unwrap();
                }
                let (device, queue) = block_on(adapter.request_device(&wgpu::DeviceDescriptor {
                    required_limits: adapter.limits(),
                    ..Default::default()
                }))
                .unwrap();
                GpuContext::from_device(device, queue, DeviceOptions::default())
            };
            let what = format!("{} ours: {ours}", adapter.get_info().name);
            // Before the first use; after one; and on buffers that were bound before.
            for used in [false, true] {
                let subject = Subject {
                    name: what.clone(),
                    gpu: open(),
                    checked: false,
                };
                let error = promptly(&what, move || {
                    let case = case();
                    if used {
                        case.check(&subject, "before");
                    }
                    subject.gpu.device().destroy();
                    let first = case.run(&subject).unwrap_err();
                    let second = case.run(&subject).unwrap_err();
                    assert!(matches!(second, Error::DeviceLost { .. }), "{second:?}");
                    first
                });
                assert!(
                    matches!(error, Error::DeviceLost { .. }),
                    "{what} {error:?}"
                );
                says(&error, &["lost"]);
            }
            // While a future waits: its result, or the loss, but an answer.
            let gpu = open();
            promptly(&what, move || {
                let case =
                    Case::<f32, f32>::random(&[16, 64, 40, 40], options_in(DataFormat::Ncx), 1);
                let layer = GpuBatchNorm::new(&gpu, case.options).unwrap();
                let mut future = Box::pin(layer.backward(case.args()));
                let mut context = Context::from_waker(Waker::noop());
                let early = future.as_mut().poll(&mut context).is_ready();
                gpu.device().destroy();
                if !early {
                    match block_on(future) {
                        Ok(_) | Err(Error::DeviceLost { .. }) => {}
                        Err(error) => panic!("{error:?}"),
                    }
                }
            });
            // Binding on a lost device.
            let subject = Subject {
                name: what.clone(),
                gpu: open(),
                checked: false,
            };
            let case = case();
            let buffers = Buffers::new(&subject, &case, Room::Exact);
            let plan = plan(&subject, &case);
            subject.gpu.device().destroy();
            let error = plan.bind(&subject.gpu, &buffers.ranges()).map(|_| ());
            let error = error.unwrap_err();
            assert!(
                matches!(error, Error::DeviceLost { .. }),
                "{what} {error:?}"
            );
        }
    }
}

/// A callback of the caller's may run, and panic, on the thread that polls for this crate: calls in flight get
/// an answer, and later ones work.
#[test]
fn callbacks_that_panic() {
    let devices = OwnDevices::new();
    for subject in &devices.subjects {
        for kind in ["work done", "map"] {
            let what = format!("{kind} on {}", subject.name);
            let gpu = subject.gpu.clone();
            promptly(&what.clone(), move || {
                let case =
                    Case::<f32, f32>::random(&[8, 64, 40, 40], options_in(DataFormat::Ncx), 1);
                let layer = GpuBatchNorm::new(&gpu, case.options).unwrap();
                let hit = Arc::new(AtomicBool::new(false));
                // Which thread runs the callback is a matter of time.
                for _ in 0..50 {
                    let mut futures: Vec<_> = (0..2)
                        .map(|_| Box::pin(layer.backward(case.args())))
                        .collect();
                    let mut context = Context::from_waker(Waker::noop());
                    let mut early = Vec::new();
                    for future in &mut futures {
                        early.push(future.as_mut().poll(&mut context));
                    }
                    let flag = hit.clone();
                    let callback = move || {
                        if std::thread::current().name() == Some("wgpu-norm poll") {
                            flag.store(true, Ordering::Relaxed);
                            panic!("as the test wants");
                        }
                    };
                    let staging = gpu.device().create_buffer(&wgpu::BufferDescriptor {
                        label: None,
                        size: 4,
                        usage: wgpu::BufferUsages::MAP_READ | wgpu::BufferUsages::COPY_DST,
                        mapped_at_creation: false,
                    });
                    match kind {
                        "map" => staging.map_async(wgpu::MapMode::Read, .., move |_| callback()),
                        _ => gpu.queue().on_submitted_work_done(callback),
                    }
                    for (future, early) in futures.into_iter().zip(early) {
                        let result = match early {
                            Poll::Ready(result) => result,
                            Poll::Pending => block_on(future),
                        };
                        match result {
                            Ok(_) => {}
                            Err(error @ Error::Gpu { .. }) => says(&error, &["panicked"]),
                            Err(error) => panic!("{error:?}"),
                        }
                    }
                    if hit.load(Ordering::Relaxed) {
                        return;
                    }
                }
                panic!("the callback never ran on the polling thread");
            });
            case().check(subject, &format!("after {what}"));
        }
    }
}

#[test]
fn no_adapter() {
    let options = ContextOptions {
        adapter_name: Some("Abacus 3000".to_owned()),
        ..ContextOptions::default()
    };
    let error = block_on(GpuContext::with_options(options))
        .map(|_| ())
        .unwrap_err();
    let Error::NoAdapter { requested, message } = &error else {
        panic!("{error:?}");
    };
    assert!(requested.contains("Abacus 3000"), "{requested}");
    // What there is instead.
    let name = one(false).gpu.adapter_info().name;
    assert!(message.contains(&name), "{message}");
    says(&error, &["Abacus 3000"]);
    // No driver of the kind at all.
    let options = ContextOptions {
        backends: Some(wgpu::Backends::empty()),
        ..ContextOptions::default()
    };
    let error = block_on(GpuContext::with_options(options))
        .map(|_| ())
        .unwrap_err();
    assert!(matches!(error, Error::NoAdapter { .. }), "{error:?}");
}

/// Runs a test of this file that is ignored otherwise, in a process of its own.
fn in_child(test: &str, shell: &str, environment: &[(&str, &str)]) {
    let program = std::env::current_exe().unwrap();
    let output = Command::new("sh")
        .args([
            "-c",
            &format!("{shell} exec \"$0\" --ignored --exact {test}"),
        ])
        .arg(program)
        .envs(environment.iter().copied())
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(
        output.status.success() && text.contains("1 passed"),
        "{text}{}",
        String::from_utf8_lossy(&output.stderr)
    );
}

#[cfg(target_os = "linux")]
#[test]
fn out_of_memory() {
    // 1 GiB of address space.
    in_child(
        "out_of_memory_in_a_small_process",
        "ulimit -v 1048576 &&",
        &[],
    );
}

#[test]
#[ignore = "run by out_of_memory, in a process with little memory"]
fn out_of_memory_in_a_small_process() {
    let limits = wgpu::Limits {
        max_buffer_size: (1 << 32) - 4,
        max_storage_buffer_binding_size: (1 << 32) - 4,
        ..wgpu::Limits::default()
    };
    let noop = Noop::new(limits, wgpu::Features::empty());
    let subject = &noop.subject;
    // The plan's own workspace: some 48 bytes a channel.
    let channels = 30_000_000;
    let options = BatchNormOptions {
        param_grads: ParamGrads::Frozen,
        ..options_in(DataFormat::Nxc)
    };
    let layer = GpuBatchNorm::new(&subject.gpu, options).unwrap();
    let plan = layer
        .plan(&[1, channels], DType::Bf16, DType::Bf16, false)
        .unwrap();
    let input = subject.buffer(2 * channels as u64, &[]);
    let output = subject.buffer(2 * channels as u64, &[]);
    let ranges = BatchNormBuffers {
        src: (&input).into(),
        diff_dst: (&input).into(),
        mean: (&input).into(),
        variance: (&input).into(),
        gamma: None,
        diff_src: (&output).into(),
        diff_gamma: None,
        diff_beta: None,
        sums: None,
        workspace: None,
    };
    let error = plan.bind(&subject.gpu, &ranges).map(|_| ()).unwrap_err();
    let want = Error::OutOfMemory {
        what: "workspace",
        bytes: plan.workspace_size(),
    };
    assert_eq!(error, want);
    says(
        &error,
        &["workspace", "memory", &plan.workspace_size().to_string()],
    );
    still_works(subject);
}

/// An error is the device's loss, or leaves the context as it was. Mesa 25.0 maps memory that it does not have:
/// there the process ends in wgpu's upload, whoever calls it, so only drivers that own up to it are asked.
#[cfg(target_os = "linux")]
#[test]
fn out_of_memory_on_a_driver() {
    let info = one(false).gpu.adapter_info();
    if !info.driver_info.starts_with("Mesa 22") {
        println!("not tested: {} may crash without memory", info.driver_info);
        return;
    }
    let name = info.name;
    // 3 to 5 GiB of address space: how far a call gets differs.
    for kib in [3 << 20, 4 << 20, 5 << 20] {
        in_child(
            "out_of_memory_in_a_call",
            &format!("ulimit -v {kib} &&"),
            &[("WGPU_ADAPTER_NAME", &name), ("WGPU_BACKEND", "vulkan")],
        );
    }
}

#[test]
#[ignore = "run by out_of_memory_on_a_driver, in a process with little memory"]
fn out_of_memory_in_a_call() {
    let gpu = block_on(GpuContext::new()).unwrap();
    let layer = GpuBatchNorm::new(&gpu, options_in(DataFormat::Ncx)).unwrap();
    let data = vec![0.0_f32; 256 << 20];
    let call = |mebibytes: usize| {
        let elements = mebibytes << 18;
        let args = BatchNormArgs {
            shape: &[1, 4, elements / 4],
            src: &data[..elements],
            diff_dst: &data[..elements],
            mean: &[0.0_f32; 4],
            variance: &[1.0; 4],
            gamma: None,
        };
        block_on(layer.backward(args)).map(|_| ())
    };
    call(16).unwrap();
    let mut errors = 0;
    for mebibytes in [256, 384, 512, 640, 768, 896, 1024] {
        match call(mebibytes) {
            Ok(()) => {}
            Err(Error::OutOfMemory { .. }) => {
                errors += 1;
                // Nothing of the call that failed is left.
                assert_eq!(call(16), Ok(()), "after {mebibytes} MiB");
            }
            Err(error) => {
                assert!(matches!(error, Error::DeviceLost { .. }), "{error:?}");
                assert!(matches!(call(1), Err(Error::DeviceLost { .. })));
                return;
            }
        }
    }
    assert!(errors > 0, "memory was enough");
}

#[cfg(unix)]
#[test]
fn environment_chooses_the_adapter() {
    let name = one(false).gpu.adapter_info().name;
    in_child(
        "the_environment_names_no_adapter",
        "",
        &[("WGPU_ADAPTER_NAME", "Abacus 3000")],
    );
    in_child(
        "the_environment_names_an_adapter",
        "",
        &[
            ("WGPU_ADAPTER_NAME", &name.to_uppercase()),
            ("WGPU_BACKEND", ""),
        ],
    );
    in_child(
        "the_environment_names_no_backend",
        "",
        &[("WGPU_BACKEND", "glide")],
    );
}

#[test]
#[ignore = "run by environment_chooses_the_adapter"]
fn the_environment_names_no_backend() {
    let error = block_on(GpuContext::new()).map(|_| ()).unwrap_err();
    assert!(matches!(error, Error::Argument { .. }), "{error:?}");
    says(&error, &["WGPU_BACKEND", "vulkan", "glide"]);
}

#[test]
#[ignore = "run by environment_chooses_the_adapter"]
fn the_environment_names_no_adapter() {
    let error = block_on(GpuContext::new()).map(|_| ()).unwrap_err();
    assert!(matches!(error, Error::NoAdapter { .. }), "{error:?}");
    says(&error, &["Abacus 3000", "WGPU_ADAPTER_NAME"]);
}

#[test]
#[ignore = "run by environment_chooses_the_adapter"]
fn the_environment_names_an_adapter() {
    let gpu = block_on(GpuContext::new()).unwrap();
    let wanted = std::env::var("WGPU_ADAPTER_NAME").unwrap();
    assert_eq!(gpu.adapter_info().name.to_uppercase(), wanted);
}

#[cfg(target_os = "linux")]
#[test]
fn no_thread_outlives_its_context() {
    in_child("threads_of_dropped_contexts", "", &[]);
}

#[cfg(target_os = "linux")]
#[test]
#[ignore = "run by no_thread_outlives_its_context, in a process without other contexts"]
fn threads_of_dropped_contexts() {
    let polling = || {
        let tasks = std::fs::read_dir("/proc/self/task").unwrap();
        let names = tasks.map(|task| std::fs::read_to_string(task.unwrap().path().join("comm")));
        // A thread may end between the two reads.
        let names = names.filter_map(Result::ok);
        names
            .filter(|name| name.starts_with("wgpu-norm poll"))
            .count()
    };
    let backends = wgpu::Backends::from_env().unwrap_or(wgpu::Backends::all());
    for adapter in block_on(wgpu_norm::adapters(backends)) {
        let gpu = block_on(GpuContext::from_adapter(&adapter, DeviceOptions::default())).unwrap();
        let subject = Subject {
            name: adapter.get_info().name,
            gpu,
            checked: false,
        };
        case().check(&subject, "in a process of its own");
        assert_eq!(polling(), 1);
        drop(subject);
        assert_eq!(polling(), 0);
    }
}

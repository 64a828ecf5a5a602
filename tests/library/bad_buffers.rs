//! Every bad buffer is a typed error that names it, what was expected and what was given, and leaves the
//! context working.

use crate::common::Noop;
use crate::common::buffers::{self, Buffers, Room, plan, range};
use crate::common::data::{Case, options_in};
use crate::common::errors::{case, says, still_works};
use wgpu_norm::{
    BatchNormBackwardBuffers, BufferRange, DType, DataFormat, Error, GpuLayerNorm,
    LayerNormBackwardBuffers, LayerNormOptions, ParamGrads,
};

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
fn argument<'r, 'a>(
    ranges: &'r mut BatchNormBackwardBuffers<'a>,
    name: &str,
) -> &'r mut BufferRange<'a> {
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
    fn error(&self, change: impl FnOnce(&mut BatchNormBackwardBuffers<'_>)) -> Error {
        let subject = &self.noop.subject;
        let buffers = Buffers::new(subject, &self.case, Room::Exact);
        let plan = plan(subject, &self.case);
        let sums = subject.buffer(plan.sums_size(), &[]);
        let workspace = subject.buffer(plan.workspace_size(), &[]);
        let right = || BatchNormBackwardBuffers {
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
        let mut ranges = BatchNormBackwardBuffers {
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
    let pooled = |diff_src| BatchNormBackwardBuffers {
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
    let ranges = BatchNormBackwardBuffers {
        workspace: Some(range(&end, 0, workspace)),
        sums: Some(range(&end, offset, sums)),
        ..own.ranges()
    };
    let error = plan.bind(&subject.gpu, &ranges).map(|_| ());
    assert_eq!(error.unwrap_err(), overlap("workspace", "sums"));
    // What is only read may overlap.
    let ranges = BatchNormBackwardBuffers {
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
    let ranges = BatchNormBackwardBuffers {
        workspace: Some((&workspace).into()),
        src: range(&workspace, 256, 0),
        diff_dst: range(&workspace, 512, 0),
        diff_src: range(&workspace, 768, 0),
        ..buffers.ranges()
    };
    let _ = buffers::plan(subject, &empty)
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
    let plan = layer
        .plan_backward(&[3, 4], (DType::F32, DType::F32))
        .unwrap();
    let [src, diff_dst, mean, variance, diff_src] = [48; 5].map(|size| subject.buffer(size, &[]));
    let ranges = LayerNormBackwardBuffers {
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

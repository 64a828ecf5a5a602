//! Every bad buffer is a typed error that names it, says what was expected and what was given, and leaves the context
//! working.

use crate::common::Noop;
use crate::common::buffers::{Buffers, Room, range, with};
use crate::common::data::{Problem, batch_norm_gradient};
use crate::common::errors::{problem, says, still_works};
use wgpu_norm::{
    Backward, BufferRange, DType, DataFormat, Error, Norm, Operation, Plan, Tensor, Through,
};

/// A plan and valid buffers for it, including those for sums and workspace.
struct Binding {
    noop: Noop,
    plan: Plan,
    own: Vec<(Tensor, u64, wgpu::Buffer)>,
}

impl Binding {
    fn new(problem: &Problem) -> Self {
        let noop = Noop::default();
        let subject = &noop.subject;
        let plan = problem.operation.plan(subject.gpu.profile()).unwrap();
        let sums = (Tensor::Sums, plan.sums().unwrap().bytes());
        let workspace = (Tensor::Workspace, plan.halves_workspace_bytes());
        let uses = plan.buffers().into_iter();
        let uses = uses.filter(|used| used.tensor != Tensor::Workspace);
        let sizes = uses.map(|used| (used.tensor, used.bytes));
        let sizes = sizes.chain([workspace, sums]);
        let own = sizes.map(|(tensor, size)| (tensor, size, subject.buffer(size, &[])));
        let own = own.collect();
        Self { noop, plan, own }
    }

    /// The buffers' tensors, and the size of each in bytes.
    fn tensors(&self) -> impl Iterator<Item = (Tensor, u64)> {
        self.own.iter().map(|(tensor, size, _)| (*tensor, *size))
    }

    fn right(&self) -> Vec<(Tensor, BufferRange<'_>)> {
        let own = self.own.iter();
        own.map(|(tensor, _, buffer)| (*tensor, buffer.into()))
            .collect()
    }

    /// The buffer range of a tensor.
    fn of(&self, tensor: Tensor) -> BufferRange<'_> {
        let right = self.right();
        right.iter().find(|(own, _)| *own == tensor).unwrap().1
    }

    /// Binds valid buffers, but with another one for a tensor, or none.
    fn bind(&self, tensor: Tensor, other: Option<BufferRange<'_>>) -> Result<(), Error> {
        self.bind_all(&with(&self.right(), tensor, other))
    }

    fn bind_all(&self, ranges: &[(Tensor, BufferRange<'_>)]) -> Result<(), Error> {
        let bound = self.plan.bind(&self.noop.subject.gpu, ranges);
        bound.map(|_| ())
    }

    /// The error of such a binding; afterwards the valid buffers still bind.
    #[track_caller]
    fn error(&self, tensor: Tensor, other: Option<BufferRange<'_>>) -> Error {
        let error = self.bind(tensor, other).unwrap_err();
        self.bind_all(&self.right()).unwrap();
        still_works(&self.noop.subject);
        error
    }
}

#[test]
fn buffers_too_small() {
    let test = Binding::new(&problem());
    let subject = &test.noop.subject;
    let large = subject.buffer(1 << 12, &[]);
    for (tensor, bytes) in test.tensors() {
        match tensor {
            Tensor::Src | Tensor::DiffDst | Tensor::DiffSrc => assert_eq!(bytes, 120),
            Tensor::Sums | Tensor::Workspace => {}
            _ => assert_eq!(bytes, 12),
        }
        for (range, bytes_given) in [
            ((&subject.buffer(bytes - 4, &[])).into(), bytes - 4),
            (range(&large, 0, bytes - 4), bytes - 4),
            (range(&large, 256, 0), 0),
            (range(&large, 1 << 12, 0), 0),
        ] {
            let error = test.error(tensor, Some(range));
            let Error::BufferSize {
                tensor: name,
                expected,
                got,
                ..
            } = error
            else {
                panic!("{error:?}");
            };
            assert_eq!((name, expected, got), (tensor.name(), bytes, bytes_given));
            says(&error, &[name, &expected.to_string(), &got.to_string()]);
        }
        // Beyond the buffer's end, even where the tensor itself would fit.
        for place in [
            (256, 1 << 20),
            (0, (1 << 12) + 4),
            (1 << 12, 1 << 20),
            (1 << 20, 1 << 20),
            (1 << 20, 0),
            (u64::MAX - 255, 1 << 20),
        ] {
            let error = test.error(tensor, Some(range(&large, place.0, place.1)));
            let Error::BufferRange {
                tensor: name,
                offset,
                size,
                buffer: 4096,
                ..
            } = error
            else {
                panic!("{error:?}");
            };
            assert_eq!((name, (offset, size)), (tensor.name(), place));
            let (offset, size) = (offset.to_string(), size.to_string());
            says(&error, &[name, "4096", &size, &offset]);
        }
    }
}

#[test]
fn buffers_misaligned() {
    let test = Binding::new(&problem());
    let large = test.noop.subject.buffer(1 << 16, &[]);
    let of_device = u64::from(wgpu::Limits::default().min_storage_buffer_offset_alignment);
    for (tensor, _) in test.tensors() {
        for at in [1, 4, 32, of_device - 4, of_device + 16] {
            let error = test.error(tensor, Some(range(&large, at, 1 << 12)));
            let Error::BufferAlignment {
                tensor: name,
                offset,
                alignment,
                ..
            } = error
            else {
                panic!("{error:?}");
            };
            let want = (tensor.name(), at, of_device);
            assert_eq!((name, offset, alignment), want);
            says(&error, &[name, &at.to_string(), &alignment.to_string()]);
        }
    }
}

#[test]
fn buffers_without_storage() {
    let test = Binding::new(&problem());
    let usage = wgpu::BufferUsages::COPY_DST | wgpu::BufferUsages::UNIFORM;
    let device = test.noop.subject.gpu.device();
    let plain = device.create_buffer(&wgpu::BufferDescriptor {
        label: None,
        size: 1 << 12,
        usage,
        mapped_at_creation: false,
    });
    for (tensor, _) in test.tensors() {
        let error = test.error(tensor, Some((&plain).into()));
        let Error::BufferUsage {
            tensor: name,
            expected: wgpu::BufferUsages::STORAGE,
            got,
            ..
        } = error
        else {
            panic!("{error:?}");
        };
        assert_eq!((name, got), (tensor.name(), usage));
        says(&error, &[name, "STORAGE", "UNIFORM"]);
    }
}

#[track_caller]
fn assert_presence(error: &Error, of: Tensor, is_expected: bool) {
    let Error::BufferPresence {
        tensor, expected, ..
    } = error
    else {
        panic!("{error:?}");
    };
    assert_eq!((*tensor, *expected), (of.name(), is_expected));
    says(error, &[tensor]);
}

#[test]
fn buffers_missing_or_superfluous() {
    let test = Binding::new(&problem());
    for (tensor, _) in test.tensors() {
        // Sums are for halves only, and the plan creates the workspace.
        if [Tensor::Sums, Tensor::Workspace].contains(&tensor) {
            test.bind(tensor, None).unwrap();
        } else {
            assert_presence(&test.error(tensor, None), tensor, true);
        }
    }

    let mut problem = problem();
    problem.operation.gamma = false;
    let frozen = Backward::default().with_param_grads(false);
    problem.operation.pass = frozen.into();
    let test = Binding::new(&problem);
    for tensor in [Tensor::Gamma, Tensor::DiffGamma, Tensor::DiffBeta] {
        let error = test.error(tensor, Some(test.of(Tensor::Variance)));
        assert_presence(&error, tensor, false);
    }
}

/// Also buffers that no dispatch binds: src and mean of constant statistics, a workspace that only
/// the halves need.
#[test]
fn buffers_of_another_device() {
    let mut unread = problem();
    let frozen = Backward::default().with_param_grads(false);
    unread.operation.pass = frozen.with_through(Through::Constant).into();
    for problem in [problem(), unread] {
        every_buffer_of_another_device(&Binding::new(&problem));
    }
}

fn every_buffer_of_another_device(test: &Binding) {
    let sibling = test.noop.sibling();
    let foreign = sibling.buffer(1 << 12, &[]);
    let destroyed = test.noop.subject.buffer(1 << 12, &[]);
    destroyed.destroy();
    for (tensor, _) in test.tensors() {
        for buffer in [&foreign, &destroyed] {
            let error = test.error(tensor, Some(buffer.into()));
            let Error::ForeignBuffer { tensor: name, .. } = &error else {
                panic!("{tensor:?}: {error:?}");
            };
            assert_eq!(*name, tensor.name());
            says(&error, &[name, "this context's device"]);
        }
    }
    // It is valid on its own device.
    still_works(&sibling);
}

#[track_caller]
fn assert_overlap(error: &Error, of: [Tensor; 2]) {
    let Error::Overlap { first, second, .. } = error else {
        panic!("{error:?}");
    };
    assert_eq!([*first, *second], of.map(Tensor::name));
    says(error, &[first, second]);
}

#[test]
fn ranges_that_overlap() {
    use Tensor::{
        DiffBeta, DiffDst, DiffGamma, DiffSrc, Gamma, Mean, Src, Sums, Variance, Workspace,
    };
    // 2800 and 280 bytes.
    let operation = batch_norm_gradient::<f32, f32>(&[2, 70, 5], DataFormat::Ncx);
    let test = Binding::new(&Problem::random(&operation, 1));
    let subject = &test.noop.subject;
    for (tensor, other, names) in [
        (DiffSrc, Src, [Src, DiffSrc]),
        (DiffGamma, DiffBeta, [DiffGamma, DiffBeta]),
        (DiffBeta, Gamma, [Gamma, DiffBeta]),
        (Sums, Workspace, [Workspace, Sums]),
        (Mean, Workspace, [Workspace, Mean]),
    ] {
        let error = test.error(tensor, Some(test.of(other)));
        assert_overlap(&error, names);
    }

    // diff_src over a part of diff_dst, and one byte too close; then directly after it.
    let pool = subject.buffer(1 << 14, &[]);
    let pooled = |diff_src| {
        let ranges = with(&test.right(), DiffDst, Some(range(&pool, 0, 2800)));
        test.bind_all(&with(&ranges, DiffSrc, Some(range(&pool, diff_src, 2800))))
    };
    for offset in [256, 2560] {
        assert_overlap(&pooled(offset).unwrap_err(), [DiffDst, DiffSrc]);
    }
    for offset in [0, 2816, 8192] {
        pooled(offset).unwrap();
    }
    // Sums at the end of a buffer, half within the workspace.
    let sums = test.plan.sums().unwrap().bytes();
    let workspace = test.plan.halves_workspace_bytes();
    let offset = (workspace - 256) / 256 * 256;
    let end = subject.buffer((offset + sums).max(workspace), &[]);
    let ranges = with(&test.right(), Workspace, Some(range(&end, 0, workspace)));
    let ranges = with(&ranges, Sums, Some(range(&end, offset, sums)));
    assert_overlap(&test.bind_all(&ranges).unwrap_err(), [Workspace, Sums]);
    // Tensors that are only read may overlap.
    let ranges = with(&test.right(), Src, Some(test.of(DiffDst)));
    let ranges = with(&ranges, Mean, Some(test.of(Variance)));
    let ranges = with(&ranges, Gamma, Some(test.of(Variance)));
    test.bind_all(&ranges).unwrap();
    // Tensors without elements overlap nothing.
    let operation = batch_norm_gradient::<f32, f32>(&[0, 3, 5], DataFormat::Ncx);
    let empty = Problem::random(&operation, 1);
    let plan = operation.plan(subject.gpu.profile()).unwrap();
    let buffers = Buffers::new(subject, &empty, &plan, Room::Exact);
    let workspace = subject.buffer(4096, &[]);
    let mut ranges = with(&buffers.ranges(), Workspace, Some((&workspace).into()));
    for (tensor, offset) in [(Src, 256), (DiffDst, 512), (DiffSrc, 768)] {
        ranges = with(&ranges, tensor, Some(range(&workspace, offset, 0)));
    }
    let _ = plan.bind(&subject.gpu, &ranges).unwrap();
    still_works(subject);
}

#[test]
fn layer_norm_has_no_halves() {
    let noop = Noop::default();
    let subject = &noop.subject;
    let norm = Norm::layer(-1);
    let operation = Operation::new(norm, Backward::default(), &[3, 4], DType::F32);
    let problem = Problem::random(&operation.with_params(false, false), 1);
    let plan = problem.operation.plan(subject.gpu.profile()).unwrap();
    assert_eq!(plan.sums(), None);
    let buffers = Buffers::new(subject, &problem, &plan, Room::Padded);
    let bound = plan.bind(&subject.gpu, &buffers.ranges()).unwrap();
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

//! An operator on tensors that pass through memory in pieces, within a budget.

use super::operator::Operator;
use super::tensors::Arguments;
use crate::failure::Failure;
use crate::input::Input;
use crate::job::Job;
use crate::output::{Described, Parts};
use crate::progress::Progress;
use wgpu_norm::Tensor;
use wgpu_norm::export::TensorUse;
use wgpu_norm::stream::{Storage, Stream};
use wgpu_norm::{DType, DTypes, GpuContext};

/// Runs an operator on tensors whose shapes were checked.
pub fn run<O: Operator>(
    job: Job,
    gpu: &GpuContext,
    operator: &O,
    arguments: &Arguments,
    budget: u64,
) -> Result<(), Failure> {
    let stream = Stream::new(gpu, budget, |profile| operator.plan(profile, arguments))?;
    log::info!(
        "{} pieces by {}, {} bytes of memory",
        stream.pieces(),
        stream.algorithm(),
        stream.memory()
    );
    let shapes = Shapes {
        src: arguments.src.shape().to_vec(),
        params: operator.params_shape(arguments),
        statistics: operator.statistics_shape(arguments),
        mask: [elements(arguments.src.shape()).div_ceil(32)],
    };
    let mut written = stream.tensors();
    written.retain(|used| used.written);
    written.sort_by_key(|used| rank(used.tensor));
    let written = written.into_iter();
    let results: Vec<_> = written
        .map(|used| shapes.describe(used, arguments))
        .collect();
    let mut files = Files {
        input: &job.input,
        output: job.create_parts(&results)?,
        progress: &job.progress,
        moved: 0,
        all: stream.traffic(),
        types: arguments.dtypes(),
        lost: vec![],
        small: vec![],
    };
    pollster::block_on(stream.run(&mut files))?;
    let Files {
        output: parts,
        lost,
        small,
        ..
    } = files;
    let dtype = arguments.dtypes().statistics;
    for tensor in small {
        job.warn(format_args!(
            "{}: some elements are below what {dtype} holds with all digits",
            tensor.name()
        ));
    }
    for tensor in lost {
        job.warn_of_lost(tensor.name(), "some");
    }
    let names: Vec<_> = results.iter().map(Described::name).collect();
    job.finish_parts(parts, &names, gpu, &arguments.src, &operator.attributes())
}

/// The order in which results are named.
fn rank(tensor: Tensor) -> u8 {
    match tensor {
        Tensor::Mask => 4,
        Tensor::RunningMean | Tensor::RunningVariance => 3,
        Tensor::Mean | Tensor::Variance | Tensor::MeanSquare => 2,
        Tensor::DiffGamma | Tensor::DiffBeta => 1,
        _ => 0,
    }
}

fn elements(shape: &[usize]) -> usize {
    shape.iter().product()
}

/// What shapes results have.
struct Shapes {
    src: Vec<usize>,
    params: Vec<usize>,
    statistics: Vec<usize>,
    mask: [usize; 1],
}

impl Shapes {
    fn describe(&self, used: TensorUse, arguments: &Arguments) -> Described<'_> {
        let shape: &[usize] = match used.tensor {
            Tensor::Mask => {
                let bytes = 4 * elements(&self.mask);
                return Described::mask(used.tensor.name(), &self.mask, bytes);
            }
            Tensor::DiffGamma | Tensor::DiffBeta => &self.params,
            Tensor::Dst | Tensor::Sum | Tensor::DiffSrc | Tensor::DiffResidual => &self.src,
            _ => &self.statistics,
        };
        let dtype = dtype_of(used.tensor, arguments.dtypes());
        let bytes = elements(shape) * dtype.size() as usize;
        Described::new(used.tensor.name(), dtype, shape, bytes)
    }
}

/// The element type of a result that is no mask.
fn dtype_of(result: Tensor, types: DTypes) -> DType {
    match result {
        Tensor::DiffGamma | Tensor::DiffBeta => types.params,
        Tensor::Dst | Tensor::Sum | Tensor::DiffSrc | Tensor::DiffResidual => types.data,
        _ => types.statistics,
    }
}

/// The tensors in the files.
struct Files<'a> {
    input: &'a Input,
    output: Parts,
    progress: &'a Progress,
    /// Bytes that were read and written, and that will be.
    moved: u64,
    all: u64,
    types: DTypes,
    /// Results with elements that are not finite.
    lost: Vec<Tensor>,
    /// Variances with elements that are too small for their type of 16 bits.
    small: Vec<Tensor>,
}

impl Files<'_> {
    /// Notes whether a result has numbers that are not finite.
    fn look_for_lost_numbers(&mut self, tensor: Tensor, bytes: &[u8]) {
        // All bits of an exponent are set then. Without an early end, which would keep it from going many at a time.
        macro_rules! any {
            ($bits:ty, $exponent:expr) => {
                any!($bits, $exponent, $exponent)
            };
            ($bits:ty, $exponent:expr, $is:expr) => {{
                let (values, _) = bytes.as_chunks();
                let is = |value: &_| <$bits>::from_ne_bytes(*value) & $exponent == $is;
                values.iter().fold(false, |any, value| any | is(value))
            }};
        }
        if matches!(tensor, Tensor::Variance | Tensor::RunningVariance)
            && !self.small.contains(&tensor)
        {
            // None of them, of 0 and of what has fewer digits.
            let small = match dtype_of(tensor, self.types) {
                DType::F16 => any!(u16, 0x7c00, 0),
                DType::Bf16 => any!(u16, 0x7f80, 0),
                DType::F32 | DType::F64 => false,
            };
            if small {
                self.small.push(tensor);
            }
        }
        if tensor == Tensor::Mask || self.lost.contains(&tensor) {
            return;
        }
        let lost = match dtype_of(tensor, self.types) {
            DType::F16 => any!(u16, 0x7c00),
            DType::Bf16 => any!(u16, 0x7f80),
            DType::F32 => any!(u32, 0x7f80_0000),
            DType::F64 => any!(u64, 0x7ff0_0000_0000_0000),
        };
        if lost {
            self.lost.push(tensor);
        }
    }

    fn count(&mut self, bytes: usize) {
        self.moved += bytes as u64;
        self.progress.portion("computing", self.moved, self.all);
    }
}

impl Storage for Files<'_> {
    type Error = Failure;

    async fn read(&mut self, tensor: Tensor, offset: u64, to: &mut [u8]) -> Result<(), Failure> {
        self.input.read_bytes(tensor.name(), offset, to)?;
        self.count(to.len());
        Ok(())
    }

    async fn write(&mut self, tensor: Tensor, offset: u64, from: &[u8]) -> Result<(), Failure> {
        self.look_for_lost_numbers(tensor, from);
        self.output.write(tensor.name(), offset, from)?;
        self.count(from.len());
        Ok(())
    }
}

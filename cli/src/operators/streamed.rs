//! An operator on tensors that pass through memory in pieces, within a budget.

use super::operator::Operator;
use super::tensors::Arguments;
use crate::failure::Failure;
use crate::input::Input;
use crate::job::Job;
use crate::output::{Described, Parts};
use crate::progress::Progress;
use wgpu_norm::export::{Tensor, TensorUse};
use wgpu_norm::stream::{Storage, Stream};
use wgpu_norm::{DType, GpuContext};

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
    };
    pollster::block_on(stream.run(&mut files))?;
    let parts = files.output;
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
        let types = arguments.dtypes();
        let (shape, dtype): (&[usize], DType) = match used.tensor {
            Tensor::Mask => {
                let bytes = self.mask.map(|words| 4 * words);
                return Described::mask(used.tensor.name(), &self.mask, bytes[0]);
            }
            Tensor::DiffGamma | Tensor::DiffBeta => (&self.params, types.params),
            Tensor::Dst | Tensor::Sum | Tensor::DiffSrc | Tensor::DiffResidual => {
                (&self.src, types.data)
            }
            _ => (&self.statistics, types.statistics),
        };
        let bytes = elements(shape) * dtype.size() as usize;
        Described::new(used.tensor.name(), dtype, shape, bytes)
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
}

impl Files<'_> {
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
        self.output.write(tensor.name(), offset, from)?;
        self.count(from.len());
        Ok(())
    }
}

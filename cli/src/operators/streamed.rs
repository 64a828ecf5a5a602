//! An operation on tensors that are processed in pieces, within a memory budget.

use super::tensors::Work;
use super::whole::may_be_small;
use crate::failure::Failure;
use crate::input::Input;
use crate::job::Job;
use crate::numbers;
use crate::output::Parts;
use crate::progress::Progress;
use wgpu_norm::stream::{Storage, Stream};
use wgpu_norm::{DType, Format, GpuContext, Tensor};

/// Computes and writes the results.
pub fn run(job: Job, gpu: &GpuContext, work: &Work, budget: u64) -> Result<(), Failure> {
    let stream = Stream::new(gpu, &work.operation, budget)?;
    log::info!(
        "{} pieces by {}, {} bytes of memory",
        stream.pieces(),
        stream.algorithm(),
        stream.memory()
    );
    let results: Vec<_> = work.results().map(|used| work.described(used)).collect();
    let mut files = Files {
        input: &job.input,
        output: job.create_parts(&results)?,
        progress: &job.progress,
        moved: 0,
        all: stream.traffic(),
        work,
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
    for (tensor, dtype) in small {
        job.warn_of_small(tensor, "some", dtype);
    }
    for tensor in lost {
        job.warn_of_lost(tensor, "some");
    }
    job.finish_parts(gpu, &work.describe(), &results, parts)
}

/// The tensors in the files.
struct Files<'a> {
    input: &'a Input,
    output: Parts,
    progress: &'a Progress,
    /// The bytes read and written so far, and in total.
    moved: u64,
    all: u64,
    work: &'a Work,
    /// Results with elements that are not finite.
    lost: Vec<Tensor>,
    /// Variances with elements that are too small for their 16-bit type.
    small: Vec<(Tensor, DType)>,
}

impl Files<'_> {
    /// Notes whether a result has numbers that its type cannot hold.
    fn look_at(&mut self, tensor: Tensor, bytes: &[u8]) {
        let used = self.work.results().find(|used| used.tensor == tensor);
        let Some(Format::Elements(dtype)) = used.map(|used| used.format) else {
            return;
        };
        if !self.lost.contains(&tensor) && numbers::lost(dtype, bytes) > 0 {
            self.lost.push(tensor);
        }
        let small = (tensor, dtype);
        if may_be_small(tensor, dtype)
            && !self.small.contains(&small)
            && numbers::small(dtype, bytes) > 0
        {
            self.small.push(small);
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
        self.input.read(tensor, offset, to)?;
        self.count(to.len());
        Ok(())
    }

    async fn write(&mut self, tensor: Tensor, offset: u64, from: &[u8]) -> Result<(), Failure> {
        self.look_at(tensor, from);
        self.output.write(tensor, offset, from)?;
        self.count(from.len());
        Ok(())
    }
}

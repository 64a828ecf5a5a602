//! An operation that several processes compute together: each reads some samples, computes them, and writes their
//! results at the right place in one file.

use super::tensors::{Work, read};
use crate::args::GpuArgs;
use crate::failure::Failure;
use crate::job::Job;
use crate::numbers;
use crate::output::{Described, Parts};
use crate::ranks::Group;
use std::ops::Range;
use std::path::Path;
use wgpu_norm::synchronized::Ranks;
use wgpu_norm::synchronized::run_into;
use wgpu_norm::{Error, Format, GpuContext, Operation, Tensor, TensorUse};

/// Computes and writes the results.
pub fn run(job: Job, gpu: &GpuArgs, group: &Group, work: &Work) -> Result<(), Failure> {
    let begun = check(&job).and_then(|()| job.open_gpu(gpu));
    let begun = begun.and_then(|gpu| {
        drop(work.operation.plan(gpu.profile())?);
        Ok(gpu)
    });
    let gpu = group.all(begun)?;
    // Files that share only a name would be torn to pieces.
    group.agree("work", &work.in_full())?;
    let samples = Samples::new(work, group);
    job.progress.step("reading");
    let inputs = group.all(samples.read(&job, work))?;
    job.progress.step("computing");
    let results = group.all(samples.compute(work, inputs, &gpu, group))?;
    job.progress.step("writing");
    for (tensor, lost) in samples.lost(&results, group)? {
        job.warn_of_lost(tensor, lost);
    }
    let described: Vec<_> = work.results().map(|used| work.described(used)).collect();
    let mut parts = group.all(open(&job, &described, group))?;
    let mut written = results.iter().filter(|(used, _)| samples.has(used));
    let written = written.try_for_each(|(used, bytes)| {
        let start = samples.part(used).start;
        parts.write(used.tensor, start, bytes)
    });
    group.all(written)?;
    // The other ranks first, so that the file is whole when it appears.
    if group.rank > 0 {
        group.all(parts.finish())?;
        return group.all(Ok(()));
    }
    group.all(Ok(()))?;
    let what = format!("{}, by {} ranks", work.describe(), group.size);
    group.all(job.finish_parts(&gpu, &what, &described, parts))
}

fn check(job: &Job) -> Result<(), Failure> {
    let flag = match (job.check, job.memory_budget) {
        (true, _) => "--check",
        (_, Some(_)) => "--memory-budget",
        _ => return Ok(()),
    };
    Err(Failure::Library(Error::argument(
        flag,
        "none if ranks share the work",
        "one",
    )))
}

/// A tensor of all samples, and this rank's bytes of it.
type Part<'a> = (&'a TensorUse, Vec<u8>);

/// This rank's samples: a range of src's first axis.
struct Samples {
    range: Range<usize>,
    all: usize,
    /// The operation on these samples.
    operation: Operation,
    is_first: bool,
}

impl Samples {
    fn new(work: &Work, group: &Group) -> Self {
        let mut operation = work.operation.clone();
        let all = operation.shape.first().copied().unwrap_or(0);
        let unit = match work.tensors.iter().any(|used| used.format == Format::Bits) {
            true => samples_of_words(&operation.shape),
            false => 1,
        };
        let range = group.share(all, unit);
        if let Some(first) = operation.shape.first_mut() {
            *first = range.len();
        }
        Self {
            range,
            all,
            operation,
            is_first: group.rank == 0,
        }
    }

    /// The range of a tensor's bytes in the file that belong to this rank.
    fn part(&self, used: &TensorUse) -> Range<u64> {
        if used.ranks != Ranks::Split {
            return 0..used.bytes();
        }
        let elements: usize = used.shape.iter().product();
        let each = elements.checked_div(self.all).unwrap_or(0);
        let (start, end) = (self.range.start * each, self.range.end * each);
        let (start, end) = match used.format {
            Format::Elements(_) => (start, end),
            _ => (start / 32, end.div_ceil(32)),
        };
        start as u64 * used.element_size()..end as u64 * used.element_size()
    }

    /// Whether this rank writes a result: the first rank writes those that all ranks have.
    fn has(&self, used: &TensorUse) -> bool {
        used.ranks == Ranks::Split || self.is_first
    }

    fn read<'a>(&self, job: &Job, work: &'a Work) -> Result<Vec<Part<'a>>, Failure> {
        let read = work
            .inputs()
            .map(|used| Ok((used, read(&job.input, used.tensor, self.part(used))?)));
        read.collect()
    }

    /// Computes the results, as this rank's bytes of each.
    fn compute<'a>(
        &self,
        work: &'a Work,
        inputs: Vec<Part<'a>>,
        gpu: &GpuContext,
        group: &Group,
    ) -> Result<Vec<Part<'a>>, Failure> {
        let (mut results, inputs): (Vec<_>, Vec<_>) = inputs
            .into_iter()
            .partition(|(used, _)| used.access.writes());
        for used in work.results().filter(|used| !used.access.reads()) {
            let part = self.part(used);
            results.push((used, numbers::zeros(used.tensor, part.end - part.start)?));
        }
        let given = inputs.iter().map(|(used, bytes)| (used.tensor, &**bytes));
        let given: Vec<_> = given.collect();
        let taken = results.iter_mut();
        let mut taken: Vec<(Tensor, &mut [u8])> = taken
            .map(|(used, bytes)| (used.tensor, &mut **bytes))
            .collect();
        let run = run_into(&self.operation, gpu, group, &given, &mut taken);
        pollster::block_on(run)?;
        Ok(results)
    }

    /// The number of elements over all ranks that are not finite, for each result that has any.
    fn lost(&self, results: &[Part<'_>], group: &Group) -> Result<Vec<(Tensor, u64)>, Failure> {
        let counted = results.iter().map(|(used, bytes)| match used.format {
            Format::Elements(dtype) if self.has(used) => numbers::lost(dtype, bytes) as u64,
            _ => 0,
        });
        let own: Vec<u8> = counted.flat_map(u64::to_ne_bytes).collect();
        let all = group.gather(&own)?;
        let mut lost = vec![0; results.len()];
        for part in all.chunks_exact(own.len().max(1)) {
            for (lost, bytes) in lost.iter_mut().zip(part.chunks_exact(8)) {
                *lost += bytemuck::pod_read_unaligned::<u64>(bytes);
            }
        }
        let named = results.iter().map(|(used, _)| used.tensor).zip(lost);
        Ok(named.filter(|(_, lost)| *lost > 0).collect())
    }
}

/// The smallest number of samples whose bits fill whole words of a mask.
fn samples_of_words(src: &[usize]) -> usize {
    let sample: usize = src.iter().skip(1).product();
    32 >> sample.trailing_zeros().min(5)
}

/// Opens the file for this rank: rank 0 creates it and tells the others where it is.
fn open(job: &Job, described: &[Described], group: &Group) -> Result<Parts, Failure> {
    let created = (group.rank == 0).then(|| {
        let parts = job.create_parts(described)?;
        match parts.path().and_then(Path::to_str) {
            Some(path) => Ok((path.to_owned(), parts)),
            None => Err(Failure::Ranks(
                "the output's folder has no name in UTF-8".to_owned(),
            )),
        }
    });
    let path = match &created {
        Some(Ok((path, _))) => path.as_str(),
        _ => "",
    };
    let texts = group.texts(path)?;
    match created {
        Some(created) => created.map(|(_, parts)| parts),
        None => {
            let path = texts.first().map_or("", String::as_str);
            job.output().join(Path::new(path), described)
        }
    }
}

//! An operator that several processes compute together: each reads some samples, computes them, and writes what belongs
//! to them at its place of one file.

use super::operator::{Operator, Typed, typed};
use super::tensors::{Arguments, Named, Samples, Values};
use crate::args::GpuArgs;
use crate::failure::Failure;
use crate::job::Job;
use crate::output::{Described, Parts};
use crate::ranks::Group;
use std::path::Path;
use wgpu_norm::{DType, Element, Error, GpuContext, ParamOf};

/// Runs an operator on tensors whose shapes were checked.
pub fn run<O: Operator>(
    job: Job,
    gpu: &GpuArgs,
    group: &Group,
    operator: &O,
    arguments: &Arguments,
) -> Result<(), Failure> {
    let begun = check(&job, operator, arguments).and_then(|()| job.open_gpu(gpu));
    let begun = begun.and_then(|gpu| {
        operator.plan(gpu.profile(), arguments)?;
        Ok(gpu)
    });
    let gpu = group.all(begun)?;
    typed(Together(group), job, &gpu, operator, arguments)
}

fn check<O: Operator>(job: &Job, operator: &O, arguments: &Arguments) -> Result<(), Failure> {
    arguments.check()?;
    operator.check_samples(arguments)?;
    let flag = match (job.check, job.memory_budget) {
        (true, _) => "--check",
        (_, Some(_)) => "--memory-budget",
        _ => return Ok(()),
    };
    Err(Failure::Library(Error::Argument {
        argument: flag,
        expected: "none where ranks share the work".to_owned(),
        got: "one".to_owned(),
    }))
}

/// Adds up the ranks' parameters' gradients, in the order of ranks.
pub fn add_up<P: Element>(params: &mut Named<P>, group: &Group) -> Result<(), Failure> {
    for (_, values) in params {
        let mut bytes = Vec::new();
        for value in values.iter() {
            bytes.extend(value.to_f64().to_ne_bytes());
        }
        let all = group.gather(&bytes)?;
        let mut sums = vec![0.0; values.len()];
        for part in all.chunks_exact(bytes.len().max(1)) {
            for (sum, value) in sums.iter_mut().zip(part.chunks_exact(8)) {
                *sum += bytemuck::pod_read_unaligned::<f64>(value);
            }
        }
        for (value, sum) in values.iter_mut().zip(sums) {
            *value = P::from_f64(sum);
        }
    }
    Ok(())
}

struct Together<'g>(&'g Group);

impl<O: Operator> Typed<O> for Together<'_> {
    fn run<T: Element, P: ParamOf<T>, S: ParamOf<T>>(
        self,
        job: Job,
        gpu: &GpuContext,
        operator: &O,
        arguments: &Arguments,
    ) -> Result<(), Failure> {
        let Self(group) = self;
        let src = arguments.src.shape();
        let all = src.first().copied().unwrap_or(0);
        let samples = Samples {
            range: group.share(all, samples_of_words(src)),
            all,
            have_statistics: operator.statistics_are_of_samples(),
        };
        let mut shape = src.to_vec();
        if let Some(first) = shape.first_mut() {
            *first = samples.range.len();
        }
        job.progress.step("reading");
        let values = Values::<T, P, S>::read_samples(&job.input, arguments, &samples);
        let values = group.all(values)?;
        job.progress.step("computing");
        let results = operator.compute_together(gpu, &shape, &values, group);
        let results = group.all(results)?;
        job.progress.step("writing");
        let results = Results {
            results: &results,
            samples: &samples,
            shapes: [
                src.to_vec(),
                operator.params_shape(arguments),
                operator.statistics_shape(arguments),
                vec![elements(src).div_ceil(32)],
            ],
        };
        let described = results.described();
        let mut parts = group.all(open(&job, &described, group))?;
        let written = results.write(&mut parts, group.rank == 0);
        group.all(written)?;
        let names: Vec<_> = described.iter().map(Described::name).collect();
        // The others first, so that the file is whole when it appears.
        if group.rank > 0 {
            group.all(parts.finish())?;
            return group.all(Ok(()));
        }
        group.all(Ok(()))?;
        let attributes = format!("{}, by {} ranks", operator.attributes(), group.size);
        group.all(job.finish_parts(parts, &names, gpu, &arguments.src, &attributes))
    }
}

fn elements(shape: &[usize]) -> usize {
    shape.iter().product()
}

/// The fewest samples whose bits fill whole words of a mask.
fn samples_of_words(src: &[usize]) -> usize {
    let sample: usize = src.iter().skip(1).product();
    32 >> sample.trailing_zeros().min(5)
}

/// Opens the file for this rank: rank 0 creates it and tells the others where it is.
fn open(job: &Job, described: &[Described<'_>], group: &Group) -> Result<Parts, Failure> {
    let created = (group.rank == 0).then(|| job.create_parts(described));
    let path = match &created {
        Some(Ok(parts)) => parts.path().unwrap_or(Path::new("")).display().to_string(),
        _ => String::new(),
    };
    let texts = group.texts(&path)?;
    match created {
        Some(parts) => parts,
        None => {
            let path = texts.first().map_or("", String::as_str);
            job.output().join(Path::new(path), described)
        }
    }
}

/// What this rank has of the results.
struct Results<'a, T, P, S> {
    results: &'a Values<T, P, S>,
    samples: &'a Samples,
    /// Of src, parameters, statistics and the mask, of all samples.
    shapes: [Vec<usize>; 4],
}

impl<T: Element, P: Element, S: Element> Results<'_, T, P, S> {
    /// The tensors of the whole file.
    fn described(&self) -> Vec<Described<'_>> {
        let [data, params, statistics, mask] = &self.shapes;
        fn of<'s, T>(
            named: &Named<T>,
            dtype: DType,
            shape: &'s [usize],
        ) -> impl Iterator<Item = Described<'s>> {
            let bytes = elements(shape) * dtype.size() as usize;
            let named = named.iter();
            named.map(move |(name, _)| Described::new(name, dtype, shape, bytes))
        }
        let results = self.results;
        let words = results.mask.as_ref();
        of(&results.data, T::DTYPE, data)
            .chain(of(&results.params, P::DTYPE, params))
            .chain(of(&results.statistics, S::DTYPE, statistics))
            .chain(words.map(|_| Described::mask("mask", mask, 4 * elements(mask))))
            .collect()
    }

    /// Writes what belongs to this rank's samples, and what belongs to all, if it is the first.
    fn write(&self, parts: &mut Parts, is_first: bool) -> Result<(), Failure> {
        let [src, _, statistics, _] = &self.shapes;
        let results = self.results;
        let start = self.samples.of(elements(src)).start;
        for (name, values) in &results.data {
            put(parts, name, start, values)?;
        }
        for (name, values) in results.params.iter().filter(|_| is_first) {
            put(parts, name, 0, values)?;
        }
        for (name, values) in &results.statistics {
            match self.samples.have_statistics {
                true => put(
                    parts,
                    name,
                    self.samples.of(elements(statistics)).start,
                    values,
                )?,
                false if is_first => put(parts, name, 0, values)?,
                false => {}
            }
        }
        match &results.mask {
            Some(words) => put(parts, "mask", start / 32, words),
            None => Ok(()),
        }
    }
}

fn put<T: bytemuck::Pod>(
    parts: &mut Parts,
    name: &str,
    first: usize,
    values: &[T],
) -> Result<(), Failure> {
    let offset = (first as u64).saturating_mul(size_of::<T>() as u64);
    parts.write(name, offset, bytemuck::cast_slice(values))
}

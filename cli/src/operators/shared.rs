//! An operator that several processes compute together: each reads some samples, computes them, and writes what belongs
//! to them at its place of one file.

use super::operator::{Operator, lost_numbers};
use super::tensors::{Arguments, Named, Samples, Values};
use crate::args::GpuArgs;
use crate::failure::Failure;
use crate::job::Job;
use crate::output::{Described, Parts};
use crate::ranks::Group;
use half::{bf16, f16};
use std::path::Path;
use wgpu_norm::Tensor;
use wgpu_norm::{DType, DTypes, Element, Error, GpuContext, ParamOf};

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
        let plan = operator.plan(gpu.profile(), arguments)?;
        let masked = plan
            .tensors()
            .iter()
            .any(|used| used.tensor == Tensor::Mask);
        Ok((gpu, masked))
    });
    let (gpu, masked) = group.all(begun)?;
    // Files that only have the same name would be torn to pieces.
    let work = format!(
        "{} ({}) of {:?} and {:?}, {:?} of {:?}",
        O::NAME,
        operator.attributes(),
        arguments.src.shape(),
        operator.params_shape(arguments),
        arguments.names(),
        arguments.dtypes()
    );
    group.agree("work", &work)?;
    let work = Work {
        job,
        gpu: &gpu,
        group,
        operator,
        arguments,
        masked,
    };
    // In the type of sums, so that what ranks add up is not rounded before.
    match arguments.dtypes().data {
        DType::F32 => work.run::<f32, f32>(),
        DType::F16 => work.run::<f16, f32>(),
        DType::Bf16 => work.run::<bf16, f32>(),
        DType::F64 => work.run::<f64, f64>(),
    }
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

/// What the ranks do together.
struct Work<'a, O> {
    job: Job,
    gpu: &'a GpuContext,
    group: &'a Group,
    operator: &'a O,
    arguments: &'a Arguments,
    /// Whether a mask is read or written.
    masked: bool,
}

impl<O: Operator> Work<'_, O> {
    fn run<T: Element, R: ParamOf<T>>(self) -> Result<(), Failure> {
        let Self {
            job,
            gpu,
            group,
            operator,
            arguments,
            masked,
        } = self;
        let src = arguments.src.shape();
        let all = src.first().copied().unwrap_or(0);
        let unit = if masked { samples_of_words(src) } else { 1 };
        let samples = Samples {
            range: group.share(all, unit),
            all,
            have_statistics: operator.statistics_are_of_samples(),
        };
        let mut shape = src.to_vec();
        if let Some(first) = shape.first_mut() {
            *first = samples.range.len();
        }
        job.progress.step("reading");
        let values = Values::<T, R, R>::read_samples(&job.input, arguments, &samples);
        let values = group.all(values)?;
        job.progress.step("computing");
        let results = operator.compute_together(gpu, &shape, &values, group);
        let results = group.all(results)?;
        job.progress.step("writing");
        let results = Results {
            results: &results,
            types: arguments.dtypes(),
            samples: &samples,
            shapes: [
                src.to_vec(),
                operator.params_shape(arguments),
                operator.statistics_shape(arguments),
                vec![elements(src).div_ceil(32)],
            ],
        };
        for (tensor, lost) in results.lost_numbers(group)? {
            job.warn_of_lost(tensor, lost);
        }
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

/// What this rank has of the results.
struct Results<'a, T, R> {
    results: &'a Values<T, R, R>,
    /// The types that they are written in.
    types: DTypes,
    samples: &'a Samples,
    /// Of src, parameters, statistics and the mask, of all samples.
    shapes: [Vec<usize>; 4],
}

impl<T: Element, R: Element> Results<'_, T, R> {
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
        let (results, types) = (self.results, self.types);
        let words = results.mask.as_ref();
        of(&results.data, types.data, data)
            .chain(of(&results.params, types.params, params))
            .chain(of(&results.statistics, types.statistics, statistics))
            .chain(words.map(|_| Described::mask("mask", mask, 4 * elements(mask))))
            .collect()
    }

    /// The elements of all ranks that are not finite, of each tensor that has some.
    fn lost_numbers(&self, group: &Group) -> Result<Vec<(&'static str, u64)>, Failure> {
        let data = self.results.data.iter();
        let data = data.map(|(name, values)| (*name, lost_numbers(values)));
        // What every rank has the first one counts, in the types that are written.
        let is_first = group.rank == 0;
        let lost = |(name, values): &(&'static str, Vec<R>), dtype, counts: bool| {
            (*name, if counts { lost_as(dtype, values) } else { 0 })
        };
        let params = self.results.params.iter();
        let params = params.map(|param| lost(param, self.types.params, is_first));
        let counts = self.samples.have_statistics || is_first;
        let statistics = self.results.statistics.iter();
        let statistics = statistics.map(|of| lost(of, self.types.statistics, counts));
        let counted: Vec<_> = data.chain(params).chain(statistics).collect();
        let bytes = counted
            .iter()
            .flat_map(|(_, lost)| (*lost as u64).to_ne_bytes());
        let all = group.gather(&bytes.collect::<Vec<u8>>())?;
        let mut lost = vec![0; counted.len()];
        for part in all.chunks_exact((8 * counted.len()).max(1)) {
            for (lost, bytes) in lost.iter_mut().zip(part.chunks_exact(8)) {
                *lost += bytemuck::pod_read_unaligned::<u64>(bytes);
            }
        }
        let named = counted.into_iter().map(|(name, _)| name).zip(lost);
        Ok(named.filter(|(_, lost)| *lost > 0).collect())
    }

    /// Writes what belongs to this rank's samples, and what belongs to all, if it is the first.
    fn write(&self, parts: &mut Parts, is_first: bool) -> Result<(), Failure> {
        let [src, _, statistics, _] = &self.shapes;
        let (results, types) = (self.results, self.types);
        let start = self.samples.of(elements(src)).start;
        for (name, values) in &results.data {
            put(parts, name, start, values)?;
        }
        for (name, values) in results.params.iter().filter(|_| is_first) {
            put_as(types.params, parts, name, 0, values)?;
        }
        let of_samples = self.samples.have_statistics;
        for (name, values) in results.statistics.iter().filter(|_| of_samples || is_first) {
            let start = match of_samples {
                true => self.samples.of(elements(statistics)).start,
                false => 0,
            };
            put_as(types.statistics, parts, name, start, values)?;
        }
        match &results.mask {
            Some(words) => put(parts, "mask", start / 32, words),
            None => Ok(()),
        }
    }
}

/// The same numbers in another type.
fn rounded<T: Element, R: Element>(values: &[R]) -> Vec<T> {
    values
        .iter()
        .map(|value| T::from_f64(value.to_f64()))
        .collect()
}

/// How many are not finite in another type.
fn lost_as<R: Element>(dtype: DType, values: &[R]) -> usize {
    match dtype {
        DType::F16 => lost_numbers(&rounded::<f16, R>(values)),
        DType::Bf16 => lost_numbers(&rounded::<bf16, R>(values)),
        DType::F32 => lost_numbers(&rounded::<f32, R>(values)),
        DType::F64 => lost_numbers(&rounded::<f64, R>(values)),
    }
}

/// Writes numbers in another type.
fn put_as<R: Element>(
    dtype: DType,
    parts: &mut Parts,
    name: &str,
    first: usize,
    values: &[R],
) -> Result<(), Failure> {
    match dtype {
        DType::F16 => put(parts, name, first, &rounded::<f16, R>(values)),
        DType::Bf16 => put(parts, name, first, &rounded::<bf16, R>(values)),
        DType::F32 => put(parts, name, first, &rounded::<f32, R>(values)),
        DType::F64 => put(parts, name, first, &rounded::<f64, R>(values)),
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

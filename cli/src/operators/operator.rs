//! What all operators have in common, from their tensors in the file to their results.

use super::tensors::{Arguments, Named, Values};
use crate::check::{Comparison, Expected};
use crate::failure::Failure;
use crate::job::Job;
use crate::output;
use crate::ranks::Group;
use half::{bf16, f16};
use wgpu_norm::export::Plan;
use wgpu_norm::{DType, Element, Error, GpuContext, ParamOf, Profile};

/// An operator with its attributes.
pub trait Operator {
    /// Its name in a file's metadata.
    const NAME: &'static str;

    /// The attributes in force, for people.
    fn attributes(&self) -> String;

    /// The shape of statistics among the results. Gradients have none.
    fn statistics_shape(&self, _arguments: &Arguments) -> Vec<usize> {
        vec![]
    }

    /// Whether statistics, where there are any, are of single samples, the first axis of src, or of all of them.
    fn statistics_are_of_samples(&self) -> bool {
        true
    }

    /// An error if the samples of src, its first axis, cannot be shared among processes.
    fn check_samples(&self, arguments: &Arguments) -> Result<(), Error>;

    /// The shape of parameters' gradients among the results.
    fn params_shape(&self, arguments: &Arguments) -> Vec<usize> {
        arguments.params_shape().to_vec()
    }

    /// What is computed on an adapter of this profile; refuses what cannot be, by shapes and element types alone.
    fn plan(&self, profile: &Profile, arguments: &Arguments) -> Result<Plan, Error>;

    /// Computes the results, from the shape of src and the tensors.
    fn compute<T: Element, P: ParamOf<T>, S: ParamOf<T>>(
        &self,
        gpu: &GpuContext,
        shape: &[usize],
        values: &Values<T, P, S>,
    ) -> Result<Values<T, P, S>, Error>;

    /// Computes the results of some samples, which is what `shape` and `values` are of, together with the other processes,
    /// which have the others. Parameters' gradients are of all samples; parameters and statistics have the type of sums.
    fn compute_together<T: Element, P: ParamOf<T>, S: ParamOf<T>>(
        &self,
        gpu: &GpuContext,
        shape: &[usize],
        values: &Values<T, P, S>,
        group: &Group,
    ) -> Result<Values<T, P, S>, Failure> {
        let mut results = group.all(self.compute(gpu, shape, values).map_err(Failure::from))?;
        add_up(&mut results.params, group)?;
        Ok(results)
    }

    /// Computes the same in float64. There may be more than is asked for.
    fn reference(
        &self,
        shape: &[usize],
        values: &Values<f64, f64, f64>,
    ) -> Result<Vec<Expected>, Error>;
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

/// Computes and writes.
pub fn compute<O: Operator, T: Element, P: ParamOf<T>, S: ParamOf<T>>(
    job: Job,
    gpu: &GpuContext,
    operator: &O,
    arguments: &Arguments,
) -> Result<(), Failure> {
    // Refuses what cannot be computed before it is read.
    let plan = operator.plan(gpu.profile(), arguments)?;
    check_buffers(&plan, gpu.profile())?;
    let shape = arguments.src.shape();
    job.progress.step("reading");
    let values = Values::<T, P, S>::read(&job.input, arguments)?;
    job.progress.step("computing");
    let results = operator.compute(gpu, shape, &values)?;
    warn_of_lost_numbers(&job, &results.data);
    warn_of_lost_numbers(&job, &results.params);
    warn_of_lost_numbers(&job, &results.statistics);
    warn_of_small_variances(&job, &results.statistics);
    let comparison = if job.check {
        job.progress.step("checking against the reference");
        let expected = operator.reference(shape, &values.to_f64()?)?;
        let mut comparison = Comparison::default();
        comparison.add_all(&results.data, &expected);
        comparison.add_all(&results.params, &expected);
        comparison.add_all(&results.statistics, &expected);
        if let Some(mask) = &results.mask {
            comparison.add_mask(mask, &expected, T::DTYPE.accumulator());
        }
        Some(comparison)
    } else {
        None
    };
    let statistics_shape = operator.statistics_shape(arguments);
    let params_shape = operator.params_shape(arguments);
    let mask_shape = [results.mask.as_ref().map_or(0, Vec::len)];
    let mask = results.mask.as_ref();
    let outputs: Vec<_> = outputs(&results.data, shape)
        .chain(outputs(&results.params, &params_shape))
        .chain(outputs(&results.statistics, &statistics_shape))
        .chain(mask.map(|words| output::Tensor::mask("mask", &mask_shape, words)))
        .collect();
    let attributes = operator.attributes();
    job.finish(gpu, &arguments.src, &attributes, &outputs, comparison)
}

/// A failure if a tensor has no room in one buffer.
fn check_buffers(plan: &Plan, profile: &Profile) -> Result<(), Failure> {
    let most = profile.max_buffer;
    let mut tensors = plan.tensors().into_iter();
    match tensors.find(|used| used.padded_bytes > most) {
        None => Ok(()),
        Some(used) => Err(Failure::TooLarge {
            tensor: used.tensor.name(),
            most,
            bytes: used.padded_bytes,
        }),
    }
}

fn outputs<'a, T: Element>(
    results: &'a Named<T>,
    shape: &'a [usize],
) -> impl Iterator<Item = output::Tensor<'a>> {
    let results = results.iter();
    results.map(move |(name, values)| output::Tensor::new(name, shape, values))
}

/// Says where results are not finite.
fn warn_of_lost_numbers<T: Element>(job: &Job, results: &Named<T>) {
    for (tensor, values) in results {
        let lost = lost_numbers(values);
        if lost > 0 {
            let all = values.len();
            job.warn_of_lost(tensor, format_args!("{lost} of {all}"));
        }
    }
}

/// Says where variances are so small that their type of 16 bits holds little or nothing of them.
fn warn_of_small_variances<S: Element>(job: &Job, statistics: &Named<S>) {
    let least = match S::DTYPE {
        DType::F16 => f16::MIN_POSITIVE.to_f64(),
        DType::Bf16 => bf16::MIN_POSITIVE.to_f64(),
        DType::F32 | DType::F64 => return,
    };
    let variances = statistics
        .iter()
        .filter(|(name, _)| name.ends_with("variance"));
    for (tensor, values) in variances {
        let small = values.iter().filter(|value| value.to_f64() < least).count();
        if small > 0 {
            let (all, dtype) = (values.len(), S::DTYPE);
            job.warn(format_args!(
                "{tensor}: {small} of {all} elements are below what {dtype} holds with all digits, {least:e}"
            ));
        }
    }
}

/// How many are not finite.
pub fn lost_numbers<T: Element>(values: &[T]) -> usize {
    let lost = values.iter().filter(|value| !value.to_f64().is_finite());
    lost.count()
}

//! What all operators have in common, from their tensors in the file to their results.

use super::tensors::{Arguments, Values};
use crate::args::GpuArgs;
use crate::check::Comparison;
use crate::failure::Failure;
use crate::job::Job;
use crate::output;
use half::{bf16, f16};
use wgpu_norm::reference::Gradients;
use wgpu_norm::{DType, Element, Error, GpuContext, Grads, ParamGrads, ParamOf};

/// An operator with its attributes.
pub trait Operator {
    /// Its name in a file's metadata.
    const NAME: &'static str;

    /// The attributes in force, for people.
    fn attributes(&self) -> String;

    /// What becomes of gamma and the parameter gradients.
    fn param_grads(&self) -> ParamGrads;

    /// Refuses what cannot be computed, by shapes and element types alone.
    fn plan(&self, gpu: &GpuContext, arguments: &Arguments) -> Result<(), Error>;

    /// Computes the gradients.
    fn backward<T: Element, P: ParamOf<T>>(
        &self,
        gpu: &GpuContext,
        values: &Values<'_, T, P>,
    ) -> Result<Grads<T, P>, Error>;

    /// Computes the gradients in float64.
    fn reference(&self, values: &Values<'_, f64, f64>) -> Result<Gradients, Error>;
}

/// Runs an operator on tensors whose shapes it has checked.
pub fn run<O: Operator>(
    job: Job,
    gpu: &GpuArgs,
    operator: &O,
    arguments: &Arguments,
) -> Result<(), Failure> {
    arguments.check()?;
    if operator.param_grads() == ParamGrads::Neither && arguments.gamma.is_some() {
        job.warn("gamma: ignored, as --param-grads is neither; frozen lets it count");
    }
    let gpu = job.open_gpu(gpu)?;
    let compute = match arguments.dtypes() {
        (DType::F32, DType::F32) => compute::<O, f32, f32>,
        (DType::F16, DType::F32) => compute::<O, f16, f32>,
        (DType::F16, DType::F16) => compute::<O, f16, f16>,
        (DType::Bf16, DType::F32) => compute::<O, bf16, f32>,
        (DType::Bf16, DType::Bf16) => compute::<O, bf16, bf16>,
        (DType::F64, DType::F64) => compute::<O, f64, f64>,
        (data, params) => return Err(Error::ParamDType { data, params }.into()),
    };
    compute(job, &gpu, operator, arguments)
}

fn compute<O: Operator, T: Element, P: ParamOf<T>>(
    job: Job,
    gpu: &GpuContext,
    operator: &O,
    arguments: &Arguments,
) -> Result<(), Failure> {
    // Refuses what cannot be computed before it is read.
    operator.plan(gpu, arguments)?;
    job.progress.step("reading");
    let values = Values::<T, P>::read(&job.input, arguments)?;
    job.progress.step("computing");
    let grads = operator.backward(gpu, &values)?;
    let params = [
        ("diff_gamma", grads.diff_gamma.as_deref()),
        ("diff_beta", grads.diff_beta.as_deref()),
    ];
    warn_of_lost_numbers(&job, "diff_src", &grads.diff_src);
    for (name, values) in params {
        warn_of_lost_numbers(&job, name, values.unwrap_or_default());
    }
    let comparison = if job.check {
        job.progress.step("checking against the reference");
        let reference = operator.reference(&values.to_f64()?)?;
        Some(compare(&grads, &reference))
    } else {
        None
    };
    let mut outputs = vec![output::Tensor::new(
        "diff_src",
        arguments.src.shape(),
        &grads.diff_src,
    )];
    let shape = arguments.param_grads_shape();
    for (name, values) in params {
        outputs.extend(values.map(|values| output::Tensor::new(name, shape, values)));
    }
    let attributes = operator.attributes();
    job.finish(gpu, &arguments.src, &attributes, &outputs, comparison)
}

/// How far gradients are from the reference.
fn compare<T: Element, P: Element>(grads: &Grads<T, P>, want: &Gradients) -> Comparison {
    let mut comparison = Comparison::default();
    let (of_gamma, of_beta) = (&want.diff_gamma_scale, &want.diff_beta_scale);
    comparison.add(
        "diff_src",
        &grads.diff_src,
        &want.diff_src,
        &want.diff_src_scale,
    );
    if let Some(diff_gamma) = &grads.diff_gamma {
        comparison.add("diff_gamma", diff_gamma, &want.diff_gamma, of_gamma);
    }
    if let Some(diff_beta) = &grads.diff_beta {
        comparison.add("diff_beta", diff_beta, &want.diff_beta, of_beta);
    }
    comparison
}

/// Says where results are not finite: f16 overflows, and inputs may not be finite themselves.
fn warn_of_lost_numbers<T: Element>(job: &Job, tensor: &str, values: &[T]) {
    let lost = values.iter().filter(|value| !value.to_f64().is_finite());
    let lost = lost.count();
    if lost > 0 {
        let all = values.len();
        job.warn(format_args!(
            "{tensor}: {lost} of {all} elements are not finite"
        ));
    }
}

//! `wgpu-norm layer-norm-backward`.

use crate::args::{GpuArgs, LayerNormBackward};
use crate::attributes;
use crate::failure::Failure;
use crate::input::{Input, Tensor};
use crate::job::Job;
use crate::operator::{self, Operator};
use crate::tensors::{Arguments, Values};
use wgpu_norm::reference::{self, Gradients};
use wgpu_norm::{
    Element, Error, GpuContext, GpuLayerNorm, Grads, LayerNormArgs, LayerNormOptions, ParamGrads,
    ParamOf,
};

/// Runs the subcommand.
pub fn run(command: &LayerNormBackward, gpu: &GpuArgs) -> Result<(), Failure> {
    let job = Job::start(&command.files, LayerNormOptions::NAME)?;
    let options = options(command, &job.input)?;
    let arguments = arguments(&job, options)?;
    operator::run(job, gpu, &options, &arguments)
}

fn options(command: &LayerNormBackward, input: &Input) -> Result<LayerNormOptions, Failure> {
    let begin_norm_axis = attributes::number(command.begin_norm_axis, input, "begin_norm_axis")?;
    let use_affine = attributes::named(command.use_affine, input, "use_affine")?;
    let epsilon = attributes::number(command.epsilon, input, "epsilon")?;
    let default = LayerNormOptions::default();
    Ok(LayerNormOptions {
        begin_norm_axis: begin_norm_axis.unwrap_or(default.begin_norm_axis),
        use_affine: use_affine.unwrap_or(default.use_affine),
        epsilon: epsilon.unwrap_or(default.epsilon),
        param_grads: command.param_grads,
    })
}

fn arguments(job: &Job, options: LayerNormOptions) -> Result<Arguments, Failure> {
    let input = &job.input;
    let mut found = Arguments::find(input)?;
    if options.use_affine {
        let why = " (use_affine is true)";
        found.gamma = Some(input.tensor("gamma", why)?);
        found.beta = Some(input.tensor("beta", why)?);
    } else {
        for name in ["gamma", "beta"] {
            if input.contains(name) {
                job.warn(format_args!("{name}: ignored, as use_affine is false"));
            }
        }
    }
    let src = found.src.shape();
    let axis = first_normalized_axis(src.len(), options.begin_norm_axis);
    // Where src has no such axis, the library says so.
    if let Some((rows, columns)) = axis.and_then(|axis| src.split_at_checked(axis)) {
        let kept = [rows, &vec![1; columns.len()]].concat();
        for statistic in [&found.mean, &found.variance] {
            if statistic.shape() != kept {
                expect_sizes(statistic, rows, " (src's axes before begin_norm_axis)")?;
            }
        }
        for param in [&found.gamma, &found.beta].into_iter().flatten() {
            expect_sizes(param, columns, " (src's axes from begin_norm_axis on)")?;
        }
    }
    Ok(found)
}

/// begin_norm_axis counted from the front; none if there is no such axis.
fn first_normalized_axis(rank: usize, begin_norm_axis: i64) -> Option<usize> {
    let axis = match usize::try_from(begin_norm_axis) {
        Ok(axis) => axis,
        Err(_) => rank.checked_sub(usize::try_from(begin_norm_axis.unsigned_abs()).ok()?)?,
    };
    (axis < rank).then_some(axis)
}

/// A failure if the tensor has neither these sizes nor, as one axis, their product.
fn expect_sizes(tensor: &Tensor, sizes: &[usize], why: &'static str) -> Result<(), Failure> {
    let product = match sizes.contains(&0) {
        true => Some(0), // whatever the other sizes are
        false => sizes.iter().try_fold(1_usize, |p, &s| p.checked_mul(s)),
    };
    let flat = product.map(|product| [product]);
    let flat = flat.iter().map(<[usize; 1]>::as_slice);
    let mut allowed = vec![sizes];
    allowed.extend(flat.filter(|&flat| flat != sizes));
    tensor.expect_shape(&allowed, why)
}

impl Operator for LayerNormOptions {
    const NAME: &'static str = "layer_norm_backward";

    fn attributes(&self) -> String {
        format!(
            "begin_norm_axis {}, epsilon {:e}, use_affine {}",
            self.begin_norm_axis, self.epsilon, self.use_affine
        )
    }

    fn param_grads(&self) -> ParamGrads {
        self.param_grads
    }

    fn plan(&self, gpu: &GpuContext, arguments: &Arguments) -> Result<(), Error> {
        let layer = GpuLayerNorm::new(gpu, *self)?;
        let (data, params) = arguments.dtypes();
        let plan = layer.plan(arguments.src.shape(), data, params);
        plan.map(drop)
    }

    fn backward<T: Element, P: ParamOf<T>>(
        &self,
        gpu: &GpuContext,
        values: &Values<'_, T, P>,
    ) -> Result<Grads<T, P>, Error> {
        let layer = GpuLayerNorm::new(gpu, *self)?;
        pollster::block_on(layer.backward(LayerNormArgs {
            shape: values.shape,
            src: &values.src,
            diff_dst: &values.diff_dst,
            mean: &values.mean,
            variance: &values.variance,
            gamma: values.gamma.as_deref(),
            beta: values.beta.as_deref(),
        }))
    }

    fn reference(&self, values: &Values<'_, f64, f64>) -> Result<Gradients, Error> {
        let rank = values.shape.len();
        reference::LayerNorm {
            shape: values.shape,
            // The reference refuses `rank`, as the library has refused what has no such axis.
            begin_norm_axis: first_normalized_axis(rank, self.begin_norm_axis).unwrap_or(rank),
            src: &values.src,
            diff_dst: &values.diff_dst,
            mean: &values.mean,
            variance: &values.variance,
            gamma: values.gamma.as_deref(),
            epsilon: self.epsilon,
            param_grads: self.param_grads,
        }
        .backward()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn axes_count_from_either_end() {
        let axes = [0, 2, -1, -3].map(|axis| first_normalized_axis(3, axis));
        assert_eq!(axes, [Some(0), Some(2), Some(2), Some(0)]);
        for axis in [3, -4, i64::MIN, i64::MAX] {
            assert_eq!(first_normalized_axis(3, axis), None, "{axis}");
        }
        assert_eq!(first_normalized_axis(0, -1), None);
        assert_eq!(first_normalized_axis(0, 0), None);
    }
}

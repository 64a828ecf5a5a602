//! `wgpu-norm layer-norm-backward`.

use super::operator::{self, Operator};
use super::rows;
use super::tensors::{Arguments, Values};
use crate::args::{FileArgs, GpuArgs};
use crate::attributes::{self, Choice, choice};
use crate::failure::Failure;
use crate::input::Input;
use crate::job::Job;
use clap::Args;
use wgpu_norm::reference::{self, Gradients};
use wgpu_norm::{
    Element, Error, GpuContext, GpuLayerNorm, Grads, LayerNormArgs, LayerNormOptions, ParamGrads,
    ParamOf,
};

/// The gradient of layer normalization
///
/// IN holds the tensors src, diff_dst, mean, variance and, with use_affine, gamma and beta; tensors
/// of other names are ignored. OUT receives diff_src in src's element type and, with use_affine and
/// unless --param-grads says otherwise, diff_gamma and diff_beta in gamma's shape and type. mean and
/// variance (biased) have src's axes before begin_norm_axis, with or without an axis of size 1 for each
/// other, gamma and beta the others; each may also have one axis for all of them.
///
/// Attributes that no flag gives may stand in IN's metadata, as text: begin_norm_axis, use_affine, epsilon. There,
/// op other than layer_norm_backward is a warning.
#[derive(Debug, Args)]
pub struct LayerNormBackward {
    #[command(flatten)]
    pub files: FileArgs,
    /// The first axis that is normalized, with all after it; below 0 it counts from the end [default:
    /// the file's metadata, else -1]
    #[arg(long, value_name = "AXIS", allow_negative_numbers = true)]
    pub begin_norm_axis: Option<i64>,
    /// Whether gamma and beta belong to the layer; if false, a given gamma or beta is ignored, and there are
    /// no diff_gamma and diff_beta [default: the file's metadata, else true]
    #[arg(long, value_name = bool::VALUE_NAME, value_parser = choice::<bool>(), ignore_case = true)]
    pub use_affine: Option<bool>,
    /// Added to the variance; above 0 [default: the file's metadata, else 1e-5]
    #[arg(long, value_name = "NUMBER", allow_negative_numbers = true)]
    pub epsilon: Option<f64>,
    /// The parameter gradients. both: diff_gamma and diff_beta; frozen: none, gamma still scales diff_src;
    /// neither: none, and gamma is ignored
    #[arg(long, value_name = ParamGrads::VALUE_NAME, value_parser = choice::<ParamGrads>(), ignore_case = true,
        default_value = "both")]
    pub param_grads: ParamGrads,
}

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
    let mut found = Arguments::find(input, &["mean", "variance"])?;
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
    rows::check_shapes(&found, options.begin_norm_axis)?;
    Ok(found)
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
        let plan = layer.plan(arguments.src.shape(), (data, params));
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
            mean: values.statistic("mean"),
            variance: values.statistic("variance"),
            gamma: values.gamma.as_deref(),
            beta: values.beta.as_deref(),
        }))
    }

    fn reference(&self, values: &Values<'_, f64, f64>) -> Result<Gradients, Error> {
        let rank = values.shape.len();
        reference::LayerNorm {
            shape: values.shape,
            // The reference refuses `rank`, as the library has refused what has no such axis.
            begin_norm_axis: rows::first_normalized_axis(rank, self.begin_norm_axis)
                .unwrap_or(rank),
            src: &values.src,
            diff_dst: &values.diff_dst,
            mean: values.statistic("mean"),
            variance: values.statistic("variance"),
            gamma: values.gamma.as_deref(),
            epsilon: self.epsilon,
            param_grads: self.param_grads,
        }
        .backward()
    }
}

//! `wgpu-norm rms-norm-backward`.

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
    Element, Error, GpuContext, GpuRmsNorm, Grads, ParamGrads, ParamOf, RmsNormArgs, RmsNormOptions,
};

/// The gradient of RMS normalization
///
/// IN holds the tensors src, diff_dst, mean_square and, optionally, gamma; tensors of other names are ignored. OUT
/// receives diff_src in src's element type and, if there is a gamma and unless --param-grads says otherwise, diff_gamma
/// in gamma's shape and type. mean_square, the mean of src's squares, has src's axes before begin_norm_axis, with or
/// without an axis of size 1 for each other, gamma the others; each may also have one axis for all of them.
///
/// Attributes that no flag gives may stand in IN's metadata, as text: begin_norm_axis, epsilon. There, op other than
/// rms_norm_backward is a warning.
#[derive(Debug, Args)]
pub struct RmsNormBackward {
    #[command(flatten)]
    pub files: FileArgs,
    /// The first axis that is normalized, with all after it; below 0 it counts from the end [default:
    /// the file's metadata, else -1]
    #[arg(long, value_name = "AXIS", allow_negative_numbers = true)]
    pub begin_norm_axis: Option<i64>,
    /// Added to the mean of squares; above 0 [default: the file's metadata, else 1e-5]
    #[arg(long, value_name = "NUMBER", allow_negative_numbers = true)]
    pub epsilon: Option<f64>,
    /// The parameter gradient. both: diff_gamma; frozen: none, gamma still scales diff_src; neither: none, and gamma
    /// is ignored
    #[arg(long, value_name = ParamGrads::VALUE_NAME, value_parser = choice::<ParamGrads>(), ignore_case = true,
        default_value = "both")]
    pub param_grads: ParamGrads,
}

/// Runs the subcommand.
pub fn run(command: &RmsNormBackward, gpu: &GpuArgs) -> Result<(), Failure> {
    let job = Job::start(&command.files, RmsNormOptions::NAME)?;
    let options = options(command, &job.input)?;
    let mut arguments = Arguments::find(&job.input, &["mean_square"])?;
    arguments.gamma = job.input.optional("gamma")?;
    rows::check_shapes(&arguments, options.begin_norm_axis)?;
    operator::run(job, gpu, &options, &arguments)
}

fn options(command: &RmsNormBackward, input: &Input) -> Result<RmsNormOptions, Failure> {
    let begin_norm_axis = attributes::number(command.begin_norm_axis, input, "begin_norm_axis")?;
    let epsilon = attributes::number(command.epsilon, input, "epsilon")?;
    let default = RmsNormOptions::default();
    Ok(RmsNormOptions {
        begin_norm_axis: begin_norm_axis.unwrap_or(default.begin_norm_axis),
        epsilon: epsilon.unwrap_or(default.epsilon),
        param_grads: command.param_grads,
    })
}

impl Operator for RmsNormOptions {
    const NAME: &'static str = "rms_norm_backward";

    fn attributes(&self) -> String {
        format!(
            "begin_norm_axis {}, epsilon {:e}",
            self.begin_norm_axis, self.epsilon
        )
    }

    fn param_grads(&self) -> ParamGrads {
        self.param_grads
    }

    fn plan(&self, gpu: &GpuContext, arguments: &Arguments) -> Result<(), Error> {
        let layer = GpuRmsNorm::new(gpu, *self)?;
        let (data, params) = arguments.dtypes();
        let (shape, has_gamma) = (arguments.src.shape(), arguments.gamma.is_some());
        let plan = layer.plan(shape, (data, params), has_gamma);
        plan.map(drop)
    }

    fn backward<T: Element, P: ParamOf<T>>(
        &self,
        gpu: &GpuContext,
        values: &Values<'_, T, P>,
    ) -> Result<Grads<T, P>, Error> {
        let layer = GpuRmsNorm::new(gpu, *self)?;
        pollster::block_on(layer.backward(RmsNormArgs {
            shape: values.shape,
            src: &values.src,
            diff_dst: &values.diff_dst,
            mean_square: values.statistic("mean_square"),
            gamma: values.gamma.as_deref(),
        }))
    }

    fn reference(&self, values: &Values<'_, f64, f64>) -> Result<Gradients, Error> {
        let rank = values.shape.len();
        reference::RmsNorm {
            shape: values.shape,
            // The reference refuses `rank`, as the library has refused what has no such axis.
            begin_norm_axis: rows::first_normalized_axis(rank, self.begin_norm_axis)
                .unwrap_or(rank),
            src: &values.src,
            diff_dst: &values.diff_dst,
            mean_square: values.statistic("mean_square"),
            gamma: values.gamma.as_deref(),
            epsilon: self.epsilon,
            param_grads: self.param_grads,
        }
        .backward()
    }
}

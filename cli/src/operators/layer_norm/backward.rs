//! `wgpu-norm layer-norm-backward`.

use super::super::operator::Operator;
use super::super::run as run_operator;
use super::super::tensors::{Arguments, Values};
use super::super::{gradients, rows};
use super::{LayerArgs, find_gamma};
use crate::attributes::{Choice, choice};
use crate::check::Expected;
use crate::failure::Failure;
use crate::job::Job;
use crate::job::Machine;
use clap::Args;
use wgpu_norm::export::Plan;
use wgpu_norm::{
    Element, Error, GpuContext, GpuLayerNorm, LayerNormBackwardArgs, LayerNormOptions, ParamGrads,
    ParamOf, Profile, reference,
};

/// The gradient of layer normalization
///
/// IN holds the tensors src, diff_dst, mean, variance and, with use_affine, gamma; a beta is not read. OUT receives
/// diff_src in src's element type and, with use_affine and unless --param-grads says otherwise, diff_gamma and diff_beta in
/// gamma's shape and type. mean and variance (biased) have src's axes before begin_norm_axis, with or without an axis of
/// size 1 for each other, gamma the others; each may also have one axis for all of them.
///
/// Attributes that no flag gives may stand in IN's metadata, as text: begin_norm_axis, use_affine, epsilon. There,
/// op other than layer_norm_backward is a warning.
#[derive(Debug, Args)]
pub struct LayerNormBackward {
    #[command(flatten)]
    layer: LayerArgs,
    /// The parameter gradients. both: diff_gamma and diff_beta; frozen: none, gamma still scales diff_src;
    /// neither: none, and gamma is ignored
    #[arg(long, value_name = ParamGrads::VALUE_NAME, value_parser = choice::<ParamGrads>(), ignore_case = true,
        default_value = "both")]
    param_grads: ParamGrads,
}

/// The operator with its attributes.
struct Backward(LayerNormOptions);

/// Runs the subcommand.
pub fn run(command: &LayerNormBackward, on: &Machine<'_>) -> Result<(), Failure> {
    let job = Job::start(&command.layer.files, Backward::NAME, on)?;
    let options = LayerNormOptions {
        param_grads: command.param_grads,
        ..command.layer.options(&job.input)?
    };
    let mut arguments = Arguments::find(&job.input, &["diff_dst"], &["mean", "variance"])?;
    find_gamma(&job, options.use_affine, &mut arguments)?;
    // A forward pass's beta may be there: nothing depends on it.
    job.input.contains("beta");
    rows::check_shapes(&arguments, options.begin_norm_axis)?;
    gradients::warn_of_ignored_gamma(&job, &arguments, options.param_grads);
    run_operator(job, on, &Backward(options), &arguments)
}

impl Operator for Backward {
    const NAME: &'static str = "layer_norm_backward";

    fn attributes(&self) -> String {
        super::attributes(&self.0)
    }

    fn check_samples(&self, arguments: &Arguments) -> Result<(), Error> {
        rows::check_samples(arguments.src.shape(), self.0.begin_norm_axis)
    }

    fn plan(&self, profile: &Profile, arguments: &Arguments) -> Result<Plan, Error> {
        let options = self.0;
        let plan = options.plan_backward(profile, arguments.src.shape(), arguments.dtypes());
        plan.map(Plan::from)
    }

    fn compute<T: Element, P: ParamOf<T>, S: ParamOf<T>>(
        &self,
        gpu: &GpuContext,
        shape: &[usize],
        values: &Values<T, P, S>,
    ) -> Result<Values<T, P, S>, Error> {
        let layer = GpuLayerNorm::new(gpu, self.0)?;
        let grads = layer.backward_with_statistics(LayerNormBackwardArgs {
            shape,
            src: values.data("src"),
            diff_dst: values.data("diff_dst"),
            mean: values.statistic("mean"),
            variance: values.statistic("variance"),
            gamma: values.gamma(),
            beta: None,
        });
        pollster::block_on(grads).map(gradients::results)
    }

    fn reference(
        &self,
        shape: &[usize],
        values: &Values<f64, f64, f64>,
    ) -> Result<Vec<Expected>, Error> {
        let want = reference::LayerNorm {
            shape,
            begin_norm_axis: rows::reference_axis(shape.len(), self.0.begin_norm_axis),
            src: values.data("src"),
            diff_dst: values.data("diff_dst"),
            mean: values.statistic("mean"),
            variance: values.statistic("variance"),
            gamma: values.gamma(),
            epsilon: self.0.epsilon,
            param_grads: self.0.param_grads,
        };
        want.backward().map(gradients::expected)
    }
}

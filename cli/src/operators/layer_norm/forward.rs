//! `wgpu-norm layer-norm-forward`.

use super::super::operator::Operator;
use super::super::run as run_operator;
use super::super::tensors::{Arguments, Values};
use super::super::{forward, rows};
use super::{LayerArgs, find_gamma};
use crate::check::Expected;
use crate::failure::Failure;
use crate::job::Job;
use crate::job::Machine;
use clap::Args;
use wgpu_norm::export::Plan;
use wgpu_norm::{
    Element, Error, GpuContext, GpuLayerNorm, LayerNormForwardArgs, LayerNormForwardOperands,
    LayerNormOptions, ParamOf, Profile, reference,
};

/// Layer normalization
///
/// IN holds the tensor src; with use_affine gamma and, optionally, beta; and, optionally, residual, which is added to src
/// first. OUT receives dst, which is gamma · (x - mean) / √(variance + epsilon) + beta,
/// and, if there is a residual, sum, which is x = src + residual, both in src's element type; and mean and variance (biased)
/// of each row, as layer-norm-backward takes them (with x as src). mean and variance have src's axes before
/// begin_norm_axis, gamma and beta the others, or one axis for all of them.
///
/// mean and variance are f32 (f64 of f64 data).
///
/// Attributes that no flag gives may stand in IN's metadata, as text: begin_norm_axis, use_affine, epsilon. There,
/// op other than layer_norm_forward is a warning.
#[derive(Debug, Args)]
pub struct LayerNormForward {
    #[command(flatten)]
    layer: LayerArgs,
}

/// The operator with its attributes.
struct Forward(LayerNormOptions);

/// Runs the subcommand.
pub fn run(command: &LayerNormForward, on: &Machine<'_>) -> Result<(), Failure> {
    let job = Job::start(&command.layer.files, Forward::NAME, on)?;
    let options = command.layer.options(&job.input)?;
    let mut arguments = Arguments::find(&job.input, &[], &[])?;
    arguments.beside.extend(job.input.optional("residual")?);
    find_gamma(&job, options.use_affine, &mut arguments)?;
    if options.use_affine {
        arguments.params.extend(job.input.optional("beta")?);
    }
    rows::check_shapes(&arguments, options.begin_norm_axis)?;
    run_operator(job, on, &Forward(options), &arguments)
}

impl Operator for Forward {
    const NAME: &'static str = "layer_norm_forward";

    fn attributes(&self) -> String {
        super::attributes(&self.0)
    }

    fn statistics_shape(&self, arguments: &Arguments) -> Vec<usize> {
        rows::statistics_shape(arguments.src.shape(), self.0.begin_norm_axis)
    }

    fn check_samples(&self, arguments: &Arguments) -> Result<(), Error> {
        rows::check_samples(arguments.src.shape(), self.0.begin_norm_axis)
    }

    fn plan(&self, profile: &Profile, arguments: &Arguments) -> Result<Plan, Error> {
        let options = self.0;
        let operands = LayerNormForwardOperands {
            residual: arguments.has("residual"),
            beta: arguments.has("beta"),
            keep_statistics: true,
        };
        let plan =
            options.plan_forward(profile, arguments.src.shape(), arguments.dtypes(), operands);
        plan.map(Plan::from)
    }

    fn compute<T: Element, P: ParamOf<T>, S: ParamOf<T>>(
        &self,
        gpu: &GpuContext,
        shape: &[usize],
        values: &Values<T, P, S>,
    ) -> Result<Values<T, P, S>, Error> {
        let layer = GpuLayerNorm::new(gpu, self.0)?;
        let output = layer.forward_with_statistics(LayerNormForwardArgs {
            shape,
            src: values.data("src"),
            residual: values.residual(),
            gamma: values.gamma(),
            beta: values.beta(),
            keep_statistics: true,
        });
        let output = pollster::block_on(output)?;
        Ok(Values {
            data: forward::data(output.dst, output.sum),
            params: vec![],
            statistics: vec![("mean", output.mean), ("variance", output.variance)],
            mask: None,
        })
    }

    fn reference(
        &self,
        shape: &[usize],
        values: &Values<f64, f64, f64>,
    ) -> Result<Vec<Expected>, Error> {
        let layer = reference::LayerNormForward {
            shape,
            begin_norm_axis: rows::reference_axis(shape.len(), self.0.begin_norm_axis),
            src: values.data("src"),
            residual: values.residual(),
            gamma: values.gamma(),
            beta: values.beta(),
            epsilon: self.0.epsilon,
        };
        layer.forward().map(forward::expected)
    }
}

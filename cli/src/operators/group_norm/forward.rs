//! `wgpu-norm group-norm-forward` and `instance-norm-forward`.

use super::super::operator::Operator;
use super::super::run as run_operator;
use super::super::tensors::{Arguments, Values};
use super::super::through;
use super::{GroupArgs, LayerArgs};
use crate::check::Expected;
use crate::failure::Failure;
use crate::input::Input;
use crate::job::Job;
use crate::job::Machine;
use clap::Args;
use wgpu_norm::export::Plan;
use wgpu_norm::{
    Element, Error, GpuContext, GpuGroupNorm, GroupNormForwardArgs, GroupNormForwardOperands,
    GroupNormOptions, ParamOf, Profile, reference,
};

/// Group normalization
///
/// IN holds the tensor src and, optionally, gamma, beta and residual, which is of src's shape. OUT receives dst in src's element type, which is
/// activation(gamma · (src - mean) / √(variance + epsilon) + beta + residual), and mean and variance (biased) of each
/// group, as group-norm-backward takes them. mean and variance are of shape [N, G], gamma and beta of [C].
///
/// With both a residual and --activation OUT receives a mask of what passed the activation, as group-norm-backward takes
/// it: U32, bit i of word w for element 32 · w + i.
///
/// mean and variance are f32 (f64 of f64 data).
///
/// Attributes that no flag gives may stand in IN's metadata, as text: groups, data_format, epsilon, activation. There, op
/// other than group_norm_forward is a warning.
#[derive(Debug, Args)]
pub struct GroupNormForward {
    #[command(flatten)]
    group: GroupArgs,
}

/// Instance normalization
///
/// IN holds the tensor src and, optionally, gamma, beta and residual, which is of src's shape. OUT receives dst in src's element type, which is
/// activation(gamma · (src - mean) / √(variance + epsilon) + beta + residual), and mean and variance (biased) of each
/// channel of each sample, as instance-norm-backward takes them. mean and variance are of shape [N, C], gamma and beta of
/// [C].
///
/// With both a residual and --activation OUT receives a mask of what passed the activation, as instance-norm-backward takes
/// it: U32, bit i of word w for element 32 · w + i.
///
/// mean and variance are f32 (f64 of f64 data).
///
/// Attributes that no flag gives may stand in IN's metadata, as text: data_format, epsilon, activation. There, op other
/// than instance_norm_forward is a warning.
#[derive(Debug, Args)]
pub struct InstanceNormForward {
    #[command(flatten)]
    layer: LayerArgs,
}

/// The operator with its attributes; of instance norm there is a group for each channel.
struct Forward<const INSTANCE: bool>(GroupNormOptions);

/// Runs the subcommand of group norm.
pub fn run(command: &GroupNormForward, on: &Machine<'_>) -> Result<(), Failure> {
    let job = Job::start(&command.group.layer.files, Forward::<false>::NAME, on)?;
    let options = command.group.options(&job.input)?;
    let arguments = arguments(&job.input)?;
    super::check_shapes(&arguments, &options, false)?;
    run_operator(job, on, &Forward::<false>(options), &arguments)
}

/// Runs the subcommand of instance norm.
pub fn run_instance(command: &InstanceNormForward, on: &Machine<'_>) -> Result<(), Failure> {
    let job = Job::start(&command.layer.files, Forward::<true>::NAME, on)?;
    let arguments = arguments(&job.input)?;
    let options = command.layer.of_channels(&job.input, &arguments)?;
    super::check_shapes(&arguments, &options, true)?;
    run_operator(job, on, &Forward::<true>(options), &arguments)
}

fn arguments(input: &Input) -> Result<Arguments, Failure> {
    let mut arguments = Arguments::find(input, &[], &[])?;
    arguments.params.extend(input.optional("gamma")?);
    arguments.params.extend(input.optional("beta")?);
    through::find_residual(input, &mut arguments)?;
    Ok(arguments)
}

impl<const INSTANCE: bool> Operator for Forward<INSTANCE> {
    const NAME: &'static str = match INSTANCE {
        true => "instance_norm_forward",
        false => "group_norm_forward",
    };

    fn attributes(&self) -> String {
        super::attributes(&self.0)
    }

    fn statistics_shape(&self, arguments: &Arguments) -> Vec<usize> {
        let [statistics, _] = super::shapes(arguments.src.shape(), &self.0);
        statistics
    }

    fn check_samples(&self, _: &Arguments) -> Result<(), Error> {
        Ok(())
    }

    fn plan(&self, profile: &Profile, arguments: &Arguments) -> Result<Plan, Error> {
        let options = self.0;
        let operands = GroupNormForwardOperands {
            gamma: arguments.has("gamma"),
            beta: arguments.has("beta"),
            residual: arguments.has("residual"),
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
        let layer = GpuGroupNorm::new(gpu, self.0)?;
        let output = layer.forward_with_statistics(GroupNormForwardArgs {
            shape,
            src: values.data("src"),
            gamma: values.gamma(),
            beta: values.beta(),
            residual: values.residual(),
        });
        let output = pollster::block_on(output)?;
        Ok(Values {
            data: vec![("dst", output.dst)],
            params: vec![],
            statistics: vec![("mean", output.mean), ("variance", output.variance)],
            mask: output.mask,
        })
    }

    fn reference(
        &self,
        shape: &[usize],
        values: &Values<f64, f64, f64>,
    ) -> Result<Vec<Expected>, Error> {
        let layer = reference::GroupNormForward {
            shape,
            data_format: self.0.data_format,
            groups: self.0.groups,
            src: values.data("src"),
            gamma: values.gamma(),
            beta: values.beta(),
            epsilon: self.0.epsilon,
        };
        through::forward(layer.forward()?, self.0.activation, values.residual(), true)
    }
}

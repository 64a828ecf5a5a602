//! `wgpu-norm group-norm-backward` and `instance-norm-backward`.

use super::super::gradients;
use super::super::operator::Operator;
use super::super::run as run_operator;
use super::super::tensors::{Arguments, Values};
use super::super::undecided::Inputs;
use super::super::{through, undecided};
use super::{GroupArgs, LayerArgs};
use crate::attributes::{Choice, choice};
use crate::check::Expected;
use crate::failure::Failure;
use crate::job::Job;
use crate::job::Machine;
use clap::Args;
use wgpu_norm::export::Plan;
use wgpu_norm::{
    DType, Element, Error, GpuContext, GpuGroupNorm, GroupNormBackwardArgs, GroupNormOptions,
    ParamGrads, ParamOf, Profile, Statistics, reference,
};

/// The gradient of group normalization
///
/// IN holds the tensors src, diff_dst, mean, variance (biased) and, optionally, gamma.
/// OUT receives diff_src in src's element type and, unless --param-grads says otherwise, diff_gamma and diff_beta in
/// gamma's, or without a gamma in mean's. mean and variance are of shape [N, G], gamma of [C].
///
/// With --activation IN holds, too, what the forward pass took or wrote: beta, of gamma's shape and element type, if there
/// was one; or, where a residual was added, the mask, and OUT receives diff_residual. Without --activation a beta is
/// ignored, and a mask is refused.
///
/// Attributes that no flag gives may stand in IN's metadata, as text: groups, data_format, epsilon, activation. There, op
/// other than group_norm_backward is a warning.
#[derive(Debug, Args)]
pub struct GroupNormBackward {
    #[command(flatten)]
    group: GroupArgs,
    #[command(flatten)]
    gradient: GradientArgs,
}

/// The gradient of instance normalization
///
/// IN holds the tensors src, diff_dst, mean, variance (biased) and, optionally, gamma.
/// OUT receives diff_src in src's element type and, unless --param-grads says otherwise, diff_gamma and diff_beta in
/// gamma's, or without a gamma in mean's. mean and variance are of shape [N, C], gamma of [C].
///
/// With --activation IN holds, too, what the forward pass took or wrote: beta, of gamma's shape and element type, if there
/// was one; or, where a residual was added, the mask, and OUT receives diff_residual. Without --activation a beta is
/// ignored, and a mask is refused.
///
/// Attributes that no flag gives may stand in IN's metadata, as text: data_format, epsilon, activation. There, op other
/// than instance_norm_backward is a warning.
#[derive(Debug, Args)]
pub struct InstanceNormBackward {
    #[command(flatten)]
    layer: LayerArgs,
    #[command(flatten)]
    gradient: GradientArgs,
}

#[derive(Debug, Args)]
struct GradientArgs {
    /// The parameter gradients. both: diff_gamma and diff_beta; frozen: none, gamma still scales diff_src;
    /// neither: none, and gamma is ignored
    #[arg(long, value_name = ParamGrads::VALUE_NAME, value_parser = choice::<ParamGrads>(), ignore_case = true,
        default_value = "both")]
    param_grads: ParamGrads,
}

/// The operator with its attributes; of instance norm there is a group for each channel.
struct Backward<const INSTANCE: bool> {
    options: GroupNormOptions,
    /// src's element type.
    data: DType,
}

/// Runs the subcommand of group norm.
pub fn run(command: &GroupNormBackward, on: &Machine<'_>) -> Result<(), Failure> {
    let job = Job::start(&command.group.layer.files, Backward::<false>::NAME, on)?;
    let options = command.group.options(&job.input)?;
    let arguments = arguments(&job, &command.group.layer)?;
    gradient::<false>(job, on, options, &command.gradient, &arguments)
}

/// Runs the subcommand of instance norm.
pub fn run_instance(command: &InstanceNormBackward, on: &Machine<'_>) -> Result<(), Failure> {
    let job = Job::start(&command.layer.files, Backward::<true>::NAME, on)?;
    let arguments = arguments(&job, &command.layer)?;
    let options = command.layer.of_channels(&job.input, &arguments)?;
    gradient::<true>(job, on, options, &command.gradient, &arguments)
}

fn arguments(job: &Job, layer: &LayerArgs) -> Result<Arguments, Failure> {
    let input = &job.input;
    let mut arguments = Arguments::find(input, &["diff_dst"], &["mean", "variance"])?;
    arguments.params.extend(input.optional("gamma")?);
    through::find_beta_or_mask(job, layer.activation.find(input)?, &mut arguments)?;
    Ok(arguments)
}

fn gradient<const INSTANCE: bool>(
    job: Job,
    on: &Machine<'_>,
    options: GroupNormOptions,
    args: &GradientArgs,
    arguments: &Arguments,
) -> Result<(), Failure> {
    let options = GroupNormOptions {
        param_grads: args.param_grads,
        ..options
    };
    super::check_shapes(arguments, &options, INSTANCE)?;
    through::warn_of_ignored_gamma(&job, arguments, (options.activation, options.param_grads));
    let data = arguments.src.dtype();
    let operator = Backward::<INSTANCE> { options, data };
    run_operator(job, on, &operator, arguments)
}

impl<const INSTANCE: bool> Operator for Backward<INSTANCE> {
    const NAME: &'static str = match INSTANCE {
        true => "instance_norm_backward",
        false => "group_norm_backward",
    };

    fn attributes(&self) -> String {
        super::attributes(&self.options)
    }

    fn params_shape(&self, arguments: &Arguments) -> Vec<usize> {
        let [_, params] = super::shapes(arguments.src.shape(), &self.options);
        params
    }

    fn check_samples(&self, _: &Arguments) -> Result<(), Error> {
        Ok(())
    }

    fn plan(&self, profile: &Profile, arguments: &Arguments) -> Result<Plan, Error> {
        let options = self.options;
        let (shape, operands) = (arguments.src.shape(), through::operands(arguments));
        options
            .plan_backward(profile, shape, arguments.dtypes(), operands)
            .map(Plan::from)
    }

    fn compute<T: Element, P: ParamOf<T>, S: ParamOf<T>>(
        &self,
        gpu: &GpuContext,
        shape: &[usize],
        values: &Values<T, P, S>,
    ) -> Result<Values<T, P, S>, Error> {
        let layer = GpuGroupNorm::new(gpu, self.options)?;
        let grads = layer.backward_with_statistics(GroupNormBackwardArgs {
            shape,
            src: values.data("src"),
            diff_dst: values.data("diff_dst"),
            mean: values.statistic("mean"),
            variance: values.statistic("variance"),
            gamma: values.gamma(),
            beta: values.beta(),
            mask: values.mask.as_deref(),
        });
        pollster::block_on(grads).map(gradients::results)
    }

    fn reference(
        &self,
        shape: &[usize],
        values: &Values<f64, f64, f64>,
    ) -> Result<Vec<Expected>, Error> {
        let options = self.options;
        let (data_format, groups) = (options.data_format, options.groups);
        let inputs = Inputs {
            src: values.data("src"),
            mean: values.statistic("mean"),
            variance: values.statistic("variance"),
            gamma: values.gamma(),
            beta: values.beta(),
            epsilon: options.epsilon,
        };
        let output = |of: &Inputs<'_>| {
            let layer = reference::GroupNormForward {
                shape,
                data_format,
                groups,
                src: of.src,
                gamma: of.gamma,
                beta: of.beta,
                epsilon: of.epsilon,
            };
            layer.infer(of.mean, of.variance)
        };
        let gradients = |diff_dst: &[f64]| {
            let layer = reference::GroupNorm {
                shape,
                data_format,
                groups,
                src: inputs.src,
                diff_dst,
                mean: inputs.mean,
                variance: inputs.variance,
                gamma: inputs.gamma,
                epsilon: options.epsilon,
                param_grads: options.param_grads,
            };
            layer.backward()
        };
        let layer = undecided::Layer {
            output,
            gradients,
            statistics: Statistics::Batch,
            param_grads: options.param_grads,
        };
        through::backward(&layer, &inputs, (options.activation, self.data), values)
    }
}

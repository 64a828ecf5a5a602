//! `wgpu-norm group-norm-backward` and `instance-norm-backward`.

use super::super::gradients;
use super::super::operator::{self, Operator};
use super::super::tensors::{Arguments, Values};
use super::{GroupArgs, LayerArgs};
use crate::args::GpuArgs;
use crate::attributes::{Choice, choice};
use crate::check::Expected;
use crate::failure::Failure;
use crate::input::Input;
use crate::job::Job;
use clap::Args;
use wgpu_norm::{
    Element, Error, GpuContext, GpuGroupNorm, GroupNormBackwardArgs, GroupNormOptions, ParamGrads,
    ParamOf, reference,
};

/// The gradient of group normalization
///
/// IN holds the tensors src, diff_dst, mean, variance (biased) and, optionally, gamma; tensors of other names are ignored.
/// OUT receives diff_src in src's element type and, unless --param-grads says otherwise, diff_gamma and diff_beta in
/// gamma's, or without a gamma in mean's. mean and variance are of shape [N, G], gamma of [C].
///
/// Attributes that no flag gives may stand in IN's metadata, as text: groups, data_format, epsilon. There, op other than
/// group_norm_backward is a warning.
#[derive(Debug, Args)]
pub struct GroupNormBackward {
    #[command(flatten)]
    group: GroupArgs,
    #[command(flatten)]
    gradient: GradientArgs,
}

/// The gradient of instance normalization
///
/// IN holds the tensors src, diff_dst, mean, variance (biased) and, optionally, gamma; tensors of other names are ignored.
/// OUT receives diff_src in src's element type and, unless --param-grads says otherwise, diff_gamma and diff_beta in
/// gamma's, or without a gamma in mean's. mean and variance are of shape [N, C], gamma of [C].
///
/// Attributes that no flag gives may stand in IN's metadata, as text: data_format, epsilon. There, op other than
/// instance_norm_backward is a warning.
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
struct Backward<const INSTANCE: bool>(GroupNormOptions);

/// Runs the subcommand of group norm.
pub fn run(command: &GroupNormBackward, gpu: &GpuArgs) -> Result<(), Failure> {
    let job = Job::start(&command.group.layer.files, Backward::<false>::NAME)?;
    let options = command.group.options(&job.input)?;
    let arguments = arguments(&job.input)?;
    gradient::<false>(job, gpu, options, &command.gradient, &arguments)
}

/// Runs the subcommand of instance norm.
pub fn run_instance(command: &InstanceNormBackward, gpu: &GpuArgs) -> Result<(), Failure> {
    let job = Job::start(&command.layer.files, Backward::<true>::NAME)?;
    let arguments = arguments(&job.input)?;
    let options = command.layer.of_channels(&job.input, &arguments)?;
    gradient::<true>(job, gpu, options, &command.gradient, &arguments)
}

fn arguments(input: &Input) -> Result<Arguments, Failure> {
    let mut arguments = Arguments::find(input, &["diff_dst"], &["mean", "variance"])?;
    arguments.params.extend(input.optional("gamma")?);
    Ok(arguments)
}

fn gradient<const INSTANCE: bool>(
    job: Job,
    gpu: &GpuArgs,
    options: GroupNormOptions,
    args: &GradientArgs,
    arguments: &Arguments,
) -> Result<(), Failure> {
    let options = GroupNormOptions {
        param_grads: args.param_grads,
        ..options
    };
    super::check_shapes(arguments, &options, INSTANCE)?;
    gradients::warn_of_ignored_gamma(&job, arguments, options.param_grads);
    operator::run(job, gpu, &Backward::<INSTANCE>(options), arguments)
}

impl<const INSTANCE: bool> Operator for Backward<INSTANCE> {
    const NAME: &'static str = match INSTANCE {
        true => "instance_norm_backward",
        false => "group_norm_backward",
    };

    fn attributes(&self) -> String {
        super::attributes(&self.0)
    }

    fn params_shape(&self, arguments: &Arguments) -> Vec<usize> {
        let [_, params] = super::shapes(arguments.src.shape(), &self.0);
        params
    }

    fn plan(&self, gpu: &GpuContext, arguments: &Arguments) -> Result<(), Error> {
        let layer = GpuGroupNorm::new(gpu, self.0)?;
        let (shape, has_gamma) = (arguments.src.shape(), arguments.has("gamma"));
        layer
            .plan_backward(shape, arguments.dtypes(), has_gamma)
            .map(drop)
    }

    fn compute<T: Element, P: ParamOf<T>, S: ParamOf<T>>(
        &self,
        gpu: &GpuContext,
        shape: &[usize],
        values: &Values<T, P, S>,
    ) -> Result<Values<T, P, S>, Error> {
        let layer = GpuGroupNorm::new(gpu, self.0)?;
        let grads = layer.backward_with_statistics(GroupNormBackwardArgs {
            shape,
            src: values.data("src"),
            diff_dst: values.data("diff_dst"),
            mean: values.statistic("mean"),
            variance: values.statistic("variance"),
            gamma: values.gamma(),
        });
        pollster::block_on(grads).map(gradients::results)
    }

    fn reference(
        &self,
        shape: &[usize],
        values: &Values<f64, f64, f64>,
    ) -> Result<Vec<Expected>, Error> {
        let want = reference::GroupNorm {
            shape,
            data_format: self.0.data_format,
            groups: self.0.groups,
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

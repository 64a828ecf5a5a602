//! `wgpu-norm batch-norm-backward`.

use super::super::gradients;
use super::super::operator::Operator;
use super::super::run as run_operator;
use super::super::tensors::{Arguments, Values};
use super::super::undecided::Inputs;
use super::super::{through, undecided};
use super::{Channels, Layer, LayerArgs};
use crate::attributes::{self, Choice, choice};
use crate::check::Expected;
use crate::failure::Failure;
use crate::job::Job;
use crate::job::Machine;
use crate::ranks::Group;
use clap::Args;
use wgpu_norm::export::Plan;
use wgpu_norm::synchronized::SyncBatchNorm;
use wgpu_norm::{
    BatchNormBackwardArgs, BatchNormOptions, DType, Element, Error, GpuBatchNorm, GpuContext,
    ParamGrads, ParamOf, Profile, Statistics, reference,
};

/// The gradient of batch normalization in training
///
/// IN holds the tensors src, diff_dst, mean, variance and, optionally, gamma. OUT receives diff_src in src's element type and, unless --param-grads says
/// otherwise, diff_gamma and diff_beta in gamma's, or without a gamma in mean's. mean, variance (biased) and gamma are of
/// shape [C], or (broadcast) of src's rank, with size 1 along the axes that are reduced and src's size along the others.
///
/// With --activation IN holds, too, what the forward pass took or wrote: beta, of gamma's shape and element type, if there
/// was one; or, where a residual was added, the mask, and OUT receives diff_residual. Without --activation a beta is
/// ignored, and a mask is refused.
///
/// Attributes that no flag gives may stand in IN's metadata, as text: data_format, epsilon, statistics, activation. There,
/// op other than batch_norm_backward is a warning.
#[derive(Debug, Args)]
pub struct BatchNormBackward {
    #[command(flatten)]
    layer: LayerArgs,
    /// Whether mean and variance were computed from src (batch) or are constants of the gradient
    /// [default: the file's metadata, else batch]
    #[arg(long, value_name = Statistics::VALUE_NAME, value_parser = choice::<Statistics>(), ignore_case = true)]
    statistics: Option<Statistics>,
    /// The parameter gradients. both: diff_gamma and diff_beta; frozen: none, gamma still scales diff_src;
    /// neither: none, and gamma is ignored
    #[arg(long, value_name = ParamGrads::VALUE_NAME, value_parser = choice::<ParamGrads>(), ignore_case = true,
        default_value = "both")]
    param_grads: ParamGrads,
}

/// The operator with its attributes.
struct Backward {
    layer: Layer,
    /// src's element type.
    data: DType,
}

/// Runs the subcommand.
pub fn run(command: &BatchNormBackward, on: &Machine<'_>) -> Result<(), Failure> {
    let job = Job::start(&command.layer.files, Backward::NAME, on)?;
    let statistics = attributes::named(command.statistics, &job.input, "statistics")?;
    let options = BatchNormOptions {
        statistics: statistics.unwrap_or_default(),
        param_grads: command.param_grads,
        ..command.layer.options(&job.input)?
    };
    let mut arguments = Arguments::find(&job.input, &["diff_dst"], &["mean", "variance"])?;
    arguments.params.extend(job.input.optional("gamma")?);
    through::find_beta_or_mask(&job, options.activation, &mut arguments)?;
    let channels = Channels::find(&job, command.layer.data_format, &arguments)?;
    through::warn_of_ignored_gamma(&job, &arguments, (options.activation, options.param_grads));
    let operator = Backward {
        layer: Layer::new(options, channels),
        data: arguments.src.dtype(),
    };
    run_operator(job, on, &operator, &arguments)
}

fn args<'a, T: Element, P: ParamOf<T>, S: ParamOf<T>>(
    shape: &'a [usize],
    values: &'a Values<T, P, S>,
) -> BatchNormBackwardArgs<'a, T, P, S> {
    BatchNormBackwardArgs {
        shape,
        src: values.data("src"),
        diff_dst: values.data("diff_dst"),
        mean: values.statistic("mean"),
        variance: values.statistic("variance"),
        gamma: values.gamma(),
        beta: values.beta(),
        mask: values.mask.as_deref(),
    }
}

impl Operator for Backward {
    const NAME: &'static str = "batch_norm_backward";

    fn attributes(&self) -> String {
        let statistics = self.layer.options.statistics.name();
        format!("{}, {statistics} statistics", self.layer.attributes())
    }

    fn statistics_are_of_samples(&self) -> bool {
        false
    }

    fn check_samples(&self, _: &Arguments) -> Result<(), Error> {
        self.layer.channels.check_samples()
    }

    fn plan(&self, profile: &Profile, arguments: &Arguments) -> Result<Plan, Error> {
        let options = self.layer.options;
        let (shape, types) = (arguments.src.shape(), arguments.dtypes());
        let operands = through::operands(arguments);
        let plan = match &self.layer.channels {
            Channels::Axis(_) => options.plan_backward(profile, shape, types, operands),
            Channels::Broadcast(params) => {
                options.plan_backward_broadcast(profile, shape, params, types, operands)
            }
        };
        plan.map(Plan::from)
    }

    fn compute<T: Element, P: ParamOf<T>, S: ParamOf<T>>(
        &self,
        gpu: &GpuContext,
        shape: &[usize],
        values: &Values<T, P, S>,
    ) -> Result<Values<T, P, S>, Error> {
        let layer = GpuBatchNorm::new(gpu, self.layer.options)?;
        let args = args(shape, values);
        let grads = match &self.layer.channels {
            Channels::Axis(_) => pollster::block_on(layer.backward_with_statistics(args)),
            Channels::Broadcast(params) => {
                pollster::block_on(layer.backward_broadcast_with_statistics(params, args))
            }
        };
        grads.map(gradients::results)
    }

    fn compute_together<T: Element, P: ParamOf<T>, S: ParamOf<T>>(
        &self,
        gpu: &GpuContext,
        shape: &[usize],
        values: &Values<T, P, S>,
        group: &Group,
    ) -> Result<Values<T, P, S>, Failure> {
        let args = args(shape, values);
        let grads = pollster::block_on(async {
            let layer = SyncBatchNorm::new(group, gpu, self.layer.options, shape);
            layer.await?.backward_with_statistics(args).await
        });
        grads.map(gradients::results)
    }

    fn reference(
        &self,
        shape: &[usize],
        values: &Values<f64, f64, f64>,
    ) -> Result<Vec<Expected>, Error> {
        let options = self.layer.options;
        let channel_axes = &*self.layer.channels.axes(shape);
        let inputs = Inputs {
            src: values.data("src"),
            mean: values.statistic("mean"),
            variance: values.statistic("variance"),
            gamma: values.gamma(),
            beta: values.beta(),
            epsilon: options.epsilon,
        };
        let output = |of: &Inputs<'_>| {
            let layer = reference::BatchNormForward {
                shape,
                channel_axes,
                src: of.src,
                gamma: of.gamma,
                beta: of.beta,
                epsilon: of.epsilon,
            };
            layer.infer(of.mean, of.variance)
        };
        let gradients = |diff_dst: &[f64]| {
            let layer = reference::BatchNorm {
                shape,
                channel_axes,
                src: inputs.src,
                diff_dst,
                mean: inputs.mean,
                variance: inputs.variance,
                gamma: inputs.gamma,
                epsilon: options.epsilon,
                statistics: options.statistics,
                param_grads: options.param_grads,
            };
            layer.backward()
        };
        let layer = undecided::Layer {
            output,
            gradients,
            statistics: options.statistics,
            param_grads: options.param_grads,
        };
        through::backward(&layer, &inputs, (options.activation, self.data), values)
    }
}

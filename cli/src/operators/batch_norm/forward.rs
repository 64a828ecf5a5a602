//! `wgpu-norm batch-norm-forward`.

use super::super::operator::Operator;
use super::super::run as run_operator;
use super::super::tensors::{Arguments, Values};
use super::super::through;
use super::{Channels, Layer, LayerArgs};
use crate::attributes::{self, Choice, choice};
use crate::check::Expected;
use crate::failure::Failure;
use crate::input::Input;
use crate::job::Job;
use crate::job::Machine;
use crate::memory;
use crate::ranks::Group;
use clap::Args;
use wgpu_norm::export::Plan;
use wgpu_norm::reference::{self, running};
use wgpu_norm::synchronized::SyncBatchNorm;
use wgpu_norm::{
    BatchNormForwardArgs, BatchNormForwardOperands, BatchNormOutput, Element, Error, GpuBatchNorm,
    GpuContext, ParamOf, Profile, RunningStatistics, RunningUpdate, RunningVariance,
};

/// Batch normalization in training
///
/// IN holds the tensor src and, optionally, gamma, beta, residual, and running_mean with running_variance. OUT receives dst in src's element type, which is
/// activation(gamma · (src - mean) / √(variance + epsilon) + beta + residual);
/// mean and variance (biased) of each channel, as batch-norm-backward takes them; and running_mean and running_variance, if
/// they are in IN, each (1 - W) · old + W · batch. All but src, residual and dst are of shape [C], or (broadcast) of src's
/// rank, with size 1 along the axes that are reduced and src's size along the others.
///
/// With both a residual and --activation OUT receives a mask of what passed the activation, as batch-norm-backward takes
/// it: U32, bit i of word w for element 32 · w + i.
///
/// mean and variance have the element type of running_mean, else f32 (f64 of f64 data). Those of 16 bits hold less, and a
/// warning says where that shows: an f16 has no variance from 65,520 on, nor one below 3e-8.
///
/// Attributes that no flag gives may stand in IN's metadata, as text: data_format, epsilon, activation,
/// running_weight, running_variance. There, op other than batch_norm_forward is a warning.
#[derive(Debug, Args)]
pub struct BatchNormForward {
    #[command(flatten)]
    layer: LayerArgs,
    /// The batch's weight in running statistics, from 0 to 1: PyTorch's momentum, 1 - ONNX's [required with running
    /// statistics, unless the file's metadata has it]
    #[arg(long, value_name = "W", allow_negative_numbers = true, value_parser = attributes::weight)]
    running_weight: Option<f64>,
    /// Which variance of the batch goes into running_variance: ONNX takes the biased one, PyTorch the unbiased one
    /// [default: the file's metadata, else biased]
    #[arg(long, value_name = RunningVariance::VALUE_NAME, value_parser = choice::<RunningVariance>(),
        ignore_case = true)]
    running_variance: Option<RunningVariance>,
}

/// The operator with its attributes.
struct Forward {
    layer: Layer,
    running: Option<RunningUpdate>,
}

/// Runs the subcommand.
pub fn run(command: &BatchNormForward, on: &Machine<'_>) -> Result<(), Failure> {
    let job = Job::start(&command.layer.files, Forward::NAME, on)?;
    let options = command.layer.options(&job.input)?;
    let arguments = arguments(&job.input)?;
    let running = match arguments.has("running_mean") {
        true => Some(update(command, &job.input)?),
        false => None,
    };
    if running.is_none() && command.running_weight.is_some() {
        job.warn("--running-weight: ignored, as there are no running statistics");
    }
    let channels = Channels::find(&job, command.layer.data_format, &arguments)?;
    let layer = Layer::new(options, channels);
    run_operator(job, on, &Forward { layer, running }, &arguments)
}

fn arguments(input: &Input) -> Result<Arguments, Failure> {
    let mut arguments = Arguments::find(input, &[], &[])?;
    arguments.params.extend(input.optional("gamma")?);
    arguments.params.extend(input.optional("beta")?);
    through::find_residual(input, &mut arguments)?;
    if input.contains("running_mean") || input.contains("running_variance") {
        arguments.statistics = vec![
            input.tensor("running_mean", " beside running_variance")?,
            input.tensor("running_variance", " beside running_mean")?,
        ];
    }
    Ok(arguments)
}

fn update(command: &BatchNormForward, input: &Input) -> Result<RunningUpdate, Failure> {
    let weight = attributes::number(
        command.running_weight,
        input,
        "running_weight",
        attributes::weight,
    )?;
    let variance = attributes::named(command.running_variance, input, "running_variance")?;
    Ok(RunningUpdate {
        weight: weight.ok_or(Failure::NoAttribute {
            attribute: "running_weight",
        })?,
        variance: variance.unwrap_or_default(),
    })
}

impl Forward {
    /// Results with their names, of what computes them.
    fn compute_by<T: Element, P: ParamOf<T>, S: ParamOf<T>, E: From<Error>>(
        &self,
        shape: &[usize],
        values: &Values<T, P, S>,
        forward: impl FnOnce(BatchNormForwardArgs<'_, T, P, S>) -> Result<BatchNormOutput<T, S>, E>,
    ) -> Result<Values<T, P, S>, E> {
        let mut running_mean = memory::copied("running_mean", values.statistic("running_mean"))?;
        let mut running_variance =
            memory::copied("running_variance", values.statistic("running_variance"))?;
        let running = self.running.map(|update| RunningStatistics {
            mean: &mut running_mean,
            variance: &mut running_variance,
            update,
        });
        let output = forward(BatchNormForwardArgs {
            shape,
            src: values.data("src"),
            gamma: values.gamma(),
            beta: values.beta(),
            running,
            residual: values.residual(),
        })?;
        let mut statistics = vec![("mean", output.mean), ("variance", output.variance)];
        if self.running.is_some() {
            statistics.push(("running_mean", running_mean));
            statistics.push(("running_variance", running_variance));
        }
        Ok(Values {
            data: vec![("dst", output.dst)],
            params: vec![],
            statistics,
            mask: output.mask,
        })
    }
}

impl Operator for Forward {
    const NAME: &'static str = "batch_norm_forward";

    fn attributes(&self) -> String {
        let layer = self.layer.attributes();
        match self.running {
            None => layer,
            Some(RunningUpdate { weight, variance }) => {
                format!(
                    "{layer}, running weight {weight}, {} variance",
                    variance.name()
                )
            }
        }
    }

    fn statistics_shape(&self, arguments: &Arguments) -> Vec<usize> {
        self.layer.channels.shape(arguments.src.shape())
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
        let operands = BatchNormForwardOperands {
            gamma: arguments.has("gamma"),
            beta: arguments.has("beta"),
            residual: arguments.has("residual"),
            running: self.running,
            ..BatchNormForwardOperands::default()
        };
        let plan = match &self.layer.channels {
            Channels::Axis(_) => options.plan_forward(profile, shape, types, operands),
            Channels::Broadcast(params) => {
                options.plan_forward_broadcast(profile, shape, params, types, operands)
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
        self.compute_by(shape, values, |args| match &self.layer.channels {
            Channels::Axis(_) => pollster::block_on(layer.forward_with_statistics(args)),
            Channels::Broadcast(params) => {
                pollster::block_on(layer.forward_broadcast_with_statistics(params, args))
            }
        })
    }

    fn compute_together<T: Element, P: ParamOf<T>, S: ParamOf<T>>(
        &self,
        gpu: &GpuContext,
        shape: &[usize],
        values: &Values<T, P, S>,
        group: &Group,
    ) -> Result<Values<T, P, S>, Failure> {
        self.compute_by(shape, values, |args| {
            pollster::block_on(async {
                let layer = SyncBatchNorm::new(group, gpu, self.layer.options, shape);
                layer.await?.forward_with_statistics(args).await
            })
        })
    }

    fn reference(
        &self,
        shape: &[usize],
        values: &Values<f64, f64, f64>,
    ) -> Result<Vec<Expected>, Error> {
        let layer = reference::BatchNormForward {
            shape,
            channel_axes: &self.layer.channels.axes(shape),
            src: values.data("src"),
            gamma: values.gamma(),
            beta: values.beta(),
            epsilon: self.layer.options.epsilon,
        };
        let batch = layer.train()?;
        let mut all = vec![];
        if let Some(RunningUpdate { weight, variance }) = self.running {
            let elements = values.data("src").len();
            let count = elements.checked_div(batch.mean.len()).unwrap_or(0) as u64;
            let unbiased = variance == RunningVariance::Unbiased;
            for (name, of_batch, scale, unbiased) in [
                ("running_mean", &batch.mean, &batch.mean_scale, false),
                (
                    "running_variance",
                    &batch.variance,
                    &batch.variance_scale,
                    unbiased,
                ),
            ] {
                let old = values.statistic(name);
                // Sizes of terms merge as the terms do.
                let mut sizes = memory::copied("a tensor in float64", old)?;
                sizes.iter_mut().for_each(|size| *size = size.abs());
                all.push(Expected::new(
                    name,
                    running(old, of_batch, weight, count, unbiased)?,
                    running(&sizes, scale, weight, count, unbiased)?,
                ));
            }
        }
        let activation = self.layer.options.activation;
        all.extend(through::forward(
            batch,
            activation,
            values.residual(),
            true,
        )?);
        Ok(all)
    }
}

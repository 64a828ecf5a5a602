//! `wgpu-norm batch-norm-inference`.

use super::super::operator::Operator;
use super::super::run as run_operator;
use super::super::tensors::{Arguments, Values};
use super::super::through;
use super::{Channels, Layer, LayerArgs};
use crate::check::Expected;
use crate::failure::Failure;
use crate::job::Job;
use crate::job::Machine;
use clap::Args;
use wgpu_norm::export::Plan;
use wgpu_norm::{
    BatchNormInferenceArgs, Element, Error, GpuBatchNorm, GpuContext, InferenceOperands, ParamOf,
    Profile, reference,
};

/// Batch normalization by given statistics
///
/// IN holds the tensors src, mean, variance and, optionally, gamma, beta and residual.
/// OUT receives dst in src's element type, which is
/// activation(gamma · (src - mean) / √(variance + epsilon) + beta + residual). All but src and residual are of shape [C],
/// or (broadcast) of src's rank, with size 1 along the axes that are reduced and src's size along the others.
///
/// Attributes that no flag gives may stand in IN's metadata, as text: data_format, epsilon, activation. There, op other
/// than batch_norm_inference is a warning.
#[derive(Debug, Args)]
pub struct BatchNormInference {
    #[command(flatten)]
    layer: LayerArgs,
}

/// The operator with its attributes.
struct Inference(Layer);

/// Runs the subcommand.
pub fn run(command: &BatchNormInference, on: &Machine<'_>) -> Result<(), Failure> {
    let job = Job::start(&command.layer.files, Inference::NAME, on)?;
    let options = command.layer.options(&job.input)?;
    job.input.take_running_statistics();
    let mut arguments = Arguments::find(&job.input, &[], &["mean", "variance"])?;
    arguments.params.extend(job.input.optional("gamma")?);
    arguments.params.extend(job.input.optional("beta")?);
    through::find_residual(&job.input, &mut arguments)?;
    let channels = Channels::find(&job, command.layer.data_format, &arguments)?;
    let operator = Inference(Layer::new(options, channels));
    run_operator(job, on, &operator, &arguments)
}

impl Operator for Inference {
    const NAME: &'static str = "batch_norm_inference";

    fn attributes(&self) -> String {
        self.0.attributes()
    }

    fn statistics_are_of_samples(&self) -> bool {
        false
    }

    fn check_samples(&self, _: &Arguments) -> Result<(), Error> {
        self.0.channels.check_samples()
    }

    fn plan(&self, profile: &Profile, arguments: &Arguments) -> Result<Plan, Error> {
        let options = self.0.options;
        let (shape, types) = (arguments.src.shape(), arguments.dtypes());
        let operands = InferenceOperands {
            gamma: arguments.has("gamma"),
            beta: arguments.has("beta"),
            residual: arguments.has("residual"),
        };
        let plan = match &self.0.channels {
            Channels::Axis(_) => options.plan_inference(profile, shape, types, operands),
            Channels::Broadcast(params) => {
                options.plan_inference_broadcast(profile, shape, params, types, operands)
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
        let layer = GpuBatchNorm::new(gpu, self.0.options)?;
        let args = BatchNormInferenceArgs {
            shape,
            src: values.data("src"),
            mean: values.statistic("mean"),
            variance: values.statistic("variance"),
            gamma: values.gamma(),
            beta: values.beta(),
            residual: values.residual(),
        };
        let dst = match &self.0.channels {
            Channels::Axis(_) => pollster::block_on(layer.infer_with_statistics(args)),
            Channels::Broadcast(params) => {
                pollster::block_on(layer.infer_broadcast_with_statistics(params, args))
            }
        };
        Ok(Values {
            data: vec![("dst", dst?)],
            params: vec![],
            statistics: vec![],
            mask: None,
        })
    }

    fn reference(
        &self,
        shape: &[usize],
        values: &Values<f64, f64, f64>,
    ) -> Result<Vec<Expected>, Error> {
        let layer = reference::BatchNormForward {
            shape,
            channel_axes: &self.0.channels.axes(shape),
            src: values.data("src"),
            gamma: values.gamma(),
            beta: values.beta(),
            epsilon: self.0.options.epsilon,
        };
        let (mean, variance) = (values.statistic("mean"), values.statistic("variance"));
        let activation = self.0.options.activation;
        through::forward(
            layer.infer(mean, variance)?,
            activation,
            values.residual(),
            false,
        )
    }
}

//! `wgpu-norm batch-norm-backward`.

use super::operator::{self, Operator};
use super::tensors::{Arguments, Values};
use crate::args::{FileArgs, GpuArgs};
use crate::attributes::{self, Choice, Format, choice};
use crate::failure::Failure;
use crate::input::{Input, Tensor};
use crate::job::Job;
use clap::Args;
use wgpu_norm::reference::{self, Gradients, channel_axes};
use wgpu_norm::{
    BatchNormArgs, BatchNormOptions, DataFormat, Element, Error, GpuBatchNorm, GpuContext, Grads,
    ParamGrads, ParamOf, Statistics,
};

/// The gradient of batch normalization in training
///
/// IN holds the tensors src, diff_dst, mean, variance and, optionally, gamma; tensors of other
/// names are ignored. OUT receives diff_src in src's element type and, unless --param-grads says
/// otherwise, diff_gamma and diff_beta in the parameters'. mean, variance (biased) and gamma are of shape [C],
/// or (broadcast) of src's rank, with size 1 along the axes that are reduced and src's size along the others.
///
/// Attributes that no flag gives may stand in IN's metadata, as text: data_format, epsilon, statistics. There, op
/// other than batch_norm_backward is a warning.
#[derive(Debug, Args)]
pub struct BatchNormBackward {
    #[command(flatten)]
    pub files: FileArgs,
    /// Added to the variance; above 0 [required unless the file's metadata has it]
    #[arg(long, value_name = "NUMBER", allow_negative_numbers = true)]
    pub epsilon: Option<f64>,
    /// Whether channels are axis 1 (NCX), the last axis (NXC), or the axes that parameters of src's rank
    /// keep (broadcast) [default: the file's metadata, else broadcast if all parameters have src's rank
    /// and that is above 1, else NXC]
    #[arg(long, value_name = Format::VALUE_NAME, value_parser = choice::<Format>(), ignore_case = true)]
    pub data_format: Option<Format>,
    /// Whether mean and variance were computed from src (batch) or are constants of the gradient
    /// [default: the file's metadata, else batch]
    #[arg(long, value_name = Statistics::VALUE_NAME, value_parser = choice::<Statistics>(), ignore_case = true)]
    pub statistics: Option<Statistics>,
    /// The parameter gradients. both: diff_gamma and diff_beta; frozen: none, gamma still scales diff_src;
    /// neither: none, and gamma is ignored
    #[arg(long, value_name = ParamGrads::VALUE_NAME, value_parser = choice::<ParamGrads>(), ignore_case = true,
        default_value = "both")]
    pub param_grads: ParamGrads,
}

/// The operator with its attributes.
struct BatchNorm {
    options: BatchNormOptions,
    /// The parameters' shape if they have src's rank; then the options' data format does not count.
    broadcast: Option<Vec<usize>>,
}

/// Runs the subcommand.
pub fn run(command: &BatchNormBackward, gpu: &GpuArgs) -> Result<(), Failure> {
    let job = Job::start(&command.files, BatchNorm::NAME)?;
    let options = options(command, &job.input)?;
    let format = attributes::named(command.data_format, &job.input, "data_format")?;
    let mut arguments = Arguments::find(&job.input, &["mean", "variance"])?;
    arguments.gamma = job.input.optional("gamma")?;
    let mut operator = BatchNorm {
        options,
        broadcast: None,
    };
    if format.is_none() {
        warn_if_ambiguous(&job, &arguments);
    }
    match format.unwrap_or_else(|| recognize(&arguments)) {
        Format::Axis(data_format) => {
            check_channels(&arguments, data_format)?;
            operator.options.data_format = data_format;
        }
        Format::Broadcast => {
            check_broadcast(&arguments)?;
            operator.broadcast = Some(arguments.first_param().shape().to_vec());
        }
    }
    operator::run(job, gpu, &operator, &arguments)
}

/// All but the data format.
fn options(command: &BatchNormBackward, input: &Input) -> Result<BatchNormOptions, Failure> {
    let epsilon = attributes::number(command.epsilon, input, "epsilon")?;
    let epsilon = epsilon.ok_or(Failure::NoAttribute {
        attribute: "epsilon",
    })?;
    let statistics = attributes::named(command.statistics, input, "statistics")?;
    Ok(BatchNormOptions {
        statistics: statistics.unwrap_or_default(),
        param_grads: command.param_grads,
        ..BatchNormOptions::new(epsilon)
    })
}

/// The format that the parameters' ranks tell; of one axis they tell nothing.
fn recognize(arguments: &Arguments) -> Format {
    let rank = arguments.src.shape().len();
    let mut params = arguments.params();
    if rank > 1 && params.all(|param| param.shape().len() == rank) {
        Format::Broadcast
    } else {
        Format::Axis(DataFormat::default())
    }
}

/// The default is NXC; a file whose channels are as well axis 1 may mean that.
fn warn_if_ambiguous(job: &Job, arguments: &Arguments) {
    let (src, params) = (arguments.src.shape(), arguments.first_param().shape());
    if let ([_, second, .., last], [channels]) = (src, params)
        && second == last
        && last == channels
    {
        job.warn(
            "data_format: not given, so NXC, channels last; axis 1 has as many (--data-format NCX)",
        );
    }
}

/// A failure if a parameter is not of shape `[C]`.
fn check_channels(arguments: &Arguments, format: DataFormat) -> Result<(), Failure> {
    let src = arguments.src.shape();
    if src.len() == 1 {
        return Err(Failure::RankOne);
    }
    let channel = match format {
        DataFormat::Ncx => src.get(1),
        DataFormat::Nxc => src.last(),
    };
    // Without such an axis the rank is out of range, which the library says.
    let Some(&channels) = channel else {
        return Ok(());
    };
    let mut params = arguments.params();
    params.try_for_each(|p| p.expect_shape(&[&[channels]], " (one per channel of src)"))
}

/// A failure if a parameter cannot be broadcast to src, or they are not all of one shape.
fn check_broadcast(arguments: &Arguments) -> Result<(), Failure> {
    let mut params = arguments.params();
    params.try_for_each(|param| {
        expect_broadcast(param, &arguments.src)?;
        param.expect_shape(&[arguments.first_param().shape()], " as mean")
    })
}

fn expect_broadcast(param: &Tensor, src: &Tensor) -> Result<(), Failure> {
    if param.shape().len() != src.shape().len() {
        return param.expect_shape(&[src.shape()], " with 1 along the axes that are reduced");
    }
    let axes = param.shape().iter().zip(src.shape()).enumerate();
    for (axis, (&got, &size)) in axes {
        if got != 1 && got != size {
            let expected = match size {
                1 => format!("size 1 along axis {axis}"),
                _ => format!("size 1 or {size} along axis {axis}"),
            };
            return Err(Failure::Library(Error::Argument {
                argument: param.name(),
                expected,
                got: got.to_string(),
            }));
        }
    }
    Ok(())
}

impl Operator for BatchNorm {
    const NAME: &'static str = "batch_norm_backward";

    fn attributes(&self) -> String {
        let format = match self.broadcast {
            Some(_) => Format::Broadcast,
            None => Format::Axis(self.options.data_format),
        };
        let statistics = self.options.statistics.name();
        format!(
            "{}, epsilon {:e}, {statistics} statistics",
            format.name(),
            self.options.epsilon
        )
    }

    fn param_grads(&self) -> ParamGrads {
        self.options.param_grads
    }

    fn plan(&self, gpu: &GpuContext, arguments: &Arguments) -> Result<(), Error> {
        let layer = GpuBatchNorm::new(gpu, self.options)?;
        let (data, params) = arguments.dtypes();
        let (shape, has_gamma) = (arguments.src.shape(), arguments.gamma.is_some());
        let plan = match &self.broadcast {
            None => layer.plan(shape, (data, params), has_gamma),
            Some(broadcast) => layer.plan_broadcast(shape, broadcast, (data, params), has_gamma),
        };
        plan.map(drop)
    }

    fn backward<T: Element, P: ParamOf<T>>(
        &self,
        gpu: &GpuContext,
        values: &Values<'_, T, P>,
    ) -> Result<Grads<T, P>, Error> {
        let layer = GpuBatchNorm::new(gpu, self.options)?;
        let args = BatchNormArgs {
            shape: values.shape,
            src: &values.src,
            diff_dst: &values.diff_dst,
            mean: values.statistic("mean"),
            variance: values.statistic("variance"),
            gamma: values.gamma.as_deref(),
        };
        match &self.broadcast {
            None => pollster::block_on(layer.backward(args)),
            Some(broadcast) => pollster::block_on(layer.backward_broadcast(broadcast, args)),
        }
    }

    fn reference(&self, values: &Values<'_, f64, f64>) -> Result<Gradients, Error> {
        let channel_axes = match &self.broadcast {
            None => channel_axes(values.shape.len(), self.options.data_format),
            Some(broadcast) => {
                let axes = broadcast.iter().zip(values.shape);
                axes.map(|(param, size)| param == size).collect()
            }
        };
        reference::BatchNorm {
            shape: values.shape,
            channel_axes: &channel_axes,
            src: &values.src,
            diff_dst: &values.diff_dst,
            mean: values.statistic("mean"),
            variance: values.statistic("variance"),
            gamma: values.gamma.as_deref(),
            epsilon: self.options.epsilon,
            statistics: self.options.statistics,
            param_grads: self.options.param_grads,
        }
        .backward()
    }
}

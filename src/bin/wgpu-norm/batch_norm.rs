//! `wgpu-norm batch-norm-backward`.

use crate::args::{BatchNormBackward, GpuArgs};
use crate::attributes;
use crate::failure::Failure;
use crate::input::Input;
use crate::job::Job;
use crate::operator::{self, Grads, Operator};
use crate::tensors::{Arguments, Values};
use wgpu_norm::reference::{self, Gradients, channel_axes};
use wgpu_norm::{
    BatchNormArgs, BatchNormOptions, DataFormat, Element, Error, GpuBatchNorm, GpuContext, ParamOf,
};

/// Runs the subcommand.
pub fn run(command: &BatchNormBackward, gpu: &GpuArgs) -> Result<(), Failure> {
    let job = Job::start(&command.files)?;
    let options = options(command, &job.input)?;
    let arguments = arguments(&job.input, options.data_format)?;
    operator::run(job, gpu, &options, &arguments)
}

fn options(command: &BatchNormBackward, input: &Input) -> Result<BatchNormOptions, Failure> {
    let epsilon = attributes::number(command.epsilon, input, "epsilon")?;
    let epsilon = epsilon.ok_or(Failure::NoAttribute {
        attribute: "epsilon",
    })?;
    let data_format = attributes::named(command.data_format, input, "data_format")?;
    let statistics = attributes::named(command.statistics, input, "statistics")?;
    Ok(BatchNormOptions {
        data_format: data_format.unwrap_or_default(),
        statistics: statistics.unwrap_or_default(),
        param_grads: command.param_grads,
        ..BatchNormOptions::new(epsilon)
    })
}

fn arguments(input: &Input, format: DataFormat) -> Result<Arguments, Failure> {
    let mut found = Arguments::find(input)?;
    found.gamma = input.optional("gamma")?;
    let src = found.src.shape();
    let channel = match format {
        DataFormat::Ncx => src.get(1),
        DataFormat::Nxc => src.last(),
    };
    // Without such an axis the rank is out of range, which the library says.
    if let Some(&channels) = channel {
        let mut params = found.params();
        params.try_for_each(|p| p.expect_shape(&[&[channels]], " (one per channel of src)"))?;
    }
    Ok(found)
}

impl Operator for BatchNormOptions {
    fn plan(&self, gpu: &GpuContext, arguments: &Arguments) -> Result<(), Error> {
        let layer = GpuBatchNorm::new(gpu, *self)?;
        let (data, params) = arguments.dtypes();
        let has_gamma = arguments.gamma.is_some();
        let plan = layer.plan(arguments.src.shape(), data, params, has_gamma);
        plan.map(drop)
    }

    fn backward<T: Element, P: ParamOf<T>>(
        &self,
        gpu: &GpuContext,
        values: &Values<'_, T, P>,
    ) -> Result<Grads<T, P>, Error> {
        let layer = GpuBatchNorm::new(gpu, *self)?;
        let grads = pollster::block_on(layer.backward(BatchNormArgs {
            shape: values.shape,
            src: &values.src,
            diff_dst: &values.diff_dst,
            mean: &values.mean,
            variance: &values.variance,
            gamma: values.gamma.as_deref(),
        }))?;
        Ok(Grads {
            diff_src: grads.diff_src,
            diff_gamma: grads.diff_gamma,
            diff_beta: grads.diff_beta,
        })
    }

    fn reference(&self, values: &Values<'_, f64, f64>) -> Result<Gradients, Error> {
        reference::BatchNorm {
            shape: values.shape,
            channel_axes: &channel_axes(values.shape.len(), self.data_format),
            src: &values.src,
            diff_dst: &values.diff_dst,
            mean: &values.mean,
            variance: &values.variance,
            gamma: values.gamma.as_deref(),
            epsilon: self.epsilon,
            statistics: self.statistics,
            param_grads: self.param_grads,
        }
        .backward()
    }
}

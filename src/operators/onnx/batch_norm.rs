//! `BatchNormalization`.

use crate::element::types;
use crate::operators::check_momentum;
use crate::{
    BatchNormForwardArgs, BatchNormForwardOperands, BatchNormForwardPlan, BatchNormInferenceArgs,
    BatchNormInferencePlan, BatchNormOptions, DataFormat, Element, Error, GpuBatchNorm, GpuContext,
    ParamOf, RunningStatistics, RunningUpdate, RunningVariance, Shards, memory,
};
use std::borrow::Cow;

/// The inputs of [`BatchNormalization`], in host memory, in the document's order.
#[derive(Clone, Copy, Debug)]
pub struct BatchNormalizationInputs<'a, T, P, S = P> {
    /// Shape of X: `(N, C, D1, …)`, rank 1 to 8. Of rank 1 it is `(N)`, and C is 1.
    pub shape: &'a [usize],
    /// `X`: the layer's input.
    pub x: &'a [T],
    /// `scale` of each channel; `[C]`.
    pub scale: &'a [P],
    /// `B`, the bias of each channel; `[C]`.
    pub b: &'a [P],
    /// `input_mean`: in training the running mean of each channel before this batch, else the mean; `[C]`.
    pub input_mean: &'a [S],
    /// `input_var`: in training the running variance of each channel before this batch, else the variance; `[C]`.
    pub input_var: &'a [S],
}

/// The outputs of [`BatchNormalization`], in host memory, in the document's order.
#[derive(Clone, Debug, PartialEq)]
pub struct BatchNormalizationOutputs<T, S> {
    /// `Y`: the layer's output, of X's shape.
    pub y: Vec<T>,
    /// `running_mean` of each channel after this batch; in training only.
    pub running_mean: Option<Vec<S>>,
    /// `running_var` of each channel after this batch; in training only.
    pub running_var: Option<Vec<S>>,
}

/// ONNX's [`BatchNormalization`](https://onnx.ai/onnx/operators/onnx__BatchNormalization.html) of opset 15.
///
/// With `training_mode`, m elements in a channel, current_mean = Σ X / m and current_var = Σ (X − current_mean)² / m:
///
/// * Y = (X − current_mean) / √(current_var + epsilon) · scale + B
/// * running_mean = input_mean · momentum + current_mean · (1 − momentum)
/// * running_var = input_var · momentum + current_var · (1 − momentum)
///
/// Without it Y = (X − input_mean) / √(input_var + epsilon) · scale + B.
///
/// | index | input | type | shape | in plans and errors |
/// |---|---|---|---|---|
/// | 0 | `X` | T | `(N, C, D1, …)` | `src` |
/// | 1 | `scale` | T1 | `[C]` | `gamma` |
/// | 2 | `B` | T1 | `[C]` | `beta` |
/// | 3 | `input_mean` | T2 | `[C]` | in training `running_mean`, else `mean` |
/// | 4 | `input_var` | T2 | `[C]` | in training `running_variance`, else `variance` |
///
/// | index | output | type | shape | in plans |
/// |---|---|---|---|---|
/// | 0 | `Y` | T | X's | `dst` |
/// | 1 | `running_mean`, in training | T2 | `[C]` | `running_mean` |
/// | 2 | `running_var`, in training | T2 | `[C]` | `running_variance` |
///
/// # What differs
///
/// * T1 is T, or f32 beside f16 and bf16; T2 is T1, or f32 beside f16 and bf16. The document has any three float types.
/// * epsilon must be above 0, and momentum from 0 to 1.
/// * On device buffers running statistics are updated in place: one buffer is input_mean and running_mean, another one
///   input_var and running_var. current_mean and current_var are written, too, as the gradient takes them.
///
/// ```
/// # pollster::block_on(async {
/// # use wgpu_norm::{Error, GpuContext};
/// # let gpu = match GpuContext::new().await {
/// #     Ok(gpu) => gpu,
/// #     Err(Error::NoAdapter { .. }) => return Ok(()), // a machine without any driver
/// #     Err(error) => return Err(error),
/// # };
/// use wgpu_norm::operators::onnx::{BatchNormalization, BatchNormalizationInputs};
///
/// let op = BatchNormalization {
///     training_mode: true,
///     ..BatchNormalization::default() // epsilon 1e-5, momentum 0.9
/// };
/// let inputs = BatchNormalizationInputs {
///     shape: &[2, 1, 2], // two samples of one channel with two elements
///     x: &[1.0_f32, 2.0, 3.0, 4.0],
///     scale: &[1.0_f32],
///     b: &[0.0],
///     input_mean: &[0.0_f32],
///     input_var: &[1.0],
/// };
/// let outputs = op.forward(&gpu, inputs).await?;
/// let (mean, var) = (outputs.running_mean.unwrap_or_default(), outputs.running_var.unwrap_or_default());
/// assert!((mean[0] - 0.25).abs() < 1e-6); // a tenth of 2.5
/// assert!((var[0] - 1.025).abs() < 1e-6); // nine tenths of 1, one of 1.25
/// # Ok(()) }).unwrap();
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct BatchNormalization {
    /// Attribute `epsilon`: added to the variance; finite and above 0; 1e-5 by default.
    pub epsilon: f32,
    /// Attribute `momentum`, the weight of the **old** running statistics, from 0 to 1; 0.9 by default.
    pub momentum: f32,
    /// Attribute `training_mode`, 1 or 0: whether the statistics are the batch's; false by default.
    pub training_mode: bool,
}

impl Default for BatchNormalization {
    /// The document's defaults.
    fn default() -> Self {
        Self {
            epsilon: 1e-5,
            momentum: 0.9,
            training_mode: false,
        }
    }
}

/// `(N)` has one channel: it is `(N, 1)`.
fn with_channels(shape: &[usize]) -> Cow<'_, [usize]> {
    match *shape {
        [samples] => Cow::Owned(vec![samples, 1]),
        _ => Cow::Borrowed(shape),
    }
}

impl BatchNormalization {
    /// Computes the outputs of tensors in host memory.
    ///
    /// # Errors
    ///
    /// [`Error::Epsilon`], [`Error::Argument`] for momentum, and those of [`GpuBatchNorm::forward`] and
    /// [`GpuBatchNorm::infer`].
    pub async fn forward<T: Element, P: ParamOf<T>, S: ParamOf<T>>(
        &self,
        gpu: &GpuContext,
        inputs: BatchNormalizationInputs<'_, T, P, S>,
    ) -> Result<BatchNormalizationOutputs<T, S>, Error> {
        let layer = self.layer(gpu)?;
        let shape = &with_channels(inputs.shape);
        if !self.training_mode {
            let args = BatchNormInferenceArgs {
                shape,
                src: inputs.x,
                mean: inputs.input_mean,
                variance: inputs.input_var,
                gamma: Some(inputs.scale),
                beta: Some(inputs.b),
                residual: None,
            };
            return Ok(BatchNormalizationOutputs {
                y: layer.infer_with_statistics(args).await?,
                running_mean: None,
                running_var: None,
            });
        }
        let update = self.update()?;
        let copy = |name, old: &[S]| memory::collect(name, old.iter().copied());
        let mut running_mean = copy("running_mean", inputs.input_mean)?;
        let mut running_var = copy("running_variance", inputs.input_var)?;
        let args = BatchNormForwardArgs {
            shape,
            src: inputs.x,
            gamma: Some(inputs.scale),
            beta: Some(inputs.b),
            running: Some(RunningStatistics {
                mean: &mut running_mean,
                variance: &mut running_var,
                update,
            }),
            residual: None,
        };
        let y = layer.forward_with_statistics(args).await?.dst;
        Ok(BatchNormalizationOutputs {
            y,
            running_mean: Some(running_mean),
            running_var: Some(running_var),
        })
    }

    /// Plans training on device buffers, whatever [`training_mode`](Self::training_mode) says.
    ///
    /// # Errors
    ///
    /// [`Error::Epsilon`], [`Error::Argument`] for momentum, and those of [`GpuBatchNorm::plan_forward`].
    pub fn plan_training<T: Element, P: ParamOf<T>, S: ParamOf<T>>(
        &self,
        gpu: &GpuContext,
        shape: &[usize],
    ) -> Result<BatchNormForwardPlan, Error> {
        let operands = BatchNormForwardOperands {
            gamma: true,
            beta: true,
            running: Some(self.update()?),
            shards: Shards::default(),
            residual: false,
        };
        let shape = with_channels(shape);
        self.layer(gpu)?
            .plan_forward(&shape, types::<T, P, S>(), operands)
    }

    /// Plans what is computed without training on device buffers, whatever [`training_mode`](Self::training_mode) says.
    ///
    /// # Errors
    ///
    /// [`Error::Epsilon`], and those of [`GpuBatchNorm::plan_inference`].
    pub fn plan_inference<T: Element, P: ParamOf<T>, S: ParamOf<T>>(
        &self,
        gpu: &GpuContext,
        shape: &[usize],
    ) -> Result<BatchNormInferencePlan, Error> {
        let shape = with_channels(shape);
        self.layer(gpu)?
            .plan_inference(&shape, types::<T, P, S>(), (true, true))
    }

    fn update(&self) -> Result<RunningUpdate, Error> {
        Ok(RunningUpdate {
            weight: 1.0 - check_momentum(self.momentum.into())?,
            variance: RunningVariance::Biased,
        })
    }

    fn layer(&self, gpu: &GpuContext) -> Result<GpuBatchNorm, Error> {
        let options = BatchNormOptions {
            data_format: DataFormat::Ncx,
            ..BatchNormOptions::new(self.epsilon.into())
        };
        GpuBatchNorm::new(gpu, options)
    }
}

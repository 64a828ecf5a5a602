//! The operators of [ONNX](https://onnx.ai/onnx/operators/), with its attributes and argument names.

use crate::element::types;
use crate::operators::{Accumulated, check_momentum, inverse_deviations};
use crate::{
    BatchNormForwardArgs, BatchNormForwardOperands, BatchNormForwardPlan, BatchNormInferenceArgs,
    BatchNormInferencePlan, BatchNormOptions, DataFormat, Element, Error, GpuBatchNorm, GpuContext,
    GpuGroupNorm, GpuInstanceNorm, GpuLayerNorm, GpuRmsNorm, GroupNormForwardArgs,
    GroupNormForwardOperands, GroupNormForwardPlan, GroupNormOptions, InstanceNormOptions,
    LayerNormForwardArgs, LayerNormForwardOperands, LayerNormForwardPlan, LayerNormOptions,
    ParamOf, RmsNormForwardArgs, RmsNormForwardOperands, RmsNormForwardPlan, RmsNormOptions,
    RunningStatistics, RunningUpdate, RunningVariance, Shards, memory,
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
            .plan_inference(&shape, types::<T, P, S>(), true, true)
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

/// The inputs of [`LayerNormalization`], in host memory, in the document's order.
#[derive(Clone, Copy, Debug)]
pub struct LayerNormalizationInputs<'a, T> {
    /// Shape of X: rank 1 to 8.
    pub shape: &'a [usize],
    /// `X`: the layer's input.
    pub x: &'a [T],
    /// `Scale` of each normalized position.
    pub scale: &'a [T],
    /// `B`, the bias of each normalized position, optional. Without it it is 0.
    pub b: Option<&'a [T]>,
}

/// The outputs of [`LayerNormalization`], in host memory, in the document's order.
#[derive(Clone, Debug, PartialEq)]
pub struct LayerNormalizationOutputs<T, U> {
    /// `Y`: the layer's output, of X's shape.
    pub y: Vec<T>,
    /// `Mean` of each row.
    pub mean: Vec<U>,
    /// `InvStdDev` of each row.
    pub inv_std_dev: Vec<U>,
}

/// ONNX's [`LayerNormalization`](https://onnx.ai/onnx/operators/onnx__LayerNormalization.html) of opset 17.
///
/// The axes from `axis` on are normalized; a row is made of the elements that share the axes before it. With means over
/// the row:
///
/// * Mean = mean(X) and Var = mean((X − Mean)²)
/// * InvStdDev = 1/√(Var + epsilon)
/// * Y = (X − Mean) · InvStdDev · Scale + B
///
/// | index | input | type | shape | in plans and errors |
/// |---|---|---|---|---|
/// | 0 | `X` | T | rank 1 to 8 | `src` |
/// | 1 | `Scale` | T | the normalized axes | `gamma` |
/// | 2 | `B`, optional | T | the normalized axes | `beta` |
///
/// | index | output | type | shape | in plans |
/// |---|---|---|---|---|
/// | 0 | `Y` | T | X's | `dst` |
/// | 1 | `Mean` | U | the axes before `axis` | `mean` |
/// | 2 | `InvStdDev` | U | the axes before `axis` | `variance`: the variance itself |
///
/// # What differs
///
/// * U, the type of the statistics, is f32, or f64 beside f64. The attribute `stash_type`, which chooses it in the
///   document, is left out; 1, its default, is f32. Sums are kept in U, as the document has it.
/// * Scale and B have as many elements as the normalized axes. The document lets them be broadcast to X.
/// * epsilon must be above 0, and the attribute is called `begin_norm_axis` in errors.
/// * On device buffers the variance is written in place of InvStdDev.
///
/// ```
/// # pollster::block_on(async {
/// # use wgpu_norm::{Error, GpuContext};
/// # let gpu = match GpuContext::new().await {
/// #     Ok(gpu) => gpu,
/// #     Err(Error::NoAdapter { .. }) => return Ok(()), // a machine without any driver
/// #     Err(error) => return Err(error),
/// # };
/// use wgpu_norm::operators::onnx::{LayerNormalization, LayerNormalizationInputs};
///
/// let op = LayerNormalization::default(); // the last axis, epsilon 1e-5
/// let inputs = LayerNormalizationInputs {
///     shape: &[2, 2], // two rows
///     x: &[1.0_f32, 3.0, 2.0, 4.0],
///     scale: &[1.0, 2.0],
///     b: Some(&[0.0, 5.0]),
/// };
/// let outputs = op.forward(&gpu, inputs).await?;
/// assert_eq!(outputs.mean, [2.0, 3.0]);
/// assert!((outputs.inv_std_dev[0] - 1.0).abs() < 1e-4 && (outputs.y[3] - 7.0).abs() < 1e-4);
/// # Ok(()) }).unwrap();
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LayerNormalization {
    /// Attribute `axis`, in [−r, r − 1] for X of rank r, negative from the end; −1 by default.
    pub axis: i64,
    /// Attribute `epsilon`: added to the variance; finite and above 0; 1e-5 by default.
    pub epsilon: f32,
}

impl Default for LayerNormalization {
    /// The document's defaults.
    fn default() -> Self {
        Self {
            axis: -1,
            epsilon: 1e-5,
        }
    }
}

impl LayerNormalization {
    /// Computes the outputs of tensors in host memory.
    ///
    /// # Errors
    ///
    /// [`Error::Epsilon`], and those of [`GpuLayerNorm::forward`].
    pub async fn forward<T: Accumulated>(
        &self,
        gpu: &GpuContext,
        inputs: LayerNormalizationInputs<'_, T>,
    ) -> Result<LayerNormalizationOutputs<T, T::Statistics>, Error> {
        let args = LayerNormForwardArgs {
            shape: inputs.shape,
            src: inputs.x,
            residual: None,
            gamma: Some(inputs.scale),
            beta: inputs.b,
            keep_statistics: true,
        };
        let output = self.layer(gpu)?.forward_with_statistics(args).await?;
        let epsilon = self.epsilon.into();
        Ok(LayerNormalizationOutputs {
            y: output.dst,
            mean: output.mean,
            inv_std_dev: inverse_deviations("InvStdDev", &output.variance, epsilon)?,
        })
    }

    /// Plans the operator on device buffers. Without `keep_statistics` Mean and InvStdDev, which the document calls
    /// optional, are not computed.
    ///
    /// # Errors
    ///
    /// [`Error::Epsilon`], and those of [`GpuLayerNorm::plan_forward`].
    pub fn plan<T: Accumulated>(
        &self,
        gpu: &GpuContext,
        shape: &[usize],
        has_b: bool,
        keep_statistics: bool,
    ) -> Result<LayerNormForwardPlan, Error> {
        let operands = LayerNormForwardOperands {
            residual: false,
            beta: has_b,
            keep_statistics,
        };
        self.layer(gpu)?
            .plan_forward(shape, types::<T, T, T::Statistics>(), operands)
    }

    fn layer(&self, gpu: &GpuContext) -> Result<GpuLayerNorm, Error> {
        let options = LayerNormOptions {
            begin_norm_axis: self.axis,
            epsilon: self.epsilon.into(),
            ..LayerNormOptions::default()
        };
        GpuLayerNorm::new(gpu, options)
    }
}

/// The inputs of [`RmsNormalization`], in host memory, in the document's order.
#[derive(Clone, Copy, Debug)]
pub struct RmsNormalizationInputs<'a, T, P> {
    /// Shape of X: rank 1 to 8.
    pub shape: &'a [usize],
    /// `X`: the layer's input.
    pub x: &'a [T],
    /// `scale` of each normalized position.
    pub scale: &'a [P],
}

/// ONNX's [`RMSNormalization`](https://onnx.ai/onnx/operators/onnx__RMSNormalization.html) of opset 23:
/// Y = X / √(mean(X²) + epsilon) · scale, with the mean over the axes from `axis` on.
///
/// | index | input | type | shape | in plans and errors |
/// |---|---|---|---|---|
/// | 0 | `X` | T | rank 1 to 8 | `src` |
/// | 1 | `scale` | V | the normalized axes | `gamma` |
///
/// The output is `Y`, of X's shape; plans call it `dst`.
///
/// # What differs
///
/// * Y has X's type. In the document it has scale's.
/// * V is T, or f32 beside f16 and bf16.
/// * scale has as many elements as the normalized axes. The document lets it be broadcast to them.
/// * The attribute `stash_type` is left out: sums are kept in f32, its default, and in f64 for f64.
/// * epsilon must be above 0, and the attribute `axis` is called `begin_norm_axis` in errors.
///
/// ```
/// # pollster::block_on(async {
/// # use wgpu_norm::{Error, GpuContext};
/// # let gpu = match GpuContext::new().await {
/// #     Ok(gpu) => gpu,
/// #     Err(Error::NoAdapter { .. }) => return Ok(()), // a machine without any driver
/// #     Err(error) => return Err(error),
/// # };
/// use wgpu_norm::operators::onnx::{RmsNormalization, RmsNormalizationInputs};
///
/// let op = RmsNormalization::default(); // the last axis, epsilon 1e-5
/// let inputs = RmsNormalizationInputs {
///     shape: &[2, 2], // two rows
///     x: &[1.0_f32, 1.0, 2.0, -2.0],
///     scale: &[1.0_f32, 3.0],
/// };
/// let y = op.forward(&gpu, inputs).await?;
/// assert!((y[0] - 1.0).abs() < 1e-4 && (y[3] + 3.0).abs() < 1e-4);
/// # Ok(()) }).unwrap();
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RmsNormalization {
    /// Attribute `axis`, in [−r, r − 1] for X of rank r, negative from the end; −1 by default.
    pub axis: i64,
    /// Attribute `epsilon`: added to the mean of squares; finite and above 0; 1e-5 by default.
    pub epsilon: f32,
}

impl Default for RmsNormalization {
    /// The document's defaults.
    fn default() -> Self {
        Self {
            axis: -1,
            epsilon: 1e-5,
        }
    }
}

impl RmsNormalization {
    /// Computes Y of tensors in host memory.
    ///
    /// # Errors
    ///
    /// [`Error::Epsilon`], and those of [`GpuRmsNorm::forward`].
    pub async fn forward<T: Element, P: ParamOf<T>>(
        &self,
        gpu: &GpuContext,
        inputs: RmsNormalizationInputs<'_, T, P>,
    ) -> Result<Vec<T>, Error> {
        let args = RmsNormForwardArgs {
            shape: inputs.shape,
            src: inputs.x,
            residual: None,
            gamma: Some(inputs.scale),
            keep_statistics: false,
        };
        Ok(self.layer(gpu)?.forward(args).await?.dst)
    }

    /// Plans the operator on device buffers.
    ///
    /// # Errors
    ///
    /// [`Error::Epsilon`], and those of [`GpuRmsNorm::plan_forward`].
    pub fn plan<T: Element, P: ParamOf<T>>(
        &self,
        gpu: &GpuContext,
        shape: &[usize],
    ) -> Result<RmsNormForwardPlan, Error> {
        let operands = RmsNormForwardOperands {
            residual: false,
            gamma: true,
            keep_statistics: false,
        };
        self.layer(gpu)?
            .plan_forward(shape, (T::DTYPE, P::DTYPE), operands)
    }

    fn layer(&self, gpu: &GpuContext) -> Result<GpuRmsNorm, Error> {
        let options = RmsNormOptions {
            begin_norm_axis: self.axis,
            epsilon: self.epsilon.into(),
            ..RmsNormOptions::default()
        };
        GpuRmsNorm::new(gpu, options)
    }
}

/// The inputs of [`GroupNormalization`] and [`InstanceNormalization`], in host memory, in the documents' order.
#[derive(Clone, Copy, Debug)]
pub struct GroupNormalizationInputs<'a, T> {
    /// Shape of X, `(N, C, …)`: rank 2 to 8.
    pub shape: &'a [usize],
    /// `X`, or `input`: the layer's input.
    pub x: &'a [T],
    /// `scale` of each channel.
    pub scale: &'a [T],
    /// `bias`, or `B`, of each channel.
    pub bias: &'a [T],
}

/// ONNX's [`GroupNormalization`](https://onnx.ai/onnx/operators/onnx__GroupNormalization.html) of opset 21:
/// Y = scale · (X − mean) / √(variance + epsilon) + bias, with mean and biased variance of C/num_groups channels of a
/// sample, side by side.
///
/// | index | input | type | shape | in plans and errors |
/// |---|---|---|---|---|
/// | 0 | `X` | T | `(N, C, …)` | `src` |
/// | 1 | `scale` | T | `[C]` | `gamma` |
/// | 2 | `bias` | T | `[C]` | `beta` |
///
/// The output is `Y`, of X's shape; plans call it `dst`. Plans also write `mean` and `variance` of each group.
///
/// # What differs
///
/// * The attribute `stash_type` is left out: sums are kept in f32, its default, and in f64 for f64.
/// * epsilon must be above 0, and the attribute `num_groups` is called `groups` in errors.
/// * Opset 18 has scale and bias of each group; repeat them for each channel.
///
/// ```
/// # pollster::block_on(async {
/// # use wgpu_norm::{Error, GpuContext};
/// # let gpu = match GpuContext::new().await {
/// #     Ok(gpu) => gpu,
/// #     Err(Error::NoAdapter { .. }) => return Ok(()), // a machine without any driver
/// #     Err(error) => return Err(error),
/// # };
/// use wgpu_norm::operators::onnx::{GroupNormalization, GroupNormalizationInputs};
///
/// let op = GroupNormalization::new(2); // epsilon 1e-5
/// let inputs = GroupNormalizationInputs {
///     shape: &[1, 4, 1],
///     x: &[1.0_f32, 3.0, 10.0, 30.0],
///     scale: &[1.0, 1.0, 1.0, 2.0],
///     bias: &[0.0, 0.0, 0.0, 5.0],
/// };
/// let y = op.forward(&gpu, inputs).await?;
/// assert!((y[0] + 1.0).abs() < 1e-4 && (y[3] - 7.0).abs() < 1e-4);
/// # Ok(()) }).unwrap();
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct GroupNormalization {
    /// Attribute `num_groups`, required: it divides the channels.
    pub num_groups: usize,
    /// Attribute `epsilon`: added to the variance; finite and above 0; 1e-5 by default.
    pub epsilon: f32,
}

impl GroupNormalization {
    /// The document's defaults.
    pub const fn new(num_groups: usize) -> Self {
        Self {
            num_groups,
            epsilon: 1e-5,
        }
    }

    /// Computes Y of tensors in host memory.
    ///
    /// # Errors
    ///
    /// [`Error::Epsilon`], and those of [`GpuGroupNorm::forward`].
    pub async fn forward<T: Accumulated>(
        &self,
        gpu: &GpuContext,
        inputs: GroupNormalizationInputs<'_, T>,
    ) -> Result<Vec<T>, Error> {
        let layer = self.layer(gpu)?;
        let output = layer.forward_with_statistics::<T, T, T::Statistics>(group_args(&inputs));
        Ok(output.await?.dst)
    }

    /// Plans the operator on device buffers.
    ///
    /// # Errors
    ///
    /// [`Error::Epsilon`], and those of [`GpuGroupNorm::plan_forward`].
    pub fn plan<T: Accumulated>(
        &self,
        gpu: &GpuContext,
        shape: &[usize],
    ) -> Result<GroupNormForwardPlan, Error> {
        self.layer(gpu)?
            .plan_forward(shape, types::<T, T, T::Statistics>(), SCALE_AND_BIAS)
    }

    fn layer(&self, gpu: &GpuContext) -> Result<GpuGroupNorm, Error> {
        let options = GroupNormOptions {
            epsilon: self.epsilon.into(),
            ..GroupNormOptions::new(self.num_groups)
        };
        GpuGroupNorm::new(gpu, options)
    }
}

const SCALE_AND_BIAS: GroupNormForwardOperands = GroupNormForwardOperands {
    gamma: true,
    beta: true,
};

const fn group_args<'a, T>(
    inputs: &GroupNormalizationInputs<'a, T>,
) -> GroupNormForwardArgs<'a, T, T> {
    GroupNormForwardArgs {
        shape: inputs.shape,
        src: inputs.x,
        gamma: Some(inputs.scale),
        beta: Some(inputs.bias),
    }
}

/// ONNX's [`InstanceNormalization`](https://onnx.ai/onnx/operators/onnx__InstanceNormalization.html) of opset 22:
/// output = scale · (input − mean) / √(variance + epsilon) + B, with mean and biased variance of each channel of each
/// sample.
///
/// | index | input | type | shape | in plans and errors |
/// |---|---|---|---|---|
/// | 0 | `input` | T | `(N, C, …)` | `src` |
/// | 1 | `scale` | T | `[C]` | `gamma` |
/// | 2 | `B` | T | `[C]` | `beta` |
///
/// The output is `output`, of input's shape; plans call it `dst`. Plans also write `mean` and `variance`, `[N, C]`.
///
/// # What differs
///
/// * epsilon must be above 0.
///
/// ```
/// # pollster::block_on(async {
/// # use wgpu_norm::{Error, GpuContext};
/// # let gpu = match GpuContext::new().await {
/// #     Ok(gpu) => gpu,
/// #     Err(Error::NoAdapter { .. }) => return Ok(()), // a machine without any driver
/// #     Err(error) => return Err(error),
/// # };
/// use wgpu_norm::operators::onnx::{GroupNormalizationInputs, InstanceNormalization};
///
/// let op = InstanceNormalization::default(); // epsilon 1e-5
/// let inputs = GroupNormalizationInputs {
///     shape: &[1, 2, 2],
///     x: &[1.0_f32, 3.0, 10.0, 30.0],
///     scale: &[1.0, 2.0],
///     bias: &[0.0, 5.0],
/// };
/// let output = op.forward(&gpu, inputs).await?;
/// assert!((output[0] + 1.0).abs() < 1e-4 && (output[3] - 7.0).abs() < 1e-4);
/// # Ok(()) }).unwrap();
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct InstanceNormalization {
    /// Attribute `epsilon`: added to the variance; finite and above 0; 1e-5 by default.
    pub epsilon: f32,
}

impl Default for InstanceNormalization {
    /// The document's default.
    fn default() -> Self {
        Self { epsilon: 1e-5 }
    }
}

impl InstanceNormalization {
    /// Computes the output of tensors in host memory.
    ///
    /// # Errors
    ///
    /// [`Error::Epsilon`], and those of [`GpuInstanceNorm::forward`].
    pub async fn forward<T: Accumulated>(
        &self,
        gpu: &GpuContext,
        inputs: GroupNormalizationInputs<'_, T>,
    ) -> Result<Vec<T>, Error> {
        let layer = self.layer(gpu)?;
        let output = layer.forward_with_statistics::<T, T, T::Statistics>(group_args(&inputs));
        Ok(output.await?.dst)
    }

    /// Plans the operator on device buffers.
    ///
    /// # Errors
    ///
    /// [`Error::Epsilon`], and those of [`GpuInstanceNorm::plan_forward`].
    pub fn plan<T: Accumulated>(
        &self,
        gpu: &GpuContext,
        shape: &[usize],
    ) -> Result<GroupNormForwardPlan, Error> {
        self.layer(gpu)?
            .plan_forward(shape, types::<T, T, T::Statistics>(), SCALE_AND_BIAS)
    }

    fn layer(&self, gpu: &GpuContext) -> Result<GpuInstanceNorm, Error> {
        let options = InstanceNormOptions {
            epsilon: self.epsilon.into(),
            ..InstanceNormOptions::default()
        };
        GpuInstanceNorm::new(gpu, options)
    }
}

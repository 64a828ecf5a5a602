//! The operators of [nGraph](https://github.com/NervanaSystems/ngraph), with nGraph's names.

use crate::element::types;
use crate::geometry::{batch_norm_grid, check_length};
use crate::{
    BatchNormBackwardArgs, BatchNormBackwardPlan, BatchNormForwardArgs, BatchNormForwardOperands,
    BatchNormForwardPlan, BatchNormInferenceArgs, BatchNormInferencePlan, BatchNormOptions,
    DataFormat, Error, GpuBatchNorm, GpuContext, ParamOf,
};

/// The inputs of [`BatchNormTrainingBackprop`], in host memory, in the document's order.
#[derive(Clone, Copy, Debug)]
pub struct BackpropInputs<'a, T> {
    /// Shape of input: `(N, C, …)`, rank 2 to 8.
    pub shape: &'a [usize],
    /// The layer's input.
    pub input: &'a [T],
    /// Scale of each channel; `[C]`.
    pub gamma: &'a [T],
    /// Shift of each channel; `[C]`. No gradient depends on its values.
    pub beta: &'a [T],
    /// Mean of each channel; `[C]`.
    pub mean: &'a [T],
    /// Biased variance of each channel; `[C]`.
    pub variance: &'a [T],
    /// Gradient of the loss with respect to the layer's output, of input's shape. The C++ constructor
    /// calls it `delta`.
    pub normalized_delta: &'a [T],
}

/// The outputs of [`BatchNormTrainingBackprop`], in host memory.
#[derive(Clone, Debug, PartialEq)]
pub struct BackpropOutputs<T> {
    /// Gradient with respect to input, of its shape.
    pub input_delta: Vec<T>,
    /// Gradient with respect to gamma; `[C]`.
    pub gamma_delta: Vec<T>,
    /// Gradient with respect to beta; `[C]`.
    pub beta_delta: Vec<T>,
}

/// nGraph's
/// [`BatchNormTrainingBackprop`](https://github.com/NervanaSystems/ngraph/blob/master/doc/sphinx/source/ops/batch_norm_training_backprop.rst).
///
/// With m elements in a channel, r = 1/√(variance + epsilon) and x̂ = (input − mean)·r:
///
/// * input_delta = gamma · r · (normalized_delta − beta_delta/m − x̂ · gamma_delta/m)
/// * gamma_delta = Σ normalized_delta · x̂
/// * beta_delta = Σ normalized_delta
///
/// The channel is axis 1. All tensors have one element type, "real" in the document: `f16`, `bf16`,
/// `f32`, or `f64` where the adapter has it ([`GpuContext::supports`]).
///
/// | document and constructor | node's input | name | shape | in plans and errors |
/// |---|---|---|---|---|
/// | 0 | 2 | `input` | `(N, C, …)` | `src` |
/// | 1 | 0 | `gamma` | `[C]` | `gamma` |
/// | 2 | 1 | `beta` | `[C]` | `beta`, not bound |
/// | 3 | 3 | `mean` | `[C]` | `mean` |
/// | 4 | 4 | `variance` | `[C]` | `variance` |
/// | 5 | 5 | `normalized_delta`, or `delta` | input's | `diff_dst` |
///
/// | output | name | shape | in plans |
/// |---|---|---|---|
/// | 0 | `input_delta` | input's | `diff_src` |
/// | 1 | `gamma_delta` | `[C]` | `diff_gamma` |
/// | 2 | `beta_delta` | `[C]` | `diff_beta` |
///
/// The document and the constructor of nGraph have one order, the inputs of the node that it makes
/// another; the older, deprecated constructor takes epsilon first and then the node's order.
///
/// # What differs
///
/// * epsilon must be above 0 in the type that sums are kept in: f64 for f64, else f32.
/// * An axis may be of size 0; nGraph wants at least one channel.
///
/// ```
/// # pollster::block_on(async {
/// # use wgpu_norm::{Error, GpuContext};
/// # let gpu = match GpuContext::new().await {
/// #     Ok(gpu) => gpu,
/// #     Err(Error::NoAdapter { .. }) => return Ok(()), // a machine without any driver
/// #     Err(error) => return Err(error),
/// # };
/// use wgpu_norm::operators::ngraph::{BackpropInputs, BatchNormTrainingBackprop};
///
/// let op = BatchNormTrainingBackprop { epsilon: 0.001 };
/// let inputs = BackpropInputs {
///     shape: &[2, 1, 2], // two samples of one channel with two elements
///     input: &[1.0_f32, 2.0, 3.0, 4.0],
///     gamma: &[1.0],
///     beta: &[0.0],
///     mean: &[2.5],
///     variance: &[1.25],
///     normalized_delta: &[0.0, 1.0, 0.0, 1.0],
/// };
/// let outputs = op.backward(&gpu, inputs).await?;
/// assert_eq!(outputs.beta_delta, [2.0]);
/// # Ok(()) }).unwrap();
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct BatchNormTrainingBackprop {
    /// Attribute `epsilon`: added to the variance; finite and above 0.
    pub epsilon: f64,
}

impl BatchNormTrainingBackprop {
    /// Computes the outputs of tensors in host memory.
    ///
    /// # Errors
    ///
    /// [`Error::Epsilon`], [`Error::Length`] for beta, and those of [`GpuBatchNorm::backward`].
    pub async fn backward<T: ParamOf<T>>(
        &self,
        gpu: &GpuContext,
        inputs: BackpropInputs<'_, T>,
    ) -> Result<BackpropOutputs<T>, Error> {
        let channels = batch_norm_grid(inputs.shape, DataFormat::Ncx)?.channels;
        check_length("beta", channels.into(), inputs.beta.len())?;
        let args = BatchNormBackwardArgs {
            shape: inputs.shape,
            src: inputs.input,
            diff_dst: inputs.normalized_delta,
            mean: inputs.mean,
            variance: inputs.variance,
            gamma: Some(inputs.gamma),
            beta: None,
            mask: None,
        };
        let grads = layer(gpu, self.epsilon)?
            .backward_with_statistics(args)
            .await?;
        Ok(BackpropOutputs {
            input_delta: grads.diff_src,
            gamma_delta: grads.diff_gamma.unwrap_or_default(),
            beta_delta: grads.diff_beta.unwrap_or_default(),
        })
    }

    /// Plans the operator on device buffers. beta is not bound, for nothing depends on it.
    ///
    /// # Errors
    ///
    /// [`Error::Epsilon`], and those of [`GpuBatchNorm::plan_backward`].
    pub fn plan<T: ParamOf<T>>(
        &self,
        gpu: &GpuContext,
        shape: &[usize],
    ) -> Result<BatchNormBackwardPlan, Error> {
        layer(gpu, self.epsilon)?.plan_backward(shape, types::<T, T, T>(), true)
    }
}

/// The inputs of [`BatchNormTraining`], in host memory, in the document's order.
#[derive(Clone, Copy, Debug)]
pub struct TrainingInputs<'a, T> {
    /// Shape of input: `(N, C, …)`, rank 2 to 8.
    pub shape: &'a [usize],
    /// The layer's input.
    pub input: &'a [T],
    /// Scale of each channel; `[C]`.
    pub gamma: &'a [T],
    /// Shift of each channel; `[C]`.
    pub beta: &'a [T],
}

/// The outputs of [`BatchNormTraining`], in host memory.
#[derive(Clone, Debug, PartialEq)]
pub struct TrainingOutputs<T> {
    /// The layer's output, of input's shape.
    pub normalized: Vec<T>,
    /// Mean of each channel; `[C]`.
    pub batch_mean: Vec<T>,
    /// Biased variance of each channel; `[C]`.
    pub batch_variance: Vec<T>,
}

/// nGraph's
/// [`BatchNormTraining`](https://github.com/NervanaSystems/ngraph/blob/master/doc/sphinx/source/ops/batch_norm_training.rst).
///
/// With m elements in a channel:
///
/// * batch_mean = Σ input / m
/// * batch_variance = Σ (input − batch_mean)² / m
/// * normalized = gamma · (input − batch_mean) / √(batch_variance + epsilon) + beta
///
/// The channel is axis 1. All tensors have one element type, "real" in the document: `f16`, `bf16`,
/// `f32`, or `f64` where the adapter has it ([`GpuContext::supports`]).
///
/// | document and constructor | node's input | name | shape | in plans and errors |
/// |---|---|---|---|---|
/// | 0 | 2 | `input` | `(N, C, …)` | `src` |
/// | 1 | 0 | `gamma` | `[C]` | `gamma` |
/// | 2 | 1 | `beta` | `[C]` | `beta` |
///
/// | output | name | shape | in plans |
/// |---|---|---|---|
/// | 0 | `normalized` | input's | `dst` |
/// | 1 | `batch_mean` | `[C]` | `mean` |
/// | 2 | `batch_variance` | `[C]` | `variance` |
///
/// # What differs
///
/// * What differs for [`BatchNormTrainingBackprop`].
///
/// ```
/// # pollster::block_on(async {
/// # use wgpu_norm::{Error, GpuContext};
/// # let gpu = match GpuContext::new().await {
/// #     Ok(gpu) => gpu,
/// #     Err(Error::NoAdapter { .. }) => return Ok(()), // a machine without any driver
/// #     Err(error) => return Err(error),
/// # };
/// use wgpu_norm::operators::ngraph::{BatchNormTraining, TrainingInputs};
///
/// let op = BatchNormTraining { epsilon: 0.001 };
/// let inputs = TrainingInputs {
///     shape: &[2, 1, 2], // two samples of one channel with two elements
///     input: &[1.0_f32, 2.0, 3.0, 4.0],
///     gamma: &[1.0],
///     beta: &[0.5],
/// };
/// let outputs = op.forward(&gpu, inputs).await?;
/// assert_eq!((outputs.batch_mean[0], outputs.batch_variance[0]), (2.5, 1.25));
/// # Ok(()) }).unwrap();
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct BatchNormTraining {
    /// Attribute `epsilon`: added to the variance; finite and above 0.
    pub epsilon: f64,
}

impl BatchNormTraining {
    /// Computes the outputs of tensors in host memory.
    ///
    /// # Errors
    ///
    /// [`Error::Epsilon`], and those of [`GpuBatchNorm::forward`].
    pub async fn forward<T: ParamOf<T>>(
        &self,
        gpu: &GpuContext,
        inputs: TrainingInputs<'_, T>,
    ) -> Result<TrainingOutputs<T>, Error> {
        let args = BatchNormForwardArgs {
            shape: inputs.shape,
            src: inputs.input,
            gamma: Some(inputs.gamma),
            beta: Some(inputs.beta),
            running: None,
            residual: None,
        };
        let output = layer(gpu, self.epsilon)?
            .forward_with_statistics(args)
            .await?;
        Ok(TrainingOutputs {
            normalized: output.dst,
            batch_mean: output.mean,
            batch_variance: output.variance,
        })
    }

    /// Plans the operator on device buffers.
    ///
    /// # Errors
    ///
    /// [`Error::Epsilon`], and those of [`GpuBatchNorm::plan_forward`].
    pub fn plan<T: ParamOf<T>>(
        &self,
        gpu: &GpuContext,
        shape: &[usize],
    ) -> Result<BatchNormForwardPlan, Error> {
        let operands = BatchNormForwardOperands {
            gamma: true,
            beta: true,
            ..BatchNormForwardOperands::default()
        };
        layer(gpu, self.epsilon)?.plan_forward(shape, types::<T, T, T>(), operands)
    }
}

/// The inputs of [`BatchNormInference`], in host memory, in the document's order.
#[derive(Clone, Copy, Debug)]
pub struct InferenceInputs<'a, T> {
    /// Shape of input: `(N, C, …)`, rank 2 to 8.
    pub shape: &'a [usize],
    /// The layer's input.
    pub input: &'a [T],
    /// Scale of each channel; `[C]`.
    pub gamma: &'a [T],
    /// Shift of each channel; `[C]`.
    pub beta: &'a [T],
    /// Mean of each channel; `[C]`.
    pub mean: &'a [T],
    /// Variance of each channel; `[C]`. The document calls it `variances`, the C++ constructor `variance`.
    pub variance: &'a [T],
}

/// nGraph's
/// [`BatchNormInference`](https://github.com/NervanaSystems/ngraph/blob/master/doc/sphinx/source/ops/batch_norm_inference.rst):
/// normalized = gamma · (input − mean) / √(variance + epsilon) + beta.
///
/// The channel is axis 1. All tensors have one element type, as those of [`BatchNormTraining`].
///
/// | document and constructor | node's input | name | shape | in plans and errors |
/// |---|---|---|---|---|
/// | 0 | 2 | `input` | `(N, C, …)` | `src` |
/// | 1 | 0 | `gamma` | `[C]` | `gamma` |
/// | 2 | 1 | `beta` | `[C]` | `beta` |
/// | 3 | 3 | `mean` | `[C]` | `mean` |
/// | 4 | 4 | `variance` | `[C]` | `variance` |
///
/// The output is `normalized`, of input's shape; plans call it `dst`.
///
/// # What differs
///
/// * What differs for [`BatchNormTrainingBackprop`].
///
/// ```
/// # pollster::block_on(async {
/// # use wgpu_norm::{Error, GpuContext};
/// # let gpu = match GpuContext::new().await {
/// #     Ok(gpu) => gpu,
/// #     Err(Error::NoAdapter { .. }) => return Ok(()), // a machine without any driver
/// #     Err(error) => return Err(error),
/// # };
/// use wgpu_norm::operators::ngraph::{BatchNormInference, InferenceInputs};
///
/// let op = BatchNormInference { epsilon: 0.25 };
/// let inputs = InferenceInputs {
///     shape: &[2, 1, 2], // two samples of one channel with two elements
///     input: &[1.0_f32, 2.0, 3.0, 4.0],
///     gamma: &[2.0],
///     beta: &[0.5],
///     mean: &[2.0],
///     variance: &[0.75],
/// };
/// let normalized = op.forward(&gpu, inputs).await?;
/// assert!((normalized[0] + 1.5).abs() < 1e-4 && (normalized[3] - 4.5).abs() < 1e-4);
/// # Ok(()) }).unwrap();
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct BatchNormInference {
    /// Attribute `epsilon`: added to the variance; finite and above 0.
    pub epsilon: f64,
}

impl BatchNormInference {
    /// Computes normalized of tensors in host memory.
    ///
    /// # Errors
    ///
    /// [`Error::Epsilon`], and those of [`GpuBatchNorm::infer`].
    pub async fn forward<T: ParamOf<T>>(
        &self,
        gpu: &GpuContext,
        inputs: InferenceInputs<'_, T>,
    ) -> Result<Vec<T>, Error> {
        let args = BatchNormInferenceArgs {
            shape: inputs.shape,
            src: inputs.input,
            mean: inputs.mean,
            variance: inputs.variance,
            gamma: Some(inputs.gamma),
            beta: Some(inputs.beta),
            residual: None,
        };
        layer(gpu, self.epsilon)?.infer_with_statistics(args).await
    }

    /// Plans the operator on device buffers.
    ///
    /// # Errors
    ///
    /// [`Error::Epsilon`], and those of [`GpuBatchNorm::plan_inference`].
    pub fn plan<T: ParamOf<T>>(
        &self,
        gpu: &GpuContext,
        shape: &[usize],
    ) -> Result<BatchNormInferencePlan, Error> {
        layer(gpu, self.epsilon)?.plan_inference(shape, types::<T, T, T>(), (true, true))
    }
}

fn layer(gpu: &GpuContext, epsilon: f64) -> Result<GpuBatchNorm, Error> {
    let options = BatchNormOptions {
        data_format: DataFormat::Ncx,
        ..BatchNormOptions::new(epsilon)
    };
    GpuBatchNorm::new(gpu, options)
}

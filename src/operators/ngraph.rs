//! The operators of [nGraph](https://github.com/NervanaSystems/ngraph), with nGraph's names.

use super::*;

inputs! {
    /// The inputs of [`BatchNormTrainingBackprop`], in host memory, in the document's order.
    BackpropInputs<T> {
        /// Shape of input: `(N, C, …)`, rank 2 to 8.
        shape: &'a [usize],
        /// Shift of each channel; `[C]`. No gradient depends on its values.
        beta: &'a [T],
    }
    input: &'a [T] = Src,
    gamma: &'a [T] = Gamma,
    mean: &'a [T] = Mean,
    variance: &'a [T] = Variance,
    normalized_delta: &'a [T] = DiffDst,
}

outputs! {
    /// The outputs of [`BatchNormTrainingBackprop`], in host memory.
    BackpropOutputs<T> from Results<T, T, T> as [T]
    input_delta: Vec<T> = data(DiffSrc),
    gamma_delta: Vec<T> = param(DiffGamma),
    beta_delta: Vec<T> = param(DiffBeta),
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
/// The channel is axis 1. All tensors have one element type, "real" in the document: `f16`, `bf16`, `f32`, or `f64` if
/// the adapter supports it ([`GpuContext::supports`]).
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
/// nGraph's document and constructor have one order; the inputs of the node that the constructor makes have another.
/// The older, deprecated constructor takes epsilon first, then the node's order.
///
/// # Differences
///
/// * epsilon must be above 0 in the type that sums are kept in: f64 for f64, else f32.
/// * An axis may have size 0; nGraph requires at least one channel.
///
/// ```
/// # pollster::block_on(async {
/// # use wgpu_norm::{Error, GpuContext};
/// # if let Err(Error::NoAdapter { .. }) = GpuContext::new().await { return Ok(()) }
/// let gpu = GpuContext::new().await?;
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
/// # Ok::<(), Error>(()) }).unwrap();
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct BatchNormTrainingBackprop {
    /// Attribute `epsilon`: added to the variance; finite and above 0.
    pub epsilon: f64,
}

impl BatchNormTrainingBackprop {
    /// The operator as an operation. beta is not among its tensors, since nothing depends on it.
    ///
    /// # Errors
    ///
    /// [`Error::Epsilon`], and errors in the shape.
    pub fn operation<T: ParamOf<T>>(&self, shape: &[usize]) -> Result<Operation, Error> {
        norm::<T>(Backward::default(), self.epsilon, shape)
    }

    /// Computes the outputs from tensors in host memory.
    ///
    /// # Errors
    ///
    /// [`Error::Length`] for beta, and those of [`Operation::run_into`].
    pub async fn backward<T: ParamOf<T>>(
        &self,
        gpu: &GpuContext,
        inputs: BackpropInputs<'_, T>,
    ) -> Result<BackpropOutputs<T>, Error> {
        let operation = self.operation::<T>(inputs.shape)?;
        operation.check_param(Tensor::Beta, inputs.beta.len())?;
        Ok(inputs.call(operation).run::<T, T, T>(gpu).await?.into())
    }
}

inputs! {
    /// The inputs of [`BatchNormTraining`], in host memory, in the document's order.
    TrainingInputs<T> {
        /// Shape of input: `(N, C, …)`, rank 2 to 8.
        shape: &'a [usize],
    }
    input: &'a [T] = Src,
    gamma: &'a [T] = Gamma,
    beta: &'a [T] = Beta,
}

outputs! {
    /// The outputs of [`BatchNormTraining`], in host memory.
    TrainingOutputs<T> from Results<T, T, T> as [T]
    normalized: Vec<T> = data(Dst),
    batch_mean: Vec<T> = statistic(Mean),
    batch_variance: Vec<T> = statistic(Variance),
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
/// The channel is axis 1. All tensors have one element type, "real" in the document: `f16`, `bf16`, `f32`, or `f64` if
/// the adapter supports it ([`GpuContext::supports`]).
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
/// # Differences
///
/// * The differences of [`BatchNormTrainingBackprop`].
///
/// ```
/// # pollster::block_on(async {
/// # use wgpu_norm::{Error, GpuContext};
/// # if let Err(Error::NoAdapter { .. }) = GpuContext::new().await { return Ok(()) }
/// let gpu = GpuContext::new().await?;
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
/// # Ok::<(), Error>(()) }).unwrap();
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct BatchNormTraining {
    /// Attribute `epsilon`: added to the variance; finite and above 0.
    pub epsilon: f64,
}

impl BatchNormTraining {
    /// The operator as an operation.
    ///
    /// # Errors
    ///
    /// [`Error::Epsilon`], and errors in the shape.
    pub fn operation<T: ParamOf<T>>(&self, shape: &[usize]) -> Result<Operation, Error> {
        norm::<T>(Forward::default(), self.epsilon, shape)
    }

    /// Computes the outputs from tensors in host memory.
    ///
    /// # Errors
    ///
    /// Those of [`Operation::run_into`].
    pub async fn forward<T: ParamOf<T>>(
        &self,
        gpu: &GpuContext,
        inputs: TrainingInputs<'_, T>,
    ) -> Result<TrainingOutputs<T>, Error> {
        let call = inputs.call(self.operation::<T>(inputs.shape)?);
        Ok(call.run::<T, T, T>(gpu).await?.into())
    }
}

inputs! {
    /// The inputs of [`BatchNormInference`], in host memory, in the document's order.
    InferenceInputs<T> {
        /// Shape of input: `(N, C, …)`, rank 2 to 8.
        shape: &'a [usize],
    }
    input: &'a [T] = Src,
    gamma: &'a [T] = Gamma,
    beta: &'a [T] = Beta,
    mean: &'a [T] = Mean,
    variance: &'a [T] = Variance,
}

/// nGraph's
/// [`BatchNormInference`](https://github.com/NervanaSystems/ngraph/blob/master/doc/sphinx/source/ops/batch_norm_inference.rst):
/// normalized = gamma · (input − mean) / √(variance + epsilon) + beta.
///
/// The channel is axis 1. All tensors have one element type, like those of [`BatchNormTraining`].
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
/// # Differences
///
/// * The differences of [`BatchNormTrainingBackprop`].
///
/// ```
/// # pollster::block_on(async {
/// # use wgpu_norm::{Error, GpuContext};
/// # if let Err(Error::NoAdapter { .. }) = GpuContext::new().await { return Ok(()) }
/// let gpu = GpuContext::new().await?;
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
/// # Ok::<(), Error>(()) }).unwrap();
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct BatchNormInference {
    /// Attribute `epsilon`: added to the variance; finite and above 0.
    pub epsilon: f64,
}

impl BatchNormInference {
    /// The operator as an operation.
    ///
    /// # Errors
    ///
    /// [`Error::Epsilon`], and errors in the shape.
    pub fn operation<T: ParamOf<T>>(&self, shape: &[usize]) -> Result<Operation, Error> {
        norm::<T>(Pass::Inference, self.epsilon, shape)
    }

    /// Computes normalized from tensors in host memory.
    ///
    /// # Errors
    ///
    /// Those of [`Operation::run_into`].
    pub async fn forward<T: ParamOf<T>>(
        &self,
        gpu: &GpuContext,
        inputs: InferenceInputs<'_, T>,
    ) -> Result<Vec<T>, Error> {
        let call = inputs.call(self.operation::<T>(inputs.shape)?);
        Ok(call.run::<T, T, T>(gpu).await?.dst())
    }
}

fn norm<T: ParamOf<T>>(
    pass: impl Into<Pass>,
    epsilon: f64,
    shape: &[usize],
) -> Result<Operation, Error> {
    let norm = batch_norm(DataFormat::Ncx);
    operation::<T, T, T>(norm, pass, shape, epsilon, (true, true))
}

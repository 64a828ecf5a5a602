//! The forward passes.

use crate::operators::*;

/// The inputs of [`BatchNormForwardTraining`], in host memory, in the document's order.
#[derive(Clone, Copy, Debug)]
pub struct BatchNormForwardTrainingInputs<'a, T, P> {
    /// Shape of src: rank 2 to 8.
    pub shape: &'a [usize],
    /// The layer's input.
    pub src: &'a [T],
    /// Running mean of each channel before this batch; `[C]`.
    pub mean: &'a [P],
    /// Running variance of each channel before this batch; `[C]`.
    pub variance: &'a [P],
    /// Scale of each channel; `[C]`. Given with beta or not at all.
    pub gamma: Option<&'a [P]>,
    /// Shift of each channel; `[C]`. Given with gamma or not at all.
    pub beta: Option<&'a [P]>,
}

/// The outputs of [`BatchNormForwardTraining`], in host memory, in the document's order.
#[derive(Clone, Debug, PartialEq)]
pub struct BatchNormForwardTrainingOutputs<T, P> {
    /// The layer's output, of src's shape.
    pub dst: Vec<T>,
    /// Running mean of each channel after this batch.
    pub running_mean: Vec<P>,
    /// Running variance of each channel after this batch.
    pub running_variance: Vec<P>,
    /// Mean of each channel in this batch, for the gradient.
    pub batch_mean: Vec<P>,
    /// Biased variance of each channel in this batch, for the gradient.
    pub batch_variance: Vec<P>,
}

/// oneDNN Graph's
/// [`BatchNormForwardTraining`](https://oneapi-src.github.io/oneDNN/dev_guide_op_batchnormforwardtraining.html).
///
/// With m elements in a channel, gamma = 1 and beta = 0 where they are not given:
///
/// * batch_mean = Σ src / m
/// * batch_variance = Σ (src − batch_mean)² / m, the biased variance
/// * dst = gamma · (src − batch_mean) / √(batch_variance + epsilon) + beta
/// * running_mean = momentum · mean + (1 − momentum) · batch_mean
/// * running_variance = momentum · variance + (1 − momentum) · batch_variance
///
/// | index | input | shape | in plans and errors | | index | output | shape | in plans |
/// |---|---|---|---|---|---|---|---|---|
/// | 0 | `src` | `(N, …, C)` or `(N, C, …)` | `src` | | 0 | `dst` | src's | `dst` |
/// | 1 | `mean` | `[C]` | `running_mean` | | 1 | `running_mean` | `[C]` | `running_mean` |
/// | 2 | `variance` | `[C]` | `running_variance` | | 2 | `running_variance` | `[C]` | `running_variance` |
/// | 3 | `gamma`, optional | `[C]` | `gamma` | | 3 | `batch_mean` | `[C]` | `mean` |
/// | 4 | `beta`, optional | `[C]` | `beta` | | 4 | `batch_variance` | `[C]` | `variance` |
///
/// # Differences
///
/// * The document does not say how momentum is used. The formulas above are those of oneDNN's code: momentum is the
///   weight of the **old** statistics, and 0.5 if it is absent.
/// * momentum is at most 1. The document only requires it to be positive.
/// * On device buffers running statistics are updated in place: one buffer holds mean and running_mean, another
///   variance and running_variance.
/// * The document allows f32, bf16 and f16 data with f32 parameters, and bf16 with bf16. f16 with f16 and f64 with f64
///   work too.
///
/// ```
/// # pollster::block_on(async {
/// # use wgpu_norm::{Error, GpuContext};
/// # if let Err(Error::NoAdapter { .. }) = GpuContext::new().await { return Ok(()) }
/// let gpu = GpuContext::new().await?;
/// use wgpu_norm::operators::onednn::{BatchNormForwardTraining, BatchNormForwardTrainingInputs};
///
/// let op = BatchNormForwardTraining {
///     momentum: Some(0.75),
///     ..BatchNormForwardTraining::new(1e-5) // NXC
/// };
/// let inputs = BatchNormForwardTrainingInputs {
///     shape: &[2, 2], // two samples of two channels
///     src: &[1.0_f32, 2.0, 3.0, 6.0],
///     mean: &[0.0, 0.0],
///     variance: &[1.0, 1.0],
///     gamma: Some(&[1.0, 1.0]),
///     beta: Some(&[0.0, 0.0]),
/// };
/// let outputs = op.forward(&gpu, inputs).await?;
/// assert_eq!(outputs.batch_mean, [2.0, 4.0]);
/// assert_eq!(outputs.batch_variance, [1.0, 4.0]);
/// assert_eq!(outputs.running_mean, [0.5, 1.0]); // a quarter of the batch's
/// # Ok::<(), Error>(()) }).unwrap();
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct BatchNormForwardTraining {
    /// Attribute `epsilon`, required: added to the variance; finite and above 0. An f32 as in the document, even for
    /// f64 data.
    pub epsilon: f32,
    /// Attribute `momentum`, the weight of the old running statistics: above 0 and at most 1. If it is absent, it is
    /// 0.5, as in oneDNN's code.
    pub momentum: Option<f32>,
    /// Attribute `data_format`: `NXC`, the default, or `NCX`.
    pub data_format: DataFormat,
}

/// The momentum that oneDNN's code uses if it is absent.
const MOMENTUM: f32 = 0.5;

impl BatchNormForwardTraining {
    /// The document's defaults, without momentum. The document has no default for epsilon.
    pub const fn new(epsilon: f32) -> Self {
        Self {
            epsilon,
            momentum: None,
            data_format: DataFormat::Nxc,
        }
    }

    /// The operation; `has_gamma_and_beta` says whether both are given or neither.
    ///
    /// # Errors
    ///
    /// [`Error::Epsilon`], [`Error::Argument`] for momentum, and errors in the shape.
    pub fn operation<T: Element, P: ParamOf<T>>(
        &self,
        shape: &[usize],
        has_gamma_and_beta: bool,
    ) -> Result<Operation, Error> {
        let affine = has_gamma_and_beta;
        let (norm, params) = (batch_norm(self.data_format), (affine, affine));
        let pass = Forward::default().with_running(self.update()?);
        operation::<T, P, P>(norm, pass, shape, self.epsilon, params)
    }

    /// Computes the outputs from tensors in host memory.
    ///
    /// # Errors
    ///
    /// [`Error::Argument`] for momentum, or if one of gamma and beta is given without the other, and those of
    /// [`Operation::run_into`].
    pub async fn forward<T: Element, P: ParamOf<T>>(
        &self,
        gpu: &GpuContext,
        inputs: BatchNormForwardTrainingInputs<'_, T, P>,
    ) -> Result<BatchNormForwardTrainingOutputs<T, P>, Error> {
        let affine = inputs.gamma.is_some() || inputs.beta.is_some();
        if affine {
            required("gamma", "as beta is given", inputs.gamma)?;
            required("beta", "as gamma is given", inputs.beta)?;
        }
        let call = Call::new(self.operation::<T, P>(inputs.shape, affine)?, inputs.src)
            .statistics(inputs.mean, inputs.variance)
            .params(inputs.gamma, inputs.beta);
        let mut results = call.run::<T, P, P>(gpu).await?;
        let mut statistic = |tensor| results.statistic(tensor).unwrap_or_default();
        Ok(BatchNormForwardTrainingOutputs {
            running_mean: statistic(Tensor::RunningMean),
            running_variance: statistic(Tensor::RunningVariance),
            batch_mean: statistic(Tensor::Mean),
            batch_variance: statistic(Tensor::Variance),
            dst: results.dst(),
        })
    }

    fn update(&self) -> Result<RunningUpdate, Error> {
        match self.momentum {
            Some(0.0) => Err(Error::argument("momentum", "a number above 0", 0.0)),
            momentum => weighing_the_old(momentum.unwrap_or(MOMENTUM)),
        }
    }
}

/// The inputs of [`BatchNormInference`], in host memory, in the document's order.
#[derive(Clone, Copy, Debug)]
pub struct BatchNormInferenceInputs<'a, T, P> {
    /// Shape of src: rank 2 to 8.
    pub shape: &'a [usize],
    /// The layer's input.
    pub src: &'a [T],
    /// Scale of each channel; `[C]`.
    pub gamma: &'a [P],
    /// Shift of each channel; `[C]`.
    pub beta: &'a [P],
    /// Mean of each channel; `[C]`.
    pub mean: &'a [P],
    /// Variance of each channel; `[C]`.
    pub variance: &'a [P],
}

/// oneDNN Graph's
/// [`BatchNormInference`](https://oneapi-src.github.io/oneDNN/dev_guide_op_batchnorminference.html):
/// dst = gamma · (src − mean) / √(variance + epsilon) + beta.
///
/// | index | input | shape | | index | output | shape |
/// |---|---|---|---|---|---|---|
/// | 0 | `src` | `(N, …, C)` or `(N, C, …)` | | 0 | `dst` | src's |
/// | 1 | `gamma` | `[C]` | | | | |
/// | 2 | `beta` | `[C]` | | | | |
/// | 3 | `mean` | `[C]` | | | | |
/// | 4 | `variance` | `[C]` | | | | |
///
/// Plans and errors have the same names.
///
/// # Differences
///
/// * The document allows f32, bf16 and f16 data with f32 parameters, and bf16 with bf16. f16 with f16 and f64 with f64
///   work too.
///
/// ```
/// # pollster::block_on(async {
/// # use wgpu_norm::{Error, GpuContext};
/// # if let Err(Error::NoAdapter { .. }) = GpuContext::new().await { return Ok(()) }
/// let gpu = GpuContext::new().await?;
/// use wgpu_norm::operators::onednn::{BatchNormInference, BatchNormInferenceInputs};
///
/// let op = BatchNormInference::new(1e-5); // NXC
/// let inputs = BatchNormInferenceInputs {
///     shape: &[2, 2], // two samples of two channels
///     src: &[1.0_f32, 2.0, 3.0, 6.0],
///     gamma: &[1.0, 2.0],
///     beta: &[0.0, 5.0],
///     mean: &[2.0, 4.0],
///     variance: &[1.0, 4.0],
/// };
/// let dst = op.forward(&gpu, inputs).await?;
/// assert!((dst[0] + 1.0).abs() < 1e-4 && (dst[3] - 7.0).abs() < 1e-4);
/// # Ok::<(), Error>(()) }).unwrap();
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct BatchNormInference {
    /// Attribute `epsilon`, required: added to the variance; finite and above 0. An f32 as in the document, even for
    /// f64 data.
    pub epsilon: f32,
    /// Attribute `data_format`: `NXC`, the default, or `NCX`.
    pub data_format: DataFormat,
}

impl BatchNormInference {
    /// The document's defaults. The document has no default for epsilon.
    pub const fn new(epsilon: f32) -> Self {
        Self {
            epsilon,
            data_format: DataFormat::Nxc,
        }
    }

    /// The operation.
    ///
    /// # Errors
    ///
    /// [`Error::Epsilon`], and errors in the shape.
    pub fn operation<T: Element, P: ParamOf<T>>(
        &self,
        shape: &[usize],
    ) -> Result<Operation, Error> {
        let (norm, pass) = (batch_norm(self.data_format), Pass::Inference);
        operation::<T, P, P>(norm, pass, shape, self.epsilon, (true, true))
    }

    /// Computes dst from tensors in host memory.
    ///
    /// # Errors
    ///
    /// Those of [`Operation::run_into`].
    pub async fn forward<T: Element, P: ParamOf<T>>(
        &self,
        gpu: &GpuContext,
        inputs: BatchNormInferenceInputs<'_, T, P>,
    ) -> Result<Vec<T>, Error> {
        let call = Call::new(self.operation::<T, P>(inputs.shape)?, inputs.src)
            .params(inputs.gamma, inputs.beta)
            .statistics(inputs.mean, inputs.variance);
        Ok(call.run::<T, P, P>(gpu).await?.dst())
    }
}

/// The inputs of [`LayerNorm`], in host memory, in the document's order.
#[derive(Clone, Copy, Debug)]
pub struct LayerNormInputs<'a, T, P> {
    /// Shape of src: rank 1 to 8.
    pub shape: &'a [usize],
    /// The layer's input.
    pub src: &'a [T],
    /// Scale of each normalized position; given exactly when `use_affine` is true.
    pub gamma: Option<&'a [P]>,
    /// Shift of each normalized position; given exactly when `use_affine` is true.
    pub beta: Option<&'a [P]>,
}

/// The outputs of [`LayerNorm`], in host memory, in the document's order.
#[derive(Clone, Debug, PartialEq)]
pub struct LayerNormForwardOutputs<T, P> {
    /// The layer's output, of src's shape.
    pub dst: Vec<T>,
    /// Mean of each row; given exactly when `keep_stats` is true.
    pub mean: Option<Vec<P>>,
    /// Biased variance of each row; given exactly when `keep_stats` is true.
    pub variance: Option<Vec<P>>,
}

/// oneDNN Graph's
/// [`LayerNorm`](https://oneapi-src.github.io/oneDNN/dev_guide_op_layernorm.html).
///
/// The axes from `begin_norm_axis` on are normalized; a row consists of the elements with the same indices along the
/// axes before it. With mean and biased variance of the row, and gamma = 1 and beta = 0 without `use_affine`,
/// dst = gamma · (src − mean) / √(variance + epsilon) + beta.
///
/// | index | input | shape | | index | output | shape |
/// |---|---|---|---|---|---|---|
/// | 0 | `src` | rank 1 to 8 | | 0 | `dst` | src's |
/// | 1 | `gamma` with `use_affine` | the normalized axes | | 1 | `mean` with `keep_stats` | the leading axes |
/// | 2 | `beta` with `use_affine` | the normalized axes | | 2 | `variance` with `keep_stats` | the leading axes |
///
/// Plans and errors have the same names.
///
/// # Differences
///
/// * The document calls gamma and beta one-dimensional even if several axes are normalized. Only their number of
///   elements matters here, so either form works.
/// * Without `use_affine` gamma and beta must not be given; oneDNN ignores them.
/// * The document allows f32, bf16 and f16 data with f32 parameters, and bf16 with bf16. f16 with f16 and f64 with f64
///   work too.
///
/// ```
/// # pollster::block_on(async {
/// # use wgpu_norm::{Error, GpuContext};
/// # if let Err(Error::NoAdapter { .. }) = GpuContext::new().await { return Ok(()) }
/// let gpu = GpuContext::new().await?;
/// use wgpu_norm::operators::onednn::{LayerNorm, LayerNormInputs};
///
/// let op = LayerNorm::default(); // the last axis, affine, with statistics, epsilon 1e-5
/// let inputs = LayerNormInputs {
///     shape: &[2, 2], // two rows
///     src: &[1.0_f32, 3.0, 2.0, 4.0],
///     gamma: Some(&[1.0, 2.0]),
///     beta: Some(&[0.0, 5.0]),
/// };
/// let outputs = op.forward(&gpu, inputs).await?;
/// assert_eq!(outputs.mean, Some(vec![2.0, 3.0]));
/// assert!((outputs.dst[0] + 1.0).abs() < 1e-4 && (outputs.dst[3] - 7.0).abs() < 1e-4);
/// # Ok::<(), Error>(()) }).unwrap();
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LayerNorm {
    /// Attribute `keep_stats`: whether mean and variance are outputs; true by default.
    pub keep_stats: bool,
    /// Attribute `begin_norm_axis`, in [−r, r − 1] for src of rank r, negative from the end; −1 by
    /// default.
    pub begin_norm_axis: i64,
    /// Attribute `use_affine`: whether there are gamma and beta; true by default.
    pub use_affine: bool,
    /// Attribute `epsilon`: added to the variance; finite and above 0; 1e-5 by default. An f32 as in the document, even
    /// for f64 data.
    pub epsilon: f32,
}

impl Default for LayerNorm {
    /// The document's defaults.
    fn default() -> Self {
        Self {
            keep_stats: true,
            begin_norm_axis: -1,
            use_affine: true,
            epsilon: 1e-5,
        }
    }
}

impl LayerNorm {
    /// The operation.
    ///
    /// # Errors
    ///
    /// [`Error::Epsilon`], and errors in the shape and begin_norm_axis.
    pub fn operation<T: Element, P: ParamOf<T>>(
        &self,
        shape: &[usize],
    ) -> Result<Operation, Error> {
        let (begin_axis, affine) = (self.begin_norm_axis, self.use_affine);
        let (norm, pass) = (Norm::Layer { begin_axis }, forward(self.keep_stats));
        operation::<T, P, P>(norm, pass, shape, self.epsilon, (affine, affine))
    }

    /// Computes the outputs from tensors in host memory.
    ///
    /// # Errors
    ///
    /// [`Error::Argument`] for gamma or beta missing with `use_affine` or given without it, and those of
    /// [`Operation::run_into`].
    pub async fn forward<T: Element, P: ParamOf<T>>(
        &self,
        gpu: &GpuContext,
        inputs: LayerNormInputs<'_, T, P>,
    ) -> Result<LayerNormForwardOutputs<T, P>, Error> {
        exactly("gamma", inputs.gamma, "use_affine", self.use_affine)?;
        exactly("beta", inputs.beta, "use_affine", self.use_affine)?;
        let call = Call::new(self.operation::<T, P>(inputs.shape)?, inputs.src)
            .params(inputs.gamma, inputs.beta);
        let mut results = call.run::<T, P, P>(gpu).await?;
        Ok(LayerNormForwardOutputs {
            dst: results.dst(),
            mean: results.statistic(Tensor::Mean),
            variance: results.statistic(Tensor::Variance),
        })
    }
}

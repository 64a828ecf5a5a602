//! Batch normalization.

use super::Layer;
use crate::{
    Activation, Backward, BackwardArgs, Channels, DataFormat, Element, Error, ForwardArgs,
    GpuContext, Grads, InferenceArgs, Norm, Output, ParamGrads, ParamOf, Through,
};

/// What a [`GpuBatchNorm`] computes.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct BatchNormOptions {
    /// Added to the variance; finite, normal and above 0, as f32 too where the data are not f64.
    pub epsilon: f64,
    /// Which elements are of one channel: by default the last axis is the channel. PyTorch's `(N, C, H, W)` is
    /// [`DataFormat::Ncx`].
    pub channels: Channels,
    /// What mean and variance are to the gradient.
    pub through: Through,
    /// Which parameter gradients are computed. For none of them take [`ParamGrads::Frozen`]: with [`ParamGrads::Neither`] the
    /// gradient ignores a given gamma.
    pub param_grads: ParamGrads,
    /// What follows the layer, in both directions.
    pub activation: Activation,
}

impl BatchNormOptions {
    /// The defaults of oneDNN Graph's document: [`DataFormat::Nxc`], batch statistics, both parameter gradients, no
    /// activation. epsilon has no default there.
    pub const fn new(epsilon: f64) -> Self {
        Self {
            epsilon,
            channels: Channels::Axis(DataFormat::Nxc),
            through: Through::Batch,
            param_grads: ParamGrads::Both,
            activation: Activation::None,
        }
    }

    /// Sets where the channel axis stands.
    #[must_use]
    pub fn data_format(self, format: DataFormat) -> Self {
        Self {
            channels: Channels::Axis(format),
            ..self
        }
    }

    /// Sets the shape of the parameters, of src's rank, as DirectML has them: they vary along the axes where it has src's size,
    /// and the axes where it has 1 are reduced. Any rank from 1 to 8, any set of axes.
    #[must_use]
    pub fn broadcast(self, param_shape: &[usize]) -> Self {
        Self {
            channels: Channels::Broadcast(param_shape.to_vec()),
            ..self
        }
    }

    /// Sets what mean and variance are to the gradient.
    #[must_use]
    pub fn through(self, through: Through) -> Self {
        Self { through, ..self }
    }

    /// Sets which parameter gradients are computed.
    #[must_use]
    pub fn param_grads(self, param_grads: ParamGrads) -> Self {
        Self {
            param_grads,
            ..self
        }
    }

    /// Sets what follows the layer.
    #[must_use]
    pub fn activation(self, activation: Activation) -> Self {
        Self { activation, ..self }
    }

    pub(crate) fn layer(&self) -> Layer {
        Layer {
            norm: Norm::Batch(self.channels.clone()),
            epsilon: self.epsilon,
            activation: self.activation,
            backward: Backward {
                through: self.through,
                param_grads: self.param_grads,
            },
        }
    }
}

/// Batch normalization: [`forward`](Self::forward) in training, [`infer`](Self::infer) by given statistics, and the
/// gradient, [`backward`](Self::backward), as oneDNN Graph's documents define them.
///
/// Forward, with r = 1/√(variance + epsilon) and x̂ = (src − mean)·r, dst = gamma · x̂ + beta. mean and variance are the
/// batch's in training, else the given ones. The gradient, with m elements in a channel and gamma = 1 where
/// it is not given (or ignored: [`ParamGrads::Neither`]):
///
/// * diff_beta = Σ diff_dst
/// * diff_gamma = Σ diff_dst · x̂
/// * diff_src = gamma · r · (diff_dst − diff_beta/m − x̂ · diff_gamma/m), or with
///   [`Through::Constant`] gamma · r · diff_dst
///
/// With an [`Activation`] the forward pass is dst = activation(gamma · x̂ + beta + residual), where the residual is optional,
/// and in the gradient diff_dst · activation′ stands for diff_dst. The gradient computes gamma · x̂ + beta once more, from src,
/// statistics, gamma and beta, so the forward pass keeps nothing for it: give it the forward pass's gamma and beta, and
/// statistics that were not rounded to 16 bits, since what is just above 0 may else come out below. Where a residual was added,
/// the forward pass writes a mask instead, a bit for each element, which the gradient reads. The residual's gradient is
/// diff_dst as far as the mask lets it pass.
///
/// Sums are kept in f32 (f64 for f64 data) whatever the element types are. The results are the same to
/// the bit whenever the same input is given to the same adapter under the same [`Profile`](crate::Profile).
///
/// The gradient takes mean and variance (biased) as given, and never recomputes them. NaN and infinities in a
/// channel stay in that channel.
///
/// ```
/// # pollster::block_on(async {
/// use wgpu_norm::{BackwardArgs, BatchNormOptions, DataFormat, Error, ForwardArgs, GpuBatchNorm, GpuContext};
///
/// # if let Err(Error::NoAdapter { .. }) = GpuContext::new().await { return Ok(()) }
/// let gpu = GpuContext::new().await?;
/// let options = BatchNormOptions::new(1e-5).data_format(DataFormat::Ncx);
/// let layer = GpuBatchNorm::new(&gpu, options)?;
/// let shape = [2, 1, 2]; // two samples of one channel with two elements
/// let src = [1.0_f32, 2.0, 3.0, 4.0];
/// let output = layer.forward(ForwardArgs::new(&shape, &src)).await?;
/// let diff_dst = [0.0, 1.0, 0.0, 1.0];
/// let args = BackwardArgs::new(&shape, &src, &diff_dst, &output.statistics);
/// let grads = layer.backward(args).await?;
/// assert_eq!(grads.diff_beta, Some(vec![2.0]));
/// assert_eq!(grads.diff_src.len(), 4);
/// # Ok::<(), Error>(()) }).unwrap();
/// ```
#[derive(Clone, Debug)]
pub struct GpuBatchNorm {
    gpu: GpuContext,
    options: BatchNormOptions,
}

impl GpuBatchNorm {
    /// The layer on a context.
    ///
    /// # Errors
    ///
    /// [`Error::Epsilon`] if epsilon is not finite, normal and above 0. Tighter bounds of f32 are checked when
    /// the element type is known.
    pub fn new(gpu: &GpuContext, options: BatchNormOptions) -> Result<Self, Error> {
        options.layer().check()?;
        Ok(Self {
            gpu: gpu.clone(),
            options,
        })
    }

    /// What it computes.
    pub const fn options(&self) -> &BatchNormOptions {
        &self.options
    }

    /// Computes the layer's output in training, and the batch's statistics: uploads, runs, reads back.
    ///
    /// With m elements in a channel, mean = Σ src / m, variance = Σ (src − mean)² / m and r = 1/√(variance + epsilon),
    ///
    /// * dst = activation(gamma · (src − mean) · r + beta + residual), where activation and residual are optional
    /// * running ← (1 − weight) · running + weight · batch, for mean and variance
    ///
    /// src has rank 2 to 8, with [`broadcast`](BatchNormOptions::broadcast) parameters from 1 on. Statistics and parameters are
    /// `[C]`, or of the parameters' shape.
    ///
    /// Statistics are taken in one reading by blocks of 16 to 32 elements, each with a shift of its own, whose sums are merged:
    /// the relative error of the variance is below 1e-5 (in f32) whatever the mean is, up to a million standard
    /// deviations, and the variance of equal elements is 0.
    ///
    /// ```
    /// # pollster::block_on(async {
    /// use wgpu_norm::{BatchNormOptions, DataFormat, Error, ForwardArgs, GpuBatchNorm, GpuContext};
    /// use wgpu_norm::{RunningStatistics, RunningUpdate, RunningVariance};
    ///
    /// # if let Err(Error::NoAdapter { .. }) = GpuContext::new().await { return Ok(()) }
    /// let gpu = GpuContext::new().await?;
    /// let options = BatchNormOptions::new(1e-5).data_format(DataFormat::Ncx);
    /// let layer = GpuBatchNorm::new(&gpu, options)?;
    /// let (shape, src) = ([2, 1, 2], [1.0_f32, 2.0, 3.0, 4.0]); // two samples of one channel
    /// let (mut mean, mut variance) = ([0.0_f32], [1.0_f32]);
    /// let update = RunningUpdate::new(0.1, RunningVariance::Unbiased); // PyTorch's momentum
    /// let args = ForwardArgs::new(&shape, &src)
    ///     .params(Some(&[2.0_f32]), Some(&[1.0]))
    ///     .running(RunningStatistics::new(&mut mean, &mut variance, update));
    /// let output = layer.forward(args).await?;
    /// assert_eq!((output.statistics.mean[0], output.statistics.variance[0]), (2.5, 1.25));
    /// assert!((output.dst[3] - 3.6833).abs() < 1e-3);
    /// assert!((mean[0] - 0.25).abs() < 1e-6);
    /// assert!((variance[0] - (0.9 + 0.1 * 5.0 / 3.0)).abs() < 1e-6);
    /// # Ok::<(), Error>(()) }).unwrap();
    /// ```
    ///
    /// # Errors
    ///
    /// As those of [`backward`](Self::backward); [`Error::Argument`] for a weight that is not from 0 to 1, or the unbiased
    /// variance of channels with one element.
    pub async fn forward<T: Element, P: ParamOf<T>>(
        &self,
        args: ForwardArgs<'_, T, P>,
    ) -> Result<Output<T, T::Sum>, Error> {
        self.options.layer().forward(&self.gpu, args).await
    }

    /// Computes the layer's output by given statistics, dst = activation(gamma · (src − mean) / √(variance + epsilon) + beta +
    /// residual), where activation and residual are optional: uploads, runs, reads back.
    ///
    /// ```
    /// # pollster::block_on(async {
    /// use wgpu_norm::{BatchNormOptions, Error, GpuBatchNorm, GpuContext, InferenceArgs};
    ///
    /// # if let Err(Error::NoAdapter { .. }) = GpuContext::new().await { return Ok(()) }
    /// let gpu = GpuContext::new().await?;
    /// let layer = GpuBatchNorm::new(&gpu, BatchNormOptions::new(1e-5))?;
    /// let (shape, src) = ([2, 2], [1.0_f32, 10.0, 3.0, 30.0]); // two samples of two channels
    /// let (mean, variance) = ([2.0, 20.0], [1.0, 100.0]);
    /// let args = InferenceArgs::new(&shape, &src, (&mean, &variance)).params(None, Some(&[0.0_f32, 5.0]));
    /// let dst = layer.infer(args).await?;
    /// assert!((dst[0] + 1.0).abs() < 1e-4 && (dst[3] - 6.0).abs() < 1e-4);
    /// # Ok::<(), Error>(()) }).unwrap();
    /// ```
    ///
    /// # Errors
    ///
    /// As those of [`backward`](Self::backward).
    pub async fn infer<T: Element, P: ParamOf<T>>(
        &self,
        args: InferenceArgs<'_, T, P>,
    ) -> Result<Vec<T>, Error> {
        self.options.layer().infer(&self.gpu, args).await
    }

    /// Computes the gradients: uploads, runs, reads back.
    ///
    /// The first poll uploads, and compiles what no call has needed before, which takes up to seconds on a
    /// software driver; the wait for the GPU that follows does not block the executor; the last poll copies
    /// the results out.
    ///
    /// ```
    /// # pollster::block_on(async {
    /// use wgpu_norm::{BackwardArgs, BatchNormOptions, Error, GpuBatchNorm, GpuContext};
    ///
    /// # if let Err(Error::NoAdapter { .. }) = GpuContext::new().await { return Ok(()) }
    /// let gpu = GpuContext::new().await?;
    /// let options = BatchNormOptions::new(1e-5).broadcast(&[2, 1]); // the second axis is reduced
    /// let layer = GpuBatchNorm::new(&gpu, options)?;
    /// let src = [1.0_f32, 2.0, 3.0, 5.0, 6.0, 7.0];
    /// let diff_dst = [0.0, 1.0, 0.0, 1.0, 0.0, 1.0];
    /// let (mean, variance) = ([2.0, 6.0], [2.0 / 3.0; 2]);
    /// let args = BackwardArgs::new(&[2, 3], &src, &diff_dst, (&mean, &variance));
    /// let grads = layer.backward(args).await?;
    /// assert_eq!(grads.diff_beta, Some(vec![1.0, 2.0]));
    /// # Ok::<(), Error>(()) }).unwrap();
    /// ```
    ///
    /// # Errors
    ///
    /// Lengths and ranks that do not fit the shape, sizes that overflow or exceed the adapter's
    /// limits, an element type that the adapter cannot run, variance + epsilon not above 0 or infinite (naming the
    /// channel), memory or device lost. [`Error::Argument`] naming the axis where the parameters' shape has neither 1 nor
    /// src's size. Nothing is uploaded before all arguments are checked.
    pub async fn backward<T: Element, P: ParamOf<T>>(
        &self,
        args: BackwardArgs<'_, T, P>,
    ) -> Result<Grads<T, P>, Error> {
        self.options.layer().backward(&self.gpu, args).await
    }
}

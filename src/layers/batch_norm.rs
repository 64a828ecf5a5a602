//! Batch normalization.

use super::layer::{Layer, layer};
use crate::operation::{Channels, Norm};
use crate::options::{DataFormat, Through};

impl BatchNormOptions {
    /// Options with channels along one axis: PyTorch's `(N, C, H, W)` is [`DataFormat::Ncx`].
    ///
    /// ```
    /// use wgpu_norm::{Activation, BatchNormOptions, DataFormat};
    /// let options = BatchNormOptions::new(DataFormat::Ncx).epsilon(1e-3).activation(Activation::Relu);
    /// ```
    pub const fn new(format: DataFormat) -> Self {
        Self(Layer::new(Norm::batch(format)))
    }

    /// Options with channels along any set of axes, as in DirectML. The parameters' shape has src's rank, from 1 to 8.
    /// Parameters vary along the axes where it has src's size; the axes where it has size 1 are reduced.
    ///
    /// ```
    /// # pollster::block_on(async {
    /// use wgpu_norm::{BackwardArgs, BatchNormOptions, Error, GpuBatchNorm, GpuContext, SavedRef};
    ///
    /// # if let Err(Error::NoAdapter { .. }) = GpuContext::new().await { return Ok(()) }
    /// let gpu = GpuContext::new().await?;
    /// let options = BatchNormOptions::broadcast(&[2, 1]); // the second axis is reduced
    /// let layer = GpuBatchNorm::new(&gpu, options)?;
    /// let src = [1.0_f32, 2.0, 3.0, 5.0, 6.0, 7.0];
    /// let diff_dst = [0.0, 1.0, 0.0, 1.0, 0.0, 1.0];
    /// let (mean, variance) = ([2.0, 6.0], [2.0 / 3.0; 2]);
    /// let args = BackwardArgs::new(&[2, 3], &src, &diff_dst, SavedRef::moments(&mean, &variance));
    /// let grads = layer.backward(args).await?;
    /// assert_eq!(grads.diff_beta, Some(vec![1.0, 2.0]));
    /// # Ok::<(), Error>(()) }).unwrap();
    /// ```
    pub fn broadcast(param_shape: &[usize]) -> Self {
        let channels = Channels::Broadcast(param_shape.to_vec());
        Self(Layer::new(Norm::Batch(channels)))
    }

    /// Sets whether the gradient flows through mean and variance, as it does by default.
    #[must_use]
    pub fn through(mut self, through: Through) -> Self {
        self.0.backward.through = through;
        self
    }
}

layer! {
    /// Batch normalization as oneDNN Graph's documents define it: [`forward`](Self::forward) in training,
    /// [`infer`](Self::infer) with given statistics, and the gradient, [`backward`](Self::backward).
    ///
    /// src has rank 2 to 8, and statistics and parameters have shape `[C]`. With
    /// [`broadcast`](BatchNormOptions::broadcast) parameters src has rank 1 to 8, and the statistics have the shape of
    /// the parameters. With m elements in a channel, r = 1/√(variance + epsilon) and x̂ = (src − mean)·r, the forward
    /// pass is
    ///
    /// * mean = Σ src / m and variance = Σ (src − mean)² / m in training, else the given ones
    /// * dst = gamma · x̂ + beta
    /// * running ← (1 − weight) · running + weight · batch, for mean and variance, where running statistics are given
    ///
    /// and the gradient, with gamma = 1 if gamma is not given, is
    ///
    /// * diff_beta = Σ diff_dst
    /// * diff_gamma = Σ diff_dst · x̂
    /// * diff_src = gamma · r · (diff_dst − diff_beta/m − x̂ · diff_gamma/m), or with
    ///   [`Through::Constant`] gamma · r · diff_dst
    ///
    /// With an [`Activation`](crate::Activation) the forward pass is dst = activation(gamma · x̂ + beta + residual),
    /// where the residual is optional, and the gradient uses diff_dst · activation′ in place of diff_dst. It recomputes
    /// the activation's argument, gamma · x̂ + beta: give it the gamma and beta of the forward pass, and statistics
    /// that were not rounded to 16 bits, since rounding can change the sign of an argument near 0. If a residual was
    /// added, the forward pass saves a mask instead, with a bit for each element, and the gradient of the residual is
    /// diff_dst where the mask is set:
    ///
    /// ```
    /// use wgpu_norm::{Activation, BackwardArgs, BatchNormOptions, DataFormat, Error, ForwardArgs, GpuBatchNorm, GpuContext};
    ///
    /// # pollster::block_on(async {
    /// # if let Err(Error::NoAdapter { .. }) = GpuContext::new().await { return Ok(()) }
    /// let gpu = GpuContext::new().await?;
    /// let options = BatchNormOptions::new(DataFormat::Ncx).activation(Activation::Relu);
    /// let layer = GpuBatchNorm::new(&gpu, options)?;
    /// let (shape, src, residual) = ([4, 1], [1.0_f32, 2.0, 3.0, 4.0], [0.0_f32, 2.0, 0.0, 0.0]);
    /// let output = layer.forward(ForwardArgs::new(&shape, &src).residual_after(&residual)).await?;
    /// let passed: Vec<bool> = output.dst.iter().map(|&dst| dst > 0.0).collect();
    /// assert_eq!(passed, [false, true, true, true]);
    ///
    /// // `output.saved` has the mask.
    /// let grads = layer.backward(BackwardArgs::new(&shape, &src, &[1.0; 4], &output.saved)).await?;
    /// assert_eq!(grads.diff_residual, Some(vec![0.0, 1.0, 1.0, 1.0]));
    /// # Ok::<(), Error>(()) }).unwrap();
    /// ```
    ///
    /// Sums are kept in f32 (f64 for f64 data) whatever the element types are. The results are the same to the bit
    /// whenever the same input is given to the same adapter under the same [`Profile`](crate::Profile).
    ///
    /// The relative error of the variance is below 1e-5 (in f32) for means of up to a million standard deviations, and
    /// the variance of equal elements is 0. To that end the statistics, which take one reading of src, are computed for
    /// blocks of 16 to 32 elements, each with its own shift, and merged. The gradient uses mean and (biased) variance
    /// as given and never recomputes them. NaN and infinities stay in their channel.
    ///
    /// ```
    /// # pollster::block_on(async {
    /// use wgpu_norm::{BackwardArgs, BatchNormOptions, DataFormat, Error, ForwardArgs, GpuBatchNorm, GpuContext};
    /// use wgpu_norm::{InferenceArgs, RunningStatistics, RunningUpdate, RunningVariance, SavedRef};
    ///
    /// # if let Err(Error::NoAdapter { .. }) = GpuContext::new().await { return Ok(()) }
    /// let gpu = GpuContext::new().await?;
    /// let options = BatchNormOptions::new(DataFormat::Ncx);
    /// let layer = GpuBatchNorm::new(&gpu, options)?;
    /// let (shape, src) = ([2, 1, 2], [1.0_f32, 2.0, 3.0, 4.0]); // two samples of one channel
    /// let (gamma, beta) = (&[2.0_f32], &[1.0_f32]);
    /// let (mut mean, mut variance) = ([0.0], [1.0]);
    /// let update = RunningUpdate::new(0.1, RunningVariance::Unbiased); // PyTorch's momentum
    /// let args = ForwardArgs::new(&shape, &src)
    ///     .gamma(gamma).beta(beta)
    ///     .running(RunningStatistics::new(&mut mean, &mut variance, update));
    /// let output = layer.forward(args).await?;
    /// assert_eq!((output.saved.mean[0], output.saved.variance[0]), (2.5, 1.25));
    /// assert!((output.dst[3] - 3.6833).abs() < 1e-3);
    /// assert!((variance[0] - (0.9 + 0.1 * 5.0 / 3.0)).abs() < 1e-6);
    ///
    /// let diff_dst = [0.0, 1.0, 0.0, 1.0];
    /// let args = BackwardArgs::new(&shape, &src, &diff_dst, &output.saved).gamma(gamma).beta(beta);
    /// let grads = layer.backward(args).await?;
    /// assert_eq!(grads.diff_beta, Some(vec![2.0]));
    ///
    /// let args = InferenceArgs::new(&shape, &src, SavedRef::moments(&mean, &variance)).gamma(gamma).beta(beta);
    /// let dst = layer.infer(args).await?;
    /// assert_eq!(dst.len(), 4);
    /// # Ok::<(), Error>(()) }).unwrap();
    /// ```
    ///
    /// The weight of running statistics must be from 0 to 1. The unbiased variance needs at least two elements in a
    /// channel.
    GpuBatchNorm, BatchNormOptions, infer
}

//! Normalization over any axes.

use super::layer::{Layer, layer};
use crate::operation::Norm;

impl AxesNormOptions {
    /// Options with statistics over `axes`, and gamma and beta that vary along `param_axes`: sets of axes from −rank to
    /// rank − 1; a negative axis counts from the end.
    ///
    /// ```
    /// use wgpu_norm::AxesNormOptions;
    /// // Adaptive layer norm: (samples, tokens, features) with parameters of each sample; gamma is 1 + scale.
    /// let options = AxesNormOptions::new(&[2], &[0, 2]).zero_centered_gamma(true);
    /// ```
    pub fn new(axes: &[i64], param_axes: &[i64]) -> Self {
        Self(Layer::new(Norm::axes(axes, param_axes)))
    }

    /// Sets whether the mean is subtracted, as it is by default. If not, x̂ = src / √(mean_square + epsilon), as in RMS
    /// norm.
    #[must_use]
    pub fn centered(mut self, centered: bool) -> Self {
        self.0.norm = self.0.norm.centered(centered);
        self
    }
}

layer! {
    /// Normalization over any axes, with parameters along any axes: [`forward`](Self::forward),
    /// [`infer`](Self::infer) with given statistics, and the gradient, [`backward`](Self::backward).
    ///
    /// Elements with the same indices along all axes but `axes` are normalized together. With their mean and biased
    /// variance, r = 1/√(variance + epsilon) and x̂ = (src − mean)·r, the forward pass is
    /// dst = activation(gate · (gamma · x̂ + beta) + residual). A gate, which has gamma's shape, comes without an
    /// activation. The gradient, with d = diff_dst · gate · gamma and means taken over the elements that are normalized
    /// together, is
    ///
    /// * diff_src = r · (d − mean(d) − x̂ · mean(d · x̂))
    /// * diff_gamma = gate · Σ diff_dst · x̂ and diff_beta = gate · Σ diff_dst, over the elements that share a
    ///   parameter; neither without gamma and beta
    /// * diff_gate = Σ diff_dst · (gamma · x̂ + beta), if there is a gate
    ///
    /// With [`centered`](AxesNormOptions::centered) off the statistic is mean_square, x̂ = src / √(mean_square +
    /// epsilon), and the gradient has no mean(d).
    ///
    /// With [`zero_centered_gamma`](AxesNormOptions::zero_centered_gamma) gamma stands for 1 + the stored gamma.
    ///
    /// mean and variance have the sizes of the other axes, in their order; gamma, beta and gate those of `param_axes`.
    ///
    /// | layer | src | axes | param_axes |
    /// |---|---|---|---|
    /// | layer norm over channels (ConvNeXt) | N, C, H, W | 1 | 1 |
    /// | adaptive layer norm (DiT), with or without a gate | N, T, C | 2 | 0, 2 |
    /// | adaptive instance norm, FiLM | N, C, H, W | 2, 3 | 0, 1 |
    /// | adaptive group norm | N, G, C/G, H, W | 2, 3, 4 | 0, 1, 2 |
    /// | group norm with a group's parameters | N, G, C/G, H, W | 2, 3, 4 | 1 |
    ///
    /// ```
    /// # pollster::block_on(async {
    /// use wgpu_norm::{AxesNormOptions, BackwardArgs, Error, ForwardArgs, GpuAxesNorm, GpuContext};
    ///
    /// # if let Err(Error::NoAdapter { .. }) = GpuContext::new().await { return Ok(()) }
    /// let gpu = GpuContext::new().await?;
    /// // Layer norm over the channels of an image: (N, C, H, W).
    /// let layer = GpuAxesNorm::new(&gpu, AxesNormOptions::new(&[1], &[1]))?;
    /// let (shape, src) = ([1, 2, 1, 2], [0.0_f32, 1.0, 2.0, 5.0]); // two channels of two pixels
    /// let (gamma, beta) = ([1.0_f32, 1.0], [0.0, 0.0]);
    /// let output = layer.forward(ForwardArgs::new(&shape, &src).gamma(&gamma).beta(&beta)).await?;
    /// assert_eq!(output.saved.mean, [1.0, 3.0]);
    /// assert!((output.dst[0] + 1.0).abs() < 1e-4 && (output.dst[3] - 1.0).abs() < 1e-4);
    /// let diff_dst = [1.0, 0.0, 0.0, 1.0];
    /// let args = BackwardArgs::new(&shape, &src, &diff_dst, &output.saved).gamma(&gamma).beta(&beta);
    /// let grads = layer.backward(args).await?;
    /// assert_eq!(grads.diff_beta, Some(vec![1.0, 1.0]));
    /// # Ok::<(), Error>(()) }).unwrap();
    /// ```
    GpuAxesNorm, AxesNormOptions, infer
}

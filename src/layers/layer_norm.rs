//! Layer normalization.

use super::layer::{Layer, layer};
use crate::operation::Norm;

impl LayerNormOptions {
    /// Options with the first normalized axis, from −rank to rank − 1; a negative axis counts from the end, so −1 is
    /// the last axis alone. It and all axes after it are normalized together.
    ///
    /// ```
    /// use wgpu_norm::LayerNormOptions;
    /// let options = LayerNormOptions::new(-1).param_grads(false); // the last axis of a frozen layer
    /// ```
    pub const fn new(begin_norm_axis: i64) -> Self {
        Self(Layer::new(Norm::layer(begin_norm_axis)))
    }
}

layer! {
    /// Layer normalization: [`forward`](Self::forward), and the gradient, [`backward`](Self::backward), as oneDNN
    /// Graph's `LayerNorm` and `LayerNormBackward` define them.
    ///
    /// A row consists of the elements with the same indices along the leading axes. With the row's mean and variance, r
    /// = 1/√(variance + epsilon) and x̂ = (src − mean)·r, the forward pass is dst = gamma · x̂ + beta. The gradient,
    /// with d = diff_dst · gamma (diff_dst without gamma) and means taken over the row, is
    ///
    /// * diff_src = r · (d − mean(d) − x̂ · mean(d · x̂))
    /// * diff_gamma = Σ diff_dst · x̂ and diff_beta = Σ diff_dst, over the rows; neither without gamma and beta
    ///
    /// mean and variance have the leading sizes of the shape, gamma and beta the trailing ones, which are normalized;
    /// only their numbers of elements are checked.
    ///
    /// Sums are kept in f32 (f64 for f64 data). The results are the same to the bit whenever the same input is given to
    /// the same adapter under the same [`Profile`](crate::Profile). The gradient uses mean and variance as given and
    /// never recomputes them.
    ///
    /// ```
    /// # pollster::block_on(async {
    /// use wgpu_norm::{BackwardArgs, Error, ForwardArgs, GpuContext, GpuLayerNorm, LayerNormOptions};
    ///
    /// # if let Err(Error::NoAdapter { .. }) = GpuContext::new().await { return Ok(()) }
    /// let gpu = GpuContext::new().await?;
    /// let layer = GpuLayerNorm::new(&gpu, LayerNormOptions::new(-1))?;
    /// let (shape, src) = ([2, 2], [0.0_f32, 2.0, 1.0, 3.0]); // two rows
    /// let (gamma, beta) = ([1.0_f32, 1.0], [0.0, 0.0]);
    /// let output = layer.forward(ForwardArgs::new(&shape, &src).gamma(&gamma).beta(&beta)).await?;
    /// assert_eq!(output.saved.mean, [1.0, 2.0]);
    /// assert!((output.dst[0] + 1.0).abs() < 1e-4 && (output.dst[3] - 1.0).abs() < 1e-4);
    /// let diff_dst = [1.0, 0.0, 0.0, 1.0];
    /// let args = BackwardArgs::new(&shape, &src, &diff_dst, &output.saved).gamma(&gamma).beta(&beta);
    /// let grads = layer.backward(args).await?;
    /// assert_eq!(grads.diff_beta, Some(vec![1.0, 1.0]));
    /// # Ok::<(), Error>(()) }).unwrap();
    /// ```
    GpuLayerNorm, LayerNormOptions
}

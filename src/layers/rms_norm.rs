//! RMS normalization.

use super::layer::{Layer, layer};
use crate::operation::Norm;

impl RmsNormOptions {
    /// Options with the first normalized axis, from −rank to rank − 1; a negative axis counts from the end, so −1 is
    /// the last axis alone. It and all axes after it are normalized together.
    ///
    /// ```
    /// use wgpu_norm::RmsNormOptions;
    /// let options = RmsNormOptions::new(-1).epsilon(1e-6).zero_centered_gamma(true); // as in Gemma
    /// ```
    pub const fn new(begin_norm_axis: i64) -> Self {
        Self(Layer::new(Norm::rms(begin_norm_axis)))
    }
}

layer! {
    /// RMS normalization, dst = gamma · src / √(mean(src²) + epsilon): [`forward`](Self::forward), and the gradient,
    /// [`backward`](Self::backward).
    ///
    /// A row consists of the elements with the same indices along the leading axes. The gradient, with r =
    /// 1/√(mean_square + epsilon) and x̂ = src·r of the row, d = diff_dst · gamma (diff_dst without gamma), and means
    /// taken over the row, is
    ///
    /// * diff_src = r · (d − x̂ · mean(d · x̂))
    /// * diff_gamma = Σ diff_dst · x̂, over the rows
    ///
    /// mean_square has the leading sizes of the shape, gamma the trailing ones, which are normalized; only their
    /// numbers of elements are checked. There is no beta: [`Grads::diff_beta`](crate::Grads::diff_beta) is none.
    ///
    /// Sums are kept in f32 (f64 for f64 data). The results are the same to the bit whenever the same input is given to
    /// the same adapter under the same [`Profile`](crate::Profile). The gradient uses mean_square as given and never
    /// recomputes it.
    ///
    /// ```
    /// # pollster::block_on(async {
    /// use wgpu_norm::{BackwardArgs, Error, ForwardArgs, GpuContext, GpuRmsNorm, RmsNormOptions};
    ///
    /// # if let Err(Error::NoAdapter { .. }) = GpuContext::new().await { return Ok(()) }
    /// let gpu = GpuContext::new().await?;
    /// let layer = GpuRmsNorm::new(&gpu, RmsNormOptions::new(-1))?;
    /// let (shape, src, gamma) = ([2, 2], [1.0_f32, 1.0, 2.0, -2.0], [1.0_f32, 1.0]); // two rows
    /// let output = layer.forward(ForwardArgs::new(&shape, &src).gamma(&gamma)).await?;
    /// assert_eq!(output.saved.mean_square, [1.0, 4.0]);
    /// let diff_dst = [1.0, 0.0, 0.0, 1.0];
    /// let args = BackwardArgs::new(&shape, &src, &diff_dst, &output.saved).gamma(&gamma);
    /// let diff_gamma = layer.backward(args).await?.diff_gamma.unwrap_or_default();
    /// assert!((diff_gamma[0] - 1.0).abs() < 1e-4 && (diff_gamma[1] + 1.0).abs() < 1e-4);
    /// # Ok::<(), Error>(()) }).unwrap();
    /// ```
    GpuRmsNorm, RmsNormOptions
}

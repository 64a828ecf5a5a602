//! RMS normalization.

use super::layer::{Layer, layer, setters};
use crate::{Activation, Backward, Norm};

/// The options of a [`GpuRmsNorm`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RmsNormOptions {
    begin_norm_axis: i64,
    epsilon: f64,
    zero_centered_gamma: bool,
    param_grads: bool,
    activation: Activation,
}

impl Default for RmsNormOptions {
    /// ONNX's defaults, the last axis and epsilon 1e-5; the gradient of gamma, no activation.
    fn default() -> Self {
        Self {
            begin_norm_axis: -1,
            epsilon: 1e-5,
            zero_centered_gamma: false,
            param_grads: true,
            activation: Activation::None,
        }
    }
}

impl RmsNormOptions {
    fn layer(&self) -> Layer {
        Layer {
            norm: Norm::Rms {
                begin_axis: self.begin_norm_axis,
            },
            epsilon: self.epsilon,
            zero_centered_gamma: self.zero_centered_gamma,
            activation: self.activation,
            backward: Backward::default().with_param_grads(self.param_grads),
        }
    }
}

setters! {
    RmsNormOptions:
    /// Sets the first normalized axis, from −rank to rank − 1; a negative axis counts from the end. It and all axes
    /// after it are normalized together.
    begin_norm_axis: i64,
    /// Sets epsilon, which is added to the mean of squares. It must be finite, normal and above 0, also as f32 unless
    /// the data are f64.
    epsilon: f64,
    /// Sets whether gamma is stored less 1, as in Gemma or in adaptive norms, which scale by 1 + gamma.
    zero_centered_gamma: bool,
    /// Sets whether the gradient of a given gamma is computed, and whether gamma scales diff_src.
    param_grads: bool,
    /// Sets the activation that follows the layer, in the forward pass and in the gradient.
    activation: Activation,
}

layer! {
    /// RMS normalization, dst = gamma · src / √(mean(src²) + epsilon): [`forward`](Self::forward), and the gradient,
    /// [`backward`](Self::backward).
    ///
    /// A row consists of the elements with the same indices along the leading axes. The gradient, with
    /// r = 1/√(mean_square + epsilon) and x̂ = src·r of the row, d = diff_dst · gamma (diff_dst without gamma), and means taken over the row, is
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
    /// let layer = GpuRmsNorm::new(&gpu, RmsNormOptions::default())?;
    /// let (shape, src, gamma) = ([2, 2], [1.0_f32, 1.0, 2.0, -2.0], [1.0_f32, 1.0]); // two rows
    /// let output = layer.forward(ForwardArgs::new(&shape, &src).params(Some(&gamma), None)).await?;
    /// assert_eq!(output.saved.mean_square, [1.0, 4.0]);
    /// let diff_dst = [1.0, 0.0, 0.0, 1.0];
    /// let args = BackwardArgs::new(&shape, &src, &diff_dst, &output.saved).params(Some(&gamma), None);
    /// let diff_gamma = layer.backward(args).await?.diff_gamma.unwrap_or_default();
    /// assert!((diff_gamma[0] - 1.0).abs() < 1e-4 && (diff_gamma[1] + 1.0).abs() < 1e-4);
    /// # Ok::<(), Error>(()) }).unwrap();
    /// ```
    GpuRmsNorm, RmsNormOptions
}

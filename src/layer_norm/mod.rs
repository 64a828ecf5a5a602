//! Layer normalization.

mod backward;
mod forward;

pub use backward::{
    LayerNormBackwardArgs, LayerNormBackwardBuffers, LayerNormBackwardPlan, LayerNormBackwardSizes,
};
pub use forward::{
    LayerNormForwardArgs, LayerNormForwardBuffers, LayerNormForwardOperands, LayerNormForwardPlan,
    LayerNormForwardSizes, LayerNormOutput,
};

use crate::options::check_epsilon;
use crate::{DType, Error, GpuContext, ParamGrads};

/// What a [`GpuLayerNorm`] computes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LayerNormOptions {
    /// The first normalized axis, from −rank to rank − 1; negative counts from the end. All axes from
    /// it on are normalized together.
    pub begin_norm_axis: i64,
    /// Whether the layer scales by gamma and shifts by beta. If so gamma is required, and for the gradient from host
    /// memory beta, too; if not, neither may be given.
    pub use_affine: bool,
    /// Added to the variance; finite, normal and above 0, as f32 too where the data are not f64.
    pub epsilon: f64,
    /// Which parameter gradients of an affine layer are computed, and whether gamma counts in diff_src; no forward pass
    /// depends on it. For none of them take [`ParamGrads::Frozen`]: with [`ParamGrads::Neither`] gamma is ignored, which is
    /// batch norm's rule.
    pub param_grads: ParamGrads,
}

impl Default for LayerNormOptions {
    /// The defaults of oneDNN Graph's document, the last axis, affine, epsilon 1e-5, with both parameter gradients.
    fn default() -> Self {
        Self {
            begin_norm_axis: -1,
            use_affine: true,
            epsilon: 1e-5,
            param_grads: ParamGrads::Both,
        }
    }
}

/// Layer normalization: [`forward`](Self::forward), and the gradient, [`backward`](Self::backward), as oneDNN Graph's
/// `LayerNorm` and `LayerNormBackward` define them.
///
/// A row is made of the elements that share the leading axes. Forward, with the row's mean and variance,
/// dst = gamma · x̂ + beta. The gradient, with r = 1/√(variance + epsilon) and
/// x̂ = (src − mean)·r of the row, d = diff_dst · gamma (diff_dst if the layer is not affine, or with
/// [`ParamGrads::Neither`]), and means taken over the row:
///
/// * diff_src = r · (d − mean(d) − x̂ · mean(d · x̂))
/// * diff_gamma = Σ diff_dst · x̂ and diff_beta = Σ diff_dst, over the rows
///
/// Sums are kept in f32 (f64 for f64 data). The results are the same to the bit whenever the same input is
/// given to the same adapter under the same [`Profile`](crate::Profile). The gradient takes mean and
/// variance as given, and never recomputes them.
///
/// ```
/// # pollster::block_on(async {
/// use wgpu_norm::{Error, Grads, GpuContext, GpuLayerNorm, LayerNormBackwardArgs, LayerNormOptions};
///
/// let gpu = match GpuContext::new().await {
///     Ok(gpu) => gpu,
///     Err(Error::NoAdapter { .. }) => return Ok(()), // a machine without any driver
///     Err(error) => return Err(error),
/// };
/// let layer = GpuLayerNorm::new(&gpu, LayerNormOptions::default())?;
/// let grads = layer
///     .backward(LayerNormBackwardArgs {
///         shape: &[2, 2], // two rows
///         src: &[1.0_f32, 3.0, 2.0, 4.0],
///         diff_dst: &[1.0, 0.0, 0.0, 1.0],
///         mean: &[2.0, 3.0],
///         variance: &[1.0, 1.0],
///         gamma: Some(&[1.0, 1.0]),
///         beta: Some(&[0.0, 0.0]),
///     })
///     .await?;
/// assert_eq!(grads.diff_beta, Some(vec![1.0, 1.0]));
/// # Ok(()) }).unwrap();
/// ```
#[derive(Clone, Debug)]
pub struct GpuLayerNorm {
    gpu: GpuContext,
    options: LayerNormOptions,
}

impl GpuLayerNorm {
    /// An operator on a context.
    ///
    /// # Errors
    ///
    /// [`Error::Epsilon`] if epsilon is not finite, normal and above 0. Tighter bounds of f32 are checked when
    /// the element type is known.
    pub fn new(gpu: &GpuContext, options: LayerNormOptions) -> Result<Self, Error> {
        check_epsilon(options.epsilon, DType::F64)?;
        Ok(Self {
            gpu: gpu.clone(),
            options,
        })
    }

    /// What it computes.
    pub const fn options(&self) -> &LayerNormOptions {
        &self.options
    }
}

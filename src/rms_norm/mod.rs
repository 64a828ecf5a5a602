//! RMS normalization.

mod backward;
mod forward;

pub use backward::{RmsNormBackwardBuffers, RmsNormBackwardPlan, RmsNormBackwardSizes};
pub use forward::{
    RmsNormForwardBuffers, RmsNormForwardOperands, RmsNormForwardPlan, RmsNormForwardSizes,
};

use crate::options::check_epsilon;
use crate::{DType, Error, GpuContext, Norm, ParamGrads};

/// What a [`GpuRmsNorm`] computes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RmsNormOptions {
    /// The first normalized axis, from −rank to rank − 1; negative counts from the end. All axes from
    /// it on are normalized together.
    pub begin_norm_axis: i64,
    /// Added to the mean of squares; finite, normal and above 0, as f32 too where the data are not f64.
    pub epsilon: f64,
    /// Whether gamma's gradient is computed, where gamma is given, and whether gamma counts in diff_src; no forward pass
    /// depends on it.
    pub param_grads: ParamGrads,
}

impl Default for RmsNormOptions {
    /// ONNX's defaults, the last axis and epsilon 1e-5, with gamma's gradient.
    fn default() -> Self {
        Self {
            begin_norm_axis: -1,
            epsilon: 1e-5,
            param_grads: ParamGrads::Both,
        }
    }
}

impl RmsNormOptions {
    fn norm(&self) -> Norm {
        Norm::Rms {
            begin_axis: self.begin_norm_axis,
        }
    }
}

/// RMS normalization, dst = gamma · src / √(mean(src²) + epsilon): [`forward`](Self::forward), and the gradient,
/// [`backward`](Self::backward).
///
/// A row is made of the elements that share the leading axes. The gradient, with r = 1/√(mean_square + epsilon) and
/// x̂ = src·r of the row, d = diff_dst · gamma (diff_dst without gamma, or with [`ParamGrads::Neither`]), and the mean
/// taken over the row:
///
/// * diff_src = r · (d − x̂ · mean(d · x̂))
/// * diff_gamma = Σ diff_dst · x̂, over the rows
///
/// Sums are kept in f32 (f64 for f64 data). The results are the same to the bit whenever the same input is
/// given to the same adapter under the same [`Profile`](crate::Profile). The gradient takes mean_square as given, and never
/// recomputes it. There is no beta: [`Grads::diff_beta`](crate::Grads::diff_beta) is none.
///
/// ```
/// # pollster::block_on(async {
/// use wgpu_norm::{BackwardArgs, Error, GpuContext, GpuRmsNorm, RmsNormOptions};
///
/// # let gpu = match GpuContext::new().await {
/// #     Ok(gpu) => gpu,
/// #     Err(Error::NoAdapter { .. }) => return Ok(()),
/// #     Err(error) => return Err(error),
/// # };
/// let layer = GpuRmsNorm::new(&gpu, RmsNormOptions::default())?;
/// let (shape, src, gamma) = ([2, 2], [1.0_f32, 1.0, 2.0, -2.0], [1.0_f32, 1.0]); // two rows
/// let (diff_dst, mean_square) = ([1.0, 0.0, 0.0, 1.0], [1.0, 4.0]);
/// let args = BackwardArgs::new(&shape, &src, &diff_dst, &mean_square).params(Some(&gamma), None);
/// let grads = layer.backward(args).await?;
/// let diff_gamma = grads.diff_gamma.unwrap_or_default();
/// assert!((diff_gamma[0] - 1.0).abs() < 1e-4 && (diff_gamma[1] + 1.0).abs() < 1e-4);
/// # Ok::<(), Error>(()) }).unwrap();
/// ```
#[derive(Clone, Debug)]
pub struct GpuRmsNorm {
    gpu: GpuContext,
    options: RmsNormOptions,
}

impl GpuRmsNorm {
    /// An operator on a context.
    ///
    /// # Errors
    ///
    /// [`Error::Epsilon`] if epsilon is not finite, normal and above 0. Tighter bounds of f32 are checked when
    /// the element type is known.
    pub fn new(gpu: &GpuContext, options: RmsNormOptions) -> Result<Self, Error> {
        check_epsilon(options.epsilon, DType::F64)?;
        Ok(Self {
            gpu: gpu.clone(),
            options,
        })
    }

    /// What it computes.
    pub const fn options(&self) -> &RmsNormOptions {
        &self.options
    }
}

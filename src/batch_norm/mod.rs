//! Batch normalization.

mod backward;
mod forward;
mod inference;
mod statistics;

pub use backward::{
    BatchNormBackwardArgs, BatchNormBackwardBuffers, BatchNormBackwardPlan, BatchNormBackwardSizes,
};
pub use forward::{
    BatchNormForwardArgs, BatchNormForwardBuffers, BatchNormForwardOperands, BatchNormForwardPlan,
    BatchNormForwardSizes, BatchNormOutput, RunningStatistics,
};
pub use inference::{
    BatchNormInferenceArgs, BatchNormInferenceBuffers, BatchNormInferencePlan,
    BatchNormInferenceSizes,
};
pub use statistics::ChannelStatistics;

use crate::options::check_epsilon;
use crate::{Activation, DType, DataFormat, Error, GpuContext, ParamGrads, Statistics};

/// What a [`GpuBatchNorm`] computes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct BatchNormOptions {
    /// Added to the variance; finite, normal and above 0, as f32 too where the data are not f64.
    pub epsilon: f64,
    /// Where the channel axis stands: the last by default. PyTorch's `(N, C, H, W)` is [`DataFormat::Ncx`].
    pub data_format: DataFormat,
    /// What mean and variance are to the gradient; no forward pass depends on it.
    pub statistics: Statistics,
    /// Which parameter gradients are computed; no forward pass depends on it. For none of them take
    /// [`ParamGrads::Frozen`]: with [`ParamGrads::Neither`] the gradient ignores a given gamma.
    pub param_grads: ParamGrads,
    /// What follows the layer, in both directions.
    pub activation: Activation,
}

impl BatchNormOptions {
    /// The defaults of oneDNN Graph's document: [`DataFormat::Nxc`], batch statistics, both parameter
    /// gradients, no activation. epsilon has no default there.
    pub const fn new(epsilon: f64) -> Self {
        Self {
            epsilon,
            data_format: DataFormat::Nxc,
            statistics: Statistics::Batch,
            param_grads: ParamGrads::Both,
            activation: Activation::None,
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
///   [`Statistics::Constant`] gamma · r · diff_dst
///
/// With an [`Activation`] the forward pass is dst = activation(gamma · x̂ + beta + residual), where the residual is optional,
/// and in the gradient diff_dst · activation′ stands for diff_dst. The gradient finds gamma · x̂ + beta again, from src,
/// statistics, gamma and beta, so that nothing is kept for it: give it the forward pass's gamma and beta, and
/// statistics that were not rounded to 16 bits, since what is just above 0 may else come out below. Where a residual was added,
/// the forward pass writes a mask instead, a bit for each element, which the gradient reads: word w of it is of elements
/// 32 · w to 32 · w + 31 in storage order, the lowest bit of the first. The residual's gradient is diff_dst as far as the
/// mask lets it pass.
///
/// Sums are kept in f32 (f64 for f64 data) whatever the element types are. The results are the same to
/// the bit whenever the same input is given to the same adapter under the same [`Profile`](crate::Profile).
///
/// The gradient takes mean and variance (biased) as given, and never recomputes them. NaN and infinities in a
/// channel stay in that channel.
///
/// ```
/// # pollster::block_on(async {
/// use wgpu_norm::{BatchNormBackwardArgs, BatchNormOptions, DataFormat, Error, GpuBatchNorm, GpuContext};
///
/// let gpu = match GpuContext::new().await {
///     Ok(gpu) => gpu,
///     Err(Error::NoAdapter { .. }) => return Ok(()), // a machine without any driver
///     Err(error) => return Err(error),
/// };
/// let options = BatchNormOptions {
///     data_format: DataFormat::Ncx,
///     ..BatchNormOptions::new(1e-5)
/// };
/// let layer = GpuBatchNorm::new(&gpu, options)?;
/// let grads = layer
///     .backward(BatchNormBackwardArgs {
///         shape: &[2, 1, 2], // two samples of one channel with two elements
///         src: &[1.0_f32, 2.0, 3.0, 4.0],
///         diff_dst: &[0.0, 1.0, 0.0, 1.0],
///         mean: &[2.5],
///         variance: &[1.25],
///         gamma: None::<&[f32]>,
///         beta: None,
///         mask: None,
///     })
///     .await?;
/// assert_eq!(grads.diff_beta, Some(vec![2.0]));
/// assert_eq!(grads.diff_src.len(), 4);
/// # Ok(()) }).unwrap();
/// ```
#[derive(Clone, Debug)]
pub struct GpuBatchNorm {
    gpu: GpuContext,
    options: BatchNormOptions,
}

impl GpuBatchNorm {
    /// An operator on a context.
    ///
    /// # Errors
    ///
    /// [`Error::Epsilon`] if epsilon is not finite, normal and above 0. Tighter bounds of f32 are checked when
    /// the element type is known.
    pub fn new(gpu: &GpuContext, options: BatchNormOptions) -> Result<Self, Error> {
        check_epsilon(options.epsilon, DType::F64)?;
        Ok(Self {
            gpu: gpu.clone(),
            options,
        })
    }

    /// What it computes.
    pub const fn options(&self) -> &BatchNormOptions {
        &self.options
    }
}

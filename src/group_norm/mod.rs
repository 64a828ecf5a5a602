//! Group normalization.

mod backward;
mod forward;
mod inference;

pub use backward::{
    GroupNormBackwardArgs, GroupNormBackwardBuffers, GroupNormBackwardPlan, GroupNormBackwardSizes,
};
pub use forward::{
    GroupNormForwardArgs, GroupNormForwardBuffers, GroupNormForwardOperands, GroupNormForwardPlan,
    GroupNormForwardSizes, GroupNormOutput,
};
pub use inference::{
    GroupNormInferenceArgs, GroupNormInferenceBuffers, GroupNormInferencePlan,
    GroupNormInferenceSizes,
};

use crate::options::check_epsilon;
use crate::plan::Plan;
use crate::{
    Activation, DType, DTypes, DataFormat, Element, Epilogue, Error, GpuContext, Norm, Operation,
    ParamGrads, Pass, Profile, Residual, Tensor, host,
};

/// What a [`GpuGroupNorm`] computes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct GroupNormOptions {
    /// Groups of a sample's channels, each of channels side by side; they divide the channels.
    pub groups: usize,
    /// Added to the variance; finite, normal and above 0, as f32 too where the data are not f64.
    pub epsilon: f64,
    /// Where the channel axis stands. Axis 0 is that of the samples in both formats.
    pub data_format: DataFormat,
    /// Which parameter gradients are computed; no forward pass depends on it. For none of them take
    /// [`ParamGrads::Frozen`]: with [`ParamGrads::Neither`] the gradient ignores a given gamma.
    pub param_grads: ParamGrads,
    /// What follows the layer, in both directions.
    pub activation: Activation,
}

impl GroupNormOptions {
    /// The defaults of PyTorch and ONNX: epsilon 1e-5, and [`DataFormat::Ncx`], unlike batch norm's here; both parameter
    /// gradients.
    pub const fn new(groups: usize) -> Self {
        Self {
            groups,
            epsilon: 1e-5,
            data_format: DataFormat::Ncx,
            param_grads: ParamGrads::Both,
            activation: Activation::None,
        }
    }
}

/// Group normalization as PyTorch and ONNX define it: [`forward`](Self::forward), [`infer`](Self::infer) by given
/// statistics, and the gradient, [`backward`](Self::backward).
///
/// The C channels of a sample are divided into G groups of C/G channels side by side; mean and biased variance, `[N, G]`,
/// are those of the elements of a group, gamma and beta are `[C]`. With r = 1/√(variance + epsilon) and x̂ = (src − mean)·r,
/// dst = gamma · x̂ + beta; an [`Activation`] and a residual follow as those of
/// [`GpuBatchNorm`](crate::GpuBatchNorm). The gradient, with d = gamma · diff_dst (diff_dst without gamma, or with
/// [`ParamGrads::Neither`]) and means taken over the elements of a group:
///
/// * diff_src = r · ((d − mean(d)) − x̂ · mean(d · x̂))
/// * diff_gamma = Σ diff_dst · x̂ and diff_beta = Σ diff_dst, over all samples of a channel
///
/// Sums are kept in f32 (f64 for f64 data) whatever the element types are. The results are the same to the bit whenever
/// the same input is given to the same adapter under the same [`Profile`](crate::Profile). The gradient takes mean and
/// variance as given, and never recomputes them. NaN and infinities in a group stay in that group, but for the
/// parameter gradients of its channels.
///
/// A tensor of [`DataFormat::Nxc`] must fit one storage binding, and takes long, where the elements of a sample are no
/// multiple of 4 and there are several samples of several elements a channel; any other tensor may be larger.
///
/// ```
/// # pollster::block_on(async {
/// use wgpu_norm::{Error, GpuContext, GpuGroupNorm, GroupNormBackwardArgs, GroupNormOptions};
///
/// let gpu = match GpuContext::new().await {
///     Ok(gpu) => gpu,
///     Err(Error::NoAdapter { .. }) => return Ok(()), // a machine without any driver
///     Err(error) => return Err(error),
/// };
/// let layer = GpuGroupNorm::new(&gpu, GroupNormOptions::new(2))?;
/// let grads = layer
///     .backward(GroupNormBackwardArgs {
///         shape: &[1, 4, 1], // one sample of four channels
///         src: &[1.0_f32, 3.0, 10.0, 30.0],
///         diff_dst: &[1.0, 0.0, 0.0, 4.0],
///         mean: &[2.0, 20.0], // of two groups
///         variance: &[1.0, 100.0],
///         gamma: Some(&[1.0, 1.0, 0.5, 1.0]),
///         beta: None,
///         mask: None,
///     })
///     .await?;
/// assert_eq!(grads.diff_beta, Some(vec![1.0, 0.0, 0.0, 4.0]));
/// assert_eq!(grads.diff_src.len(), 4);
/// # Ok(()) }).unwrap();
/// ```
#[derive(Clone, Debug)]
pub struct GpuGroupNorm {
    gpu: GpuContext,
    options: GroupNormOptions,
    /// What shares statistics, for errors: a `group`, of instance norm a `channel`.
    unit: &'static str,
}

impl GpuGroupNorm {
    /// An operator on a context.
    ///
    /// # Errors
    ///
    /// [`Error::Epsilon`] if epsilon is not finite, normal and above 0. Tighter bounds of f32 are checked when
    /// the element type is known.
    pub fn new(gpu: &GpuContext, options: GroupNormOptions) -> Result<Self, Error> {
        check_epsilon(options.epsilon, DType::F64)?;
        Ok(Self {
            gpu: gpu.clone(),
            options,
            unit: "group",
        })
    }

    /// Instance norm, with a group for each channel.
    pub(crate) fn of_channels(gpu: &GpuContext, options: GroupNormOptions) -> Result<Self, Error> {
        Ok(Self {
            unit: "channel",
            ..Self::new(gpu, options)?
        })
    }

    /// What it computes.
    pub const fn options(&self) -> &GroupNormOptions {
        &self.options
    }

    /// An error if given statistics do not fit the shape, or a variance is too small.
    fn check_statistics<S: Element>(
        &self,
        shape: &[usize],
        mean: &[S],
        variance: &[S],
    ) -> Result<(), Error> {
        let samples = shape.first().copied().unwrap_or(0);
        let groups = self.options.groups;
        let axes = if self.unit == "group" { "G" } else { "C" };
        for (argument, got) in [("mean", mean.len()), ("variance", variance.len())] {
            if samples.checked_mul(groups) != Some(got) {
                return Err(Error::Argument {
                    argument,
                    expected: format!("elements of [N, {axes}] = [{samples}, {groups}]"),
                    got: got.to_string(),
                });
            }
        }
        let epsilon = self.options.epsilon;
        host::check_variance(Tensor::Variance, self.unit, variance, epsilon)
    }
}

impl GroupNormOptions {
    fn plan(
        &self,
        profile: &Profile,
        shape: &[usize],
        types: DTypes,
        [gamma, beta]: [bool; 2],
        (pass, is_residual): (impl Into<Pass>, bool),
    ) -> Result<Plan, Error> {
        let residual = match is_residual {
            true => Residual::After,
            false => Residual::None,
        };
        let norm = Norm::Group {
            groups: self.groups,
            format: self.data_format,
        };
        Operation::new(norm, pass, shape, types)
            .with_epsilon(self.epsilon)
            .with_params(gamma, beta)
            .with_epilogue(Epilogue::new(residual, self.activation))
            .planned(profile)
    }
}

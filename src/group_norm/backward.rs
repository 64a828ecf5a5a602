//! The gradient of group normalization.

use super::{GpuGroupNorm, GroupNormOptions};
use crate::element::types;
use crate::operands::operands;
use crate::{
    Backward, BackwardOperands, DTypes, Element, Error, Grads, ParamOf, Profile, Tensor, host,
};

/// Tensors of a group-norm gradient, in host memory.
#[derive(Clone, Copy, Debug)]
pub struct GroupNormBackwardArgs<'a, T: Element, P, S = <T as Element>::Sum> {
    /// Shape of src, diff_dst and diff_src: rank 2 to 8. With an axis of size 0 there are no elements, and the parameter
    /// gradients are 0.
    pub shape: &'a [usize],
    /// The layer's input.
    pub src: &'a [T],
    /// Gradient of the loss with respect to the layer's output.
    pub diff_dst: &'a [T],
    /// Mean of each group, `[N, G]`.
    pub mean: &'a [S],
    /// Biased variance of each group, `[N, G]`. From a saved rstd = 1/√(variance + epsilon) it is 1/rstd² − epsilon.
    pub variance: &'a [S],
    /// Scale of each channel, `[C]`. Without it gamma is 1.
    pub gamma: Option<&'a [P]>,
    /// Shift of each channel, `[C]`, where an activation follows and there is no mask. Without it beta is 0.
    pub beta: Option<&'a [P]>,
    /// What the forward pass wrote, exactly where a residual was added before the activation:
    /// [`GroupNormOutput::mask`](crate::GroupNormOutput::mask).
    pub mask: Option<&'a [u32]>,
}

impl GpuGroupNorm {
    /// Computes the gradients of tensors in host memory: uploads, runs, reads back.
    ///
    /// # Errors
    ///
    /// As those of [`GpuBatchNorm::backward`](crate::GpuBatchNorm::backward), and [`Error::Argument`] if the groups do not
    /// divide the channels.
    pub async fn backward<T: Element, P: ParamOf<T>>(
        &self,
        args: GroupNormBackwardArgs<'_, T, P>,
    ) -> Result<Grads<T, P>, Error> {
        self.backward_with_statistics(args).await
    }

    /// The same with statistics of another type: of 16 bits, as parameters of that type. They hold less, as
    /// [`DTypes::statistics`](crate::DTypes::statistics) says.
    ///
    /// # Errors
    ///
    /// As those of [`backward`](Self::backward), and [`Error::StatisticsDType`].
    pub async fn backward_with_statistics<T: Element, P: ParamOf<T>, S: ParamOf<T>>(
        &self,
        args: GroupNormBackwardArgs<'_, T, P, S>,
    ) -> Result<Grads<T, P>, Error> {
        let operands = BackwardOperands {
            gamma: args.gamma.is_some(),
            beta: args.beta.is_some(),
            mask: args.mask.is_some(),
        };
        let plan = self.plan_backward(args.shape, types::<T, P, S>(), operands)?;
        self.check_statistics(args.shape, args.mean, args.variance)?;
        let inputs = [
            Some(host::Input::new(Tensor::Src, args.src)),
            Some(host::Input::new(Tensor::DiffDst, args.diff_dst)),
            Some(host::Input::new(Tensor::Mean, args.mean)),
            Some(host::Input::new(Tensor::Variance, args.variance)),
            host::Input::given(Tensor::Gamma, args.gamma),
            host::Input::given(Tensor::Beta, args.beta),
            args.mask.map(host::Input::mask),
        ];
        let inputs: Vec<_> = inputs.into_iter().flatten().collect();
        host::backward(&self.gpu, &plan.plan, &inputs).await
    }

    /// Plans the gradient of device buffers: the first of the three stages that
    /// [`BatchNormBackwardPlan`](crate::BatchNormBackwardPlan) describes.
    ///
    /// # Errors
    ///
    /// As those of [`backward`](Self::backward) that follow from shapes and types.
    pub fn plan_backward(
        &self,
        shape: &[usize],
        types: impl Into<DTypes>,
        operands: impl Into<BackwardOperands>,
    ) -> Result<GroupNormBackwardPlan, Error> {
        let profile = self.gpu.profile();
        self.options.plan_backward(profile, shape, types, operands)
    }
}

/// Planning without a context, for a [`Profile`] of one's own.
impl GroupNormOptions {
    /// As [`GpuGroupNorm::plan_backward`].
    ///
    /// # Errors
    ///
    /// As those of [`GpuGroupNorm::plan_backward`].
    pub fn plan_backward(
        &self,
        profile: &Profile,
        shape: &[usize],
        types: impl Into<DTypes>,
        operands: impl Into<BackwardOperands>,
    ) -> Result<GroupNormBackwardPlan, Error> {
        let (operands, types) = (operands.into(), types.into());
        operands.check(self.activation, types.data)?;
        let pass = Backward::default().with_param_grads(self.param_grads);
        let pass = (pass, operands.mask);
        let plan = self.plan(profile, shape, types, [operands.gamma, operands.beta], pass)?;
        Ok(GroupNormBackwardPlan { plan })
    }
}

operands! {
    /// What a group-norm gradient dispatches for one shape and its element types.
    ///
    /// variance + epsilon is not checked here, for nothing is read back: a group where it is not above 0 becomes NaN or
    /// infinite.
    plan GroupNormBackwardPlan;
    /// The caller's buffers of a group-norm gradient.
    ///
    /// Ranges must not overlap where one of them is written, with one exception: diff_src may be exactly diff_dst.
    buffers GroupNormBackwardBuffers;
    sizes GroupNormBackwardSizes;
    /// The layer's input.
    src: Src always;
    /// Gradient of the loss with respect to the layer's output.
    diff_dst: DiffDst always;
    /// Mean of each group.
    mean: Mean always;
    /// Biased variance of each group.
    variance: Variance always;
    /// Scale of each channel; given exactly if the plan was made with gamma.
    gamma: Gamma maybe;
    /// Shift of each channel; given exactly if the plan was made with beta.
    beta: Beta maybe;
    /// What passed the activation, a bit for each element; given exactly if the plan was made with a mask.
    mask: Mask maybe;
    /// Written: gradient with respect to src.
    diff_src: DiffSrc always;
    /// Written: gradient with respect to the residual; given exactly with a mask.
    diff_residual: DiffResidual maybe;
    /// Written: gradient with respect to gamma; given exactly with [`ParamGrads::Both`](crate::ParamGrads::Both).
    diff_gamma: DiffGamma maybe;
    /// Written: gradient with respect to beta; given exactly with [`ParamGrads::Both`](crate::ParamGrads::Both).
    diff_beta: DiffBeta maybe;
}

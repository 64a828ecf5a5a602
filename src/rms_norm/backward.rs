//! The gradient of RMS normalization.

use super::{GpuRmsNorm, RmsNormOptions};
use crate::element::types;
use crate::operands::operands;
use crate::{
    Backward, DTypes, Element, Error, Grads, Norm, Operation, ParamOf, Profile, Tensor, host,
};

/// Tensors of an RMS-norm gradient, in host memory.
///
/// mean_square has the leading dimensions of the shape, gamma the trailing ones, those that are normalized; only their
/// numbers of elements are checked.
#[derive(Clone, Copy, Debug)]
pub struct RmsNormBackwardArgs<'a, T: Element, P, S = <T as Element>::Sum> {
    /// Shape of src, diff_dst and diff_src: rank 1 to 8. With an axis of size 0 there are no elements, and gamma's
    /// gradient is 0.
    pub shape: &'a [usize],
    /// The layer's input.
    pub src: &'a [T],
    /// Gradient of the loss with respect to the layer's output.
    pub diff_dst: &'a [T],
    /// Mean of the squares of each row. From a saved rstd = 1/√(mean_square + epsilon) it is 1/rstd² − epsilon.
    pub mean_square: &'a [S],
    /// Scale of each normalized position; 1 where there is none.
    pub gamma: Option<&'a [P]>,
}

impl GpuRmsNorm {
    /// Computes the gradients of tensors in host memory: uploads, runs, reads back.
    ///
    /// # Errors
    ///
    /// As those of [`GpuLayerNorm::backward`](crate::GpuLayerNorm::backward).
    pub async fn backward<T: Element, P: ParamOf<T>>(
        &self,
        args: RmsNormBackwardArgs<'_, T, P>,
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
        args: RmsNormBackwardArgs<'_, T, P, S>,
    ) -> Result<Grads<T, P>, Error> {
        let plan = self.plan_backward(args.shape, types::<T, P, S>(), args.gamma.is_some())?;
        host::check_variance(
            Tensor::MeanSquare,
            "row",
            args.mean_square,
            self.options.epsilon,
        )?;
        let inputs = [
            Some(host::Input::new(Tensor::Src, args.src)),
            Some(host::Input::new(Tensor::DiffDst, args.diff_dst)),
            Some(host::Input::new(Tensor::MeanSquare, args.mean_square)),
            host::Input::given(Tensor::Gamma, args.gamma),
        ];
        let inputs: Vec<_> = inputs.into_iter().flatten().collect();
        host::backward(&self.gpu, &plan.plan, &inputs).await
    }

    /// Plans the gradient of device buffers, the first of the three stages that
    /// [`BatchNormBackwardPlan`](crate::BatchNormBackwardPlan) describes.
    ///
    /// # Errors
    ///
    /// As those of [`backward`](Self::backward) that follow from shapes and types.
    pub fn plan_backward(
        &self,
        shape: &[usize],
        types: impl Into<DTypes>,
        has_gamma: bool,
    ) -> Result<RmsNormBackwardPlan, Error> {
        let profile = self.gpu.profile();
        self.options.plan_backward(profile, shape, types, has_gamma)
    }
}

/// Planning without a context, for a [`Profile`] of one's own.
impl RmsNormOptions {
    /// As [`GpuRmsNorm::plan_backward`].
    ///
    /// # Errors
    ///
    /// As those of [`GpuRmsNorm::plan_backward`].
    pub fn plan_backward(
        &self,
        profile: &Profile,
        shape: &[usize],
        types: impl Into<DTypes>,
        has_gamma: bool,
    ) -> Result<RmsNormBackwardPlan, Error> {
        let types = types.into();
        let norm = Norm::Rms {
            begin_axis: self.begin_norm_axis,
        };
        let pass = Backward::default().with_param_grads(self.param_grads);
        let operation = Operation::new(norm, pass, shape, types)
            .with_epsilon(self.epsilon)
            .with_params(has_gamma, false);
        Ok(RmsNormBackwardPlan {
            plan: operation.planned(profile)?,
        })
    }
}

operands! {
    /// What to dispatch for one shape and its element types.
    plan RmsNormBackwardPlan;
    /// The caller's buffers of an RMS-norm gradient.
    ///
    /// Ranges must not overlap where one of them is written, with one exception: diff_src may be exactly diff_dst.
    buffers RmsNormBackwardBuffers;
    sizes RmsNormBackwardSizes;
    /// The layer's input.
    src: Src always;
    /// Gradient of the loss with respect to the layer's output.
    diff_dst: DiffDst always;
    /// Mean of the squares of each row.
    mean_square: MeanSquare always;
    /// Scale of each normalized position; given exactly if the plan has it.
    gamma: Gamma maybe;
    /// Written: gradient with respect to src.
    diff_src: DiffSrc always;
    /// Written: gradient with respect to gamma; given exactly if the plan has gamma, with [`ParamGrads::Both`](crate::ParamGrads::Both).
    diff_gamma: DiffGamma maybe;
}

//! The gradient of RMS normalization.

use super::{GpuRmsNorm, RmsNormOptions};
use crate::geometry;
use crate::kernels::Body;
use crate::operands::operands;
use crate::plan::{self, LayerNormProblem};
use crate::{Backward, BackwardArgs, DTypes, Element, Error, Grads, ParamOf, Profile};

impl GpuRmsNorm {
    /// Computes the gradients of tensors in host memory: uploads, runs, reads back.
    ///
    /// # Errors
    ///
    /// As those of [`GpuLayerNorm::backward`](crate::GpuLayerNorm::backward); [`Error::Argument`] for beta.
    pub async fn backward<T: Element, P: ParamOf<T>>(
        &self,
        args: BackwardArgs<'_, T, P>,
    ) -> Result<Grads<T, P>, Error> {
        let (norm, epsilon) = (self.options.norm(), self.options.epsilon);
        let backward = Backward::default().with_param_grads(self.options.param_grads);
        args.run(&self.gpu, norm, epsilon, backward).await
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
        let profile = plan::fit(profile, types, self.epsilon)?;
        let (rows, columns) = geometry::layer_norm_rows(shape, self.begin_norm_axis)?;
        let problem = LayerNormProblem {
            body: Body::RmsGradient,
            rows,
            columns,
            types,
            use_affine: has_gamma,
            epsilon: self.epsilon,
            param_grads: self.param_grads,
        };
        Ok(RmsNormBackwardPlan {
            plan: plan::layer_norm(&profile, &problem)?,
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

//! Group normalization by given statistics.

use super::{GpuGroupNorm, GroupNormOptions};
use crate::element::types;
use crate::operands::operands;
use crate::{DTypes, Element, Error, InferenceOperands, ParamOf, Pass, Profile, Tensor, host};

/// Tensors of group norm by given statistics, in host memory.
#[derive(Clone, Copy, Debug)]
pub struct GroupNormInferenceArgs<'a, T: Element, P, S = <T as Element>::Sum> {
    /// Shape of src and dst: rank 2 to 8.
    pub shape: &'a [usize],
    /// The layer's input.
    pub src: &'a [T],
    /// Mean of each group, `[N, G]`.
    pub mean: &'a [S],
    /// Variance of each group, `[N, G]`.
    pub variance: &'a [S],
    /// Scale of each channel, `[C]`. Without it gamma is 1.
    pub gamma: Option<&'a [P]>,
    /// Shift of each channel, `[C]`. Without it beta is 0.
    pub beta: Option<&'a [P]>,
    /// Added to the layer's output, before the activation; of src's shape.
    pub residual: Option<&'a [T]>,
}

impl GpuGroupNorm {
    /// Computes the layer's output by given statistics, dst = activation(gamma · (src − mean) / √(variance + epsilon) + beta +
    /// residual), where activation and residual are optional: uploads, runs, reads back.
    ///
    /// For a model that is evaluated it is [`forward`](Self::forward) that counts, unless statistics are fixed: group norm
    /// has no running statistics, and takes those of src then, too.
    ///
    /// ```
    /// # pollster::block_on(async {
    /// use wgpu_norm::{Error, GpuContext, GpuGroupNorm, GroupNormInferenceArgs, GroupNormOptions};
    ///
    /// let gpu = match GpuContext::new().await {
    ///     Ok(gpu) => gpu,
    ///     Err(Error::NoAdapter { .. }) => return Ok(()), // a machine without any driver
    ///     Err(error) => return Err(error),
    /// };
    /// let dst = GpuGroupNorm::new(&gpu, GroupNormOptions::new(1))?
    ///     .infer(GroupNormInferenceArgs {
    ///         shape: &[2, 2], // two samples of two channels, each a group
    ///         src: &[1.0_f32, 3.0, 10.0, 30.0],
    ///         mean: &[2.0, 20.0],
    ///         variance: &[1.0, 100.0],
    ///         gamma: None,
    ///         beta: Some(&[0.0, 5.0]),
    ///         residual: None,
    ///     })
    ///     .await?;
    /// assert!((dst[0] + 1.0).abs() < 1e-4 && (dst[3] - 6.0).abs() < 1e-4);
    /// # Ok(()) }).unwrap();
    /// ```
    ///
    /// # Errors
    ///
    /// As those of [`backward`](Self::backward).
    pub async fn infer<T: Element, P: ParamOf<T>>(
        &self,
        args: GroupNormInferenceArgs<'_, T, P>,
    ) -> Result<Vec<T>, Error> {
        self.infer_with_statistics(args).await
    }

    /// The same with statistics of another type: of 16 bits, as parameters of that type. They hold less, as
    /// [`DTypes::statistics`](crate::DTypes::statistics) says.
    ///
    /// # Errors
    ///
    /// As those of [`infer`](Self::infer), and [`Error::StatisticsDType`].
    pub async fn infer_with_statistics<T: Element, P: ParamOf<T>, S: ParamOf<T>>(
        &self,
        args: GroupNormInferenceArgs<'_, T, P, S>,
    ) -> Result<Vec<T>, Error> {
        let operands = InferenceOperands {
            gamma: args.gamma.is_some(),
            beta: args.beta.is_some(),
            residual: args.residual.is_some(),
        };
        let plan = self.plan_inference(args.shape, types::<T, P, S>(), operands)?;
        self.check_statistics(args.shape, args.mean, args.variance)?;
        let inputs = [
            Some(host::Input::new(Tensor::Src, args.src)),
            Some(host::Input::new(Tensor::Mean, args.mean)),
            Some(host::Input::new(Tensor::Variance, args.variance)),
            host::Input::given(Tensor::Gamma, args.gamma),
            host::Input::given(Tensor::Beta, args.beta),
            host::Input::given(Tensor::Residual, args.residual),
        ];
        let inputs: Vec<_> = inputs.into_iter().flatten().collect();
        let mut dst = Vec::new();
        host::run(&self.gpu, &plan.plan, &inputs, |tensor, bytes| {
            dst = host::elements(tensor, bytes)?;
            Ok(())
        })
        .await?;
        Ok(dst)
    }

    /// Plans group norm by given statistics on device buffers: the first of the three stages that
    /// [`BatchNormBackwardPlan`](crate::BatchNormBackwardPlan) describes.
    ///
    /// # Errors
    ///
    /// As those of [`infer`](Self::infer) that follow from shapes and types.
    pub fn plan_inference(
        &self,
        shape: &[usize],
        types: impl Into<DTypes>,
        operands: impl Into<InferenceOperands>,
    ) -> Result<GroupNormInferencePlan, Error> {
        let profile = self.gpu.profile();
        self.options.plan_inference(profile, shape, types, operands)
    }
}

/// Planning without a context, for a [`Profile`] of one's own.
impl GroupNormOptions {
    /// As [`GpuGroupNorm::plan_inference`].
    ///
    /// # Errors
    ///
    /// As those of [`GpuGroupNorm::plan_inference`].
    pub fn plan_inference(
        &self,
        profile: &Profile,
        shape: &[usize],
        types: impl Into<DTypes>,
        operands: impl Into<InferenceOperands>,
    ) -> Result<GroupNormInferencePlan, Error> {
        let (operands, types) = (operands.into(), types.into());
        let pass = (Pass::Inference, operands.residual);
        let plan = self.plan(profile, shape, types, [operands.gamma, operands.beta], pass)?;
        Ok(GroupNormInferencePlan { plan })
    }
}

operands! {
    /// What group norm by given statistics dispatches for one shape and its element types.
    plan GroupNormInferencePlan;
    /// The caller's buffers of group norm by given statistics.
    ///
    /// Ranges must not overlap where one of them is written.
    buffers GroupNormInferenceBuffers;
    sizes GroupNormInferenceSizes;
    /// The layer's input.
    src: Src always;
    /// Mean of each group.
    mean: Mean always;
    /// Variance of each group.
    variance: Variance always;
    /// Scale of each channel; given exactly if the plan has it.
    gamma: Gamma maybe;
    /// Shift of each channel; given exactly if the plan has it.
    beta: Beta maybe;
    /// Added to the layer's output; given exactly if the plan has it.
    residual: Residual maybe;
    /// Written: the layer's output.
    dst: Dst always;
}

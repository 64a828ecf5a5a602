//! Group normalization, forward.

use super::{GpuGroupNorm, GroupNormOptions};
use crate::element::types;
use crate::operands::operands;
use crate::{DTypes, Element, Error, Forward, ParamOf, Profile, Tensor, host};

/// Tensors of a group norm forward, in host memory.
#[derive(Clone, Copy, Debug)]
pub struct GroupNormForwardArgs<'a, T, P> {
    /// Shape of src and dst: rank 2 to 8. With an axis of size 0 there are no elements; groups without elements have mean
    /// and variance 0.
    pub shape: &'a [usize],
    /// The layer's input.
    pub src: &'a [T],
    /// Scale of each channel, `[C]`. Without it gamma is 1.
    pub gamma: Option<&'a [P]>,
    /// Shift of each channel, `[C]`. Without it beta is 0.
    pub beta: Option<&'a [P]>,
    /// Added to the layer's output, before the activation; of src's shape.
    pub residual: Option<&'a [T]>,
}

/// What group norm computes forward, in host memory.
#[derive(Clone, Debug, PartialEq)]
pub struct GroupNormOutput<T, S> {
    /// The layer's output, of src's shape.
    pub dst: Vec<T>,
    /// Mean of each group, `[N, G]`, as the gradient takes it.
    pub mean: Vec<S>,
    /// Biased variance of each group, `[N, G]`, as the gradient takes it.
    pub variance: Vec<S>,
    /// What passed the activation, for the gradient, where a residual was added before one: bit i of word w is of element
    /// 32 · w + i.
    pub mask: Option<Vec<u32>>,
}

/// What a plan of group norm forward reads beside src.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GroupNormForwardOperands {
    /// Whether gamma is given; without it gamma is 1.
    pub gamma: bool,
    /// Whether beta is given; without it beta is 0.
    pub beta: bool,
    /// Whether a residual is added to the layer's output, before the activation. With both the plan writes a mask.
    pub residual: bool,
}

impl GpuGroupNorm {
    /// Computes the layer's output and its statistics: uploads, runs, reads back.
    ///
    /// Statistics are taken as [`GpuBatchNorm::forward`](crate::GpuBatchNorm::forward) takes them, and as exact.
    ///
    /// ```
    /// # pollster::block_on(async {
    /// use wgpu_norm::{Error, GpuContext, GpuGroupNorm, GroupNormForwardArgs, GroupNormOptions};
    ///
    /// let gpu = match GpuContext::new().await {
    ///     Ok(gpu) => gpu,
    ///     Err(Error::NoAdapter { .. }) => return Ok(()), // a machine without any driver
    ///     Err(error) => return Err(error),
    /// };
    /// let output = GpuGroupNorm::new(&gpu, GroupNormOptions::new(2))?
    ///     .forward(GroupNormForwardArgs {
    ///         shape: &[1, 4, 1], // one sample of four channels in two groups
    ///         src: &[1.0_f32, 3.0, 10.0, 30.0],
    ///         gamma: Some(&[1.0, 1.0, 1.0, 2.0]),
    ///         beta: Some(&[0.0, 0.0, 0.0, 5.0]),
    ///         residual: None,
    ///     })
    ///     .await?;
    /// assert_eq!(output.mean, [2.0, 20.0]);
    /// assert_eq!(output.variance, [1.0, 100.0]);
    /// assert!((output.dst[0] + 1.0).abs() < 1e-4 && (output.dst[3] - 7.0).abs() < 1e-4);
    /// # Ok(()) }).unwrap();
    /// ```
    ///
    /// # Errors
    ///
    /// As those of [`backward`](Self::backward).
    pub async fn forward<T: Element, P: ParamOf<T>>(
        &self,
        args: GroupNormForwardArgs<'_, T, P>,
    ) -> Result<GroupNormOutput<T, T::Sum>, Error> {
        self.forward_with_statistics(args).await
    }

    /// The same with statistics of another type: of 16 bits, as parameters of that type. They hold less, as
    /// [`DTypes::statistics`](crate::DTypes::statistics) says.
    ///
    /// # Errors
    ///
    /// As those of [`forward`](Self::forward), and [`Error::StatisticsDType`].
    pub async fn forward_with_statistics<T: Element, P: ParamOf<T>, S: ParamOf<T>>(
        &self,
        args: GroupNormForwardArgs<'_, T, P>,
    ) -> Result<GroupNormOutput<T, S>, Error> {
        let operands = GroupNormForwardOperands {
            gamma: args.gamma.is_some(),
            beta: args.beta.is_some(),
            residual: args.residual.is_some(),
        };
        let plan = self.plan_forward(args.shape, types::<T, P, S>(), operands)?;
        let inputs = [
            Some(host::Input::new(Tensor::Src, args.src)),
            host::Input::given(Tensor::Gamma, args.gamma),
            host::Input::given(Tensor::Beta, args.beta),
            host::Input::given(Tensor::Residual, args.residual),
        ];
        let inputs: Vec<_> = inputs.into_iter().flatten().collect();
        let mut output = GroupNormOutput {
            dst: Vec::new(),
            mean: Vec::new(),
            variance: Vec::new(),
            mask: None,
        };
        host::run(&self.gpu, &plan.plan, &inputs, |tensor, bytes| {
            match tensor {
                Tensor::Dst => output.dst = host::elements(tensor, bytes)?,
                Tensor::Mask => output.mask = Some(host::words(tensor, bytes)?),
                Tensor::Mean => output.mean = host::elements(tensor, bytes)?,
                _ => output.variance = host::elements(tensor, bytes)?,
            }
            Ok(())
        })
        .await?;
        Ok(output)
    }

    /// Plans the layer's output on device buffers, with the optional tensors that `operands` names: the first of the three
    /// stages that [`BatchNormBackwardPlan`](crate::BatchNormBackwardPlan) describes.
    ///
    /// # Errors
    ///
    /// As those of [`forward`](Self::forward) that follow from shapes and types.
    pub fn plan_forward(
        &self,
        shape: &[usize],
        types: impl Into<DTypes>,
        operands: GroupNormForwardOperands,
    ) -> Result<GroupNormForwardPlan, Error> {
        let profile = self.gpu.profile();
        self.options.plan_forward(profile, shape, types, operands)
    }
}

/// Planning without a context, for a [`Profile`] of one's own.
impl GroupNormOptions {
    /// As [`GpuGroupNorm::plan_forward`].
    ///
    /// # Errors
    ///
    /// As those of [`GpuGroupNorm::plan_forward`].
    pub fn plan_forward(
        &self,
        profile: &Profile,
        shape: &[usize],
        types: impl Into<DTypes>,
        operands: GroupNormForwardOperands,
    ) -> Result<GroupNormForwardPlan, Error> {
        let types = types.into();
        let pass = (Forward::default(), operands.residual);
        let plan = self.plan(profile, shape, types, [operands.gamma, operands.beta], pass)?;
        Ok(GroupNormForwardPlan { plan })
    }
}

operands! {
    /// What group norm dispatches forward for one shape and its element types.
    plan GroupNormForwardPlan;
    /// The caller's buffers of group norm forward.
    ///
    /// Ranges must not overlap where one of them is written.
    buffers GroupNormForwardBuffers;
    sizes GroupNormForwardSizes;
    /// The layer's input.
    src: Src always;
    /// Scale of each channel; given exactly if the plan has it.
    gamma: Gamma maybe;
    /// Shift of each channel; given exactly if the plan has it.
    beta: Beta maybe;
    /// Added to the layer's output; given exactly if the plan has it.
    residual: Residual maybe;
    /// Written: the layer's output.
    dst: Dst always;
    /// Written: mean of each group.
    mean: Mean always;
    /// Written: biased variance of each group.
    variance: Variance always;
    /// Written: what passed the activation, a bit for each element; given exactly with a residual and an activation.
    mask: Mask maybe;
}

//! The gradient of layer normalization.

use super::forward::check_affine;
use super::{GpuLayerNorm, LayerNormOptions};
use crate::element::types;
use crate::operands::operands;
use crate::{
    Backward, DTypes, Element, Error, Grads, Norm, Operation, ParamOf, Profile, Tensor, host,
};

/// Tensors of a layer-norm gradient, in host memory.
///
/// mean and variance have the leading dimensions of the shape, gamma and beta the trailing ones, those
/// that are normalized; only their numbers of elements are checked, so that the one-dimensional form
/// of the operator document serves too.
#[derive(Clone, Copy, Debug)]
pub struct LayerNormBackwardArgs<'a, T: Element, P, S = <T as Element>::Sum> {
    /// Shape of src, diff_dst and diff_src: rank 1 to 8. With an axis of size 0 there are no elements, and the
    /// parameter gradients are 0.
    pub shape: &'a [usize],
    /// The layer's input.
    pub src: &'a [T],
    /// Gradient of the loss with respect to the layer's output.
    pub diff_dst: &'a [T],
    /// Mean of each row.
    pub mean: &'a [S],
    /// Biased variance of each row. From a saved rstd = 1/√(variance + epsilon) it is 1/rstd² − epsilon.
    pub variance: &'a [S],
    /// Scale of each normalized position; given exactly if the layer is affine.
    pub gamma: Option<&'a [P]>,
    /// Shift of each normalized position; only of an affine layer. No gradient depends on it, so it may be left out.
    pub beta: Option<&'a [P]>,
}

impl GpuLayerNorm {
    /// Computes the gradients of tensors in host memory: uploads, runs, reads back.
    ///
    /// # Errors
    ///
    /// As those of [`GpuBatchNorm::backward`](crate::GpuBatchNorm::backward), and
    /// [`Error::Argument`] for `begin_norm_axis` out of range, gamma missing from an affine layer, or gamma or beta given to
    /// another.
    pub async fn backward<T: Element, P: ParamOf<T>>(
        &self,
        args: LayerNormBackwardArgs<'_, T, P>,
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
        args: LayerNormBackwardArgs<'_, T, P, S>,
    ) -> Result<Grads<T, P>, Error> {
        let plan = self.plan_backward(args.shape, types::<T, P, S>())?;
        check_affine("gamma", self.options.use_affine, args.gamma.is_some(), true)?;
        check_affine("beta", self.options.use_affine, args.beta.is_some(), false)?;
        for (name, given) in [("gamma", args.gamma), ("beta", args.beta)] {
            if let Some(given) = given {
                plan.plan.check_length(Tensor::Gamma, name, given.len())?;
            }
        }
        host::check_variance(Tensor::Variance, "row", args.variance, self.options.epsilon)?;
        let inputs = [
            Some(host::Input::new(Tensor::Src, args.src)),
            Some(host::Input::new(Tensor::DiffDst, args.diff_dst)),
            Some(host::Input::new(Tensor::Mean, args.mean)),
            Some(host::Input::new(Tensor::Variance, args.variance)),
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
    ) -> Result<LayerNormBackwardPlan, Error> {
        let profile = self.gpu.profile();
        self.options.plan_backward(profile, shape, types)
    }
}

/// Planning without a context, for a [`Profile`] of one's own.
impl LayerNormOptions {
    /// As [`GpuLayerNorm::plan_backward`].
    ///
    /// # Errors
    ///
    /// As those of [`GpuLayerNorm::plan_backward`].
    pub fn plan_backward(
        &self,
        profile: &Profile,
        shape: &[usize],
        types: impl Into<DTypes>,
    ) -> Result<LayerNormBackwardPlan, Error> {
        let types = types.into();
        let norm = Norm::Layer {
            begin_axis: self.begin_norm_axis,
        };
        let pass = Backward::default().with_param_grads(self.param_grads);
        let operation = Operation::new(norm, pass, shape, types)
            .with_epsilon(self.epsilon)
            .with_params(self.use_affine, false);
        Ok(LayerNormBackwardPlan {
            plan: operation.planned(profile)?,
        })
    }
}

operands! {
    /// What to dispatch for one shape and its element types. What is bound can be recorded whole; the halves of
    /// [`Bound`](crate::Bound) are batch norm's alone.
    ///
    /// ```
    /// # pollster::block_on(async {
    /// use wgpu_norm::{DType, Error, GpuContext, GpuLayerNorm, LayerNormBackwardBuffers, LayerNormOptions, wgpu};
    ///
    /// let gpu = match GpuContext::new().await {
    ///     Ok(gpu) => gpu,
    ///     Err(Error::NoAdapter { .. }) => return Ok(()), // a machine without any driver
    ///     Err(error) => return Err(error),
    /// };
    /// let layer = GpuLayerNorm::new(&gpu, LayerNormOptions::default())?;
    /// let plan = layer.plan_backward(&[64, 30], (DType::F32, DType::F32))?; // 64 rows of 30 elements
    /// let sizes = plan.padded_sizes();
    /// let buffer = |size| {
    ///     gpu.device().create_buffer(&wgpu::BufferDescriptor {
    ///         label: None,
    ///         size,
    ///         usage: wgpu::BufferUsages::STORAGE | wgpu::BufferUsages::COPY_DST,
    ///         mapped_at_creation: false,
    ///     })
    /// };
    /// let [src, diff_dst] = [sizes.src, sizes.diff_dst].map(buffer);
    /// let [mean, variance] = [sizes.mean, sizes.variance].map(buffer);
    /// let params = [sizes.gamma, sizes.diff_gamma, sizes.diff_beta].map(|size| size.map(buffer));
    /// let [gamma, diff_gamma, diff_beta] = params.each_ref().map(|buffer| buffer.as_ref().map(Into::into));
    /// let buffers = LayerNormBackwardBuffers {
    ///     src: (&src).into(),
    ///     diff_dst: (&diff_dst).into(),
    ///     mean: (&mean).into(),
    ///     variance: (&variance).into(),
    ///     gamma,
    ///     diff_src: (&diff_dst).into(), // in place
    ///     diff_gamma,
    ///     diff_beta,
    ///     workspace: None, // the bound plan makes its own
    /// };
    /// let bound = plan.bind(&gpu, &buffers)?;
    /// let mut encoder = gpu.device().create_command_encoder(&Default::default());
    /// bound.record(&mut encoder); // every step
    /// gpu.queue().submit([encoder.finish()]);
    /// # Ok(()) }).unwrap();
    /// ```
    plan LayerNormBackwardPlan;
    /// The caller's buffers of a layer-norm gradient. beta is not among them: nothing depends on it.
    ///
    /// Ranges must not overlap where one of them is written, with one exception: diff_src may be exactly diff_dst.
    buffers LayerNormBackwardBuffers;
    sizes LayerNormBackwardSizes;
    /// The layer's input.
    src: Src always;
    /// Gradient of the loss with respect to the layer's output.
    diff_dst: DiffDst always;
    /// Mean of each row.
    mean: Mean always;
    /// Biased variance of each row.
    variance: Variance always;
    /// Scale of each normalized position; given exactly if the layer is affine.
    gamma: Gamma maybe;
    /// Written: gradient with respect to src.
    diff_src: DiffSrc always;
    /// Written: gradient with respect to gamma; given exactly if the layer is affine, with [`ParamGrads::Both`](crate::ParamGrads::Both).
    diff_gamma: DiffGamma maybe;
    /// Written: gradient with respect to beta; given exactly if the layer is affine, with [`ParamGrads::Both`](crate::ParamGrads::Both).
    diff_beta: DiffBeta maybe;
}

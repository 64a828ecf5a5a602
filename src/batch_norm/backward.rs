//! The gradient of batch normalization.

use super::{BatchNormOptions, GpuBatchNorm};
use crate::element::types;
use crate::operands::operands;
use crate::{
    Backward, BackwardOperands, Channels, DTypes, Element, Epilogue, Error, Grads, Norm, Operation,
    ParamOf, Profile, Residual, Tensor, host,
};

/// Tensors of a batch-norm gradient, in host memory.
#[derive(Clone, Copy, Debug)]
pub struct BatchNormBackwardArgs<'a, T: Element, P, S = <T as Element>::Sum> {
    /// Shape of src, diff_dst and diff_src: rank 2 to 8 (from 1 on with broadcast parameters). With an axis of size 0
    /// there are no elements, and the parameter gradients are 0.
    pub shape: &'a [usize],
    /// The layer's input.
    pub src: &'a [T],
    /// Gradient of the loss with respect to the layer's output.
    pub diff_dst: &'a [T],
    /// Mean of each channel: `[C]`, or of the shape that
    /// [`backward_broadcast`](GpuBatchNorm::backward_broadcast) is given, as are the other parameters.
    pub mean: &'a [S],
    /// Biased variance of each channel. From a saved invstd = 1/√(variance + epsilon) it is
    /// 1/invstd² − epsilon.
    pub variance: &'a [S],
    /// Scale of each channel. Without it gamma is 1.
    pub gamma: Option<&'a [P]>,
    /// Shift of each channel, where an activation follows and there is no mask. Without it beta is 0.
    pub beta: Option<&'a [P]>,
    /// What the forward pass wrote, exactly where a residual was added before the activation:
    /// [`BatchNormOutput::mask`](crate::BatchNormOutput::mask).
    pub mask: Option<&'a [u32]>,
}

impl<T: Element, P, S> BatchNormBackwardArgs<'_, T, P, S> {
    fn operands(&self) -> BackwardOperands {
        BackwardOperands {
            gamma: self.gamma.is_some(),
            beta: self.beta.is_some(),
            mask: self.mask.is_some(),
        }
    }
}

impl GpuBatchNorm {
    /// Computes the gradients of tensors in host memory: uploads, runs, reads back.
    ///
    /// The first poll uploads, and compiles what no call has needed before, which takes up to seconds on a
    /// software driver; the wait for the GPU that follows does not block the executor; the last poll copies
    /// the results out.
    ///
    /// # Errors
    ///
    /// Lengths and ranks that do not fit the shape, sizes that overflow or exceed the adapter's
    /// limits, an element type that the adapter cannot run, variance + epsilon not above 0 or infinite (naming the
    /// channel), memory or device lost. Nothing is uploaded before all arguments are checked.
    pub async fn backward<T: Element, P: ParamOf<T>>(
        &self,
        args: BatchNormBackwardArgs<'_, T, P>,
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
        args: BatchNormBackwardArgs<'_, T, P, S>,
    ) -> Result<Grads<T, P>, Error> {
        let plan = self.plan_backward(args.shape, types::<T, P, S>(), args.operands())?;
        self.run(&plan, args).await
    }

    /// Computes the gradients of a layer whose parameters have the rank of src, as DirectML has them:
    /// they vary along the axes where `param_shape` has src's size, and those where it has 1 are
    /// reduced. Any rank from 1 to 8, any set of axes.
    /// [`BatchNormOptions::data_format`](crate::BatchNormOptions::data_format) does not
    /// count.
    ///
    /// ```
    /// # pollster::block_on(async {
    /// use wgpu_norm::{BatchNormBackwardArgs, BatchNormOptions, Error, GpuBatchNorm, GpuContext};
    ///
    /// let gpu = match GpuContext::new().await {
    ///     Ok(gpu) => gpu,
    ///     Err(Error::NoAdapter { .. }) => return Ok(()), // a machine without any driver
    ///     Err(error) => return Err(error),
    /// };
    /// let args = BatchNormBackwardArgs {
    ///     shape: &[2, 3],
    ///     src: &[1.0_f32, 2.0, 3.0, 5.0, 6.0, 7.0],
    ///     diff_dst: &[0.0, 1.0, 0.0, 1.0, 0.0, 1.0],
    ///     mean: &[2.0, 6.0],
    ///     variance: &[2.0 / 3.0, 2.0 / 3.0],
    ///     gamma: None::<&[f32]>,
    ///     beta: None,
    ///     mask: None,
    /// };
    /// let layer = GpuBatchNorm::new(&gpu, BatchNormOptions::new(1e-5))?;
    /// let grads = layer.backward_broadcast(&[2, 1], args).await?; // the second axis is reduced
    /// assert_eq!(grads.diff_beta, Some(vec![1.0, 2.0]));
    /// # Ok(()) }).unwrap();
    /// ```
    ///
    /// # Errors
    ///
    /// As those of [`backward`](Self::backward), and [`Error::Argument`] naming the axis where
    /// `param_shape` is neither 1 nor src's size.
    pub async fn backward_broadcast<T: Element, P: ParamOf<T>>(
        &self,
        param_shape: &[usize],
        args: BatchNormBackwardArgs<'_, T, P>,
    ) -> Result<Grads<T, P>, Error> {
        self.backward_broadcast_with_statistics(param_shape, args)
            .await
    }

    /// The same with statistics of another type: of 16 bits, as parameters of that type. They hold less, as
    /// [`DTypes::statistics`](crate::DTypes::statistics) says.
    ///
    /// # Errors
    ///
    /// As those of [`backward_broadcast`](Self::backward_broadcast), and [`Error::StatisticsDType`].
    pub async fn backward_broadcast_with_statistics<T: Element, P: ParamOf<T>, S: ParamOf<T>>(
        &self,
        param_shape: &[usize],
        args: BatchNormBackwardArgs<'_, T, P, S>,
    ) -> Result<Grads<T, P>, Error> {
        let plan = self.plan_backward_broadcast(
            args.shape,
            param_shape,
            types::<T, P, S>(),
            args.operands(),
        )?;
        self.run(&plan, args).await
    }

    async fn run<T: Element, P: ParamOf<T>, S: ParamOf<T>>(
        &self,
        plan: &BatchNormBackwardPlan,
        args: BatchNormBackwardArgs<'_, T, P, S>,
    ) -> Result<Grads<T, P>, Error> {
        host::check_variance(
            Tensor::Variance,
            "channel",
            args.variance,
            self.options.epsilon,
        )?;
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

    /// Plans the gradient of device buffers: see [`BatchNormBackwardPlan`].
    ///
    /// # Errors
    ///
    /// As those of [`backward`](Self::backward) that follow from shapes and types.
    pub fn plan_backward(
        &self,
        shape: &[usize],
        types: impl Into<DTypes>,
        operands: impl Into<BackwardOperands>,
    ) -> Result<BatchNormBackwardPlan, Error> {
        self.options
            .plan_backward(self.gpu.profile(), shape, types, operands)
    }

    /// Plans what [`backward_broadcast`](Self::backward_broadcast) computes. A tensor whose axes do not
    /// fold to (outer, channels, inner) must fit one storage binding.
    ///
    /// # Errors
    ///
    /// As those of [`backward_broadcast`](Self::backward_broadcast) that follow from shapes and types.
    pub fn plan_backward_broadcast(
        &self,
        shape: &[usize],
        param_shape: &[usize],
        types: impl Into<DTypes>,
        operands: impl Into<BackwardOperands>,
    ) -> Result<BatchNormBackwardPlan, Error> {
        let profile = self.gpu.profile();
        self.options
            .plan_backward_broadcast(profile, shape, param_shape, types, operands)
    }
}

/// Planning without a context, for a [`Profile`] of one's own.
impl BatchNormOptions {
    /// As [`GpuBatchNorm::plan_backward`].
    ///
    /// # Errors
    ///
    /// As those of [`GpuBatchNorm::plan_backward`].
    pub fn plan_backward(
        &self,
        profile: &Profile,
        shape: &[usize],
        types: impl Into<DTypes>,
        operands: impl Into<BackwardOperands>,
    ) -> Result<BatchNormBackwardPlan, Error> {
        let channels = Channels::Axis(self.data_format);
        self.plan_backward_channels(profile, shape, channels, types.into(), operands.into())
    }

    /// As [`GpuBatchNorm::plan_backward_broadcast`].
    ///
    /// # Errors
    ///
    /// As those of [`GpuBatchNorm::plan_backward_broadcast`].
    pub fn plan_backward_broadcast(
        &self,
        profile: &Profile,
        shape: &[usize],
        param_shape: &[usize],
        types: impl Into<DTypes>,
        operands: impl Into<BackwardOperands>,
    ) -> Result<BatchNormBackwardPlan, Error> {
        let channels = Channels::Broadcast(param_shape.to_vec());
        self.plan_backward_channels(profile, shape, channels, types.into(), operands.into())
    }

    fn plan_backward_channels(
        &self,
        profile: &Profile,
        shape: &[usize],
        channels: Channels,
        types: DTypes,
        operands: BackwardOperands,
    ) -> Result<BatchNormBackwardPlan, Error> {
        operands.check(self.activation, types.data)?;
        let residual = match operands.mask {
            true => Residual::After,
            false => Residual::None,
        };
        let pass = Backward {
            through: self.statistics,
            param_grads: self.param_grads,
        };
        let operation = Operation::new(Norm::Batch(channels), pass, shape, types)
            .with_epsilon(self.epsilon)
            .with_params(operands.gamma, operands.beta)
            .with_epilogue(Epilogue::new(residual, self.activation));
        Ok(BatchNormBackwardPlan {
            plan: operation.planned(profile)?,
        })
    }
}

operands! {
    /// What to dispatch for one shape and its element types: the first of three stages.
    ///
    /// 1. [`GpuBatchNorm::plan_backward`], once for a shape: pure, no GPU object is made.
    /// 2. [`BatchNormBackwardPlan::bind`], once for a set of buffers: checks everything, makes bind groups.
    /// 3. [`Bound::record`](crate::Bound::record), every step: writes commands into the caller's encoder, nothing else.
    ///
    /// variance + epsilon is not checked here, for nothing is read back: a channel where it is not above 0
    /// becomes NaN or infinite.
    ///
    /// ```
    /// # pollster::block_on(async {
    /// use wgpu_norm::{BatchNormOptions, DType, Error, GpuBatchNorm, GpuContext};
    ///
    /// let gpu = match GpuContext::new().await {
    ///     Ok(gpu) => gpu,
    ///     Err(Error::NoAdapter { .. }) => return Ok(()), // a machine without any driver
    ///     Err(error) => return Err(error),
    /// };
    /// let layer = GpuBatchNorm::new(&gpu, BatchNormOptions::new(1e-5))?;
    /// let plan = layer.plan_backward(&[3, 7], (DType::Bf16, DType::F32), false)?;
    /// assert_eq!(plan.sizes().src, 44); // 21 elements of 2 bytes, in whole words
    /// assert_eq!(plan.padded_sizes().src, 48); // 24 elements
    /// assert_eq!(plan.padded_sizes().mean, 32); // 8 elements of 4 bytes
    /// assert_eq!(plan.padded_sizes().gamma, None);
    /// # Ok(()) }).unwrap();
    /// ```
    plan BatchNormBackwardPlan;
    /// The caller's buffers of a batch-norm gradient.
    ///
    /// Ranges must not overlap where one of them is written, with one exception: diff_src may be exactly diff_dst.
    buffers BatchNormBackwardBuffers;
    sizes BatchNormBackwardSizes;
    /// The layer's input.
    src: Src always;
    /// Gradient of the loss with respect to the layer's output.
    diff_dst: DiffDst always;
    /// Mean of each channel.
    mean: Mean always;
    /// Biased variance of each channel.
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
    /// The sums between the two halves, of [`BatchNormBackwardPlan::sums_size`] bytes: f32 (f64 for f64 data)
    /// `[Σ diff_dst; C]`, `[Σ diff_dst · x̂; C]`, then the number of elements in a channel. Adding up
    /// such buffers of several devices, number included, synchronizes a batch across them. The sums are
    /// zeros where no gradient depends on them. Without it there are no halves. Not to be given where its size is 0.
    sums: Sums scratch;
}

impl BatchNormBackwardPlan {
    /// Bytes of the buffer `sums`; 0 where there are so many channels that a plan has no room for halves.
    pub fn sums_size(&self) -> u64 {
        self.plan.scratch_bytes(Tensor::Sums)
    }
}

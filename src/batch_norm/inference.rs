//! Batch normalization by given statistics.

use super::{BatchNormOptions, GpuBatchNorm};
use crate::element::types;
use crate::operands::operands;
use crate::{
    Channels, DTypes, Element, Epilogue, Error, InferenceOperands, Norm, Operation, ParamOf, Pass,
    Profile, Residual, Tensor, host,
};

/// Tensors of batch norm by given statistics, in host memory.
#[derive(Clone, Copy, Debug)]
pub struct BatchNormInferenceArgs<'a, T: Element, P, S = <T as Element>::Sum> {
    /// Shape of src and dst: rank 2 to 8 (from 1 on with broadcast parameters).
    pub shape: &'a [usize],
    /// The layer's input.
    pub src: &'a [T],
    /// Mean of each channel: `[C]`, or of the shape that
    /// [`infer_broadcast`](GpuBatchNorm::infer_broadcast) is given, as are the other parameters.
    pub mean: &'a [S],
    /// Variance of each channel.
    pub variance: &'a [S],
    /// Scale of each channel. Without it gamma is 1.
    pub gamma: Option<&'a [P]>,
    /// Shift of each channel. Without it beta is 0.
    pub beta: Option<&'a [P]>,
    /// Added to the layer's output, before the activation; of src's shape.
    pub residual: Option<&'a [T]>,
}

impl GpuBatchNorm {
    /// Computes the layer's output by given statistics, dst = activation(gamma · (src − mean) / √(variance + epsilon) + beta +
    /// residual), where activation and residual are optional: uploads, runs, reads back.
    ///
    /// ```
    /// # pollster::block_on(async {
    /// use wgpu_norm::{BatchNormInferenceArgs, BatchNormOptions, Error, GpuBatchNorm, GpuContext};
    ///
    /// let gpu = match GpuContext::new().await {
    ///     Ok(gpu) => gpu,
    ///     Err(Error::NoAdapter { .. }) => return Ok(()), // a machine without any driver
    ///     Err(error) => return Err(error),
    /// };
    /// let layer = GpuBatchNorm::new(&gpu, BatchNormOptions::new(1e-5))?;
    /// let dst = layer
    ///     .infer(BatchNormInferenceArgs {
    ///         shape: &[2, 2], // two samples of two channels
    ///         src: &[1.0_f32, 10.0, 3.0, 30.0],
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
        args: BatchNormInferenceArgs<'_, T, P>,
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
        args: BatchNormInferenceArgs<'_, T, P, S>,
    ) -> Result<Vec<T>, Error> {
        let channels = Channels::Axis(self.options.data_format);
        self.run_inference(channels, args).await
    }

    /// The same for a layer whose parameters have the rank of src, as
    /// [`backward_broadcast`](Self::backward_broadcast) has them.
    ///
    /// # Errors
    ///
    /// As those of [`backward_broadcast`](Self::backward_broadcast).
    pub async fn infer_broadcast<T: Element, P: ParamOf<T>>(
        &self,
        param_shape: &[usize],
        args: BatchNormInferenceArgs<'_, T, P>,
    ) -> Result<Vec<T>, Error> {
        self.infer_broadcast_with_statistics(param_shape, args)
            .await
    }

    /// The same with statistics of another type: of 16 bits, as parameters of that type. They hold less, as
    /// [`DTypes::statistics`](crate::DTypes::statistics) says.
    ///
    /// # Errors
    ///
    /// As those of [`infer_broadcast`](Self::infer_broadcast), and [`Error::StatisticsDType`].
    pub async fn infer_broadcast_with_statistics<T: Element, P: ParamOf<T>, S: ParamOf<T>>(
        &self,
        param_shape: &[usize],
        args: BatchNormInferenceArgs<'_, T, P, S>,
    ) -> Result<Vec<T>, Error> {
        let channels = Channels::Broadcast(param_shape.to_vec());
        self.run_inference(channels, args).await
    }

    async fn run_inference<T: Element, P: ParamOf<T>, S: ParamOf<T>>(
        &self,
        channels: Channels,
        args: BatchNormInferenceArgs<'_, T, P, S>,
    ) -> Result<Vec<T>, Error> {
        let operands = InferenceOperands {
            gamma: args.gamma.is_some(),
            beta: args.beta.is_some(),
            residual: args.residual.is_some(),
        };
        let types = types::<T, P, S>();
        let profile = self.gpu.profile();
        let plan = self
            .options
            .plan_inference_channels(profile, args.shape, channels, types, operands)?;
        host::check_variance(
            Tensor::Variance,
            "channel",
            args.variance,
            self.options.epsilon,
        )?;
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

    /// Plans batch norm by given statistics on device buffers: the first of the three stages that
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
    ) -> Result<BatchNormInferencePlan, Error> {
        let profile = self.gpu.profile();
        self.options.plan_inference(profile, shape, types, operands)
    }

    /// Plans what [`infer_broadcast`](Self::infer_broadcast) computes. A tensor whose axes do not fold to (outer,
    /// channels, inner) must fit one storage binding.
    ///
    /// # Errors
    ///
    /// As those of [`infer_broadcast`](Self::infer_broadcast) that follow from shapes and types.
    pub fn plan_inference_broadcast(
        &self,
        shape: &[usize],
        param_shape: &[usize],
        types: impl Into<DTypes>,
        operands: impl Into<InferenceOperands>,
    ) -> Result<BatchNormInferencePlan, Error> {
        let profile = self.gpu.profile();
        self.options
            .plan_inference_broadcast(profile, shape, param_shape, types, operands)
    }
}

/// Planning without a context, for a [`Profile`] of one's own.
impl BatchNormOptions {
    /// As [`GpuBatchNorm::plan_inference`].
    ///
    /// # Errors
    ///
    /// As those of [`GpuBatchNorm::plan_inference`].
    pub fn plan_inference(
        &self,
        profile: &Profile,
        shape: &[usize],
        types: impl Into<DTypes>,
        operands: impl Into<InferenceOperands>,
    ) -> Result<BatchNormInferencePlan, Error> {
        let channels = Channels::Axis(self.data_format);
        self.plan_inference_channels(profile, shape, channels, types.into(), operands.into())
    }

    /// As [`GpuBatchNorm::plan_inference_broadcast`].
    ///
    /// # Errors
    ///
    /// As those of [`GpuBatchNorm::plan_inference_broadcast`].
    pub fn plan_inference_broadcast(
        &self,
        profile: &Profile,
        shape: &[usize],
        param_shape: &[usize],
        types: impl Into<DTypes>,
        operands: impl Into<InferenceOperands>,
    ) -> Result<BatchNormInferencePlan, Error> {
        let channels = Channels::Broadcast(param_shape.to_vec());
        self.plan_inference_channels(profile, shape, channels, types.into(), operands.into())
    }

    fn plan_inference_channels(
        &self,
        profile: &Profile,
        shape: &[usize],
        channels: Channels,
        types: DTypes,
        operands: InferenceOperands,
    ) -> Result<BatchNormInferencePlan, Error> {
        let residual = match operands.residual {
            true => Residual::After,
            false => Residual::None,
        };
        let operation = Operation::new(Norm::Batch(channels), Pass::Inference, shape, types)
            .with_epsilon(self.epsilon)
            .with_params(operands.gamma, operands.beta)
            .with_epilogue(Epilogue::new(residual, self.activation));
        Ok(BatchNormInferencePlan {
            plan: operation.planned(profile)?,
        })
    }
}

operands! {
    /// What batch norm by given statistics dispatches for one shape and its element types.
    plan BatchNormInferencePlan;
    /// The caller's buffers of batch norm by given statistics.
    ///
    /// Ranges must not overlap where one of them is written.
    buffers BatchNormInferenceBuffers;
    sizes BatchNormInferenceSizes;
    /// The layer's input.
    src: Src always;
    /// Mean of each channel.
    mean: Mean always;
    /// Variance of each channel.
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

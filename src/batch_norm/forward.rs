//! Batch normalization in training.

use super::{BatchNormOptions, GpuBatchNorm};
use crate::element::types;
use crate::operands::operands;
use crate::{
    Channels, DTypes, Element, Epilogue, Error, Forward, Norm, Operation, ParamOf, Profile,
    Residual, RunningUpdate, Shards, Tensor, host,
};

/// Tensors of batch norm in training, in host memory.
#[derive(Debug)]
pub struct BatchNormForwardArgs<'a, T: Element, P, S = <T as Element>::Sum> {
    /// Shape of src and dst: rank 2 to 8 (from 1 on with broadcast parameters). With an axis of size 0 there are no
    /// elements; channels without elements have mean and variance 0.
    pub shape: &'a [usize],
    /// The layer's input.
    pub src: &'a [T],
    /// Scale of each channel: `[C]`, or of the shape that
    /// [`forward_broadcast`](GpuBatchNorm::forward_broadcast) is given, as are the other parameters. Without it gamma is 1.
    pub gamma: Option<&'a [P]>,
    /// Shift of each channel. Without it beta is 0.
    pub beta: Option<&'a [P]>,
    /// Added to the layer's output, before the activation; of src's shape.
    pub residual: Option<&'a [T]>,
    /// Updated in place.
    pub running: Option<RunningStatistics<'a, S>>,
}

/// Running statistics of each channel, and how they take in those of the batch.
#[derive(Debug)]
pub struct RunningStatistics<'a, S> {
    /// Running mean.
    pub mean: &'a mut [S],
    /// Running variance.
    pub variance: &'a mut [S],
    /// The batch's weight, and which of its variances. Channels without elements leave running statistics as they are.
    pub update: RunningUpdate,
}

/// What batch norm in training computes, in host memory.
#[derive(Clone, Debug, PartialEq)]
pub struct BatchNormOutput<T, S> {
    /// The layer's output, of src's shape.
    pub dst: Vec<T>,
    /// Mean of each channel, as the gradient takes it.
    pub mean: Vec<S>,
    /// Biased variance of each channel, as the gradient takes it.
    pub variance: Vec<S>,
    /// What passed the activation, for the gradient, where a residual was added before one: bit i of word w is of element
    /// 32 · w + i.
    pub mask: Option<Vec<u32>>,
}

/// What a plan of batch norm in training reads and writes beside src, dst and the batch's statistics.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct BatchNormForwardOperands {
    /// Whether gamma is given; without it gamma is 1.
    pub gamma: bool,
    /// Whether beta is given; without it beta is 0.
    pub beta: bool,
    /// Whether a residual is added to the layer's output, before the activation. With both the plan writes a mask.
    pub residual: bool,
    /// How running statistics take in the batch's, if they are given. Plans are pure and cheap: where the weight
    /// changes, as in a cumulative average, make another one.
    pub running: Option<RunningUpdate>,
    /// Of a batch that is spread over several devices: how many have a part of it, and which part this one has. It counts
    /// for the two halves; [`Bound::record`](crate::Bound::record) normalizes by this part's own statistics.
    pub shards: Shards,
}

impl GpuBatchNorm {
    /// Computes the layer's output in training, and the batch's statistics: uploads, runs, reads back.
    ///
    /// With m elements in a channel, mean = Σ src / m, variance = Σ (src − mean)² / m and r = 1/√(variance + epsilon),
    ///
    /// * dst = activation(gamma · (src − mean) · r + beta + residual), where activation and residual are optional
    /// * running ← (1 − weight) · running + weight · batch, for mean and variance
    ///
    /// Statistics are taken in one reading by blocks of 16 to 32 elements, each with a shift of its own, whose sums are merged:
    /// the relative error of the variance is below 1e-5 (in f32) whatever the mean is, up to a million standard
    /// deviations, and the variance of equal elements is 0.
    ///
    /// ```
    /// # pollster::block_on(async {
    /// use wgpu_norm::{BatchNormForwardArgs, BatchNormOptions, DataFormat, Error, GpuBatchNorm, GpuContext};
    /// use wgpu_norm::{RunningStatistics, RunningUpdate, RunningVariance};
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
    /// let (mut running_mean, mut running_variance) = ([0.0_f32], [1.0_f32]);
    /// let output = GpuBatchNorm::new(&gpu, options)?
    ///     .forward(BatchNormForwardArgs {
    ///         shape: &[2, 1, 2], // two samples of one channel with two elements
    ///         src: &[1.0_f32, 2.0, 3.0, 4.0],
    ///         gamma: Some(&[2.0]),
    ///         beta: Some(&[1.0]),
    ///         running: Some(RunningStatistics {
    ///             mean: &mut running_mean,
    ///             variance: &mut running_variance,
    ///             update: RunningUpdate {
    ///                 weight: 0.1, // PyTorch's momentum
    ///                 variance: RunningVariance::Unbiased,
    ///             },
    ///         }),
    ///         residual: None,
    ///     })
    ///     .await?;
    /// assert_eq!((output.mean[0], output.variance[0]), (2.5, 1.25));
    /// assert!((output.dst[3] - 3.6833).abs() < 1e-3);
    /// assert!((running_mean[0] - 0.25).abs() < 1e-6);
    /// assert!((running_variance[0] - (0.9 + 0.1 * 5.0 / 3.0)).abs() < 1e-6);
    /// # Ok(()) }).unwrap();
    /// ```
    ///
    /// # Errors
    ///
    /// As those of [`backward`](Self::backward); [`Error::Argument`] for a weight that is not from 0 to 1, or the unbiased
    /// variance of channels with one element. Nothing is uploaded before all arguments are checked.
    pub async fn forward<T: Element, P: ParamOf<T>>(
        &self,
        args: BatchNormForwardArgs<'_, T, P>,
    ) -> Result<BatchNormOutput<T, T::Sum>, Error> {
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
        args: BatchNormForwardArgs<'_, T, P, S>,
    ) -> Result<BatchNormOutput<T, S>, Error> {
        let channels = Channels::Axis(self.options.data_format);
        self.run_forward(channels, args).await
    }

    /// The same for a layer whose parameters have the rank of src, as
    /// [`backward_broadcast`](Self::backward_broadcast) has them: statistics are taken over the axes where `param_shape`
    /// has 1.
    ///
    /// # Errors
    ///
    /// As those of [`forward`](Self::forward), and [`Error::Argument`] naming the axis where `param_shape` is neither 1
    /// nor src's size.
    pub async fn forward_broadcast<T: Element, P: ParamOf<T>>(
        &self,
        param_shape: &[usize],
        args: BatchNormForwardArgs<'_, T, P>,
    ) -> Result<BatchNormOutput<T, T::Sum>, Error> {
        self.forward_broadcast_with_statistics(param_shape, args)
            .await
    }

    /// The same with statistics of another type: of 16 bits, as parameters of that type. They hold less, as
    /// [`DTypes::statistics`](crate::DTypes::statistics) says.
    ///
    /// # Errors
    ///
    /// As those of [`forward_broadcast`](Self::forward_broadcast), and [`Error::StatisticsDType`].
    pub async fn forward_broadcast_with_statistics<T: Element, P: ParamOf<T>, S: ParamOf<T>>(
        &self,
        param_shape: &[usize],
        args: BatchNormForwardArgs<'_, T, P, S>,
    ) -> Result<BatchNormOutput<T, S>, Error> {
        let channels = Channels::Broadcast(param_shape.to_vec());
        self.run_forward(channels, args).await
    }

    async fn run_forward<T: Element, P: ParamOf<T>, S: ParamOf<T>>(
        &self,
        channels: Channels,
        args: BatchNormForwardArgs<'_, T, P, S>,
    ) -> Result<BatchNormOutput<T, S>, Error> {
        let operands = BatchNormForwardOperands {
            gamma: args.gamma.is_some(),
            beta: args.beta.is_some(),
            residual: args.residual.is_some(),
            running: args.running.as_ref().map(|running| running.update),
            shards: Shards::default(),
        };
        let types = types::<T, P, S>();
        let profile = self.gpu.profile();
        let plan = self
            .options
            .plan_forward_channels(profile, args.shape, channels, types, operands)?;
        let running = args.running.as_ref();
        let inputs = [
            Some(host::Input::new(Tensor::Src, args.src)),
            host::Input::given(Tensor::Gamma, args.gamma),
            host::Input::given(Tensor::Beta, args.beta),
            host::Input::given(Tensor::Residual, args.residual),
            host::Input::given(Tensor::RunningMean, running.map(|running| &*running.mean)),
            host::Input::given(
                Tensor::RunningVariance,
                running.map(|running| &*running.variance),
            ),
        ];
        let inputs: Vec<_> = inputs.into_iter().flatten().collect();
        let mut output = BatchNormOutput {
            dst: Vec::new(),
            mean: Vec::new(),
            variance: Vec::new(),
            mask: None,
        };
        let (mut running_mean, mut running_variance) = (Vec::new(), Vec::new());
        host::run(&self.gpu, &plan.plan, &inputs, |tensor, bytes| {
            match tensor {
                Tensor::Dst => output.dst = host::elements(tensor, bytes)?,
                Tensor::Mean => output.mean = host::elements(tensor, bytes)?,
                Tensor::Variance => output.variance = host::elements(tensor, bytes)?,
                Tensor::Mask => output.mask = Some(host::words(tensor, bytes)?),
                Tensor::RunningMean => running_mean = host::elements(tensor, bytes)?,
                _ => running_variance = host::elements(tensor, bytes)?,
            }
            Ok(())
        })
        .await?;
        if let Some(running) = args.running {
            copy(running.mean, &running_mean);
            copy(running.variance, &running_variance);
        }
        Ok(output)
    }

    /// Plans batch norm in training on device buffers, with the optional tensors that `operands` names: the first of the
    /// three stages that [`BatchNormBackwardPlan`](crate::BatchNormBackwardPlan) describes.
    ///
    /// # Errors
    ///
    /// As those of [`forward`](Self::forward) that follow from shapes and types.
    pub fn plan_forward(
        &self,
        shape: &[usize],
        types: impl Into<DTypes>,
        operands: BatchNormForwardOperands,
    ) -> Result<BatchNormForwardPlan, Error> {
        let profile = self.gpu.profile();
        self.options.plan_forward(profile, shape, types, operands)
    }

    /// Plans what [`forward_broadcast`](Self::forward_broadcast) computes. A tensor whose axes do not fold to (outer,
    /// channels, inner) must fit one storage binding.
    ///
    /// # Errors
    ///
    /// As those of [`forward_broadcast`](Self::forward_broadcast) that follow from shapes and types.
    pub fn plan_forward_broadcast(
        &self,
        shape: &[usize],
        param_shape: &[usize],
        types: impl Into<DTypes>,
        operands: BatchNormForwardOperands,
    ) -> Result<BatchNormForwardPlan, Error> {
        let profile = self.gpu.profile();
        self.options
            .plan_forward_broadcast(profile, shape, param_shape, types, operands)
    }
}

/// Planning without a context, for a [`Profile`] of one's own.
impl BatchNormOptions {
    /// As [`GpuBatchNorm::plan_forward`].
    ///
    /// # Errors
    ///
    /// As those of [`GpuBatchNorm::plan_forward`].
    pub fn plan_forward(
        &self,
        profile: &Profile,
        shape: &[usize],
        types: impl Into<DTypes>,
        operands: BatchNormForwardOperands,
    ) -> Result<BatchNormForwardPlan, Error> {
        let channels = Channels::Axis(self.data_format);
        self.plan_forward_channels(profile, shape, channels, types.into(), operands)
    }

    /// As [`GpuBatchNorm::plan_forward_broadcast`].
    ///
    /// # Errors
    ///
    /// As those of [`GpuBatchNorm::plan_forward_broadcast`].
    pub fn plan_forward_broadcast(
        &self,
        profile: &Profile,
        shape: &[usize],
        param_shape: &[usize],
        types: impl Into<DTypes>,
        operands: BatchNormForwardOperands,
    ) -> Result<BatchNormForwardPlan, Error> {
        let channels = Channels::Broadcast(param_shape.to_vec());
        self.plan_forward_channels(profile, shape, channels, types.into(), operands)
    }

    fn plan_forward_channels(
        &self,
        profile: &Profile,
        shape: &[usize],
        channels: Channels,
        types: DTypes,
        operands: BatchNormForwardOperands,
    ) -> Result<BatchNormForwardPlan, Error> {
        let BatchNormForwardOperands {
            gamma,
            beta,
            residual,
            running,
            shards,
        } = operands;
        let residual = match residual {
            true => Residual::After,
            false => Residual::None,
        };
        let pass = Forward {
            running,
            shards,
            ..Forward::default()
        };
        let operation = Operation::new(Norm::Batch(channels), pass, shape, types)
            .with_epsilon(self.epsilon)
            .with_params(gamma, beta)
            .with_epilogue(Epilogue::new(residual, self.activation));
        Ok(BatchNormForwardPlan {
            plan: operation.planned(profile)?,
        })
    }
}

/// Elements read back are as many as were given: their number was checked.
fn copy<S: Element>(to: &mut [S], from: &[S]) {
    for (to, from) in to.iter_mut().zip(from) {
        *to = *from;
    }
}

operands! {
    /// What batch norm in training dispatches for one shape and its element types. What is bound can be recorded whole, or
    /// in two halves: [`Bound::record_statistics`](crate::Bound::record_statistics) and
    /// [`Bound::record_normalize`](crate::Bound::record_normalize).
    plan BatchNormForwardPlan;
    /// The caller's buffers of batch norm in training.
    ///
    /// Ranges must not overlap where one of them is written.
    buffers BatchNormForwardBuffers;
    sizes BatchNormForwardSizes;
    /// The layer's input.
    src: Src always;
    /// Scale of each channel; given exactly if the plan has it.
    gamma: Gamma maybe;
    /// Shift of each channel; given exactly if the plan has it.
    beta: Beta maybe;
    /// Added to the layer's output; given exactly if the plan has it.
    residual: Residual maybe;
    /// Read and written: running mean of each channel; given exactly if the plan has running statistics.
    running_mean: RunningMean maybe;
    /// Read and written: running variance of each channel; given exactly if the plan has running statistics.
    running_variance: RunningVariance maybe;
    /// Written: the layer's output.
    dst: Dst always;
    /// Written: mean of each channel.
    mean: Mean always;
    /// Written: biased variance of each channel.
    variance: Variance always;
    /// Written: what passed the activation, a bit for each element; given exactly with a residual and an activation.
    mask: Mask maybe;
    /// The statistics between the two halves: for each part of the batch, in order, and each channel four numbers of f32
    /// (f64 for f64 data), the fields of [`ChannelStatistics`](crate::ChannelStatistics). The first half writes those of
    /// this device's part to its place, the second one merges those of all parts in order. In between the caller copies
    /// the other devices' parts to theirs. Without it there are no halves. Errors call it `sums`. Not to be
    /// given where its size is 0.
    sums: Sums scratch;
}

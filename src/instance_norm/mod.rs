//! Instance normalization: group norm with a group for each channel.

use crate::group_norm::{
    GpuGroupNorm, GroupNormBackwardArgs, GroupNormBackwardPlan, GroupNormForwardArgs,
    GroupNormForwardOperands, GroupNormForwardPlan, GroupNormOptions, GroupNormOutput,
};
use crate::{
    Activation, BackwardOperands, DTypes, DataFormat, Element, Error, GpuContext, Grads,
    ParamGrads, ParamOf, Profile,
};

/// What a [`GpuInstanceNorm`] computes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct InstanceNormOptions {
    /// Added to the variance; finite, normal and above 0, as f32 too where the data are not f64.
    pub epsilon: f64,
    /// Where the channel axis stands. Axis 0 is that of the samples in both formats.
    pub data_format: DataFormat,
    /// Which parameter gradients are computed, as [`GroupNormOptions::param_grads`](crate::GroupNormOptions::param_grads).
    pub param_grads: ParamGrads,
    /// What follows the layer, in both directions.
    pub activation: Activation,
}

impl Default for InstanceNormOptions {
    /// The defaults of PyTorch and ONNX: epsilon 1e-5, and [`DataFormat::Ncx`]; both parameter gradients.
    fn default() -> Self {
        Self {
            epsilon: 1e-5,
            data_format: DataFormat::Ncx,
            param_grads: ParamGrads::Both,
            activation: Activation::None,
        }
    }
}

/// Instance normalization as PyTorch and ONNX define it, without running statistics: [`forward`](Self::forward) and the
/// gradient, [`backward`](Self::backward).
///
/// It is group norm with a group for each channel, and takes group norm's arguments: mean and variance are `[N, C]`. See
/// [`GpuGroupNorm`](crate::GpuGroupNorm) for formulas and limits.
///
/// ```
/// # pollster::block_on(async {
/// use wgpu_norm::{Error, GpuContext, GpuInstanceNorm, GroupNormBackwardArgs, InstanceNormOptions};
///
/// let gpu = match GpuContext::new().await {
///     Ok(gpu) => gpu,
///     Err(Error::NoAdapter { .. }) => return Ok(()), // a machine without any driver
///     Err(error) => return Err(error),
/// };
/// let layer = GpuInstanceNorm::new(&gpu, InstanceNormOptions::default())?;
/// let grads = layer
///     .backward(GroupNormBackwardArgs {
///         shape: &[2, 1, 2], // two samples of one channel with two elements
///         src: &[1.0_f32, 3.0, 10.0, 30.0],
///         diff_dst: &[1.0, 0.0, 0.0, 4.0],
///         mean: &[2.0, 20.0],
///         variance: &[1.0, 100.0],
///         gamma: None::<&[f32]>,
///         beta: None,
///         mask: None,
///     })
///     .await?;
/// assert_eq!(grads.diff_beta, Some(vec![5.0]));
/// # Ok(()) }).unwrap();
/// ```
#[derive(Clone, Debug)]
pub struct GpuInstanceNorm {
    gpu: GpuContext,
    options: InstanceNormOptions,
}

impl GpuInstanceNorm {
    /// An operator on a context.
    ///
    /// # Errors
    ///
    /// [`Error::Epsilon`] if epsilon is not finite, normal and above 0. Tighter bounds of f32 are checked when
    /// the element type is known.
    pub fn new(gpu: &GpuContext, options: InstanceNormOptions) -> Result<Self, Error> {
        let layer = Self {
            gpu: gpu.clone(),
            options,
        };
        layer.of_channels(&[])?;
        Ok(layer)
    }

    /// What it computes.
    pub const fn options(&self) -> &InstanceNormOptions {
        &self.options
    }

    /// Group norm with as many groups as a tensor has channels.
    fn of_channels(&self, shape: &[usize]) -> Result<GpuGroupNorm, Error> {
        GpuGroupNorm::of_channels(&self.gpu, self.options.of_channels(shape))
    }

    /// Computes the layer's output and its statistics: uploads, runs, reads back.
    ///
    /// ```
    /// # pollster::block_on(async {
    /// use wgpu_norm::{Error, GpuContext, GpuInstanceNorm, GroupNormForwardArgs, InstanceNormOptions};
    ///
    /// let gpu = match GpuContext::new().await {
    ///     Ok(gpu) => gpu,
    ///     Err(Error::NoAdapter { .. }) => return Ok(()), // a machine without any driver
    ///     Err(error) => return Err(error),
    /// };
    /// let output = GpuInstanceNorm::new(&gpu, InstanceNormOptions::default())?
    ///     .forward(GroupNormForwardArgs {
    ///         shape: &[1, 2, 2], // one sample of two channels with two elements
    ///         src: &[1.0_f32, 3.0, 10.0, 30.0],
    ///         gamma: None,
    ///         beta: Some(&[0.0, 5.0]),
    ///         residual: None,
    ///     })
    ///     .await?;
    /// assert_eq!((output.mean[1], output.variance[1]), (20.0, 100.0));
    /// assert!((output.dst[3] - 6.0).abs() < 1e-4);
    /// # Ok(()) }).unwrap();
    /// ```
    ///
    /// # Errors
    ///
    /// As those of [`GpuGroupNorm::forward`](crate::GpuGroupNorm::forward).
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
        let layer = self.of_channels(args.shape)?;
        layer.forward_with_statistics(args).await
    }

    /// Computes the gradients of tensors in host memory: uploads, runs, reads back.
    ///
    /// # Errors
    ///
    /// As those of [`GpuGroupNorm::backward`](crate::GpuGroupNorm::backward).
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
        let layer = self.of_channels(args.shape)?;
        layer.backward_with_statistics(args).await
    }

    /// Plans the layer's output on device buffers.
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

    /// Plans the gradient of device buffers.
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
impl InstanceNormOptions {
    /// Group norm with as many groups as a tensor has channels.
    fn of_channels(&self, shape: &[usize]) -> GroupNormOptions {
        let channels = match self.data_format {
            DataFormat::Ncx => shape.get(1),
            DataFormat::Nxc => shape.last(),
        };
        GroupNormOptions {
            // Too few axes are an error of their own.
            groups: channels.copied().unwrap_or(1),
            epsilon: self.epsilon,
            data_format: self.data_format,
            param_grads: self.param_grads,
            activation: self.activation,
        }
    }

    /// As [`GpuInstanceNorm::plan_forward`].
    ///
    /// # Errors
    ///
    /// As those of [`GpuInstanceNorm::plan_forward`].
    pub fn plan_forward(
        &self,
        profile: &Profile,
        shape: &[usize],
        types: impl Into<DTypes>,
        operands: GroupNormForwardOperands,
    ) -> Result<GroupNormForwardPlan, Error> {
        let options = self.of_channels(shape);
        options.plan_forward(profile, shape, types, operands)
    }

    /// As [`GpuInstanceNorm::plan_backward`].
    ///
    /// # Errors
    ///
    /// As those of [`GpuInstanceNorm::plan_backward`].
    pub fn plan_backward(
        &self,
        profile: &Profile,
        shape: &[usize],
        types: impl Into<DTypes>,
        operands: impl Into<BackwardOperands>,
    ) -> Result<GroupNormBackwardPlan, Error> {
        let options = self.of_channels(shape);
        options.plan_backward(profile, shape, types, operands)
    }
}

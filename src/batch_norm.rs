//! The gradient of batch normalization.

use crate::bound::{self, Bound, BufferRange};
use crate::geometry::{self, Layout};
use crate::kernels::Tensor;
use crate::options::check_epsilon;
use crate::plan::{self, BatchNormProblem, Plan, Requirement};
use crate::{
    Algorithm, DType, DataFormat, Element, Error, GpuContext, Grads, ParamGrads, ParamOf,
    Statistics, host,
};

/// What a [`GpuBatchNorm`] computes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct BatchNormOptions {
    /// Added to the variance; finite, normal and above 0, as f32 too where the data are not f64.
    pub epsilon: f64,
    /// Where the channel axis stands: the last by default. PyTorch's `(N, C, H, W)` is [`DataFormat::Ncx`].
    pub data_format: DataFormat,
    /// What mean and variance are to the gradient.
    pub statistics: Statistics,
    /// Which parameter gradients are computed. For none of them take [`ParamGrads::Frozen`]: with
    /// [`ParamGrads::Neither`] a given gamma is ignored.
    pub param_grads: ParamGrads,
}

impl BatchNormOptions {
    /// The defaults of oneDNN Graph's document: [`DataFormat::Nxc`], batch statistics, both parameter
    /// gradients. epsilon has no default there.
    pub const fn new(epsilon: f64) -> Self {
        Self {
            epsilon,
            data_format: DataFormat::Nxc,
            statistics: Statistics::Batch,
            param_grads: ParamGrads::Both,
        }
    }
}

/// Tensors of a batch-norm gradient, in host memory.
#[derive(Clone, Copy, Debug)]
pub struct BatchNormArgs<'a, T, P> {
    /// Shape of src, diff_dst and diff_src: rank 2 to 8 (from 1 on with broadcast parameters). With an axis of size 0
    /// there are no elements, and the parameter gradients are 0.
    pub shape: &'a [usize],
    /// The layer's input.
    pub src: &'a [T],
    /// Gradient of the loss with respect to the layer's output.
    pub diff_dst: &'a [T],
    /// Mean of each channel: `[C]`, or of the shape that
    /// [`backward_broadcast`](GpuBatchNorm::backward_broadcast) is given, as are the other parameters.
    pub mean: &'a [P],
    /// Biased variance of each channel. From a saved invstd = 1/√(variance + epsilon) it is
    /// 1/invstd² − epsilon.
    pub variance: &'a [P],
    /// Scale of each channel. Without it gamma is 1.
    pub gamma: Option<&'a [P]>,
}

/// The gradient of batch normalization in training, as oneDNN Graph's `BatchNormTrainingBackward`
/// defines it.
///
/// With m elements in a channel, r = 1/√(variance + epsilon), x̂ = (src − mean)·r and gamma = 1 where
/// it is not given (or ignored: [`ParamGrads::Neither`]):
///
/// * diff_beta = Σ diff_dst
/// * diff_gamma = Σ diff_dst · x̂
/// * diff_src = gamma · r · (diff_dst − diff_beta/m − x̂ · diff_gamma/m), or with
///   [`Statistics::Constant`] gamma · r · diff_dst
///
/// Sums are kept in f32 (f64 for f64 data) whatever the element types are. The results are the same to
/// the bit whenever the same input is given to the same adapter under the same [`Profile`](crate::Profile).
///
/// mean and variance are those given: the biased variance, never recomputed. NaN and infinities in a
/// channel stay in that channel.
///
/// ```
/// # pollster::block_on(async {
/// use wgpu_norm::{BatchNormArgs, BatchNormOptions, DataFormat, Error, GpuBatchNorm, GpuContext};
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
/// let layer = GpuBatchNorm::new(&gpu, options)?;
/// let grads = layer
///     .backward(BatchNormArgs {
///         shape: &[2, 1, 2], // two samples of one channel with two elements
///         src: &[1.0_f32, 2.0, 3.0, 4.0],
///         diff_dst: &[0.0, 1.0, 0.0, 1.0],
///         mean: &[2.5],
///         variance: &[1.25],
///         gamma: None,
///     })
///     .await?;
/// assert_eq!(grads.diff_beta, Some(vec![2.0]));
/// assert_eq!(grads.diff_src.len(), 4);
/// # Ok(()) }).unwrap();
/// ```
#[derive(Clone, Debug)]
pub struct GpuBatchNorm {
    gpu: GpuContext,
    options: BatchNormOptions,
}

impl GpuBatchNorm {
    /// An operator on a context.
    ///
    /// # Errors
    ///
    /// [`Error::Epsilon`] if epsilon is not finite, normal and above 0. Tighter bounds of f32 are checked when
    /// the element type is known.
    pub fn new(gpu: &GpuContext, options: BatchNormOptions) -> Result<Self, Error> {
        check_epsilon(options.epsilon, DType::F64)?;
        Ok(Self {
            gpu: gpu.clone(),
            options,
        })
    }

    /// What it computes.
    pub const fn options(&self) -> &BatchNormOptions {
        &self.options
    }

    /// Computes the gradients of tensors in host memory: uploads, runs, reads back.
    ///
    /// The first poll uploads, and compiles what no call has needed before, which takes up to seconds on a
    /// software driver; the wait for the GPU that follows does not block the executor; the last poll copies
    /// the results out.
    ///
    /// # Errors
    ///
    /// Lengths and ranks that do not fit the shape, sizes that overflow or exceed the adapter's
    /// limits, an element type that the adapter cannot run, variance + epsilon not above 0 (naming the
    /// channel), memory or device lost. Nothing is uploaded before all arguments are checked.
    pub async fn backward<T: Element, P: ParamOf<T>>(
        &self,
        args: BatchNormArgs<'_, T, P>,
    ) -> Result<Grads<T, P>, Error> {
        let has_gamma = args.gamma.is_some();
        let plan = self.plan(args.shape, T::DTYPE, P::DTYPE, has_gamma)?;
        self.run(&plan, args).await
    }

    /// Computes the gradients of a layer whose parameters have the rank of src, as DirectML has them:
    /// they vary along the axes where `param_shape` has src's size, and those where it has 1 are
    /// reduced. Any rank from 1 to 8, any set of axes. [`BatchNormOptions::data_format`] does not
    /// count.
    ///
    /// ```
    /// # pollster::block_on(async {
    /// use wgpu_norm::{BatchNormArgs, BatchNormOptions, Error, GpuBatchNorm, GpuContext};
    ///
    /// let gpu = match GpuContext::new().await {
    ///     Ok(gpu) => gpu,
    ///     Err(Error::NoAdapter { .. }) => return Ok(()), // a machine without any driver
    ///     Err(error) => return Err(error),
    /// };
    /// let args = BatchNormArgs {
    ///     shape: &[2, 3],
    ///     src: &[1.0_f32, 2.0, 3.0, 5.0, 6.0, 7.0],
    ///     diff_dst: &[0.0, 1.0, 0.0, 1.0, 0.0, 1.0],
    ///     mean: &[2.0, 6.0],
    ///     variance: &[2.0 / 3.0, 2.0 / 3.0],
    ///     gamma: None,
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
        args: BatchNormArgs<'_, T, P>,
    ) -> Result<Grads<T, P>, Error> {
        let has_gamma = args.gamma.is_some();
        let plan = self.plan_broadcast(args.shape, param_shape, T::DTYPE, P::DTYPE, has_gamma)?;
        self.run(&plan, args).await
    }

    async fn run<T: Element, P: ParamOf<T>>(
        &self,
        plan: &BatchNormPlan,
        args: BatchNormArgs<'_, T, P>,
    ) -> Result<Grads<T, P>, Error> {
        let inputs = host::Inputs {
            src: args.src,
            diff_dst: args.diff_dst,
            group: "channel",
            statistics: &[args.mean, args.variance],
            gamma: args.gamma,
        };
        host::backward(&self.gpu, &plan.plan, self.options.epsilon, inputs).await
    }

    /// Plans the gradient of device buffers: see [`BatchNormPlan`].
    ///
    /// # Errors
    ///
    /// As those of [`backward`](Self::backward) that follow from shapes and types.
    pub fn plan(
        &self,
        shape: &[usize],
        data: DType,
        params: DType,
        has_gamma: bool,
    ) -> Result<BatchNormPlan, Error> {
        let layout = geometry::batch_norm_grid(shape, self.options.data_format)?.into();
        self.plan_layout(layout, data, params, has_gamma)
    }

    /// Plans what [`backward_broadcast`](Self::backward_broadcast) computes. A tensor whose axes do not
    /// fold to (outer, channels, inner) must fit one storage binding.
    ///
    /// # Errors
    ///
    /// As those of [`backward_broadcast`](Self::backward_broadcast) that follow from shapes and types.
    pub fn plan_broadcast(
        &self,
        shape: &[usize],
        param_shape: &[usize],
        data: DType,
        params: DType,
        has_gamma: bool,
    ) -> Result<BatchNormPlan, Error> {
        let layout = geometry::broadcast_layout(shape, param_shape)?;
        self.plan_layout(layout, data, params, has_gamma)
    }

    fn plan_layout(
        &self,
        layout: Layout,
        data: DType,
        params: DType,
        has_gamma: bool,
    ) -> Result<BatchNormPlan, Error> {
        self.gpu.check_fit()?;
        let profile = self.gpu.profile();
        profile.check_dtypes(data, params)?;
        check_epsilon(self.options.epsilon, data)?;
        let problem = BatchNormProblem {
            layout,
            data,
            params,
            has_gamma,
            epsilon: self.options.epsilon,
            statistics: self.options.statistics,
            param_grads: self.options.param_grads,
        };
        Ok(BatchNormPlan {
            plan: plan::batch_norm(profile, &problem)?,
        })
    }
}

/// What to dispatch for one shape and its element types: the first of three stages.
///
/// 1. [`GpuBatchNorm::plan`], once for a shape: pure, no GPU object is made.
/// 2. [`BatchNormPlan::bind`], once for a set of buffers: checks everything, makes bind groups.
/// 3. [`Bound::record`], every step: writes commands into the caller's encoder, nothing else.
///
/// variance + epsilon is not checked here, for nothing is read back: a channel where it is not above 0
/// becomes NaN or infinite.
#[derive(Clone, Debug, PartialEq)]
#[must_use]
pub struct BatchNormPlan {
    plan: Plan,
}

/// The caller's buffers of a batch-norm gradient.
///
/// Ranges must not overlap where one of them is written, with one exception: diff_src may be exactly
/// diff_dst. Disjoint ranges of one buffer are fine. [`BatchNormPlan::sizes`] says how large each must be.
#[derive(Clone, Copy, Debug)]
pub struct BatchNormBuffers<'a> {
    /// The layer's input.
    pub src: BufferRange<'a>,
    /// Gradient of the loss with respect to the layer's output.
    pub diff_dst: BufferRange<'a>,
    /// Mean of each channel.
    pub mean: BufferRange<'a>,
    /// Biased variance of each channel.
    pub variance: BufferRange<'a>,
    /// Scale of each channel; given exactly if the plan was made with gamma.
    pub gamma: Option<BufferRange<'a>>,
    /// Written: gradient with respect to src.
    pub diff_src: BufferRange<'a>,
    /// Written: gradient with respect to gamma; given exactly with [`ParamGrads::Both`].
    pub diff_gamma: Option<BufferRange<'a>>,
    /// Written: gradient with respect to beta; given exactly with [`ParamGrads::Both`].
    pub diff_beta: Option<BufferRange<'a>>,
    /// The sums between the two halves, of [`BatchNormPlan::sums_size`] bytes: f32 (f64 for f64 data)
    /// `[Σ diff_dst; C]`, `[Σ diff_dst · x̂; C]`, then the number of elements in a channel. Adding up
    /// such buffers of several devices, number included, synchronizes a batch across them. The sums are
    /// zeros where no gradient depends on them. Without it there are no halves. Not to be given where its size is 0.
    pub sums: Option<BufferRange<'a>>,
    /// Scratch memory of [`BatchNormPlan::workspace_size`] bytes, which any other work may use
    /// before and after. Without it the bound plan makes its own.
    pub workspace: Option<BufferRange<'a>>,
}

/// Bytes of the buffers of a batch-norm gradient, each for the range of the same name in
/// [`BatchNormBuffers`]; none for what the plan does not take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
#[expect(missing_docs, reason = "those of BatchNormBuffers")]
pub struct BatchNormSizes {
    pub src: u64,
    pub diff_dst: u64,
    pub mean: u64,
    pub variance: u64,
    pub gamma: Option<u64>,
    pub diff_src: u64,
    pub diff_gamma: Option<u64>,
    pub diff_beta: Option<u64>,
    pub sums: u64,
    pub workspace: u64,
}

impl BatchNormPlan {
    /// Bytes that each buffer range must have: the tensor's own, up to the next multiple of 4. Where an odd
    /// number of f16 or bf16 elements does not fill the last 4, the rest of them is written as 0.
    pub fn sizes(&self) -> BatchNormSizes {
        self.sizes_by(Requirement::bytes)
    }

    /// Bytes that each buffer range had best have: those of the elements up to the next multiple of four.
    /// Kernels load four elements at a time to the end then; without the padding they do so more slowly. What
    /// is beyond [`sizes`](Self::sizes) is not changed and does not count.
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
    /// let plan = layer.plan(&[3, 7], DType::Bf16, DType::F32, false)?;
    /// assert_eq!(plan.sizes().src, 44); // 21 elements of 2 bytes, in whole words
    /// assert_eq!(plan.padded_sizes().src, 48); // 24 elements
    /// assert_eq!(plan.padded_sizes().mean, 32); // 8 elements of 4 bytes
    /// assert_eq!(plan.padded_sizes().gamma, None);
    /// # Ok(()) }).unwrap();
    /// ```
    pub fn padded_sizes(&self) -> BatchNormSizes {
        self.sizes_by(Requirement::padded_bytes)
    }

    fn sizes_by(&self, bytes: fn(&Requirement) -> u64) -> BatchNormSizes {
        let given = |tensor| self.plan.requirement(tensor).map(bytes);
        let always = |tensor| given(tensor).unwrap_or(0);
        BatchNormSizes {
            src: always(Tensor::Src),
            diff_dst: always(Tensor::DiffDst),
            mean: always(Tensor::Mean),
            variance: always(Tensor::Variance),
            gamma: given(Tensor::Gamma),
            diff_src: always(Tensor::DiffSrc),
            diff_gamma: given(Tensor::DiffGamma),
            diff_beta: given(Tensor::DiffBeta),
            sums: self.sums_size(),
            workspace: self.workspace_size(),
        }
    }

    /// Bytes of scratch memory.
    pub fn workspace_size(&self) -> u64 {
        self.plan.workspace_bytes
    }

    /// Bytes of the buffer `sums`; 0 where there are so many channels that a plan has no room for halves.
    pub fn sums_size(&self) -> u64 {
        let sums = self.plan.requirement(Tensor::Sums);
        sums.map_or(0, |sums| sums.bytes())
    }

    /// What is bound and dispatched.
    pub(crate) fn into_plan(self) -> Plan {
        self.plan
    }

    /// The algorithm of one recording of the whole operator.
    pub fn algorithm(&self) -> Algorithm {
        self.plan.algorithm
    }

    /// How many dispatches one recording of the whole operator makes.
    pub fn dispatches(&self) -> usize {
        self.plan.dispatch_count()
    }

    /// Names of the kernels of one recording, in order.
    pub fn kernels(&self) -> Vec<&'static str> {
        self.plan.kernel_names()
    }

    /// Binds buffers: checks them, compiles what is missing, makes bind groups and uniforms.
    ///
    /// # Errors
    ///
    /// A buffer too small, misaligned, without the usage STORAGE, of another device or destroyed,
    /// overlapping another, missing, or given without use; memory or device lost. In a browser what the device
    /// itself finds wrong (its memory, another device's buffer) comes later, to the device's handler of
    /// uncaptured errors.
    pub fn bind(&self, gpu: &GpuContext, buffers: &BatchNormBuffers<'_>) -> Result<Bound, Error> {
        bound::bind(
            gpu,
            &self.plan,
            &[
                (Tensor::Src, Some(buffers.src)),
                (Tensor::DiffDst, Some(buffers.diff_dst)),
                (Tensor::Mean, Some(buffers.mean)),
                (Tensor::Variance, Some(buffers.variance)),
                (Tensor::Gamma, buffers.gamma),
                (Tensor::DiffSrc, Some(buffers.diff_src)),
                (Tensor::DiffGamma, buffers.diff_gamma),
                (Tensor::DiffBeta, buffers.diff_beta),
                (Tensor::Sums, buffers.sums),
                (Tensor::Workspace, buffers.workspace),
            ],
        )
    }
}

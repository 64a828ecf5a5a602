//! Batch normalization, the primitive, whose flags fuse a ReLU and an addition.

use crate::operators::*;

/// The operation that is fused after the normalization.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum FuseNorm {
    /// Nothing.
    #[default]
    None,
    /// The flag `fuse_norm_relu`: dst = max(y, 0).
    Relu,
    /// The flag `fuse_norm_add_relu`: dst = max(y + src_1, 0).
    AddRelu,
}

impl FuseNorm {
    fn epilogue(self) -> Epilogue {
        match self {
            Self::None => Epilogue::default(),
            Self::Relu => Epilogue::new(Residual::None, Activation::Relu),
            Self::AddRelu => Epilogue::new(Residual::After, Activation::Relu),
        }
    }
}

operator! {
    /// Forward propagation of oneDNN's primitive [batch
    /// normalization](https://oneapi-src.github.io/oneDNN/dev_guide_batch_normalization.html).
    ///
    /// y = scale · (src − mean) / √(variance + epsilon) + shift, where mean and variance are those of a channel, or are
    /// given; dst = y, unless [`FuseNorm`] says otherwise.
    ///
    /// | argument | shape | in plans |
    /// |---|---|---|
    /// | `src` | `(N, C, …)` or `(N, …, C)` | `src` |
    /// | `src_1`, with fuse_norm_add_relu | src's | `residual` |
    /// | `mean`, `variance`: outputs, or with use_global_stats inputs | `(C)` | `mean`, `variance` |
    /// | `scale`, optional | `(C)` | `gamma` |
    /// | `shift`, optional | `(C)` | `beta` |
    /// | `dst` | src's | `dst` |
    /// | `workspace`, an output with fuse_norm_add_relu | a word for 32 elements | `mask` |
    ///
    /// # Differences
    ///
    /// * With fuse_norm_relu there is no workspace: the gradient recomputes which elements passed, and needs shift for
    ///   it.
    /// * mean, variance, scale and shift are f32 in the document. The other types that parameters may have work too.
    ///   There are no integer types here.
    /// * epsilon must be above 0, and memory is dense: `ncsp` is [`DataFormat::Ncx`], `nspc` [`DataFormat::Nxc`].
    ///
    /// ```
    /// # pollster::block_on(async {
    /// # use wgpu_norm::{Error, GpuContext};
    /// # if let Err(Error::NoAdapter { .. }) = GpuContext::new().await { return Ok(()) }
    /// let gpu = GpuContext::new().await?;
    /// use wgpu_norm::operators::{Inputs, onednn::{BatchNormalization, FuseNorm}};
    ///
    /// let op = BatchNormalization {
    ///     fuse_norm: FuseNorm::AddRelu,
    ///     ..BatchNormalization::new(1e-5)
    /// };
    /// let inputs = Inputs::new()
    ///     .with("src", &[2, 1, 2], &[1.0_f32, 3.0, 1.0, 3.0])
    ///     .with("src_1", &[2, 1, 2], &[0.0_f32, 0.0, 3.0, -3.0]);
    /// let outputs = op.run(&gpu, &inputs).await?;
    /// let dst: &[f32] = outputs.get("dst")?;
    /// assert!((dst[1] - 1.0).abs() < 1e-4 && (dst[2] - 2.0).abs() < 1e-4);
    /// assert_eq!((dst[0], dst[3]), (0.0, 0.0));
    /// assert_eq!(outputs.mask("workspace")?, [0b0110]); // the second and the third passed
    /// # Ok::<(), Error>(()) }).unwrap();
    /// ```
    BatchNormalization {
        /// `epsilon`: added to the variance; finite and above 0.
        epsilon: f32,
    } {
        /// The flag `use_global_stats`: mean and variance are inputs.
        use_global_stats: bool = false,
        /// The flags `fuse_norm_relu` and `fuse_norm_add_relu`.
        fuse_norm: FuseNorm = FuseNorm::None,
        /// Where the channels are in memory.
        data_format: DataFormat = DataFormat::Ncx,
    }
    /// The primitive without flags, channels first.
    new
    inputs(op) {
        src: Src,
        src_1: Residual.only_if("fuse_norm_add_relu", op.fuse_norm == FuseNorm::AddRelu),
        mean: Mean.only_if("use_global_stats", op.use_global_stats),
        variance: Variance.only_if("use_global_stats", op.use_global_stats),
        scale: Gamma.optional(),
        shift: Beta.optional(),
    }
    outputs(_) { dst: Dst, mean: Mean, variance: Variance, workspace: Mask }
}

impl Definition for BatchNormalization {
    fn define(&self, given: &Given<'_>) -> Result<Operation, Error> {
        let (norm, pass) = (
            Norm::batch(self.data_format),
            by_given(self.use_global_stats),
        );
        let operation = given.operation(norm, pass, self.epsilon)?;
        Ok(operation.with_epilogue(self.fuse_norm.epilogue()))
    }
}

operator! {
    /// Backward propagation of oneDNN's primitive [batch
    /// normalization](https://oneapi-src.github.io/oneDNN/dev_guide_batch_normalization.html).
    ///
    /// The gradient first passes the operation of [`FuseNorm`]: diff_dst becomes 0 where the forward pass's sum was at
    /// most 0, and with fuse_norm_add_relu the result is diff_src_1. The other gradients are then those of
    /// [`BatchNormTrainingBackward`](super::BatchNormTrainingBackward), or with use_global_stats those of
    /// [`Through::Constant`].
    ///
    /// | argument | shape | in plans |
    /// |---|---|---|
    /// | `src`, `diff_dst` | `(N, C, …)` or `(N, …, C)` | `src`, `diff_dst` |
    /// | `mean`, `variance` | `(C)` | `mean`, `variance` |
    /// | `scale`, optional | `(C)` | `gamma` |
    /// | `shift`, optional, with fuse_norm_relu | `(C)` | `beta` |
    /// | `workspace`, with fuse_norm_add_relu | a word for 32 elements | `mask` |
    /// | `diff_src`, `diff_src_1` | src's | `diff_src`, `diff_residual` |
    /// | `diff_scale`, `diff_shift`, not for backward_data | `(C)` | `diff_gamma`, `diff_beta` |
    ///
    /// # Differences
    ///
    /// * With fuse_norm_relu there is no workspace, and shift is an input, from which the elements that passed are
    ///   recomputed.
    /// * diff_scale and diff_shift are computed even without use_scale and use_shift.
    /// * Element types, epsilon and memory are as for [`BatchNormalization`].
    ///
    /// ```
    /// # pollster::block_on(async {
    /// # use wgpu_norm::{Error, GpuContext};
    /// # if let Err(Error::NoAdapter { .. }) = GpuContext::new().await { return Ok(()) }
    /// let gpu = GpuContext::new().await?;
    /// use wgpu_norm::operators::{Inputs, onednn::{BatchNormalizationBackward, FuseNorm}};
    ///
    /// let op = BatchNormalizationBackward {
    ///     fuse_norm: FuseNorm::AddRelu,
    ///     ..BatchNormalizationBackward::new(1e-5)
    /// };
    /// let inputs = Inputs::new()
    ///     .with("src", &[2, 1, 2], &[1.0_f32, 3.0, 1.0, 3.0])
    ///     .with("mean", &[1], &[2.0_f32])
    ///     .with("variance", &[1], &[1.0_f32])
    ///     .with("diff_dst", &[2, 1, 2], &[1.0_f32, 2.0, 4.0, 8.0])
    ///     .with_mask("workspace", &[2, 1, 2], &[0b0110]);
    /// let outputs = op.run(&gpu, &inputs).await?;
    /// assert_eq!(outputs.get::<f32>("diff_src_1")?, [0.0, 2.0, 4.0, 0.0]);
    /// assert_eq!(outputs.get::<f32>("diff_shift")?, [6.0]);
    /// # Ok::<(), Error>(()) }).unwrap();
    /// ```
    BatchNormalizationBackward {
        /// `epsilon`: added to the variance; finite and above 0.
        epsilon: f32,
    } {
        /// The flag `use_global_stats`: mean and variance are constants.
        use_global_stats: bool = false,
        /// The flags `fuse_norm_relu` and `fuse_norm_add_relu`.
        fuse_norm: FuseNorm = FuseNorm::None,
        /// Whether this is `backward_data`, which has no gradients of scale and shift, instead of `backward`.
        data_alone: bool = false,
        /// Where the channels are in memory.
        data_format: DataFormat = DataFormat::Ncx,
    }
    /// The primitive `backward`, without flags, channels first.
    new
    inputs(op) {
        src: Src, mean: Mean, variance: Variance, diff_dst: DiffDst,
        scale: Gamma.optional(),
        shift: Beta.optional_if("fuse_norm_relu", op.fuse_norm == FuseNorm::Relu),
        workspace: Mask.only_if("fuse_norm_add_relu", op.fuse_norm == FuseNorm::AddRelu),
    }
    outputs(_) { diff_src: DiffSrc, diff_src_1: DiffResidual, diff_scale: DiffGamma, diff_shift: DiffBeta }
}

impl Definition for BatchNormalizationBackward {
    fn define(&self, given: &Given<'_>) -> Result<Operation, Error> {
        let pass = Backward::default()
            .with_param_grads(!self.data_alone)
            .with_through(through(self.use_global_stats));
        let operation = given.operation(Norm::batch(self.data_format), pass, self.epsilon)?;
        Ok(operation.with_epilogue(self.fuse_norm.epilogue()))
    }
}

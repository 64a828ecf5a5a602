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
        let activation = match self {
            Self::None => Activation::None,
            Self::Relu | Self::AddRelu => Activation::Relu,
        };
        Epilogue::new(residual(self == Self::AddRelu), activation)
    }
}

inputs! {
    /// The inputs of [`BatchNormalization`], in host memory.
    BatchNormalizationInputs<T, P> {
        /// Shape of src: rank 2 to 8.
        shape: &'a [usize],
    }
    src: &'a [T] = Src,
    /// `src_1`, of src's shape: given exactly when fuse_norm_add_relu is set.
    src_1: Option<&'a [T]> = Residual,
    /// `mean` of each channel: given exactly when use_global_stats is set.
    mean: Option<&'a [P]> = Mean,
    /// `variance` of each channel: given exactly when use_global_stats is set.
    variance: Option<&'a [P]> = Variance,
    /// `scale` of each channel, with the flag use_scale. If absent, it is 1.
    scale: Option<&'a [P]> = Gamma,
    /// `shift` of each channel, with the flag use_shift. If absent, it is 0.
    shift: Option<&'a [P]> = Beta,
}

outputs! {
    /// The outputs of [`BatchNormalization`], in host memory.
    BatchNormalizationOutputs<T, P> from Results<T, P, P> as [T, P]
    dst: Vec<T> = data(Dst),
    /// `mean` of each channel; none with use_global_stats, where it is an input.
    mean: Option<Vec<P>> = statistic(Mean),
    /// `variance` of each channel, the biased one; none with use_global_stats.
    variance: Option<Vec<P>> = statistic(Variance),
    /// `workspace`, with fuse_norm_add_relu and without use_global_stats: a bit for each element, set if it passed the
    /// ReLU.
    workspace: Option<Vec<u32>> = mask(),
}

attributes! {
    /// Forward propagation of oneDNN's primitive [batch
    /// normalization](https://oneapi-src.github.io/oneDNN/dev_guide_batch_normalization.html).
    ///
    /// y = scale · (src − mean) / √(variance + epsilon) + shift, where mean and variance are those of a channel, or are
    /// given; dst = y, unless [`FuseNorm`] says otherwise.
    ///
    /// | argument | shape | in plans and errors |
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
    /// * With fuse_norm_relu there is no workspace: the gradient recomputes which elements passed, and needs shift for it.
    /// * mean, variance, scale and shift are f32 in the document. The other types that parameters may have work too. There
    ///   are no integer types here.
    /// * epsilon must be above 0, and memory is dense: `ncsp` is [`DataFormat::Ncx`], `nspc` [`DataFormat::Nxc`].
    ///
    /// ```
    /// # pollster::block_on(async {
    /// # use wgpu_norm::{Error, GpuContext};
    /// # if let Err(Error::NoAdapter { .. }) = GpuContext::new().await { return Ok(()) }
    /// let gpu = GpuContext::new().await?;
    /// use wgpu_norm::operators::onednn::{BatchNormalization, BatchNormalizationInputs, FuseNorm};
    ///
    /// let op = BatchNormalization {
    ///     fuse_norm: FuseNorm::AddRelu,
    ///     ..BatchNormalization::new(1e-5)
    /// };
    /// let inputs = BatchNormalizationInputs::<f32, f32> {
    ///     shape: &[2, 1, 2],
    ///     src: &[1.0, 3.0, 1.0, 3.0],
    ///     src_1: Some(&[0.0, 0.0, 3.0, -3.0]),
    ///     mean: None,
    ///     variance: None,
    ///     scale: None,
    ///     shift: None,
    /// };
    /// let outputs = op.forward(&gpu, inputs).await?;
    /// assert!((outputs.dst[1] - 1.0).abs() < 1e-4 && (outputs.dst[2] - 2.0).abs() < 1e-4);
    /// assert_eq!((outputs.dst[0], outputs.dst[3]), (0.0, 0.0));
    /// assert_eq!(outputs.workspace, Some(vec![0b0110])); // the second and the third passed
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
}

impl BatchNormalization {
    /// The primitive as an operation.
    ///
    /// # Errors
    ///
    /// [`Error::Epsilon`], and errors in the shape.
    pub fn operation<T: Element, P: ParamOf<T>>(
        &self,
        shape: &[usize],
        use_scale: bool,
        use_shift: bool,
    ) -> Result<Operation, Error> {
        let (norm, pass) = (
            batch_norm(self.data_format),
            by_given(self.use_global_stats),
        );
        let params = (use_scale, use_shift);
        let plain = operation::<T, P, P>(norm, pass, shape, self.epsilon, params)?;
        Ok(plain.with_epilogue(self.fuse_norm.epilogue()))
    }

    /// Computes the outputs from tensors in host memory.
    ///
    /// # Errors
    ///
    /// [`Error::Argument`] unless statistics are given exactly when use_global_stats is set, and src_1 exactly when
    /// fuse_norm_add_relu is set; and those of [`Operation::run_into`].
    pub async fn forward<T: Element, P: ParamOf<T>>(
        &self,
        gpu: &GpuContext,
        inputs: BatchNormalizationInputs<'_, T, P>,
    ) -> Result<BatchNormalizationOutputs<T, P>, Error> {
        let (global, adds) = (self.use_global_stats, self.fuse_norm == FuseNorm::AddRelu);
        exactly("mean", inputs.mean, "use_global_stats", global)?;
        exactly("variance", inputs.variance, "use_global_stats", global)?;
        exactly("src_1", inputs.src_1, "fuse_norm_add_relu", adds)?;
        let (use_scale, use_shift) = (inputs.scale.is_some(), inputs.shift.is_some());
        let operation = self.operation::<T, P>(inputs.shape, use_scale, use_shift)?;
        Ok(inputs.call(operation).run::<T, P, P>(gpu).await?.into())
    }
}

inputs! {
    /// The inputs of [`BatchNormalizationBackward`], in host memory.
    BatchNormalizationBackwardInputs<T, P> {
        /// Shape of src and diff_dst: rank 2 to 8.
        shape: &'a [usize],
    }
    src: &'a [T] = Src,
    mean: &'a [P] = Mean,
    variance: &'a [P] = Variance,
    diff_dst: &'a [T] = DiffDst,
    /// `scale` of each channel, with the flag use_scale. If absent, it is 1.
    scale: Option<&'a [P]> = Gamma,
    /// The forward pass's `shift` of each channel, if it had one; only with fuse_norm_relu.
    shift: Option<&'a [P]> = Beta,
    /// The forward pass's `workspace`: given exactly when fuse_norm_add_relu is set.
    workspace: Option<&'a [u32]> = Mask,
}

outputs! {
    /// The outputs of [`BatchNormalizationBackward`], in host memory.
    BatchNormalizationBackwardOutputs<T, P> from Results<T, P, P> as [T, P]
    diff_src: Vec<T> = data(DiffSrc),
    /// `diff_src_1`: gradient with respect to src_1, with fuse_norm_add_relu.
    diff_src_1: Option<Vec<T>> = data(DiffResidual),
    /// `diff_scale`; none for backward_data.
    diff_scale: Option<Vec<P>> = param(DiffGamma),
    /// `diff_shift`; none for backward_data.
    diff_shift: Option<Vec<P>> = param(DiffBeta),
}

attributes! {
    /// Backward propagation of oneDNN's primitive [batch
    /// normalization](https://oneapi-src.github.io/oneDNN/dev_guide_batch_normalization.html).
    ///
    /// The gradient first passes the operation of [`FuseNorm`]: diff_dst becomes 0 where the forward pass's sum was at most
    /// 0, and with fuse_norm_add_relu the result is diff_src_1. The other gradients are then those of
    /// [`BatchNormTrainingBackward`](super::BatchNormTrainingBackward), or with use_global_stats those of
    /// [`Through::Constant`].
    ///
    /// | argument | shape | in plans and errors |
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
    /// use wgpu_norm::operators::onednn::{
    ///     BatchNormalizationBackward, BatchNormalizationBackwardInputs, FuseNorm,
    /// };
    ///
    /// let op = BatchNormalizationBackward {
    ///     fuse_norm: FuseNorm::AddRelu,
    ///     ..BatchNormalizationBackward::new(1e-5)
    /// };
    /// let inputs = BatchNormalizationBackwardInputs {
    ///     shape: &[2, 1, 2],
    ///     src: &[1.0_f32, 3.0, 1.0, 3.0],
    ///     mean: &[2.0],
    ///     variance: &[1.0],
    ///     diff_dst: &[1.0, 2.0, 4.0, 8.0],
    ///     scale: None,
    ///     shift: None,
    ///     workspace: Some(&[0b0110]),
    /// };
    /// let outputs = op.backward(&gpu, inputs).await?;
    /// assert_eq!(outputs.diff_src_1, Some(vec![0.0, 2.0, 4.0, 0.0]));
    /// assert_eq!(outputs.diff_shift, Some(vec![6.0]));
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
}

impl BatchNormalizationBackward {
    /// The primitive as an operation; `has_shift` says whether the forward pass had a shift, which matters only with
    /// fuse_norm_relu.
    ///
    /// # Errors
    ///
    /// [`Error::Epsilon`], and errors in the shape.
    pub fn operation<T: Element, P: ParamOf<T>>(
        &self,
        shape: &[usize],
        use_scale: bool,
        has_shift: bool,
    ) -> Result<Operation, Error> {
        let pass = backward(!self.data_alone).with_through(through(self.use_global_stats));
        let (norm, params) = (batch_norm(self.data_format), (use_scale, has_shift));
        let plain = operation::<T, P, P>(norm, pass, shape, self.epsilon, params)?;
        Ok(plain.with_epilogue(self.fuse_norm.epilogue()))
    }

    /// Computes the outputs from tensors in host memory.
    ///
    /// # Errors
    ///
    /// [`Error::Argument`] for a shift or a workspace that the flags do not allow, and those of
    /// [`Operation::run_into`].
    pub async fn backward<T: Element, P: ParamOf<T>>(
        &self,
        gpu: &GpuContext,
        inputs: BatchNormalizationBackwardInputs<'_, T, P>,
    ) -> Result<BatchNormalizationBackwardOutputs<T, P>, Error> {
        let adds = self.fuse_norm == FuseNorm::AddRelu;
        exactly("workspace", inputs.workspace, "fuse_norm_add_relu", adds)?;
        let (use_scale, has_shift) = (inputs.scale.is_some(), inputs.shift.is_some());
        let operation = self.operation::<T, P>(inputs.shape, use_scale, has_shift)?;
        Ok(inputs.call(operation).run::<T, P, P>(gpu).await?.into())
    }
}

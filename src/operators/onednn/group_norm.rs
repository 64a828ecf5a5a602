//! Group normalization, a primitive.

use crate::operators::*;

operator! {
    /// Forward propagation of oneDNN's primitive [group
    /// normalization](https://oneapi-src.github.io/oneDNN/dev_guide_group_normalization.html).
    ///
    /// dst = scale · (src − mean) / √(variance + epsilon) + shift, where mean and variance are those of C/G adjacent
    /// channels of a sample, or are given. forward_training and forward_inference compute the same dst.
    ///
    /// | argument | shape | in plans |
    /// |---|---|---|
    /// | `src` | `(N, C, …)` or `(N, …, C)` | `src` |
    /// | `mean`, `variance`: outputs, or with use_global_stats inputs | `(N, G)` | `mean`, `variance` |
    /// | `scale`, optional | `(C)` | `gamma` |
    /// | `shift`, optional | `(C)` | `beta` |
    /// | `dst` | src's | `dst` |
    ///
    /// # Differences
    ///
    /// * mean and variance are computed in forward_inference too.
    /// * mean, variance, scale and shift are f32 in the document. The other types that parameters may have work too.
    ///   There are no integer types here.
    /// * epsilon must be above 0, and memory is dense: `ncsp` is [`DataFormat::Ncx`], `nspc` [`DataFormat::Nxc`].
    ///
    /// ```
    /// # pollster::block_on(async {
    /// # use wgpu_norm::{Error, GpuContext};
    /// # if let Err(Error::NoAdapter { .. }) = GpuContext::new().await { return Ok(()) }
    /// let gpu = GpuContext::new().await?;
    /// use wgpu_norm::operators::{Inputs, onednn::GroupNormalization};
    ///
    /// let op = GroupNormalization::new(2, 1e-5);
    /// let inputs = Inputs::new()
    ///     .with("src", &[1, 4, 1], &[1.0_f32, 3.0, 10.0, 30.0])
    ///     .with("scale", &[4], &[1.0_f32, 1.0, 1.0, 2.0])
    ///     .with("shift", &[4], &[0.0_f32, 0.0, 0.0, 5.0]);
    /// let outputs = op.run(&gpu, &inputs).await?;
    /// assert_eq!(outputs.get::<f32>("mean")?, [2.0, 20.0]);
    /// assert!((outputs.get::<f32>("dst")?[3] - 7.0).abs() < 1e-4);
    /// # Ok::<(), Error>(()) }).unwrap();
    /// ```
    GroupNormalization {
        /// `groups`: the number of groups, which must divide the channels.
        groups: usize,
        /// `epsilon`: added to the variance; finite and above 0.
        epsilon: f32,
    } {
        /// The flag `use_global_stats`: mean and variance are inputs.
        use_global_stats: bool = false,
        /// Where the channels are in memory.
        data_format: DataFormat = DataFormat::Ncx,
    }
    /// The primitive without flags, channels first.
    new
    inputs(op) {
        src: Src,
        mean: Mean.only_if("use_global_stats", op.use_global_stats),
        variance: Variance.only_if("use_global_stats", op.use_global_stats),
        scale: Gamma.optional(),
        shift: Beta.optional(),
    }
    outputs(_) { dst: Dst, mean: Mean, variance: Variance }
}

impl Definition for GroupNormalization {
    fn define(&self, given: &Given<'_>) -> Result<Operation, Error> {
        let norm = Norm::group(self.groups, self.data_format);
        given.operation(norm, by_given(self.use_global_stats), self.epsilon)
    }
}

operator! {
    /// Backward propagation of oneDNN's primitive [group
    /// normalization](https://oneapi-src.github.io/oneDNN/dev_guide_group_normalization.html).
    ///
    /// | argument | shape | in plans |
    /// |---|---|---|
    /// | `src` | `(N, C, …)` or `(N, …, C)` | `src` |
    /// | `mean`, `variance` | `(N, G)` | `mean`, `variance` |
    /// | `diff_dst` | src's | `diff_dst` |
    /// | `scale`, optional | `(C)` | `gamma` |
    /// | `diff_src` | src's | `diff_src` |
    /// | `diff_scale`, `diff_shift`: not for backward_data | `(C)` | `diff_gamma`, `diff_beta` |
    ///
    /// # Differences
    ///
    /// * mean and variance are those of src: there is no gradient with use_global_stats.
    /// * backward computes both diff_scale and diff_shift, even without the flags use_scale and use_shift.
    /// * Element types, epsilon and memory are as for [`GroupNormalization`].
    ///
    /// ```
    /// # pollster::block_on(async {
    /// # use wgpu_norm::{Error, GpuContext};
    /// # if let Err(Error::NoAdapter { .. }) = GpuContext::new().await { return Ok(()) }
    /// let gpu = GpuContext::new().await?;
    /// use wgpu_norm::operators::{Inputs, onednn::GroupNormalizationBackward};
    ///
    /// let op = GroupNormalizationBackward::new(2, 1e-5);
    /// let inputs = Inputs::new()
    ///     .with("src", &[1, 4, 1], &[1.0_f32, 3.0, 10.0, 30.0])
    ///     .with("mean", &[1, 2], &[2.0_f32, 20.0])
    ///     .with("variance", &[1, 2], &[1.0_f32, 100.0])
    ///     .with("diff_dst", &[1, 4, 1], &[1.0_f32, 0.0, 0.0, 4.0]);
    /// let outputs = op.run(&gpu, &inputs).await?;
    /// assert_eq!(outputs.get::<f32>("diff_shift")?, [1.0, 0.0, 0.0, 4.0]);
    /// # Ok::<(), Error>(()) }).unwrap();
    /// ```
    GroupNormalizationBackward {
        /// `groups`: the number of groups, which must divide the channels.
        groups: usize,
        /// `epsilon`: added to the variance; finite and above 0.
        epsilon: f32,
    } {
        /// Whether this is `backward_data`, which has no gradients of scale and shift, instead of `backward`.
        data_alone: bool = false,
        /// Where the channels are in memory.
        data_format: DataFormat = DataFormat::Ncx,
    }
    /// The primitive `backward`, channels first.
    new
    inputs(_) { src: Src, mean: Mean, variance: Variance, diff_dst: DiffDst, scale: Gamma.optional() }
    outputs(_) { diff_src: DiffSrc, diff_scale: DiffGamma, diff_shift: DiffBeta }
}

impl Definition for GroupNormalizationBackward {
    fn define(&self, given: &Given<'_>) -> Result<Operation, Error> {
        let norm = Norm::group(self.groups, self.data_format);
        let pass = Backward::default().with_param_grads(!self.data_alone);
        given.operation(norm, pass, self.epsilon)
    }
}

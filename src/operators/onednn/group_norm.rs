//! Group normalization, a primitive.

use super::NormOutputs;
use crate::operators::*;

inputs! {
    /// The inputs of [`GroupNormalization`], in host memory.
    GroupNormalizationInputs<T, P> {
        /// Shape of src: rank 2 to 8.
        shape: &'a [usize],
    }
    src: &'a [T] = Src,
    /// `mean` of each group, `(N, G)`: given exactly when use_global_stats is set.
    mean: Option<&'a [P]> = Mean,
    /// `variance` of each group, `(N, G)`: given exactly when use_global_stats is set.
    variance: Option<&'a [P]> = Variance,
    /// `scale` of each channel, with the flag use_scale. If absent, it is 1.
    scale: Option<&'a [P]> = Gamma,
    /// `shift` of each channel, with the flag use_shift. If absent, it is 0.
    shift: Option<&'a [P]> = Beta,
}

attributes! {
    /// Forward propagation of oneDNN's primitive [group
    /// normalization](https://oneapi-src.github.io/oneDNN/dev_guide_group_normalization.html).
    ///
    /// dst = scale · (src − mean) / √(variance + epsilon) + shift, where mean and variance are those of C/G adjacent
    /// channels of a sample, or are given. forward_training and forward_inference compute the same dst.
    ///
    /// | argument | shape | in plans and errors |
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
    /// * mean, variance, scale and shift are f32 in the document. The other types that parameters may have work too. There
    ///   are no integer types here.
    /// * epsilon must be above 0, and memory is dense: `ncsp` is [`DataFormat::Ncx`], `nspc` [`DataFormat::Nxc`].
    ///
    /// ```
    /// # pollster::block_on(async {
    /// # use wgpu_norm::{Error, GpuContext};
    /// # if let Err(Error::NoAdapter { .. }) = GpuContext::new().await { return Ok(()) }
    /// let gpu = GpuContext::new().await?;
    /// use wgpu_norm::operators::onednn::{GroupNormalization, GroupNormalizationInputs};
    ///
    /// let op = GroupNormalization::new(2, 1e-5);
    /// let inputs = GroupNormalizationInputs {
    ///     shape: &[1, 4, 1],
    ///     src: &[1.0_f32, 3.0, 10.0, 30.0],
    ///     mean: None,
    ///     variance: None,
    ///     scale: Some(&[1.0, 1.0, 1.0, 2.0]),
    ///     shift: Some(&[0.0, 0.0, 0.0, 5.0]),
    /// };
    /// let outputs = op.forward(&gpu, inputs).await?;
    /// assert_eq!(outputs.mean, Some(vec![2.0, 20.0]));
    /// assert!((outputs.dst[3] - 7.0).abs() < 1e-4);
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
}

impl GroupNormalization {
    /// The primitive as an operation.
    ///
    /// # Errors
    ///
    /// [`Error::Epsilon`], and errors in the shape and groups.
    pub fn operation<T: Element, P: ParamOf<T>>(
        &self,
        shape: &[usize],
        use_scale: bool,
        use_shift: bool,
    ) -> Result<Operation, Error> {
        let (groups, format) = (self.groups, self.data_format);
        let (norm, params) = (Norm::Group { groups, format }, (use_scale, use_shift));
        let pass = by_given(self.use_global_stats);
        operation::<T, P, P>(norm, pass, shape, self.epsilon, params)
    }

    /// Computes the outputs from tensors in host memory.
    ///
    /// # Errors
    ///
    /// [`Error::Argument`] unless statistics are given exactly when use_global_stats is set, and those of
    /// [`Operation::run_into`].
    pub async fn forward<T: Element, P: ParamOf<T>>(
        &self,
        gpu: &GpuContext,
        inputs: GroupNormalizationInputs<'_, T, P>,
    ) -> Result<NormOutputs<T, P>, Error> {
        let global = self.use_global_stats;
        exactly("mean", inputs.mean, "use_global_stats", global)?;
        exactly("variance", inputs.variance, "use_global_stats", global)?;
        let (use_scale, use_shift) = (inputs.scale.is_some(), inputs.shift.is_some());
        let operation = self.operation::<T, P>(inputs.shape, use_scale, use_shift)?;
        Ok(inputs.call(operation).run::<T, P, P>(gpu).await?.into())
    }
}

inputs! {
    /// The inputs of [`GroupNormalizationBackward`], in host memory.
    GroupNormalizationBackwardInputs<T, P> {
        /// Shape of src and diff_dst: rank 2 to 8.
        shape: &'a [usize],
    }
    src: &'a [T] = Src,
    mean: &'a [P] = Mean,
    variance: &'a [P] = Variance,
    diff_dst: &'a [T] = DiffDst,
    /// `scale` of each channel, with the flag use_scale. If absent, it is 1.
    scale: Option<&'a [P]> = Gamma,
}

outputs! {
    /// The outputs of [`GroupNormalizationBackward`], in host memory.
    GroupNormalizationBackwardOutputs<T, P> from Results<T, P, P> as [T, P]
    diff_src: Vec<T> = data(DiffSrc),
    /// `diff_scale`; none for backward_data.
    diff_scale: Option<Vec<P>> = param(DiffGamma),
    /// `diff_shift`; none for backward_data.
    diff_shift: Option<Vec<P>> = param(DiffBeta),
}

attributes! {
    /// Backward propagation of oneDNN's primitive [group
    /// normalization](https://oneapi-src.github.io/oneDNN/dev_guide_group_normalization.html).
    ///
    /// | argument | shape | in plans and errors |
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
    /// use wgpu_norm::operators::onednn::{GroupNormalizationBackward, GroupNormalizationBackwardInputs};
    ///
    /// let op = GroupNormalizationBackward::new(2, 1e-5);
    /// let inputs = GroupNormalizationBackwardInputs {
    ///     shape: &[1, 4, 1],
    ///     src: &[1.0_f32, 3.0, 10.0, 30.0],
    ///     mean: &[2.0, 20.0],
    ///     variance: &[1.0, 100.0],
    ///     diff_dst: &[1.0, 0.0, 0.0, 4.0],
    ///     scale: None,
    /// };
    /// let outputs = op.backward(&gpu, inputs).await?;
    /// assert_eq!(outputs.diff_shift, Some(vec![1.0, 0.0, 0.0, 4.0]));
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
}

impl GroupNormalizationBackward {
    /// The primitive as an operation.
    ///
    /// # Errors
    ///
    /// [`Error::Epsilon`], and errors in the shape and groups.
    pub fn operation<T: Element, P: ParamOf<T>>(
        &self,
        shape: &[usize],
        use_scale: bool,
    ) -> Result<Operation, Error> {
        let (groups, format) = (self.groups, self.data_format);
        let (norm, pass) = (Norm::Group { groups, format }, backward(!self.data_alone));
        operation::<T, P, P>(norm, pass, shape, self.epsilon, (use_scale, false))
    }

    /// Computes the outputs from tensors in host memory.
    ///
    /// # Errors
    ///
    /// Those of [`Operation::run_into`].
    pub async fn backward<T: Element, P: ParamOf<T>>(
        &self,
        gpu: &GpuContext,
        inputs: GroupNormalizationBackwardInputs<'_, T, P>,
    ) -> Result<GroupNormalizationBackwardOutputs<T, P>, Error> {
        let operation = self.operation::<T, P>(inputs.shape, inputs.scale.is_some())?;
        Ok(inputs.call(operation).run::<T, P, P>(gpu).await?.into())
    }
}

//! The forward passes.

use crate::operators::*;

operator! {
    /// oneDNN Graph's
    /// [`BatchNormForwardTraining`](https://oneapi-src.github.io/oneDNN/dev_guide_op_batchnormforwardtraining.html).
    ///
    /// With m elements in a channel, gamma = 1 and beta = 0 where they are not given:
    ///
    /// * batch_mean = Σ src / m
    /// * batch_variance = Σ (src − batch_mean)² / m, the biased variance
    /// * dst = gamma · (src − batch_mean) / √(batch_variance + epsilon) + beta
    /// * running_mean = momentum · mean + (1 − momentum) · batch_mean
    /// * running_variance = momentum · variance + (1 − momentum) · batch_variance
    ///
    /// | index | input | shape | in plans | | index | output | shape | in plans |
    /// |---|---|---|---|---|---|---|---|---|
    /// | 0 | `src` | `(N, …, C)` or `(N, C, …)` | `src` | | 0 | `dst` | src's | `dst` |
    /// | 1 | `mean` | `[C]` | `running_mean` | | 1 | `running_mean` | `[C]` | `running_mean` |
    /// | 2 | `variance` | `[C]` | `running_variance` | | 2 | `running_variance` | `[C]` | `running_variance` |
    /// | 3 | `gamma`, optional | `[C]` | `gamma` | | 3 | `batch_mean` | `[C]` | `mean` |
    /// | 4 | `beta`, optional | `[C]` | `beta` | | 4 | `batch_variance` | `[C]` | `variance` |
    ///
    /// # Differences
    ///
    /// * The document does not say how momentum is used. The formulas above are those of oneDNN's code: momentum is the
    ///   weight of the **old** statistics, and 0.5 if it is absent.
    /// * momentum is at most 1. The document only requires it to be positive.
    /// * On device buffers running statistics are updated in place: one buffer holds mean and running_mean, another
    ///   variance and running_variance.
    /// * The document allows f32, bf16 and f16 data with f32 parameters, and bf16 with bf16. f16 with f16 and f64 with
    ///   f64 work too.
    ///
    /// ```
    /// # pollster::block_on(async {
    /// # use wgpu_norm::{Error, GpuContext};
    /// # if let Err(Error::NoAdapter { .. }) = GpuContext::new().await { return Ok(()) }
    /// let gpu = GpuContext::new().await?;
    /// use wgpu_norm::operators::{Inputs, onednn::BatchNormForwardTraining};
    ///
    /// let op = BatchNormForwardTraining {
    ///     momentum: Some(0.75),
    ///     ..BatchNormForwardTraining::new(1e-5) // NXC
    /// };
    /// let inputs = Inputs::new()
    ///     .with("src", &[2, 2], &[1.0_f32, 2.0, 3.0, 6.0]) // two samples of two channels
    ///     .with("mean", &[2], &[0.0_f32, 0.0])
    ///     .with("variance", &[2], &[1.0_f32, 1.0])
    ///     .with("gamma", &[2], &[1.0_f32, 1.0])
    ///     .with("beta", &[2], &[0.0_f32, 0.0]);
    /// let outputs = op.run(&gpu, &inputs).await?;
    /// assert_eq!(outputs.get::<f32>("batch_mean")?, [2.0, 4.0]);
    /// assert_eq!(outputs.get::<f32>("batch_variance")?, [1.0, 4.0]);
    /// assert_eq!(outputs.get::<f32>("running_mean")?, [0.5, 1.0]); // a quarter of the batch's
    /// # Ok::<(), Error>(()) }).unwrap();
    /// ```
    BatchNormForwardTraining {
        /// Attribute `epsilon`, required: added to the variance; finite and above 0. An f32 as in the document, even
        /// for f64 data.
        epsilon: f32,
    } {
        /// Attribute `momentum`, the weight of the old running statistics: above 0 and at most 1. If it is absent, it
        /// is 0.5, as in oneDNN's code.
        momentum: Option<f32> = None,
        /// Attribute `data_format`: `NXC`, the default, or `NCX`.
        data_format: DataFormat = DataFormat::Nxc,
    }
    /// The document's defaults, without momentum. The document has no default for epsilon.
    new
    inputs(_) {
        src: Src, mean: RunningMean, variance: RunningVariance,
        gamma: Gamma.optional(),
        beta: Beta.optional(),
    }
    outputs(_) {
        dst: Dst, running_mean: RunningMean, running_variance: RunningVariance, batch_mean: Mean,
        batch_variance: Variance,
    }
}

impl Definition for BatchNormForwardTraining {
    fn define(&self, given: &Given<'_>) -> Result<Operation, Error> {
        given.both([Tensor::Gamma, Tensor::Beta])?;
        let momentum = match self.momentum {
            Some(0.0) => return Err(Error::argument("momentum", "a number above 0", 0.0)),
            momentum => momentum.unwrap_or(MOMENTUM),
        };
        let pass = Forward::default().with_running(weighing_the_old(momentum)?);
        given.operation(Norm::batch(self.data_format), pass, self.epsilon)
    }
}

/// The momentum that oneDNN's code uses if it is absent.
const MOMENTUM: f32 = 0.5;

operator! {
    /// oneDNN Graph's
    /// [`BatchNormInference`](https://oneapi-src.github.io/oneDNN/dev_guide_op_batchnorminference.html):
    /// dst = gamma · (src − mean) / √(variance + epsilon) + beta.
    ///
    /// | index | input | shape | | index | output | shape |
    /// |---|---|---|---|---|---|---|
    /// | 0 | `src` | `(N, …, C)` or `(N, C, …)` | | 0 | `dst` | src's |
    /// | 1 | `gamma` | `[C]` | | | | |
    /// | 2 | `beta` | `[C]` | | | | |
    /// | 3 | `mean` | `[C]` | | | | |
    /// | 4 | `variance` | `[C]` | | | | |
    ///
    /// Plans and errors have the same names.
    ///
    /// # Differences
    ///
    /// * The document allows f32, bf16 and f16 data with f32 parameters, and bf16 with bf16. f16 with f16 and f64 with
    ///   f64 work too.
    ///
    /// ```
    /// # pollster::block_on(async {
    /// # use wgpu_norm::{Error, GpuContext};
    /// # if let Err(Error::NoAdapter { .. }) = GpuContext::new().await { return Ok(()) }
    /// let gpu = GpuContext::new().await?;
    /// use wgpu_norm::operators::{Inputs, onednn::BatchNormInference};
    ///
    /// let op = BatchNormInference::new(1e-5); // NXC
    /// let inputs = Inputs::new()
    ///     .with("src", &[2, 2], &[1.0_f32, 2.0, 3.0, 6.0]) // two samples of two channels
    ///     .with("gamma", &[2], &[1.0_f32, 2.0])
    ///     .with("beta", &[2], &[0.0_f32, 5.0])
    ///     .with("mean", &[2], &[2.0_f32, 4.0])
    ///     .with("variance", &[2], &[1.0_f32, 4.0]);
    /// let outputs = op.run(&gpu, &inputs).await?;
    /// let dst: &[f32] = outputs.get("dst")?;
    /// assert!((dst[0] + 1.0).abs() < 1e-4 && (dst[3] - 7.0).abs() < 1e-4);
    /// # Ok::<(), Error>(()) }).unwrap();
    /// ```
    BatchNormInference {
        /// Attribute `epsilon`, required: added to the variance; finite and above 0. An f32 as in the document, even
        /// for f64 data.
        epsilon: f32,
    } {
        /// Attribute `data_format`: `NXC`, the default, or `NCX`.
        data_format: DataFormat = DataFormat::Nxc,
    }
    /// The document's defaults. The document has no default for epsilon.
    new
    inputs(_) { src: Src, gamma: Gamma, beta: Beta, mean: Mean, variance: Variance }
    outputs(_) { dst: Dst }
}

impl Definition for BatchNormInference {
    fn define(&self, given: &Given<'_>) -> Result<Operation, Error> {
        given.operation(Norm::batch(self.data_format), Pass::Inference, self.epsilon)
    }
}

operator! {
    /// oneDNN Graph's
    /// [`LayerNorm`](https://oneapi-src.github.io/oneDNN/dev_guide_op_layernorm.html).
    ///
    /// The axes from `begin_norm_axis` on are normalized; a row consists of the elements with the same indices along
    /// the axes before it. With mean and biased variance of the row, and gamma = 1 and beta = 0 without `use_affine`,
    /// dst = gamma · (src − mean) / √(variance + epsilon) + beta.
    ///
    /// | index | input | shape | | index | output | shape |
    /// |---|---|---|---|---|---|---|
    /// | 0 | `src` | rank 1 to 8 | | 0 | `dst` | src's |
    /// | 1 | `gamma` with `use_affine` | the normalized axes | | 1 | `mean` with `keep_stats` | the leading axes |
    /// | 2 | `beta` with `use_affine` | the normalized axes | | 2 | `variance` with `keep_stats` | the leading axes |
    ///
    /// Plans and errors have the same names.
    ///
    /// # Differences
    ///
    /// * The document calls gamma and beta one-dimensional even if several axes are normalized. Here they may also
    ///   have these axes.
    /// * Without `use_affine` gamma and beta must not be given; oneDNN ignores them.
    /// * The document allows f32, bf16 and f16 data with f32 parameters, and bf16 with bf16. f16 with f16 and f64 with
    ///   f64 work too.
    ///
    /// ```
    /// # pollster::block_on(async {
    /// # use wgpu_norm::{Error, GpuContext};
    /// # if let Err(Error::NoAdapter { .. }) = GpuContext::new().await { return Ok(()) }
    /// let gpu = GpuContext::new().await?;
    /// use wgpu_norm::operators::{Inputs, onednn::LayerNorm};
    ///
    /// let op = LayerNorm::default(); // the last axis, affine, with statistics, epsilon 1e-5
    /// let inputs = Inputs::new()
    ///     .with("src", &[2, 2], &[1.0_f32, 3.0, 2.0, 4.0]) // two rows
    ///     .with("gamma", &[2], &[1.0_f32, 2.0])
    ///     .with("beta", &[2], &[0.0_f32, 5.0]);
    /// let outputs = op.run(&gpu, &inputs).await?;
    /// assert_eq!(outputs.get::<f32>("mean")?, [2.0, 3.0]);
    /// let dst: &[f32] = outputs.get("dst")?;
    /// assert!((dst[0] + 1.0).abs() < 1e-4 && (dst[3] - 7.0).abs() < 1e-4);
    /// # Ok::<(), Error>(()) }).unwrap();
    /// ```
    LayerNorm {
    } {
        /// Attribute `keep_stats`: whether mean and variance are outputs; true by default.
        keep_stats: bool = true,
        /// Attribute `begin_norm_axis`, in [−r, r − 1] for src of rank r, negative from the end; −1 by
        /// default.
        begin_norm_axis: i64 = -1,
        /// Attribute `use_affine`: whether there are gamma and beta; true by default.
        use_affine: bool = true,
        /// Attribute `epsilon`: added to the variance; finite and above 0; 1e-5 by default. An f32 as in the document,
        /// even for f64 data.
        epsilon: f32 = 1e-5,
    }
    /// The document's defaults.
    default
    inputs(op) {
        src: Src,
        gamma: Gamma.only_if("use_affine", op.use_affine),
        beta: Beta.only_if("use_affine", op.use_affine),
    }
    outputs(_) { dst: Dst, mean: Mean, variance: Variance }
}

impl Definition for LayerNorm {
    fn define(&self, given: &Given<'_>) -> Result<Operation, Error> {
        let norm = Norm::layer(self.begin_norm_axis);
        given.operation(norm, forward(self.keep_stats), self.epsilon)
    }
}

//! The forward passes.

use crate::operators::*;

inputs! {
    /// The inputs of [`BatchNormForwardTraining`], in host memory, in the document's order.
    BatchNormForwardTrainingInputs<T, P> {
        /// Shape of src: rank 2 to 8.
        shape: &'a [usize],
    }
    src: &'a [T] = Src,
    /// Running mean of each channel before this batch; `[C]`.
    mean: &'a [P] = RunningMean,
    /// Running variance of each channel before this batch; `[C]`.
    variance: &'a [P] = RunningVariance,
    /// Scale of each channel; `[C]`. Given with beta or not at all.
    gamma: Option<&'a [P]> = Gamma,
    /// Shift of each channel; `[C]`. Given with gamma or not at all.
    beta: Option<&'a [P]> = Beta,
}

outputs! {
    /// The outputs of [`BatchNormForwardTraining`], in host memory, in the document's order.
    BatchNormForwardTrainingOutputs<T, P> from Results<T, P, P> as [T, P]
    dst: Vec<T> = data(Dst),
    running_mean: Vec<P> = statistic(RunningMean),
    running_variance: Vec<P> = statistic(RunningVariance),
    batch_mean: Vec<P> = statistic(Mean),
    batch_variance: Vec<P> = statistic(Variance),
}

attributes! {
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
    /// | index | input | shape | in plans and errors | | index | output | shape | in plans |
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
    /// * The document allows f32, bf16 and f16 data with f32 parameters, and bf16 with bf16. f16 with f16 and f64 with f64
    ///   work too.
    ///
    /// ```
    /// # pollster::block_on(async {
    /// # use wgpu_norm::{Error, GpuContext};
    /// # if let Err(Error::NoAdapter { .. }) = GpuContext::new().await { return Ok(()) }
    /// let gpu = GpuContext::new().await?;
    /// use wgpu_norm::operators::onednn::{BatchNormForwardTraining, BatchNormForwardTrainingInputs};
    ///
    /// let op = BatchNormForwardTraining {
    ///     momentum: Some(0.75),
    ///     ..BatchNormForwardTraining::new(1e-5) // NXC
    /// };
    /// let inputs = BatchNormForwardTrainingInputs {
    ///     shape: &[2, 2], // two samples of two channels
    ///     src: &[1.0_f32, 2.0, 3.0, 6.0],
    ///     mean: &[0.0, 0.0],
    ///     variance: &[1.0, 1.0],
    ///     gamma: Some(&[1.0, 1.0]),
    ///     beta: Some(&[0.0, 0.0]),
    /// };
    /// let outputs = op.forward(&gpu, inputs).await?;
    /// assert_eq!(outputs.batch_mean, [2.0, 4.0]);
    /// assert_eq!(outputs.batch_variance, [1.0, 4.0]);
    /// assert_eq!(outputs.running_mean, [0.5, 1.0]); // a quarter of the batch's
    /// # Ok::<(), Error>(()) }).unwrap();
    /// ```
    BatchNormForwardTraining {
        /// Attribute `epsilon`, required: added to the variance; finite and above 0. An f32 as in the document, even for
        /// f64 data.
        epsilon: f32,
    } {
        /// Attribute `momentum`, the weight of the old running statistics: above 0 and at most 1. If it is absent, it is
        /// 0.5, as in oneDNN's code.
        momentum: Option<f32> = None,
        /// Attribute `data_format`: `NXC`, the default, or `NCX`.
        data_format: DataFormat = DataFormat::Nxc,
    }
    /// The document's defaults, without momentum. The document has no default for epsilon.
    new
}

/// The momentum that oneDNN's code uses if it is absent.
const MOMENTUM: f32 = 0.5;

impl BatchNormForwardTraining {
    /// The operation; `has_gamma_and_beta` says whether both are given or neither.
    ///
    /// # Errors
    ///
    /// [`Error::Epsilon`], [`Error::Argument`] for momentum, and errors in the shape.
    pub fn operation<T: Element, P: ParamOf<T>>(
        &self,
        shape: &[usize],
        has_gamma_and_beta: bool,
    ) -> Result<Operation, Error> {
        let affine = has_gamma_and_beta;
        let (norm, params) = (batch_norm(self.data_format), (affine, affine));
        let pass = Forward::default().with_running(self.update()?);
        operation::<T, P, P>(norm, pass, shape, self.epsilon, params)
    }

    /// Computes the outputs from tensors in host memory.
    ///
    /// # Errors
    ///
    /// [`Error::Argument`] for momentum, or if one of gamma and beta is given without the other, and those of
    /// [`Operation::run_into`].
    pub async fn forward<T: Element, P: ParamOf<T>>(
        &self,
        gpu: &GpuContext,
        inputs: BatchNormForwardTrainingInputs<'_, T, P>,
    ) -> Result<BatchNormForwardTrainingOutputs<T, P>, Error> {
        let affine = inputs.gamma.is_some() || inputs.beta.is_some();
        if affine {
            required("gamma", "as beta is given", inputs.gamma)?;
            required("beta", "as gamma is given", inputs.beta)?;
        }
        let operation = self.operation::<T, P>(inputs.shape, affine)?;
        let call = inputs.call(operation);
        Ok(call.run::<T, P, P>(gpu).await?.into())
    }

    fn update(&self) -> Result<RunningUpdate, Error> {
        match self.momentum {
            Some(0.0) => Err(Error::argument("momentum", "a number above 0", 0.0)),
            momentum => weighing_the_old(momentum.unwrap_or(MOMENTUM)),
        }
    }
}

inputs! {
    /// The inputs of [`BatchNormInference`], in host memory, in the document's order.
    BatchNormInferenceInputs<T, P> {
        /// Shape of src: rank 2 to 8.
        shape: &'a [usize],
    }
    src: &'a [T] = Src,
    gamma: &'a [P] = Gamma,
    beta: &'a [P] = Beta,
    mean: &'a [P] = Mean,
    variance: &'a [P] = Variance,
}

attributes! {
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
    /// * The document allows f32, bf16 and f16 data with f32 parameters, and bf16 with bf16. f16 with f16 and f64 with f64
    ///   work too.
    ///
    /// ```
    /// # pollster::block_on(async {
    /// # use wgpu_norm::{Error, GpuContext};
    /// # if let Err(Error::NoAdapter { .. }) = GpuContext::new().await { return Ok(()) }
    /// let gpu = GpuContext::new().await?;
    /// use wgpu_norm::operators::onednn::{BatchNormInference, BatchNormInferenceInputs};
    ///
    /// let op = BatchNormInference::new(1e-5); // NXC
    /// let inputs = BatchNormInferenceInputs {
    ///     shape: &[2, 2], // two samples of two channels
    ///     src: &[1.0_f32, 2.0, 3.0, 6.0],
    ///     gamma: &[1.0, 2.0],
    ///     beta: &[0.0, 5.0],
    ///     mean: &[2.0, 4.0],
    ///     variance: &[1.0, 4.0],
    /// };
    /// let dst = op.forward(&gpu, inputs).await?;
    /// assert!((dst[0] + 1.0).abs() < 1e-4 && (dst[3] - 7.0).abs() < 1e-4);
    /// # Ok::<(), Error>(()) }).unwrap();
    /// ```
    BatchNormInference {
        /// Attribute `epsilon`, required: added to the variance; finite and above 0. An f32 as in the document, even for
        /// f64 data.
        epsilon: f32,
    } {
        /// Attribute `data_format`: `NXC`, the default, or `NCX`.
        data_format: DataFormat = DataFormat::Nxc,
    }
    /// The document's defaults. The document has no default for epsilon.
    new
}

impl BatchNormInference {
    /// The operation.
    ///
    /// # Errors
    ///
    /// [`Error::Epsilon`], and errors in the shape.
    pub fn operation<T: Element, P: ParamOf<T>>(
        &self,
        shape: &[usize],
    ) -> Result<Operation, Error> {
        let (norm, pass) = (batch_norm(self.data_format), Pass::Inference);
        operation::<T, P, P>(norm, pass, shape, self.epsilon, (true, true))
    }

    /// Computes dst from tensors in host memory.
    ///
    /// # Errors
    ///
    /// Those of [`Operation::run_into`].
    pub async fn forward<T: Element, P: ParamOf<T>>(
        &self,
        gpu: &GpuContext,
        inputs: BatchNormInferenceInputs<'_, T, P>,
    ) -> Result<Vec<T>, Error> {
        let call = inputs.call(self.operation::<T, P>(inputs.shape)?);
        Ok(call.run::<T, P, P>(gpu).await?.dst())
    }
}

inputs! {
    /// The inputs of [`LayerNorm`], in host memory, in the document's order.
    LayerNormInputs<T, P> {
        /// Shape of src: rank 1 to 8.
        shape: &'a [usize],
    }
    src: &'a [T] = Src,
    /// Scale of each normalized position; given exactly when `use_affine` is true.
    gamma: Option<&'a [P]> = Gamma,
    /// Shift of each normalized position; given exactly when `use_affine` is true.
    beta: Option<&'a [P]> = Beta,
}

outputs! {
    /// The outputs of [`LayerNorm`] and [`GroupNormalization`](super::GroupNormalization), in host memory.
    NormOutputs<T, P> from Results<T, P, P> as [T, P]
    dst: Vec<T> = data(Dst),
    /// Of each row, or of each sample's group; none without `keep_stats`, or where they are inputs.
    mean: Option<Vec<P>> = statistic(Mean),
    /// The biased variance, likewise.
    variance: Option<Vec<P>> = statistic(Variance),
}

attributes! {
    /// oneDNN Graph's
    /// [`LayerNorm`](https://oneapi-src.github.io/oneDNN/dev_guide_op_layernorm.html).
    ///
    /// The axes from `begin_norm_axis` on are normalized; a row consists of the elements with the same indices along the
    /// axes before it. With mean and biased variance of the row, and gamma = 1 and beta = 0 without `use_affine`,
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
    /// * The document calls gamma and beta one-dimensional even if several axes are normalized. Only their number of
    ///   elements matters here, so either form works.
    /// * Without `use_affine` gamma and beta must not be given; oneDNN ignores them.
    /// * The document allows f32, bf16 and f16 data with f32 parameters, and bf16 with bf16. f16 with f16 and f64 with f64
    ///   work too.
    ///
    /// ```
    /// # pollster::block_on(async {
    /// # use wgpu_norm::{Error, GpuContext};
    /// # if let Err(Error::NoAdapter { .. }) = GpuContext::new().await { return Ok(()) }
    /// let gpu = GpuContext::new().await?;
    /// use wgpu_norm::operators::onednn::{LayerNorm, LayerNormInputs};
    ///
    /// let op = LayerNorm::default(); // the last axis, affine, with statistics, epsilon 1e-5
    /// let inputs = LayerNormInputs {
    ///     shape: &[2, 2], // two rows
    ///     src: &[1.0_f32, 3.0, 2.0, 4.0],
    ///     gamma: Some(&[1.0, 2.0]),
    ///     beta: Some(&[0.0, 5.0]),
    /// };
    /// let outputs = op.forward(&gpu, inputs).await?;
    /// assert_eq!(outputs.mean, Some(vec![2.0, 3.0]));
    /// assert!((outputs.dst[0] + 1.0).abs() < 1e-4 && (outputs.dst[3] - 7.0).abs() < 1e-4);
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
        /// Attribute `epsilon`: added to the variance; finite and above 0; 1e-5 by default. An f32 as in the document, even
        /// for f64 data.
        epsilon: f32 = 1e-5,
    }
    /// The document's defaults.
    default
}

impl LayerNorm {
    /// The operation.
    ///
    /// # Errors
    ///
    /// [`Error::Epsilon`], and errors in the shape and begin_norm_axis.
    pub fn operation<T: Element, P: ParamOf<T>>(
        &self,
        shape: &[usize],
    ) -> Result<Operation, Error> {
        let (begin_axis, affine) = (self.begin_norm_axis, self.use_affine);
        let (norm, pass) = (Norm::Layer { begin_axis }, forward(self.keep_stats));
        operation::<T, P, P>(norm, pass, shape, self.epsilon, (affine, affine))
    }

    /// Computes the outputs from tensors in host memory.
    ///
    /// # Errors
    ///
    /// [`Error::Argument`] for gamma or beta missing with `use_affine` or given without it, and those of
    /// [`Operation::run_into`].
    pub async fn forward<T: Element, P: ParamOf<T>>(
        &self,
        gpu: &GpuContext,
        inputs: LayerNormInputs<'_, T, P>,
    ) -> Result<NormOutputs<T, P>, Error> {
        exactly("gamma", inputs.gamma, "use_affine", self.use_affine)?;
        exactly("beta", inputs.beta, "use_affine", self.use_affine)?;
        let call = inputs.call(self.operation::<T, P>(inputs.shape)?);
        Ok(call.run::<T, P, P>(gpu).await?.into())
    }
}

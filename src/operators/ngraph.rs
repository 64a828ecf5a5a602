//! The operators of [nGraph](https://github.com/NervanaSystems/ngraph), with nGraph's names.

use super::*;

operator! {
    /// nGraph's
    /// [`BatchNormTrainingBackprop`](https://github.com/NervanaSystems/ngraph/blob/master/doc/sphinx/source/ops/batch_norm_training_backprop.rst).
    ///
    /// With m elements in a channel, r = 1/√(variance + epsilon) and x̂ = (input − mean)·r:
    ///
    /// * input_delta = gamma · r · (normalized_delta − beta_delta/m − x̂ · gamma_delta/m)
    /// * gamma_delta = Σ normalized_delta · x̂
    /// * beta_delta = Σ normalized_delta
    ///
    /// The channel is axis 1. All tensors have one element type, "real" in the document: `f16`, `bf16`, `f32`, or `f64`
    /// if the adapter supports it ([`GpuContext::supports`]).
    ///
    /// | document and constructor | node's input | name | shape | in plans |
    /// |---|---|---|---|---|
    /// | 0 | 2 | `input` | `(N, C, …)` | `src` |
    /// | 1 | 0 | `gamma` | `[C]` | `gamma` |
    /// | 2 | 1 | `beta` | `[C]` | `beta`, not bound |
    /// | 3 | 3 | `mean` | `[C]` | `mean` |
    /// | 4 | 4 | `variance` | `[C]` | `variance` |
    /// | 5 | 5 | `normalized_delta`, or `delta` | input's | `diff_dst` |
    ///
    /// | output | name | shape | in plans |
    /// |---|---|---|---|
    /// | 0 | `input_delta` | input's | `diff_src` |
    /// | 1 | `gamma_delta` | `[C]` | `diff_gamma` |
    /// | 2 | `beta_delta` | `[C]` | `diff_beta` |
    ///
    /// nGraph's document and constructor have one order; the inputs of the node that the constructor makes have
    /// another. The older, deprecated constructor takes epsilon first, then the node's order.
    ///
    /// # Differences
    ///
    /// * epsilon must be above 0 in the type that sums are kept in: f64 for f64, else f32.
    /// * An axis may have size 0; nGraph requires at least one channel.
    ///
    /// ```
    /// # pollster::block_on(async {
    /// # use wgpu_norm::{Error, GpuContext};
    /// # if let Err(Error::NoAdapter { .. }) = GpuContext::new().await { return Ok(()) }
    /// let gpu = GpuContext::new().await?;
    /// use wgpu_norm::operators::{Inputs, ngraph::BatchNormTrainingBackprop};
    ///
    /// let op = BatchNormTrainingBackprop::new(0.001);
    /// let inputs = Inputs::new()
    ///     .with("input", &[2, 1, 2], &[1.0_f32, 2.0, 3.0, 4.0]) // two samples of one channel
    ///     .with("gamma", &[1], &[1.0_f32])
    ///     .with("beta", &[1], &[0.0_f32])
    ///     .with("mean", &[1], &[2.5_f32])
    ///     .with("variance", &[1], &[1.25_f32])
    ///     .with("normalized_delta", &[2, 1, 2], &[0.0_f32, 1.0, 0.0, 1.0]);
    /// let outputs = op.run(&gpu, &inputs).await?;
    /// assert_eq!(outputs.get::<f32>("beta_delta")?, [2.0]);
    /// # Ok::<(), Error>(()) }).unwrap();
    /// ```
    BatchNormTrainingBackprop {
        /// Attribute `epsilon`: added to the variance; finite and above 0.
        epsilon: f64,
    } {
    }
    /// The operator.
    new
    inputs(_) { input: Src, gamma: Gamma, beta: Beta, mean: Mean, variance: Variance, normalized_delta: DiffDst }
    outputs(_) { input_delta: DiffSrc, gamma_delta: DiffGamma, beta_delta: DiffBeta }
}

impl Definition for BatchNormTrainingBackprop {
    fn define(&self, given: &Given<'_>) -> Result<Operation, Error> {
        given.operation(
            Norm::batch(DataFormat::Ncx),
            Backward::default(),
            self.epsilon,
        )
    }
}

operator! {
    /// nGraph's
    /// [`BatchNormTraining`](https://github.com/NervanaSystems/ngraph/blob/master/doc/sphinx/source/ops/batch_norm_training.rst).
    ///
    /// With m elements in a channel:
    ///
    /// * batch_mean = Σ input / m
    /// * batch_variance = Σ (input − batch_mean)² / m
    /// * normalized = gamma · (input − batch_mean) / √(batch_variance + epsilon) + beta
    ///
    /// The channel is axis 1. All tensors have one element type, "real" in the document: `f16`, `bf16`, `f32`, or `f64`
    /// if the adapter supports it ([`GpuContext::supports`]).
    ///
    /// | document and constructor | node's input | name | shape | in plans |
    /// |---|---|---|---|---|
    /// | 0 | 2 | `input` | `(N, C, …)` | `src` |
    /// | 1 | 0 | `gamma` | `[C]` | `gamma` |
    /// | 2 | 1 | `beta` | `[C]` | `beta` |
    ///
    /// | output | name | shape | in plans |
    /// |---|---|---|---|
    /// | 0 | `normalized` | input's | `dst` |
    /// | 1 | `batch_mean` | `[C]` | `mean` |
    /// | 2 | `batch_variance` | `[C]` | `variance` |
    ///
    /// # Differences
    ///
    /// * The differences of [`BatchNormTrainingBackprop`].
    ///
    /// ```
    /// # pollster::block_on(async {
    /// # use wgpu_norm::{Error, GpuContext};
    /// # if let Err(Error::NoAdapter { .. }) = GpuContext::new().await { return Ok(()) }
    /// let gpu = GpuContext::new().await?;
    /// use wgpu_norm::operators::{Inputs, ngraph::BatchNormTraining};
    ///
    /// let op = BatchNormTraining::new(0.001);
    /// let inputs = Inputs::new()
    ///     .with("input", &[2, 1, 2], &[1.0_f32, 2.0, 3.0, 4.0]) // two samples of one channel
    ///     .with("gamma", &[1], &[1.0_f32])
    ///     .with("beta", &[1], &[0.5_f32]);
    /// let outputs = op.run(&gpu, &inputs).await?;
    /// assert_eq!(outputs.get::<f32>("batch_mean")?, [2.5]);
    /// assert_eq!(outputs.get::<f32>("batch_variance")?, [1.25]);
    /// # Ok::<(), Error>(()) }).unwrap();
    /// ```
    BatchNormTraining {
        /// Attribute `epsilon`: added to the variance; finite and above 0.
        epsilon: f64,
    } {
    }
    /// The operator.
    new
    inputs(_) { input: Src, gamma: Gamma, beta: Beta }
    outputs(_) { normalized: Dst, batch_mean: Mean, batch_variance: Variance }
}

impl Definition for BatchNormTraining {
    fn define(&self, given: &Given<'_>) -> Result<Operation, Error> {
        given.operation(
            Norm::batch(DataFormat::Ncx),
            Forward::default(),
            self.epsilon,
        )
    }
}

operator! {
    /// nGraph's
    /// [`BatchNormInference`](https://github.com/NervanaSystems/ngraph/blob/master/doc/sphinx/source/ops/batch_norm_inference.rst):
    /// normalized = gamma · (input − mean) / √(variance + epsilon) + beta.
    ///
    /// The channel is axis 1. All tensors have one element type, like those of [`BatchNormTraining`].
    ///
    /// | document and constructor | node's input | name | shape | in plans |
    /// |---|---|---|---|---|
    /// | 0 | 2 | `input` | `(N, C, …)` | `src` |
    /// | 1 | 0 | `gamma` | `[C]` | `gamma` |
    /// | 2 | 1 | `beta` | `[C]` | `beta` |
    /// | 3 | 3 | `mean` | `[C]` | `mean` |
    /// | 4 | 4 | `variance` | `[C]` | `variance` |
    ///
    /// The output is `normalized`, of input's shape; plans call it `dst`.
    ///
    /// # Differences
    ///
    /// * The differences of [`BatchNormTrainingBackprop`].
    ///
    /// ```
    /// # pollster::block_on(async {
    /// # use wgpu_norm::{Error, GpuContext};
    /// # if let Err(Error::NoAdapter { .. }) = GpuContext::new().await { return Ok(()) }
    /// let gpu = GpuContext::new().await?;
    /// use wgpu_norm::operators::{Inputs, ngraph::BatchNormInference};
    ///
    /// let op = BatchNormInference::new(0.25);
    /// let inputs = Inputs::new()
    ///     .with("input", &[2, 1, 2], &[1.0_f32, 2.0, 3.0, 4.0]) // two samples of one channel
    ///     .with("gamma", &[1], &[2.0_f32])
    ///     .with("beta", &[1], &[0.5_f32])
    ///     .with("mean", &[1], &[2.0_f32])
    ///     .with("variance", &[1], &[0.75_f32]);
    /// let outputs = op.run(&gpu, &inputs).await?;
    /// let normalized: &[f32] = outputs.get("normalized")?;
    /// assert!((normalized[0] + 1.5).abs() < 1e-4 && (normalized[3] - 4.5).abs() < 1e-4);
    /// # Ok::<(), Error>(()) }).unwrap();
    /// ```
    BatchNormInference {
        /// Attribute `epsilon`: added to the variance; finite and above 0.
        epsilon: f64,
    } {
    }
    /// The operator.
    new
    inputs(_) { input: Src, gamma: Gamma, beta: Beta, mean: Mean, variance: Variance }
    outputs(_) { normalized: Dst }
}

impl Definition for BatchNormInference {
    fn define(&self, given: &Given<'_>) -> Result<Operation, Error> {
        given.operation(Norm::batch(DataFormat::Ncx), Pass::Inference, self.epsilon)
    }
}

//! `GroupNormalization` and `InstanceNormalization`.

use crate::operators::*;

operator! {
    /// ONNX's [`GroupNormalization`](https://onnx.ai/onnx/operators/onnx__GroupNormalization.html) of opset 21:
    /// Y = scale · (X − mean) / √(variance + epsilon) + bias, with mean and biased variance of C/num_groups adjacent
    /// channels of a sample.
    ///
    /// | index | input | type | shape | in plans |
    /// |---|---|---|---|---|
    /// | 0 | `X` | T | `(N, C, …)` | `src` |
    /// | 1 | `scale` | T | `[C]` | `gamma` |
    /// | 2 | `bias` | T | `[C]` | `beta` |
    ///
    /// The output is `Y`, of X's shape; plans call it `dst`. Plans also write `mean` and `variance` of each group.
    ///
    /// # Differences
    ///
    /// * The attribute `stash_type` is left out: sums are kept in f32, its default, and in f64 for f64.
    /// * epsilon must be above 0, and the attribute `num_groups` is called `groups` in errors.
    /// * Opset 18 has scale and bias of each group; repeat them for each channel.
    ///
    /// ```
    /// # pollster::block_on(async {
    /// # use wgpu_norm::{Error, GpuContext};
    /// # if let Err(Error::NoAdapter { .. }) = GpuContext::new().await { return Ok(()) }
    /// let gpu = GpuContext::new().await?;
    /// use wgpu_norm::operators::{Inputs, onnx::GroupNormalization};
    ///
    /// let op = GroupNormalization::new(2); // epsilon 1e-5
    /// let inputs = Inputs::new()
    ///     .with("X", &[1, 4, 1], &[1.0_f32, 3.0, 10.0, 30.0])
    ///     .with("scale", &[4], &[1.0_f32, 1.0, 1.0, 2.0])
    ///     .with("bias", &[4], &[0.0_f32, 0.0, 0.0, 5.0]);
    /// let outputs = op.run(&gpu, &inputs).await?;
    /// let y: &[f32] = outputs.get("Y")?;
    /// assert!((y[0] + 1.0).abs() < 1e-4 && (y[3] - 7.0).abs() < 1e-4);
    /// # Ok::<(), Error>(()) }).unwrap();
    /// ```
    GroupNormalization {
        /// Attribute `num_groups`, required: it divides the channels.
        num_groups: usize,
    } {
        /// Attribute `epsilon`: added to the variance; finite and above 0; 1e-5 by default.
        epsilon: f32 = 1e-5,
    }
    /// The document's defaults.
    new
    inputs(_) { X: Src, scale: Gamma, bias: Beta }
    outputs(_) { Y: Dst }
}

impl Definition for GroupNormalization {
    fn define(&self, given: &Given<'_>) -> Result<Operation, Error> {
        let norm = Norm::group(self.num_groups, DataFormat::Ncx);
        given.operation_with_sums(norm, Forward::default(), self.epsilon)
    }
}

operator! {
    /// ONNX's [`InstanceNormalization`](https://onnx.ai/onnx/operators/onnx__InstanceNormalization.html) of opset 22:
    /// output = scale · (input − mean) / √(variance + epsilon) + B, with mean and biased variance of each channel of
    /// each sample.
    ///
    /// | index | input | type | shape | in plans |
    /// |---|---|---|---|---|
    /// | 0 | `input` | T | `(N, C, …)` | `src` |
    /// | 1 | `scale` | T | `[C]` | `gamma` |
    /// | 2 | `B` | T | `[C]` | `beta` |
    ///
    /// The output is `output`, of input's shape; plans call it `dst`. Plans also write `mean` and `variance`, `[N, C]`.
    ///
    /// # Differences
    ///
    /// * epsilon must be above 0.
    ///
    /// ```
    /// # pollster::block_on(async {
    /// # use wgpu_norm::{Error, GpuContext};
    /// # if let Err(Error::NoAdapter { .. }) = GpuContext::new().await { return Ok(()) }
    /// let gpu = GpuContext::new().await?;
    /// use wgpu_norm::operators::{Inputs, onnx::InstanceNormalization};
    ///
    /// let op = InstanceNormalization::default(); // epsilon 1e-5
    /// let inputs = Inputs::new()
    ///     .with("input", &[1, 2, 2], &[1.0_f32, 3.0, 10.0, 30.0])
    ///     .with("scale", &[2], &[1.0_f32, 2.0])
    ///     .with("B", &[2], &[0.0_f32, 5.0]);
    /// let outputs = op.run(&gpu, &inputs).await?;
    /// let output: &[f32] = outputs.get("output")?;
    /// assert!((output[0] + 1.0).abs() < 1e-4 && (output[3] - 7.0).abs() < 1e-4);
    /// # Ok::<(), Error>(()) }).unwrap();
    /// ```
    InstanceNormalization {
    } {
        /// Attribute `epsilon`: added to the variance; finite and above 0; 1e-5 by default.
        epsilon: f32 = 1e-5,
    }
    /// The document's default.
    default
    inputs(_) { input: Src, scale: Gamma, B: Beta }
    outputs(_) { output: Dst }
}

impl Definition for InstanceNormalization {
    fn define(&self, given: &Given<'_>) -> Result<Operation, Error> {
        let norm = Norm::instance(DataFormat::Ncx);
        given.operation_with_sums(norm, Forward::default(), self.epsilon)
    }
}

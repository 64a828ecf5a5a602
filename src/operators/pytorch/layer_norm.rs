//! Layer norm and RMS norm.

use super::*;

/// The first axis of the normalized shape.
fn begin_norm_axis(shape: &[usize], normalized_shape: &[usize]) -> Result<i64, Error> {
    match shape.strip_suffix(normalized_shape) {
        Some(rows) if !normalized_shape.is_empty() => Ok(rows.len() as i64),
        _ => {
            let expected = format!("one or more of the last sizes of {shape:?}");
            let got = format!("{normalized_shape:?}");
            Err(Error::argument("normalized_shape", expected, got))
        }
    }
}

operator! {
    /// PyTorch's `native_layer_norm(input, normalized_shape, weight, bias, eps)`, which
    /// [`LayerNorm`](https://pytorch.org/docs/stable/generated/torch.nn.LayerNorm.html) runs.
    ///
    /// A row consists of the elements with the same indices along the axes before those of normalized_shape. With the
    /// mean and var, the biased variance, of the row: rstd = 1/√(var + eps), output = weight · (input − mean) · rstd +
    /// bias.
    ///
    /// | | argument | shape | in plans |
    /// |---|---|---|---|
    /// | 0 | `input` | rank 1 to 8 | `src` |
    /// | 1 | `normalized_shape` | | `normalized_shape` |
    /// | 2 | `weight`, optional | normalized_shape | `gamma` |
    /// | 3 | `bias`, optional | normalized_shape | `beta` |
    ///
    /// | | output | shape | in plans |
    /// |---|---|---|---|
    /// | 0 | `output` | input's | `dst` |
    /// | 1 | `mean` | the leading axes, then 1s | `mean` |
    /// | 2 | `rstd` | the leading axes, then 1s | `variance`: the variance itself |
    ///
    /// # Differences
    ///
    /// * mean and rstd are f32 for f16 and bf16 data.
    /// * eps must be above 0.
    /// * On device buffers the variance is written in place of rstd.
    ///
    /// ```
    /// # pollster::block_on(async {
    /// # use wgpu_norm::{Error, GpuContext};
    /// # if let Err(Error::NoAdapter { .. }) = GpuContext::new().await { return Ok(()) }
    /// let gpu = GpuContext::new().await?;
    /// use wgpu_norm::operators::{Inputs, pytorch::NativeLayerNorm};
    ///
    /// let op = NativeLayerNorm::new(vec![2]); // eps 1e-5
    /// let inputs = Inputs::new()
    ///     .with("input", &[2, 2], &[1.0_f32, 3.0, 2.0, 4.0]) // two rows
    ///     .with("weight", &[2], &[1.0_f32, 2.0])
    ///     .with("bias", &[2], &[0.0_f32, 5.0]);
    /// let outputs = op.run(&gpu, &inputs).await?;
    /// assert_eq!(outputs.get::<f32>("mean")?, [2.0, 3.0]);
    /// assert!((outputs.get::<f32>("rstd")?[0] - 1.0).abs() < 1e-4);
    /// assert!((outputs.get::<f32>("output")?[3] - 7.0).abs() < 1e-4);
    /// # Ok::<(), Error>(()) }).unwrap();
    /// ```
    NativeLayerNorm {
        /// `normalized_shape`: the last sizes of input's shape, one or more.
        normalized_shape: Vec<usize>,
    } {
        /// `eps`: added to the variance; finite and above 0.
        eps: f64 = 1e-5,
    }
    /// The eps of PyTorch's layer, 1e-5.
    new
    inputs(_) { input: Src, weight: Gamma.optional(), bias: Beta.optional() }
    outputs(_) { output: Dst, mean: Mean.keeping_rank(), rstd: Variance.inverse().keeping_rank() }
}

impl Definition for NativeLayerNorm {
    fn define(&self, given: &Given<'_>) -> Result<Operation, Error> {
        let norm = Norm::layer(begin_norm_axis(given.shape, &self.normalized_shape)?);
        given.operation_with_sums(norm, Forward::default(), self.eps)
    }
}

operator! {
    /// PyTorch's `native_layer_norm_backward(grad_out, input, normalized_shape, mean, rstd, weight, bias,
    /// output_mask)`.
    ///
    /// With x̂ = (input − mean)·rstd of the row, d = grad_out · weight (grad_out without weight), and means taken over
    /// the row:
    ///
    /// * grad_input = rstd · (d − mean(d) − x̂ · mean(d · x̂))
    /// * grad_weight = Σ grad_out · x̂ and grad_bias = Σ grad_out, over the rows, if weight or bias is given
    ///
    /// | | argument | shape | in plans |
    /// |---|---|---|---|
    /// | 0 | `grad_out` | input's | `diff_dst` |
    /// | 1 | `input` | rank 1 to 8 | `src` |
    /// | 2 | `normalized_shape` | | `normalized_shape` |
    /// | 3 | `mean` | the leading axes | `mean` |
    /// | 4 | `rstd` | the leading axes | `variance`: the variance itself |
    /// | 5 | `weight`, optional | normalized_shape | `gamma` |
    /// | 6 | `bias`, optional | normalized_shape | `beta`, not bound |
    ///
    /// | | output | shape | in plans |
    /// |---|---|---|---|
    /// | 0 | `grad_input` | input's | `diff_src` |
    /// | 1 | `grad_weight` | normalized_shape | `diff_gamma` |
    /// | 2 | `grad_bias` | normalized_shape | `diff_beta` |
    ///
    /// # Differences
    ///
    /// * The kernels take a variance and an epsilon. From host memory the variance is 1/rstd² less the smallest epsilon
    ///   allowed, 1.2e-38, computed in f64, so the gradients are as exact as rstd. On device buffers, bind the variance
    ///   itself, as [`NativeLayerNorm`] writes it there, and set `eps`.
    /// * grad_input is computed even if the mask leaves it out, and both parameter gradients if one is requested.
    /// * mean and rstd are f32 for f16 and bf16 data.
    ///
    /// ```
    /// # pollster::block_on(async {
    /// # use wgpu_norm::{Error, GpuContext};
    /// # if let Err(Error::NoAdapter { .. }) = GpuContext::new().await { return Ok(()) }
    /// let gpu = GpuContext::new().await?;
    /// use wgpu_norm::operators::{Inputs, pytorch::NativeLayerNormBackward};
    ///
    /// let op = NativeLayerNormBackward::new(vec![2]); // all outputs
    /// let inputs = Inputs::new()
    ///     .with("grad_out", &[2, 2], &[1.0_f32, 0.0, 0.0, 1.0])
    ///     .with("input", &[2, 2], &[1.0_f32, 3.0, 2.0, 4.0]) // two rows
    ///     .with("mean", &[2], &[2.0_f32, 3.0])
    ///     .with("rstd", &[2], &[1.0_f32, 1.0])
    ///     .with("weight", &[2], &[1.0_f32, 1.0])
    ///     .with("bias", &[2], &[0.0_f32, 0.0]);
    /// let outputs = op.run(&gpu, &inputs).await?;
    /// assert_eq!(outputs.get::<f32>("grad_bias")?, [1.0, 1.0]);
    /// # Ok::<(), Error>(()) }).unwrap();
    /// ```
    NativeLayerNormBackward {
        /// `normalized_shape`: the last sizes of input's shape, one or more.
        normalized_shape: Vec<usize>,
    } {
        /// `output_mask`: whether grad_input, grad_weight and grad_bias are wanted.
        output_mask: [bool; 3] = [true; 3],
        /// The forward pass's eps, which [`operation`](Self::operation) needs. `run` does not: rstd contains it.
        eps: Option<f64> = None,
    }
    /// All outputs.
    new
    inputs(_) {
        grad_out: DiffDst, input: Src, mean: Mean,
        rstd: Variance.inverse(),
        weight: Gamma.optional(),
        bias: Beta.optional(),
    }
    outputs(op) {
        grad_input: DiffSrc.selected(0, op.output_mask),
        grad_weight: DiffGamma.selected(1, op.output_mask),
        grad_bias: DiffBeta.selected(2, op.output_mask),
    }
}

impl Definition for NativeLayerNormBackward {
    fn define(&self, given: &Given<'_>) -> Result<Operation, Error> {
        let norm = Norm::layer(begin_norm_axis(given.shape, &self.normalized_shape)?);
        given.operation_with_sums(
            norm,
            masked(self.output_mask),
            forward_eps(given, self.eps)?,
        )
    }
}

operator! {
    /// PyTorch's `rms_norm(input, normalized_shape, weight, eps)`, which
    /// [`RMSNorm`](https://pytorch.org/docs/stable/generated/torch.nn.RMSNorm.html) runs:
    /// output = weight · input / √(mean(input²) + eps), with the mean over the axes of normalized_shape.
    ///
    /// | | argument | shape | in plans |
    /// |---|---|---|---|
    /// | 0 | `input` | rank 1 to 8 | `src` |
    /// | 1 | `normalized_shape` | | `normalized_shape` |
    /// | 2 | `weight`, optional | normalized_shape | `gamma` |
    ///
    /// The output has input's shape; plans call it `dst`.
    ///
    /// # Differences
    ///
    /// * eps must be given, and above 0. PyTorch's default follows from input's element type.
    ///
    /// ```
    /// # pollster::block_on(async {
    /// # use wgpu_norm::{Error, GpuContext};
    /// # if let Err(Error::NoAdapter { .. }) = GpuContext::new().await { return Ok(()) }
    /// let gpu = GpuContext::new().await?;
    /// use wgpu_norm::operators::{Inputs, pytorch::RmsNorm};
    ///
    /// let op = RmsNorm::new(vec![2], 1e-5);
    /// let inputs = Inputs::new()
    ///     .with("input", &[2, 2], &[1.0_f32, 1.0, 2.0, -2.0]) // two rows
    ///     .with("weight", &[2], &[1.0_f32, 3.0]);
    /// let outputs = op.run(&gpu, &inputs).await?;
    /// let output: &[f32] = outputs.get("output")?;
    /// assert!((output[0] - 1.0).abs() < 1e-4 && (output[3] + 3.0).abs() < 1e-4);
    /// # Ok::<(), Error>(()) }).unwrap();
    /// ```
    RmsNorm {
        /// `normalized_shape`: the last sizes of input's shape, one or more.
        normalized_shape: Vec<usize>,
        /// `eps`: added to the mean of squares; finite and above 0.
        eps: f64,
    } {
    }
    /// The operator.
    new
    inputs(_) { input: Src, weight: Gamma.optional() }
    outputs(_) { output: Dst }
}

impl Definition for RmsNorm {
    fn define(&self, given: &Given<'_>) -> Result<Operation, Error> {
        let norm = Norm::rms(begin_norm_axis(given.shape, &self.normalized_shape)?);
        given.operation_with_sums(norm, forward(false), self.eps)
    }
}

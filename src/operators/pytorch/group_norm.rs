//! Group norm.

use super::*;

operator! {
    /// PyTorch's `native_group_norm(input, weight, bias, N, C, HxW, group, eps)`, which
    /// [`GroupNorm`](https://pytorch.org/docs/stable/generated/torch.nn.GroupNorm.html) runs.
    ///
    /// A group consists of C/group adjacent channels of a sample. With the mean and var, the biased variance, of the
    /// group: rstd = 1/√(var + eps), output = weight · (input − mean) · rstd + bias.
    ///
    /// | | argument | shape | in plans |
    /// |---|---|---|---|
    /// | 0 | `input` | `(N, C, HxW)` | `src` |
    /// | 1 | `weight`, optional | `(C)` | `gamma` |
    /// | 2 | `bias`, optional | `(C)` | `beta` |
    /// | 6 | `group` | | `groups` |
    ///
    /// | | output | shape | in plans |
    /// |---|---|---|---|
    /// | 0 | `output` | input's | `dst` |
    /// | 1 | `mean` | `(N, group)` | `mean` |
    /// | 2 | `rstd` | `(N, group)` | `variance`: the variance itself |
    ///
    /// # Differences
    ///
    /// * mean and rstd are f32 for f16 and bf16 data. In PyTorch they have input's type, or weight's.
    /// * eps must be above 0.
    /// * On device buffers the variance is written in place of rstd.
    ///
    /// ```
    /// # pollster::block_on(async {
    /// # use wgpu_norm::{Error, GpuContext};
    /// # if let Err(Error::NoAdapter { .. }) = GpuContext::new().await { return Ok(()) }
    /// let gpu = GpuContext::new().await?;
    /// use wgpu_norm::operators::{Inputs, pytorch::NativeGroupNorm};
    ///
    /// let op = NativeGroupNorm::new(2); // eps 1e-5
    /// let inputs = Inputs::new()
    ///     .with("input", &[1, 4, 1], &[1.0_f32, 3.0, 10.0, 30.0])
    ///     .with("weight", &[4], &[1.0_f32, 1.0, 1.0, 2.0])
    ///     .with("bias", &[4], &[0.0_f32, 0.0, 0.0, 5.0]);
    /// let outputs = op.run(&gpu, &inputs).await?;
    /// assert_eq!(outputs.get::<f32>("mean")?, [2.0, 20.0]);
    /// assert!((outputs.get::<f32>("rstd")?[1] - 0.1).abs() < 1e-4);
    /// assert!((outputs.get::<f32>("output")?[3] - 7.0).abs() < 1e-4);
    /// # Ok::<(), Error>(()) }).unwrap();
    /// ```
    NativeGroupNorm {
        /// `group`: the number of groups, which must divide the channels.
        group: usize,
    } {
        /// `eps`: added to the variance; finite and above 0.
        eps: f64 = 1e-5,
    }
    /// The eps of PyTorch's layer, 1e-5.
    new
    inputs(_) { input: Src, weight: Gamma.optional(), bias: Beta.optional() }
    outputs(_) { output: Dst, mean: Mean, rstd: Variance.inverse() }
}

impl Definition for NativeGroupNorm {
    fn define(&self, given: &Given<'_>) -> Result<Operation, Error> {
        let norm = Norm::group(self.group, DataFormat::Ncx);
        given.operation_with_sums(norm, Forward::default(), self.eps)
    }
}

operator! {
    /// PyTorch's `native_group_norm_backward(grad_out, input, mean, rstd, weight, N, C, HxW, group, output_mask)`.
    ///
    /// With x̂ = (input − mean)·rstd of the group, d = grad_out · weight (grad_out without weight), and means taken
    /// over the group:
    ///
    /// * grad_input = rstd · (d − mean(d) − x̂ · mean(d · x̂))
    /// * grad_weight = Σ grad_out · x̂ and grad_bias = Σ grad_out, over the samples of a channel
    ///
    /// | | argument | shape | in plans |
    /// |---|---|---|---|
    /// | 0 | `grad_out` | input's | `diff_dst` |
    /// | 1 | `input` | `(N, C, HxW)` | `src` |
    /// | 2 | `mean` | `(N, group)` | `mean` |
    /// | 3 | `rstd` | `(N, group)` | `variance`: the variance itself |
    /// | 4 | `weight`, optional | `(C)` | `gamma` |
    /// | 8 | `group` | | `groups` |
    ///
    /// | | output | shape | in plans |
    /// |---|---|---|---|
    /// | 0 | `grad_input` | input's | `diff_src` |
    /// | 1 | `grad_weight` | `(C)` | `diff_gamma` |
    /// | 2 | `grad_bias` | `(C)` | `diff_beta` |
    ///
    /// # Differences
    ///
    /// * The kernels take a variance and an epsilon. From host memory the variance is 1/rstd² less the smallest epsilon
    ///   allowed, 1.2e-38, computed in f64, so the gradients are as exact as rstd. On device buffers, bind the variance
    ///   itself, as [`NativeGroupNorm`] writes it there, and set `eps`.
    /// * grad_input is computed even if the mask leaves it out, and both parameter gradients if one is requested.
    /// * mean and rstd are f32 for f16 and bf16 data.
    ///
    /// ```
    /// # pollster::block_on(async {
    /// # use wgpu_norm::{Error, GpuContext};
    /// # if let Err(Error::NoAdapter { .. }) = GpuContext::new().await { return Ok(()) }
    /// let gpu = GpuContext::new().await?;
    /// use wgpu_norm::operators::{Inputs, pytorch::NativeGroupNormBackward};
    ///
    /// let op = NativeGroupNormBackward::new(2); // all outputs
    /// let inputs = Inputs::new()
    ///     .with("grad_out", &[1, 4, 1], &[1.0_f32, 0.0, 0.0, 4.0])
    ///     .with("input", &[1, 4, 1], &[1.0_f32, 3.0, 10.0, 30.0])
    ///     .with("mean", &[1, 2], &[2.0_f32, 20.0])
    ///     .with("rstd", &[1, 2], &[1.0_f32, 0.1])
    ///     .with("weight", &[4], &[1.0_f32; 4]);
    /// let outputs = op.run(&gpu, &inputs).await?;
    /// assert_eq!(outputs.get::<f32>("grad_bias")?, [1.0, 0.0, 0.0, 4.0]);
    /// # Ok::<(), Error>(()) }).unwrap();
    /// ```
    NativeGroupNormBackward {
        /// `group`: the number of groups, which must divide the channels.
        group: usize,
    } {
        /// `output_mask`: whether grad_input, grad_weight and grad_bias are wanted.
        output_mask: [bool; 3] = [true; 3],
        /// The forward pass's eps, which [`operation`](Self::operation) needs. `run` does not: rstd contains it.
        eps: Option<f64> = None,
    }
    /// All outputs.
    new
    inputs(_) { grad_out: DiffDst, input: Src, mean: Mean, rstd: Variance.inverse(), weight: Gamma.optional() }
    outputs(op) {
        grad_input: DiffSrc.selected(0, op.output_mask),
        grad_weight: DiffGamma.selected(1, op.output_mask),
        grad_bias: DiffBeta.selected(2, op.output_mask),
    }
}

impl Definition for NativeGroupNormBackward {
    fn define(&self, given: &Given<'_>) -> Result<Operation, Error> {
        let norm = Norm::group(self.group, DataFormat::Ncx);
        given.operation_with_sums(
            norm,
            masked(self.output_mask),
            forward_eps(given, self.eps)?,
        )
    }
}

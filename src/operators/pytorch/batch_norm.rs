//! Batch norm.

use super::*;

operator! {
    /// PyTorch's `native_batch_norm(input, weight, bias, running_mean, running_var, training, momentum, eps)`, which
    /// [`BatchNorm2d`](https://pytorch.org/docs/stable/generated/torch.nn.BatchNorm2d.html) and similar layers run.
    ///
    /// With m elements in a channel and f the batch's weight, in training:
    ///
    /// * save_mean = Σ input / m and var = Σ (input − save_mean)² / m
    /// * save_invstd = 1/√(var + eps)
    /// * output = weight · (input − save_mean) · save_invstd + bias
    /// * running_mean ← (1 − f) · running_mean + f · save_mean
    /// * running_var ← (1 − f) · running_var + f · var · m / (m − 1), the **unbiased** variance
    ///
    /// f is momentum, or 1/num_batches_tracked if momentum is none. Without `training`
    /// output = weight · (input − running_mean) / √(running_var + eps) + bias.
    ///
    /// | | argument | shape | in plans |
    /// |---|---|---|---|
    /// | 0 | `input` | `(N, C, …)` | `src` |
    /// | 1 | `weight`, optional | `[C]` | `gamma` |
    /// | 2 | `bias`, optional | `[C]` | `beta` |
    /// | 3 | `running_mean`, optional in training | `[C]` | `running_mean`; without `training` `mean` |
    /// | 4 | `running_var`, optional in training | `[C]` | `running_variance`; without `training` `variance` |
    ///
    /// | | output | shape | in plans |
    /// |---|---|---|---|
    /// | 0 | `output` | input's | `dst` |
    /// | 1 | `save_mean` | `[C]` | `mean` |
    /// | 2 | `save_invstd` | `[C]` | `variance`: the variance itself |
    ///
    /// # Differences
    ///
    /// * Channels of one element have no unbiased variance. In training with running statistics they are an error, as
    ///   in PyTorch's layers; PyTorch's operator makes running_var infinite or NaN.
    /// * running_mean and running_var must be given both or neither, and are f32 for f16 and bf16 data.
    /// * momentum is from 0 to 1.
    /// * eps must be above 0.
    /// * On device buffers the biased variance is written in place of save_invstd.
    ///
    /// ```
    /// # pollster::block_on(async {
    /// # use wgpu_norm::{Error, GpuContext};
    /// # if let Err(Error::NoAdapter { .. }) = GpuContext::new().await { return Ok(()) }
    /// let gpu = GpuContext::new().await?;
    /// use wgpu_norm::operators::{Inputs, pytorch::NativeBatchNorm};
    ///
    /// let op = NativeBatchNorm::default(); // training, momentum 0.1, eps 1e-5
    /// let inputs = Inputs::new()
    ///     .with("input", &[2, 1, 2], &[1.0_f32, 2.0, 3.0, 4.0]) // two samples of one channel
    ///     .with("weight", &[1], &[1.0_f32])
    ///     .with("bias", &[1], &[0.0_f32])
    ///     .with("running_mean", &[1], &[0.0_f32])
    ///     .with("running_var", &[1], &[1.0_f32]);
    /// let outputs = op.run(&gpu, &inputs).await?;
    /// assert_eq!(outputs.get::<f32>("save_mean")?, [2.5]);
    /// let (mean, var) = (outputs.get::<f32>("running_mean")?, outputs.get::<f32>("running_var")?);
    /// assert!((mean[0] - 0.25).abs() < 1e-6);
    /// assert!((var[0] - (0.9 + 0.1 * 5.0 / 3.0)).abs() < 1e-6);
    /// # Ok::<(), Error>(()) }).unwrap();
    /// ```
    NativeBatchNorm {
    } {
        /// `training`: whether the statistics are the batch's rather than the running ones.
        training: bool = true,
        /// `momentum`, the **batch's** weight, from 0 to 1. None is PyTorch's cumulative average.
        momentum: Option<f64> = Some(0.1),
        /// The layer's `num_batches_tracked`, this batch included; required if momentum is none and running statistics
        /// are updated, and not read otherwise.
        num_batches_tracked: Option<u64> = None,
        /// `eps`: added to the variance; finite and above 0.
        eps: f64 = 1e-5,
    }
    /// Training, with the defaults of PyTorch's layers: momentum 0.1, eps 1e-5.
    default
    inputs(op) {
        input: Src,
        weight: Gamma.optional(),
        bias: Beta.optional(),
        running_mean: RunningMean.constant_if(!op.training).required_if("without training", !op.training),
        running_var: RunningVariance.constant_if(!op.training).required_if("without training", !op.training),
    }
    outputs(_) {
        output: Dst, save_mean: Mean,
        save_invstd: Variance.inverse(),
        running_mean: RunningMean, running_var: RunningVariance,
    }
}

impl Definition for NativeBatchNorm {
    fn define(&self, given: &Given<'_>) -> Result<Operation, Error> {
        given.both([Tensor::RunningMean, Tensor::RunningVariance])?;
        let pass = match (self.training, given.has(Tensor::RunningMean)) {
            (true, true) => Forward::default().with_running(self.update()?).into(),
            (true, false) => Forward::default().into(),
            (false, _) => Pass::Inference,
        };
        given.operation_with_sums(Norm::batch(DataFormat::Ncx), pass, self.eps)
    }
}

impl NativeBatchNorm {
    fn update(&self) -> Result<RunningUpdate, Error> {
        let weight = match (self.momentum, self.num_batches_tracked) {
            (Some(momentum), _) => check_momentum(momentum)?,
            (None, Some(batches)) if batches > 0 => 1.0 / batches as f64,
            (None, batches) => {
                let expected = "the number of batches, this one included, as momentum is none";
                let got = batches.map_or("none".to_owned(), |batches| batches.to_string());
                return Err(Error::argument("num_batches_tracked", expected, got));
            }
        };
        Ok(RunningUpdate::new(weight, RunningVariance::Unbiased))
    }
}

operator! {
    /// PyTorch's `native_batch_norm_backward(grad_out, input, weight, running_mean, running_var, save_mean,
    /// save_invstd, train, eps, output_mask)`.
    ///
    /// With m elements in a channel, mean = save_mean, r = save_invstd, x̂ = (input − mean)·r, and weight = 1 if it is
    /// not given:
    ///
    /// * grad_input = weight · r · (grad_out − grad_bias/m − x̂ · grad_weight/m)
    /// * grad_weight = Σ grad_out · x̂
    /// * grad_bias = Σ grad_out
    ///
    /// Without `train` mean is running_mean, r is 1/√(running_var + eps), and both are constants:
    /// grad_input = weight · r · grad_out.
    ///
    /// | | argument | shape | in plans |
    /// |---|---|---|---|
    /// | 0 | `grad_out` | input's | `diff_dst` |
    /// | 1 | `input` | `(N, C, …)` | `src` |
    /// | 2 | `weight`, optional | `[C]` | `gamma` |
    /// | 3 | `running_mean`, without `train` | `[C]` | `mean` |
    /// | 4 | `running_var`, without `train` | `[C]` | `variance` |
    /// | 5 | `save_mean`, with `train` | `[C]` | `mean` |
    /// | 6 | `save_invstd`, with `train` | `[C]` | `variance`: the variance itself |
    ///
    /// | | output | shape | in plans |
    /// |---|---|---|---|
    /// | 0 | `grad_input` | input's | `diff_src` |
    /// | 1 | `grad_weight` | `[C]` | `diff_gamma` |
    /// | 2 | `grad_bias` | `[C]` | `diff_beta` |
    ///
    /// # Differences
    ///
    /// * The kernels take a variance. From host memory it is computed as 1/save_invstd² − eps, in f64. If it is tiny
    ///   beside eps, few of its digits are correct; but variance + eps, which is all that matters, is as exact as
    ///   save_invstd, and so are the gradients. On device buffers, bind the variance itself, as [`NativeBatchNorm`]
    ///   writes it there.
    /// * grad_input is computed even if the mask leaves it out, and both parameter gradients if one is requested.
    /// * Running statistics are f32 for f16 and bf16 data. eps must be above 0.
    ///
    /// ```
    /// # pollster::block_on(async {
    /// # use wgpu_norm::{Error, GpuContext};
    /// # if let Err(Error::NoAdapter { .. }) = GpuContext::new().await { return Ok(()) }
    /// let gpu = GpuContext::new().await?;
    /// use wgpu_norm::operators::{Inputs, pytorch::NativeBatchNormBackward};
    ///
    /// let op = NativeBatchNormBackward::default(); // train, eps 1e-5, all outputs
    /// let inputs = Inputs::new()
    ///     .with("grad_out", &[2, 1, 2], &[0.0_f32, 1.0, 0.0, 1.0])
    ///     .with("input", &[2, 1, 2], &[1.0_f32, 2.0, 3.0, 4.0]) // two samples of one channel
    ///     .with("weight", &[1], &[1.0_f32])
    ///     .with("save_mean", &[1], &[2.5_f32])
    ///     .with("save_invstd", &[1], &[0.894_423_6_f32]); // 1/√(1.25 + eps)
    /// let outputs = op.run(&gpu, &inputs).await?;
    /// assert_eq!(outputs.get::<f32>("grad_bias")?, [2.0]);
    /// # Ok::<(), Error>(()) }).unwrap();
    /// ```
    NativeBatchNormBackward {
    } {
        /// `train`: whether the statistics were computed from the batch, so that the gradient flows through them.
        train: bool = true,
        /// `eps`: added to the variance; finite and above 0.
        eps: f64 = 1e-5,
        /// `output_mask`: whether grad_input, grad_weight and grad_bias are wanted.
        output_mask: [bool; 3] = [true; 3],
    }
    /// Training, eps 1e-5 as in PyTorch's layers, all outputs.
    default
    inputs(op) {
        grad_out: DiffDst, input: Src,
        weight: Gamma.optional(),
        running_mean: Mean.read_if("without train", !op.train),
        running_var: Variance.read_if("without train", !op.train),
        save_mean: Mean.read_if("with train", op.train),
        save_invstd: Variance.inverse().read_if("with train", op.train),
    }
    outputs(op) {
        grad_input: DiffSrc.selected(0, op.output_mask),
        grad_weight: DiffGamma.selected(1, op.output_mask),
        grad_bias: DiffBeta.selected(2, op.output_mask),
    }
}

impl Definition for NativeBatchNormBackward {
    fn define(&self, given: &Given<'_>) -> Result<Operation, Error> {
        let pass = masked(self.output_mask).with_through(through(!self.train));
        given.operation_with_sums(Norm::batch(DataFormat::Ncx), pass, self.eps)
    }
}

//! Batch norm.

use super::*;

/// The inputs of [`NativeBatchNorm`], in host memory, in PyTorch's order.
#[derive(Debug)]
pub struct NativeBatchNormInputs<'a, T: Element, P> {
    /// Shape of input: `(N, C, …)`, rank 2 to 8.
    pub shape: &'a [usize],
    /// The layer's input.
    pub input: &'a [T],
    /// Scale of each channel; `[C]`. If absent, weight is 1.
    pub weight: Option<&'a [P]>,
    /// Shift of each channel; `[C]`. If absent, bias is 0.
    pub bias: Option<&'a [P]>,
    /// Running mean of each channel; `[C]`. Updated in place in training; given if and only if running_var is.
    pub running_mean: Option<&'a mut [T::Sum]>,
    /// Running variance of each channel; `[C]`, likewise.
    pub running_var: Option<&'a mut [T::Sum]>,
}

/// The outputs of [`NativeBatchNorm`], in host memory, in PyTorch's order.
#[derive(Clone, Debug, PartialEq)]
pub struct NativeBatchNormOutputs<T, S> {
    /// The layer's output, of input's shape.
    pub output: Vec<T>,
    /// Mean of each channel in this batch; empty without `training`.
    pub save_mean: Vec<S>,
    /// 1/√(variance + eps) of each channel, with the biased variance of this batch; empty without `training`.
    pub save_invstd: Vec<S>,
}

attributes! {
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
    /// | | argument | shape | in plans and errors |
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
    /// * Channels of one element have no unbiased variance. In training with running statistics they are an error, as in
    ///   PyTorch's layers; PyTorch's operator makes running_var infinite or NaN.
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
    /// use wgpu_norm::operators::pytorch::{NativeBatchNorm, NativeBatchNormInputs};
    ///
    /// let (mut running_mean, mut running_var) = ([0.0], [1.0]);
    /// let op = NativeBatchNorm::default(); // training, momentum 0.1, eps 1e-5
    /// let inputs = NativeBatchNormInputs {
    ///     shape: &[2, 1, 2], // two samples of one channel with two elements
    ///     input: &[1.0_f32, 2.0, 3.0, 4.0],
    ///     weight: Some(&[1.0_f32]),
    ///     bias: Some(&[0.0]),
    ///     running_mean: Some(&mut running_mean),
    ///     running_var: Some(&mut running_var),
    /// };
    /// let outputs = op.forward(&gpu, inputs).await?;
    /// assert_eq!(outputs.save_mean, [2.5]);
    /// assert!((running_mean[0] - 0.25).abs() < 1e-6);
    /// assert!((running_var[0] - (0.9 + 0.1 * 5.0 / 3.0)).abs() < 1e-6);
    /// # Ok::<(), Error>(()) }).unwrap();
    /// ```
    NativeBatchNorm {
    } {
        /// `training`: whether the statistics are the batch's rather than the running ones.
        training: bool = true,
        /// `momentum`, the **batch's** weight, from 0 to 1. None is PyTorch's cumulative average.
        momentum: Option<f64> = Some(0.1),
        /// The layer's `num_batches_tracked`, this batch included; required if momentum is none and running statistics are
        /// updated, and not read otherwise.
        num_batches_tracked: Option<u64> = None,
        /// `eps`: added to the variance; finite and above 0.
        eps: f64 = 1e-5,
    }
    /// Training, with the defaults of PyTorch's layers: momentum 0.1, eps 1e-5.
    default
}

impl NativeBatchNorm {
    /// The operator as an operation. If momentum is none, the operation holds for one value of num_batches_tracked:
    /// make another one for the next, plans are cheap.
    ///
    /// # Errors
    ///
    /// [`Error::Epsilon`]; [`Error::Argument`] for momentum, num_batches_tracked, or no running statistics without
    /// training; and errors in the shape.
    pub fn operation<T: Element, P: ParamOf<T>>(
        &self,
        shape: &[usize],
        has_weight: bool,
        has_bias: bool,
        has_running: bool,
    ) -> Result<Operation, Error> {
        let pass = match (self.training, has_running) {
            (true, true) => Forward::default().with_running(self.update()?).into(),
            (true, false) => Forward::default().into(),
            (false, given) => {
                let pass = given.then_some(Pass::Inference);
                required("running_mean", "without training", pass)?
            }
        };
        let (norm, params) = (batch_norm(DataFormat::Ncx), (has_weight, has_bias));
        operation::<T, P, T::Sum>(norm, pass, shape, self.eps, params)
    }

    /// Computes the outputs from tensors in host memory.
    ///
    /// # Errors
    ///
    /// [`Error::Argument`] if running_mean or running_var is missing, and those of [`operation`](Self::operation) and
    /// [`Operation::run_into`].
    pub async fn forward<T: Element, P: ParamOf<T>>(
        &self,
        gpu: &GpuContext,
        inputs: NativeBatchNormInputs<'_, T, P>,
    ) -> Result<NativeBatchNormOutputs<T, T::Sum>, Error> {
        let (mean, variance) = (inputs.running_mean, inputs.running_var);
        let has_running = mean.is_some() || variance.is_some();
        if has_running || !self.training {
            let [of_mean, of_variance] = match self.training {
                true => ["as running_var is given", "as running_mean is given"],
                false => ["without training"; 2],
            };
            required("running_mean", of_mean, mean.as_ref())?;
            required("running_var", of_variance, variance.as_ref())?;
        }
        let (weight, bias) = (inputs.weight.is_some(), inputs.bias.is_some());
        let operation = self.operation::<T, P>(inputs.shape, weight, bias, has_running)?;
        let call = Call::new(operation, inputs.input)
            .params(inputs.weight, inputs.bias)
            .statistics(mean.as_deref(), variance.as_deref());
        let mut results = call.run::<T, P, T::Sum>(gpu).await?;
        let mut statistic = |tensor| results.statistic(tensor).unwrap_or_default();
        update(mean, statistic(Tensor::RunningMean));
        update(variance, statistic(Tensor::RunningVariance));
        Ok(NativeBatchNormOutputs {
            save_mean: statistic(Tensor::Mean),
            save_invstd: inverse_deviations(statistic(Tensor::Variance), self.eps),
            output: results.dst(),
        })
    }

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
        Ok(RunningUpdate {
            weight,
            variance: RunningVariance::Unbiased,
        })
    }
}

/// Replaces the given running statistics by the updated ones.
fn update<S>(old: Option<&mut [S]>, new: Vec<S>) {
    for (old, new) in old.into_iter().flatten().zip(new) {
        *old = new;
    }
}

/// The inputs of [`NativeBatchNormBackward`], in host memory, in PyTorch's order.
#[derive(Clone, Copy, Debug)]
pub struct NativeBatchNormBackwardInputs<'a, T: Element, P> {
    /// Shape of input and grad_out: `(N, C, …)`, rank 2 to 8.
    pub shape: &'a [usize],
    /// Gradient of the loss with respect to the layer's output.
    pub grad_out: &'a [T],
    /// The layer's input.
    pub input: &'a [T],
    /// Scale of each channel; `[C]`. If absent, weight is 1.
    pub weight: Option<&'a [P]>,
    /// Running mean of each channel; `[C]`. Required without `train`, and not read with it.
    pub running_mean: Option<&'a [T::Sum]>,
    /// Running variance of each channel; `[C]`, likewise.
    pub running_var: Option<&'a [T::Sum]>,
    /// The forward pass's output; `[C]`. Required with `train`, and not read without it.
    pub save_mean: Option<&'a [T::Sum]>,
    /// The forward pass's output; `[C]`, likewise.
    pub save_invstd: Option<&'a [T::Sum]>,
}

attributes! {
    /// PyTorch's `native_batch_norm_backward(grad_out, input, weight, running_mean, running_var, save_mean, save_invstd,
    /// train, eps, output_mask)`.
    ///
    /// With m elements in a channel, mean = save_mean, r = save_invstd, x̂ = (input − mean)·r, and weight = 1 if it is not
    /// given:
    ///
    /// * grad_input = weight · r · (grad_out − grad_bias/m − x̂ · grad_weight/m)
    /// * grad_weight = Σ grad_out · x̂
    /// * grad_bias = Σ grad_out
    ///
    /// Without `train` mean is running_mean, r is 1/√(running_var + eps), and both are constants:
    /// grad_input = weight · r · grad_out.
    ///
    /// | | argument | shape | in plans and errors |
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
    /// * The kernels take a variance. From host memory it is computed as 1/save_invstd² − eps, in f64. If it is tiny beside
    ///   eps, few of its digits are correct; but variance + eps, which is all that matters, is as exact as save_invstd, and
    ///   so are the gradients. On device buffers, bind the variance itself, as [`NativeBatchNorm`] writes it there.
    /// * grad_input is computed even if the mask leaves it out, and both parameter gradients if one is requested.
    /// * Running statistics are f32 for f16 and bf16 data. eps must be above 0.
    ///
    /// ```
    /// # pollster::block_on(async {
    /// # use wgpu_norm::{Error, GpuContext};
    /// # if let Err(Error::NoAdapter { .. }) = GpuContext::new().await { return Ok(()) }
    /// let gpu = GpuContext::new().await?;
    /// use wgpu_norm::operators::pytorch::{NativeBatchNormBackward, NativeBatchNormBackwardInputs};
    ///
    /// let op = NativeBatchNormBackward::default(); // train, eps 1e-5, all outputs
    /// let inputs = NativeBatchNormBackwardInputs {
    ///     shape: &[2, 1, 2], // two samples of one channel with two elements
    ///     grad_out: &[0.0, 1.0, 0.0, 1.0],
    ///     input: &[1.0_f32, 2.0, 3.0, 4.0],
    ///     weight: Some(&[1.0_f32]),
    ///     running_mean: None,
    ///     running_var: None,
    ///     save_mean: Some(&[2.5]),
    ///     save_invstd: Some(&[0.894_423_6]), // 1/√(1.25 + eps)
    /// };
    /// let outputs = op.backward(&gpu, inputs).await?;
    /// assert_eq!(outputs.grad_bias, Some(vec![2.0]));
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
}

impl NativeBatchNormBackward {
    /// The operator as an operation.
    ///
    /// # Errors
    ///
    /// [`Error::Epsilon`], and errors in the shape.
    pub fn operation<T: Element, P: ParamOf<T>>(
        &self,
        shape: &[usize],
        has_weight: bool,
    ) -> Result<Operation, Error> {
        let norm = batch_norm(DataFormat::Ncx);
        let pass = masked(self.output_mask).with_through(through(!self.train));
        operation::<T, P, T::Sum>(norm, pass, shape, self.eps, (has_weight, false))
    }

    /// Computes the outputs from tensors in host memory.
    ///
    /// # Errors
    ///
    /// [`Error::Argument`] if statistics are missing, [`Error::Variance`] for a save_invstd that is infinite or 0, and
    /// those of [`Operation::run_into`].
    pub async fn backward<T: Element, P: ParamOf<T>>(
        &self,
        gpu: &GpuContext,
        inputs: NativeBatchNormBackwardInputs<'_, T, P>,
    ) -> Result<GradOutputs<T, P>, Error> {
        let (mean, variance) = if self.train {
            let mean = required("save_mean", "with train", inputs.save_mean)?;
            let invstd = required("save_invstd", "with train", inputs.save_invstd)?;
            let variance = variances("save_invstd", invstd, self.eps)?;
            (mean, Cow::Owned(variance))
        } else {
            let mean = required("running_mean", "without train", inputs.running_mean)?;
            let variance = required("running_var", "without train", inputs.running_var)?;
            (mean, Cow::Borrowed(variance))
        };
        let operation = self.operation::<T, P>(inputs.shape, inputs.weight.is_some())?;
        let call = Call::new(operation, inputs.input)
            .with(Tensor::DiffDst, inputs.grad_out)
            .with(Tensor::Gamma, inputs.weight)
            .statistics(mean, &*variance);
        let grads = call.run::<T, P, T::Sum>(gpu).await?.grads();
        Ok(GradOutputs::masked(grads, self.output_mask))
    }
}

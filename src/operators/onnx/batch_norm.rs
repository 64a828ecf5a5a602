//! `BatchNormalization`.

use crate::operators::*;

operator! {
    /// ONNX's [`BatchNormalization`](https://onnx.ai/onnx/operators/onnx__BatchNormalization.html) of opset 15.
    ///
    /// With `training_mode`, m elements in a channel, current_mean = Σ X / m and current_var = Σ (X − current_mean)² /
    /// m:
    ///
    /// * Y = (X − current_mean) / √(current_var + epsilon) · scale + B
    /// * running_mean = input_mean · momentum + current_mean · (1 − momentum)
    /// * running_var = input_var · momentum + current_var · (1 − momentum)
    ///
    /// Without `training_mode`, Y = (X − input_mean) / √(input_var + epsilon) · scale + B.
    ///
    /// | index | input | type | shape | in plans |
    /// |---|---|---|---|---|
    /// | 0 | `X` | T | `(N, C, D1, …)` | `src` |
    /// | 1 | `scale` | T1 | `[C]` | `gamma` |
    /// | 2 | `B` | T1 | `[C]` | `beta` |
    /// | 3 | `input_mean` | T2 | `[C]` | in training `running_mean`, else `mean` |
    /// | 4 | `input_var` | T2 | `[C]` | in training `running_variance`, else `variance` |
    ///
    /// | index | output | type | shape | in plans |
    /// |---|---|---|---|---|
    /// | 0 | `Y` | T | X's | `dst` |
    /// | 1 | `running_mean`, in training | T2 | `[C]` | `running_mean` |
    /// | 2 | `running_var`, in training | T2 | `[C]` | `running_variance` |
    ///
    /// # Differences
    ///
    /// * T1 is T, or f32 if T is f16 or bf16; T2 is T1, or f32 if T is f16 or bf16. The document allows any three float
    ///   types.
    /// * epsilon must be above 0, and momentum from 0 to 1.
    /// * On device buffers running statistics are updated in place: one buffer holds input_mean and running_mean,
    ///   another input_var and running_var. current_mean and current_var are written too, for the gradient.
    ///
    /// ```
    /// # pollster::block_on(async {
    /// # use wgpu_norm::{Error, GpuContext};
    /// # if let Err(Error::NoAdapter { .. }) = GpuContext::new().await { return Ok(()) }
    /// let gpu = GpuContext::new().await?;
    /// use wgpu_norm::operators::{Inputs, onnx::BatchNormalization};
    ///
    /// let op = BatchNormalization {
    ///     training_mode: true,
    ///     ..BatchNormalization::default() // epsilon 1e-5, momentum 0.9
    /// };
    /// let inputs = Inputs::new()
    ///     .with("X", &[2, 1, 2], &[1.0_f32, 2.0, 3.0, 4.0]) // two samples of one channel
    ///     .with("scale", &[1], &[1.0_f32])
    ///     .with("B", &[1], &[0.0_f32])
    ///     .with("input_mean", &[1], &[0.0_f32])
    ///     .with("input_var", &[1], &[1.0_f32]);
    /// let outputs = op.run(&gpu, &inputs).await?;
    /// let (mean, var) = (outputs.get::<f32>("running_mean")?, outputs.get::<f32>("running_var")?);
    /// assert!((mean[0] - 0.25).abs() < 1e-6); // a tenth of 2.5
    /// assert!((var[0] - 1.025).abs() < 1e-6); // nine tenths of 1, one of 1.25
    /// # Ok::<(), Error>(()) }).unwrap();
    /// ```
    BatchNormalization {
    } {
        /// Attribute `epsilon`: added to the variance; finite and above 0; 1e-5 by default.
        epsilon: f32 = 1e-5,
        /// Attribute `momentum`, the weight of the **old** running statistics, from 0 to 1; 0.9 by default.
        momentum: f32 = 0.9,
        /// Attribute `training_mode`, 1 or 0: whether the statistics are the batch's; false by default.
        training_mode: bool = false,
    }
    /// The document's defaults.
    default
    inputs(op) {
        X: Src, scale: Gamma, B: Beta,
        input_mean: RunningMean.constant_if(!op.training_mode),
        input_var: RunningVariance.constant_if(!op.training_mode),
    }
    outputs(_) { Y: Dst, running_mean: RunningMean, running_var: RunningVariance }
}

impl Definition for BatchNormalization {
    fn define(&self, given: &Given<'_>) -> Result<Operation, Error> {
        let pass = if self.training_mode {
            Forward::default()
                .with_running(weighing_the_old(self.momentum)?)
                .into()
        } else {
            Pass::Inference
        };
        let mut operation = given.operation(Norm::batch(DataFormat::Ncx), pass, self.epsilon)?;
        if operation.shape.len() == 1 {
            operation.shape.push(1); // (N) has one channel.
        }
        Ok(operation)
    }
}

//! `BatchNormalization`.

use crate::operators::*;

inputs! {
    /// The inputs of [`BatchNormalization`], in host memory, in the document's order.
    BatchNormalizationInputs<T, P, S> {
        /// Shape of X: `(N, C, D1, …)`, rank 1 to 8. With rank 1 it is `(N)`, and C is 1.
        shape: &'a [usize],
        /// `input_mean` of each channel: the running mean; in inference the one to normalize by.
        input_mean: &'a [S],
        /// `input_var` of each channel, likewise.
        input_var: &'a [S],
    }
    x: &'a [T] = Src,
    scale: &'a [P] = Gamma,
    b: &'a [P] = Beta,
}

outputs! {
    /// The outputs of [`BatchNormalization`], in host memory, in the document's order.
    BatchNormalizationOutputs<T, S> from Results<T, P, S> as [T, P, S]
    y: Vec<T> = data(Dst),
    /// In training only.
    running_mean: Option<Vec<S>> = statistic(RunningMean),
    /// In training only.
    running_var: Option<Vec<S>> = statistic(RunningVariance),
}

attributes! {
    /// ONNX's [`BatchNormalization`](https://onnx.ai/onnx/operators/onnx__BatchNormalization.html) of opset 15.
    ///
    /// With `training_mode`, m elements in a channel, current_mean = Σ X / m and current_var = Σ (X − current_mean)² / m:
    ///
    /// * Y = (X − current_mean) / √(current_var + epsilon) · scale + B
    /// * running_mean = input_mean · momentum + current_mean · (1 − momentum)
    /// * running_var = input_var · momentum + current_var · (1 − momentum)
    ///
    /// Without `training_mode`, Y = (X − input_mean) / √(input_var + epsilon) · scale + B.
    ///
    /// | index | input | type | shape | in plans and errors |
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
    /// * On device buffers running statistics are updated in place: one buffer holds input_mean and running_mean, another
    ///   input_var and running_var. current_mean and current_var are written too, for the gradient.
    ///
    /// ```
    /// # pollster::block_on(async {
    /// # use wgpu_norm::{Error, GpuContext};
    /// # if let Err(Error::NoAdapter { .. }) = GpuContext::new().await { return Ok(()) }
    /// let gpu = GpuContext::new().await?;
    /// use wgpu_norm::operators::onnx::{BatchNormalization, BatchNormalizationInputs};
    ///
    /// let op = BatchNormalization {
    ///     training_mode: true,
    ///     ..BatchNormalization::default() // epsilon 1e-5, momentum 0.9
    /// };
    /// let inputs = BatchNormalizationInputs {
    ///     shape: &[2, 1, 2], // two samples of one channel with two elements
    ///     x: &[1.0_f32, 2.0, 3.0, 4.0],
    ///     scale: &[1.0_f32],
    ///     b: &[0.0],
    ///     input_mean: &[0.0_f32],
    ///     input_var: &[1.0],
    /// };
    /// let outputs = op.forward(&gpu, inputs).await?;
    /// let (mean, var) = (outputs.running_mean.unwrap_or_default(), outputs.running_var.unwrap_or_default());
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
}

/// `(N)` has one channel: it is `(N, 1)`.
fn with_channels(shape: &[usize]) -> Cow<'_, [usize]> {
    match *shape {
        [samples] => Cow::Owned(vec![samples, 1]),
        _ => Cow::Borrowed(shape),
    }
}

impl BatchNormalization {
    /// The operator as an operation.
    ///
    /// # Errors
    ///
    /// [`Error::Epsilon`], [`Error::Argument`] for momentum, [`Error::StatisticsDType`], and errors in the shape.
    pub fn operation<T: Element, P: ParamOf<T>, S: ParamOf<T>>(
        &self,
        shape: &[usize],
    ) -> Result<Operation, Error> {
        let pass = match self.training_mode {
            true => Forward::default()
                .with_running(weighing_the_old(self.momentum)?)
                .into(),
            false => Pass::Inference,
        };
        let (norm, shape) = (batch_norm(DataFormat::Ncx), with_channels(shape));
        operation::<T, P, S>(norm, pass, &shape, self.epsilon, (true, true))
    }

    /// Computes the outputs from tensors in host memory.
    ///
    /// # Errors
    ///
    /// Those of [`operation`](Self::operation) and [`Operation::run_into`].
    pub async fn forward<T: Element, P: ParamOf<T>, S: ParamOf<T>>(
        &self,
        gpu: &GpuContext,
        inputs: BatchNormalizationInputs<'_, T, P, S>,
    ) -> Result<BatchNormalizationOutputs<T, S>, Error> {
        let call = inputs.call(self.operation::<T, P, S>(inputs.shape)?);
        let call = call.statistics(inputs.input_mean, inputs.input_var);
        Ok(call.run::<T, P, S>(gpu).await?.into())
    }
}

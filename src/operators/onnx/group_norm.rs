//! `GroupNormalization` and `InstanceNormalization`.

use crate::operators::*;

inputs! {
    /// The inputs of [`GroupNormalization`] and [`InstanceNormalization`], in host memory, in the documents' order.
    GroupNormalizationInputs<T> {
        /// Shape of X, `(N, C, …)`: rank 2 to 8.
        shape: &'a [usize],
    }
    x: &'a [T] = Src,
    scale: &'a [T] = Gamma,
    bias: &'a [T] = Beta,
}

attributes! {
    /// ONNX's [`GroupNormalization`](https://onnx.ai/onnx/operators/onnx__GroupNormalization.html) of opset 21:
    /// Y = scale · (X − mean) / √(variance + epsilon) + bias, with mean and biased variance of C/num_groups adjacent
    /// channels of a sample.
    ///
    /// | index | input | type | shape | in plans and errors |
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
    /// use wgpu_norm::operators::onnx::{GroupNormalization, GroupNormalizationInputs};
    ///
    /// let op = GroupNormalization::new(2); // epsilon 1e-5
    /// let inputs = GroupNormalizationInputs {
    ///     shape: &[1, 4, 1],
    ///     x: &[1.0_f32, 3.0, 10.0, 30.0],
    ///     scale: &[1.0, 1.0, 1.0, 2.0],
    ///     bias: &[0.0, 0.0, 0.0, 5.0],
    /// };
    /// let y = op.forward(&gpu, inputs).await?;
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
}

impl GroupNormalization {
    /// The operator as an operation.
    ///
    /// # Errors
    ///
    /// [`Error::Epsilon`], and errors in the shape and num_groups.
    pub fn operation<T: ParamOf<T>>(&self, shape: &[usize]) -> Result<Operation, Error> {
        let (groups, format) = (self.num_groups, DataFormat::Ncx);
        let (norm, pass) = (Norm::Group { groups, format }, Forward::default());
        operation::<T, T, T::Sum>(norm, pass, shape, self.epsilon, (true, true))
    }

    /// Computes Y from tensors in host memory.
    ///
    /// # Errors
    ///
    /// Those of [`Operation::run_into`].
    pub async fn forward<T: ParamOf<T>>(
        &self,
        gpu: &GpuContext,
        inputs: GroupNormalizationInputs<'_, T>,
    ) -> Result<Vec<T>, Error> {
        let call = inputs.call(self.operation::<T>(inputs.shape)?);
        Ok(call.run::<T, T, T::Sum>(gpu).await?.dst())
    }
}

attributes! {
    /// ONNX's [`InstanceNormalization`](https://onnx.ai/onnx/operators/onnx__InstanceNormalization.html) of opset 22:
    /// output = scale · (input − mean) / √(variance + epsilon) + B, with mean and biased variance of each channel of each
    /// sample.
    ///
    /// | index | input | type | shape | in plans and errors |
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
    /// use wgpu_norm::operators::onnx::{GroupNormalizationInputs, InstanceNormalization};
    ///
    /// let op = InstanceNormalization::default(); // epsilon 1e-5
    /// let inputs = GroupNormalizationInputs {
    ///     shape: &[1, 2, 2],
    ///     x: &[1.0_f32, 3.0, 10.0, 30.0],
    ///     scale: &[1.0, 2.0],
    ///     bias: &[0.0, 5.0],
    /// };
    /// let output = op.forward(&gpu, inputs).await?;
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
}

impl InstanceNormalization {
    /// The operator as an operation.
    ///
    /// # Errors
    ///
    /// [`Error::Epsilon`], and errors in the shape.
    pub fn operation<T: ParamOf<T>>(&self, shape: &[usize]) -> Result<Operation, Error> {
        let format = DataFormat::Ncx;
        let (norm, pass) = (Norm::Instance { format }, Forward::default());
        operation::<T, T, T::Sum>(norm, pass, shape, self.epsilon, (true, true))
    }

    /// Computes the output from tensors in host memory.
    ///
    /// # Errors
    ///
    /// Those of [`Operation::run_into`].
    pub async fn forward<T: ParamOf<T>>(
        &self,
        gpu: &GpuContext,
        inputs: GroupNormalizationInputs<'_, T>,
    ) -> Result<Vec<T>, Error> {
        let call = inputs.call(self.operation::<T>(inputs.shape)?);
        Ok(call.run::<T, T, T::Sum>(gpu).await?.dst())
    }
}

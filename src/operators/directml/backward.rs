//! The gradients.

use crate::operators::broadcast::common_sizes;
use crate::operators::*;

operator! {
    /// DirectML's
    /// [`DML_BATCH_NORMALIZATION_GRAD_OPERATOR_DESC`](https://learn.microsoft.com/en-us/windows/win32/api/directml/ns-directml-dml_batch_normalization_grad_operator_desc):
    /// mean and variance are **constants** of the gradient.
    ///
    /// * OutputGradient = InputGradient · Scale / √(Variance + Epsilon)
    /// * OutputScaleGradient = Σ InputGradient · (Input − Mean) / √(Variance + Epsilon)
    /// * OutputBiasGradient = Σ InputGradient
    ///
    /// Sums are taken over the dimensions where MeanTensor has size 1, any set of them.
    ///
    /// | | member | sizes | in plans |
    /// |---|---|---|---|
    /// | 0 | `InputTensor` | InputDimensions, rank 1 to 8 | `src` |
    /// | 1 | `InputGradientTensor` | InputDimensions | `diff_dst` |
    /// | 2 | `MeanTensor` | MeanDimensions | `mean` |
    /// | 3 | `VarianceTensor` | MeanDimensions | `variance` |
    /// | 4 | `ScaleTensor` | MeanDimensions | `gamma` |
    /// | 5 | `OutputGradientTensor` | InputDimensions | `diff_src` |
    /// | 6 | `OutputScaleGradientTensor` | MeanDimensions | `diff_gamma` |
    /// | 7 | `OutputBiasGradientTensor` | MeanDimensions | `diff_beta` |
    /// | 8 | `Epsilon` | | `epsilon` |
    ///
    /// # Differences
    ///
    /// * Epsilon must be above 0. DirectML's document sets no such bound and so allows 0.
    /// * Tensors are packed: there are no strides.
    /// * Sums are kept in f32 for FLOAT16 too.
    ///
    /// ```
    /// # pollster::block_on(async {
    /// # use wgpu_norm::{Error, GpuContext};
    /// # if let Err(Error::NoAdapter { .. }) = GpuContext::new().await { return Ok(()) }
    /// let gpu = GpuContext::new().await?;
    /// use wgpu_norm::operators::{Inputs, directml::BatchNormalizationGrad};
    ///
    /// let op = BatchNormalizationGrad::new(1e-5);
    /// let by_channel = [1, 2, 1, 1];
    /// let inputs = Inputs::new()
    ///     .with("InputTensor", &[1, 2, 1, 2], &[1.0_f32, 3.0, 2.0, 6.0])
    ///     .with("InputGradientTensor", &[1, 2, 1, 2], &[1.0_f32, 2.0, 3.0, 4.0])
    ///     .with("MeanTensor", &by_channel, &[2.0_f32, 4.0])
    ///     .with("VarianceTensor", &by_channel, &[1.0_f32, 4.0])
    ///     .with("ScaleTensor", &by_channel, &[1.0_f32, 1.0]);
    /// let outputs = op.run(&gpu, &inputs).await?;
    /// assert_eq!(outputs.get::<f32>("OutputBiasGradientTensor")?, [3.0, 7.0]);
    /// # Ok::<(), Error>(()) }).unwrap();
    /// ```
    BatchNormalizationGrad {
        /// `Epsilon`: added to the variance; finite and above 0.
        epsilon: f32,
    } {
    }
    /// The operator.
    new
    inputs(_) {
        InputTensor: Src, InputGradientTensor: DiffDst, MeanTensor: Mean, VarianceTensor: Variance,
        ScaleTensor: Gamma,
    }
    outputs(_) {
        OutputGradientTensor: DiffSrc, OutputScaleGradientTensor: DiffGamma, OutputBiasGradientTensor: DiffBeta,
    }
}

impl Definition for BatchNormalizationGrad {
    fn define(&self, given: &Given<'_>) -> Result<Operation, Error> {
        let pass = Backward::default().with_through(Through::Constant);
        let sizes = common_sizes(given, &[Tensor::Mean])?;
        given.operation(Norm::Batch(Channels::Broadcast(sizes)), pass, self.epsilon)
    }
}

operator! {
    /// DirectML's
    /// [`DML_BATCH_NORMALIZATION_TRAINING_GRAD_OPERATOR_DESC`](https://learn.microsoft.com/en-us/windows/win32/api/directml/ns-directml-dml_batch_normalization_training_grad_operator_desc):
    /// mean and variance were computed **from the batch**, and the gradient flows through them.
    ///
    /// With r = 1/√(Variance + Epsilon), and mean(·) over the dimensions where MeanTensor has size 1:
    ///
    /// * OutputGradient = Scale · r · (InputGradient − mean(InputGradient)
    ///   − (Input − Mean) · r² · mean(InputGradient · (Input − Mean)))
    /// * OutputScaleGradient = Σ InputGradient · (Input − Mean) · r
    /// * OutputBiasGradient = Σ InputGradient
    ///
    /// Members, their order and their names in plans are those of [`BatchNormalizationGrad`].
    ///
    /// # Differences
    ///
    /// * The differences of [`BatchNormalizationGrad`].
    /// * MeanTensor is the mean in all three formulas. In the first, the document writes the mean of
    ///   InputTensor, which is the same where MeanTensor comes from the forward pass.
    ///
    /// ```
    /// # pollster::block_on(async {
    /// # use wgpu_norm::{Error, GpuContext};
    /// # if let Err(Error::NoAdapter { .. }) = GpuContext::new().await { return Ok(()) }
    /// let gpu = GpuContext::new().await?;
    /// use wgpu_norm::operators::{Inputs, directml::BatchNormalizationTrainingGrad};
    ///
    /// let op = BatchNormalizationTrainingGrad::new(1e-5);
    /// let by_channel = [1, 2, 1, 1];
    /// let inputs = Inputs::new()
    ///     .with("InputTensor", &[1, 2, 1, 2], &[1.0_f32, 3.0, 2.0, 6.0])
    ///     .with("InputGradientTensor", &[1, 2, 1, 2], &[1.0_f32, 2.0, 3.0, 4.0])
    ///     .with("MeanTensor", &by_channel, &[2.0_f32, 4.0])
    ///     .with("VarianceTensor", &by_channel, &[1.0_f32, 4.0])
    ///     .with("ScaleTensor", &by_channel, &[1.0_f32, 1.0]);
    /// let outputs = op.run(&gpu, &inputs).await?;
    /// assert_eq!(outputs.get::<f32>("OutputBiasGradientTensor")?, [3.0, 7.0]);
    /// # Ok::<(), Error>(()) }).unwrap();
    /// ```
    BatchNormalizationTrainingGrad {
        /// `Epsilon`: added to the variance; finite and above 0.
        epsilon: f32,
    } {
    }
    /// The operator.
    new
    inputs(_) {
        InputTensor: Src, InputGradientTensor: DiffDst, MeanTensor: Mean, VarianceTensor: Variance,
        ScaleTensor: Gamma,
    }
    outputs(_) {
        OutputGradientTensor: DiffSrc, OutputScaleGradientTensor: DiffGamma, OutputBiasGradientTensor: DiffBeta,
    }
}

impl Definition for BatchNormalizationTrainingGrad {
    fn define(&self, given: &Given<'_>) -> Result<Operation, Error> {
        let pass = Backward::default().with_through(Through::Batch);
        let sizes = common_sizes(given, &[Tensor::Mean])?;
        given.operation(Norm::Batch(Channels::Broadcast(sizes)), pass, self.epsilon)
    }
}

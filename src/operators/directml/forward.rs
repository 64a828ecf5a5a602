//! The forward passes.

use crate::operators::broadcast::common_sizes;
use crate::operators::*;

/// An activation that DirectML applies to an operator's output.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum FusedActivation {
    /// `DML_ACTIVATION_RELU_OPERATOR_DESC`: max(x, 0).
    Relu,
}

pub(super) fn activated(operation: Operation, fused: Option<FusedActivation>) -> Operation {
    let activation = match fused {
        None => Activation::None,
        Some(FusedActivation::Relu) => Activation::Relu,
    };
    let residual = operation.epilogue.residual;
    operation.with_epilogue(Epilogue::new(residual, activation))
}

operator! {
    /// DirectML's
    /// [`DML_BATCH_NORMALIZATION_TRAINING_OPERATOR_DESC`](https://learn.microsoft.com/en-us/windows/win32/api/directml/ns-directml-dml_batch_normalization_training_operator_desc).
    ///
    /// With means over the dimensions where ScaleTensor has size 1, any set of them:
    ///
    /// * OutputMean = mean(Input)
    /// * OutputVariance = mean((Input − OutputMean)²), the biased variance
    /// * Output = FusedActivation(Scale · (Input − OutputMean) / √(OutputVariance + Epsilon) + Bias + FusedAdd)
    ///
    /// | | member | sizes | in plans |
    /// |---|---|---|---|
    /// | 0 | `InputTensor` | InputDimensions, rank 1 to 8 | `src` |
    /// | 1 | `ScaleTensor` | ScaleDimensions | `gamma` |
    /// | 2 | `BiasTensor` | ScaleDimensions | `beta` |
    /// | 3 | `FusedAddTensor`, optional | InputDimensions | `residual` |
    /// | 4 | `OutputTensor` | InputDimensions | `dst` |
    /// | 5 | `OutputMeanTensor` | ScaleDimensions | `mean` |
    /// | 6 | `OutputVarianceTensor` | ScaleDimensions | `variance` |
    /// | 7 | `Epsilon` | | `epsilon` |
    /// | 8 | `FusedActivation`, optional: ReLU | | `activation` |
    ///
    /// # Differences
    ///
    /// * ReLU is the only activation.
    /// * With FusedAddTensor and FusedActivation the operation also writes `mask`, which no operator of DirectML reads:
    ///   its gradients expect a diff_dst to which ACTIVATION_RELU_GRAD has been applied.
    /// * Epsilon must be above 0. DirectML's document sets no such bound and so allows 0.
    /// * Tensors are packed: there are no strides.
    /// * Sums are kept in f32 for FLOAT16 too; the statistics that are written are rounded to FLOAT16.
    ///
    /// ```
    /// # pollster::block_on(async {
    /// # use wgpu_norm::{Error, GpuContext};
    /// # if let Err(Error::NoAdapter { .. }) = GpuContext::new().await { return Ok(()) }
    /// let gpu = GpuContext::new().await?;
    /// use wgpu_norm::operators::{Inputs, directml::BatchNormalizationTraining};
    ///
    /// let op = BatchNormalizationTraining::new(1e-5);
    /// let inputs = Inputs::new()
    ///     .with("InputTensor", &[1, 2, 1, 2], &[1.0_f32, 3.0, 2.0, 6.0])
    ///     .with("ScaleTensor", &[1, 2, 1, 1], &[1.0_f32, 2.0]) // two channels
    ///     .with("BiasTensor", &[1, 2, 1, 1], &[0.0_f32, 5.0]);
    /// let outputs = op.run(&gpu, &inputs).await?;
    /// assert_eq!(outputs.get::<f32>("OutputMeanTensor")?, [2.0, 4.0]);
    /// assert_eq!(outputs.get::<f32>("OutputVarianceTensor")?, [1.0, 4.0]);
    /// assert!((outputs.get::<f32>("OutputTensor")?[3] - 7.0).abs() < 1e-4);
    /// # Ok::<(), Error>(()) }).unwrap();
    /// ```
    BatchNormalizationTraining {
        /// `Epsilon`: added to the variance; finite and above 0.
        epsilon: f32,
    } {
        /// `FusedActivation`: applied last.
        fused_activation: Option<FusedActivation> = None,
    }
    /// The operator without an activation.
    new
    inputs(_) { InputTensor: Src, ScaleTensor: Gamma, BiasTensor: Beta, FusedAddTensor: Residual.optional() }
    outputs(_) { OutputTensor: Dst, OutputMeanTensor: Mean, OutputVarianceTensor: Variance }
}

impl Definition for BatchNormalizationTraining {
    fn define(&self, given: &Given<'_>) -> Result<Operation, Error> {
        let sizes = common_sizes(given, &[Tensor::Gamma])?;
        let norm = Norm::Batch(Channels::Broadcast(sizes));
        let mut operation = given.operation(norm, Forward::default(), self.epsilon)?;
        if given.has(Tensor::Residual) {
            operation.epilogue = Epilogue::new(Residual::After, Activation::None);
        }
        Ok(activated(operation, self.fused_activation))
    }
}

operator! {
    /// DirectML's
    /// [`DML_BATCH_NORMALIZATION_OPERATOR_DESC`](https://learn.microsoft.com/en-us/windows/win32/api/directml/ns-directml-dml_batch_normalization_operator_desc):
    /// Output = FusedActivation(Scale · (Input − Mean) / √(Variance + Epsilon) + Bias).
    ///
    /// MeanTensor, VarianceTensor, ScaleTensor and BiasTensor are **each** broadcast along their own dimensions
    /// of size 1.
    ///
    /// | | member | sizes | in plans |
    /// |---|---|---|---|
    /// | 0 | `InputTensor` | InputDimensions, rank 1 to 8 | `src` |
    /// | 1 | `MeanTensor` | its own | `mean` |
    /// | 2 | `VarianceTensor` | its own | `variance` |
    /// | 3 | `ScaleTensor` | its own | `gamma` |
    /// | 4 | `BiasTensor` | its own | `beta` |
    /// | 5 | `OutputTensor` | InputDimensions | `dst` |
    /// | 6 | `Spatial`, left out | | |
    /// | 7 | `Epsilon` | | `epsilon` |
    /// | 8 | `FusedActivation`, optional: ReLU | | `activation` |
    ///
    /// # Differences
    ///
    /// * The kernels take four tensors of one shape. Tensors of different sizes in host memory are first expanded on
    ///   the CPU to common sizes, which are 1 only where all four tensors have size 1. These are usually small: they
    ///   reach InputTensor's sizes only if the tensors vary along most dimensions.
    /// * On device buffers all four must have one shape.
    /// * Spatial is left out: it no longer has an effect in DirectML.
    /// * ReLU is the only activation.
    /// * Epsilon must be above 0. DirectML's document sets no such bound and so allows 0.
    /// * Tensors are packed: there are no strides.
    ///
    /// ```
    /// # pollster::block_on(async {
    /// # use wgpu_norm::{Error, GpuContext};
    /// # if let Err(Error::NoAdapter { .. }) = GpuContext::new().await { return Ok(()) }
    /// let gpu = GpuContext::new().await?;
    /// use wgpu_norm::operators::{Inputs, directml::BatchNormalization};
    ///
    /// let op = BatchNormalization::new(1e-5);
    /// let inputs = Inputs::new()
    ///     .with("InputTensor", &[1, 2, 2], &[1.0_f32, 3.0, 2.0, 6.0])
    ///     .with("MeanTensor", &[1, 2, 1], &[2.0_f32, 4.0]) // two channels
    ///     .with("VarianceTensor", &[1, 2, 1], &[1.0_f32, 4.0])
    ///     .with("ScaleTensor", &[1, 1, 1], &[2.0_f32])
    ///     .with("BiasTensor", &[1, 1, 2], &[0.0_f32, 5.0]);
    /// let outputs = op.run(&gpu, &inputs).await?;
    /// let output: &[f32] = outputs.get("OutputTensor")?;
    /// assert!((output[2] + 2.0).abs() < 1e-4 && (output[3] - 7.0).abs() < 1e-4);
    /// # Ok::<(), Error>(()) }).unwrap();
    /// ```
    BatchNormalization {
        /// `Epsilon`: added to the variance; finite and above 0.
        epsilon: f32,
    } {
        /// `FusedActivation`: applied last.
        fused_activation: Option<FusedActivation> = None,
    }
    /// The operator without an activation.
    new
    inputs(_) {
        InputTensor: Src, MeanTensor: Mean, VarianceTensor: Variance, ScaleTensor: Gamma, BiasTensor: Beta,
    }
    outputs(_) { OutputTensor: Dst }
}

impl Definition for BatchNormalization {
    fn define(&self, given: &Given<'_>) -> Result<Operation, Error> {
        let norm = Norm::Batch(Channels::Broadcast(common_sizes(given, &PARAMETERS)?));
        let operation = given.operation(norm, Pass::Inference, self.epsilon)?;
        Ok(activated(operation, self.fused_activation))
    }
}

/// The parameters of inference.
const PARAMETERS: [Tensor; 4] = [Tensor::Mean, Tensor::Variance, Tensor::Gamma, Tensor::Beta];

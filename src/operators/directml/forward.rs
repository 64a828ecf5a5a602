//! The forward passes.

use super::*;
use crate::operators::broadcast::{common_sizes, expand};

/// An activation that DirectML applies to an operator's output.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum FusedActivation {
    /// `DML_ACTIVATION_RELU_OPERATOR_DESC`: max(x, 0).
    Relu,
}

pub(super) fn activation(fused: Option<FusedActivation>) -> Activation {
    match fused {
        None => Activation::None,
        Some(FusedActivation::Relu) => Activation::Relu,
    }
}

inputs! {
    /// The input tensors of [`BatchNormalizationTraining`], in host memory, in the order of the structure's members.
    TrainingInputs<T> {
        /// Sizes of InputTensor and OutputTensor: 1 to 8 of them.
        input_dimensions: &'a [usize],
        /// Sizes of ScaleTensor, BiasTensor, OutputMeanTensor and OutputVarianceTensor: as many, each either 1 or
        /// InputTensor's. Statistics are taken along dimensions of size 1.
        scale_dimensions: &'a [usize],
    }
    input_tensor: &'a [T] = Src,
    scale_tensor: &'a [T] = Gamma,
    bias_tensor: &'a [T] = Beta,
    /// `FusedAddTensor`, of InputTensor's sizes: added before the activation.
    fused_add_tensor: Option<&'a [T]> = Residual,
}

outputs! {
    /// The output tensors of [`BatchNormalizationTraining`], in host memory.
    TrainingOutputs<T> from Results<T, T, T> as [T]
    output_tensor: Vec<T> = data(Dst),
    output_mean_tensor: Vec<T> = statistic(Mean),
    output_variance_tensor: Vec<T> = statistic(Variance),
}

attributes! {
    /// DirectML's
    /// [`DML_BATCH_NORMALIZATION_TRAINING_OPERATOR_DESC`](https://learn.microsoft.com/en-us/windows/win32/api/directml/ns-directml-dml_batch_normalization_training_operator_desc).
    ///
    /// With means over the dimensions where ScaleTensor has size 1, any set of them:
    ///
    /// * OutputMean = mean(Input)
    /// * OutputVariance = mean((Input − OutputMean)²), the biased variance
    /// * Output = FusedActivation(Scale · (Input − OutputMean) / √(OutputVariance + Epsilon) + Bias + FusedAdd)
    ///
    /// | | member | sizes | in plans and errors |
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
    /// * With FusedAddTensor and FusedActivation the operation also writes `mask`, which no operator of DirectML reads: its
    ///   gradients expect a diff_dst to which ACTIVATION_RELU_GRAD has been applied.
    /// * Epsilon must be above 0. DirectML's document sets no such bound and so allows 0.
    /// * Tensors are packed: there are no strides.
    /// * Sums are kept in f32 for FLOAT16 too; the statistics that are written are rounded to FLOAT16.
    ///
    /// ```
    /// # pollster::block_on(async {
    /// # use wgpu_norm::{Error, GpuContext};
    /// # if let Err(Error::NoAdapter { .. }) = GpuContext::new().await { return Ok(()) }
    /// let gpu = GpuContext::new().await?;
    /// use wgpu_norm::operators::directml::{BatchNormalizationTraining, TrainingInputs};
    ///
    /// let op = BatchNormalizationTraining::new(1e-5);
    /// let inputs = TrainingInputs {
    ///     input_dimensions: &[1, 2, 1, 2], // one sample of two channels with two elements
    ///     scale_dimensions: &[1, 2, 1, 1],
    ///     input_tensor: &[1.0_f32, 3.0, 2.0, 6.0],
    ///     scale_tensor: &[1.0, 2.0],
    ///     bias_tensor: &[0.0, 5.0],
    ///     fused_add_tensor: None,
    /// };
    /// let outputs = op.forward(&gpu, inputs).await?;
    /// assert_eq!(outputs.output_mean_tensor, [2.0, 4.0]);
    /// assert_eq!(outputs.output_variance_tensor, [1.0, 4.0]);
    /// assert!((outputs.output_tensor[3] - 7.0).abs() < 1e-4);
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
}

impl BatchNormalizationTraining {
    /// The operator as an operation, with FusedAddTensor or without.
    ///
    /// # Errors
    ///
    /// [`Error::Epsilon`], and errors in the dimensions.
    pub fn operation<T: DataType>(
        &self,
        input_dimensions: &[usize],
        scale_dimensions: &[usize],
        has_fused_add: bool,
    ) -> Result<Operation, Error> {
        let pass = Forward::default();
        let plain = of_dimensions::<T>(pass, self.epsilon, input_dimensions, scale_dimensions)?;
        let epilogue = Epilogue::new(residual(has_fused_add), activation(self.fused_activation));
        Ok(plain.with_epilogue(epilogue))
    }

    /// Computes the output tensors from tensors in host memory.
    ///
    /// # Errors
    ///
    /// Those of [`Operation::run_into`].
    pub async fn forward<T: DataType>(
        &self,
        gpu: &GpuContext,
        inputs: TrainingInputs<'_, T>,
    ) -> Result<TrainingOutputs<T>, Error> {
        let (input, scale) = (inputs.input_dimensions, inputs.scale_dimensions);
        let operation = self.operation::<T>(input, scale, inputs.fused_add_tensor.is_some())?;
        Ok(inputs.call(operation).run::<T, T, T>(gpu).await?.into())
    }
}

/// A tensor with sizes of its own.
#[derive(Clone, Copy, Debug)]
pub struct Parameter<'a, T> {
    /// Its sizes: as many as InputTensor's, each either 1 or InputTensor's. Along dimensions of size 1 the tensor is
    /// broadcast.
    pub dimensions: &'a [usize],
    /// Its elements.
    pub tensor: &'a [T],
}

/// The input tensors of [`BatchNormalization`], in host memory, in the order of the structure's members.
#[derive(Clone, Copy, Debug)]
pub struct BatchNormalizationInputs<'a, T> {
    /// Sizes of InputTensor and OutputTensor: 1 to 8 of them.
    pub input_dimensions: &'a [usize],
    /// `InputTensor`: the layer's input.
    pub input_tensor: &'a [T],
    /// `MeanTensor`.
    pub mean_tensor: Parameter<'a, T>,
    /// `VarianceTensor`.
    pub variance_tensor: Parameter<'a, T>,
    /// `ScaleTensor`.
    pub scale_tensor: Parameter<'a, T>,
    /// `BiasTensor`.
    pub bias_tensor: Parameter<'a, T>,
}

attributes! {
    /// DirectML's
    /// [`DML_BATCH_NORMALIZATION_OPERATOR_DESC`](https://learn.microsoft.com/en-us/windows/win32/api/directml/ns-directml-dml_batch_normalization_operator_desc):
    /// Output = FusedActivation(Scale · (Input − Mean) / √(Variance + Epsilon) + Bias).
    ///
    /// MeanTensor, VarianceTensor, ScaleTensor and BiasTensor are **each** broadcast along their own dimensions of size 1.
    ///
    /// | | member | sizes | in plans and errors |
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
    /// * The kernels take four tensors of one shape. Tensors of different sizes in host memory are first expanded on the
    ///   CPU to common sizes, which are 1 only where all four tensors have size 1. These are usually small: they reach
    ///   InputTensor's sizes only if the tensors vary along most dimensions.
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
    /// use wgpu_norm::operators::directml::{BatchNormalization, BatchNormalizationInputs, Parameter};
    ///
    /// let op = BatchNormalization::new(1e-5);
    /// let by_channel = |tensor| Parameter {
    ///     dimensions: &[1, 2, 1],
    ///     tensor,
    /// };
    /// let inputs = BatchNormalizationInputs {
    ///     input_dimensions: &[1, 2, 2], // one sample of two channels with two elements
    ///     input_tensor: &[1.0_f32, 3.0, 2.0, 6.0],
    ///     mean_tensor: by_channel(&[2.0, 4.0]),
    ///     variance_tensor: by_channel(&[1.0, 4.0]),
    ///     scale_tensor: Parameter { dimensions: &[1, 1, 1], tensor: &[2.0] },
    ///     bias_tensor: Parameter { dimensions: &[1, 1, 2], tensor: &[0.0, 5.0] },
    /// };
    /// let output = op.forward(&gpu, inputs).await?;
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
}

/// The four parameters.
const PARAMETERS: [Tensor; 4] = [Tensor::Mean, Tensor::Variance, Tensor::Gamma, Tensor::Beta];

impl BatchNormalization {
    /// The operator as an operation. All four parameters must have the sizes `mean_dimensions`: expand parameters of
    /// other shapes first.
    ///
    /// # Errors
    ///
    /// [`Error::Epsilon`], [`Error::Argument`] for a parameter of other sizes than MeanTensor's, and those of the
    /// dimensions.
    pub fn operation<T: DataType>(
        &self,
        input_dimensions: &[usize],
        mean_dimensions: &[usize],
        variance_dimensions: &[usize],
        scale_dimensions: &[usize],
        bias_dimensions: &[usize],
    ) -> Result<Operation, Error> {
        let others = [variance_dimensions, scale_dimensions, bias_dimensions];
        for (tensor, dimensions) in PARAMETERS.into_iter().skip(1).zip(others) {
            if dimensions != mean_dimensions {
                let expected = format!("mean's sizes, {mean_dimensions:?}, on device buffers");
                return Err(Error::argument(
                    tensor.name(),
                    expected,
                    format!("{dimensions:?}"),
                ));
            }
        }
        let pass = Pass::Inference;
        let plain = of_dimensions::<T>(pass, self.epsilon, input_dimensions, mean_dimensions)?;
        let epilogue = Epilogue::new(Residual::None, activation(self.fused_activation));
        Ok(plain.with_epilogue(epilogue))
    }

    /// Computes OutputTensor from tensors in host memory.
    ///
    /// # Errors
    ///
    /// [`Error::Rank`], [`Error::Argument`] or [`Error::Length`] for a parameter's sizes, and those of
    /// [`Operation::run_into`].
    pub async fn forward<T: DataType>(
        &self,
        gpu: &GpuContext,
        inputs: BatchNormalizationInputs<'_, T>,
    ) -> Result<Vec<T>, Error> {
        let (mean, variance) = (inputs.mean_tensor, inputs.variance_tensor);
        let parameters = [mean, variance, inputs.scale_tensor, inputs.bias_tensor];
        let input = inputs.input_dimensions;
        let named = PARAMETERS.into_iter().zip(parameters);
        let common = &common_sizes(input, named.map(|(tensor, own)| (tensor, own.dimensions)))?;
        let operation = self.operation::<T>(input, common, common, common, common)?;
        let mut call = Call::new(operation, inputs.input_tensor);
        let mut written = Vec::new();
        for (tensor, own) in PARAMETERS.into_iter().zip(parameters) {
            written.push((tensor, expand(tensor, own.dimensions, own.tensor, common)?));
        }
        for (tensor, values) in &written {
            call = call.with(*tensor, &**values);
        }
        Ok(call.run::<T, T, T>(gpu).await?.dst())
    }
}

//! The gradients.

use super::*;

inputs! {
    /// The input tensors of [`BatchNormalizationGrad`] and [`BatchNormalizationTrainingGrad`], in host memory, in the order
    /// of the structures' members. `input_dimensions` and `mean_dimensions` are the names of the two sets of sizes in the
    /// documents' tables of tensor support.
    GradInputs<T> {
        /// Sizes of InputTensor, InputGradientTensor and OutputGradientTensor: 1 to 8 of them.
        input_dimensions: &'a [usize],
        /// Sizes of MeanTensor, VarianceTensor, ScaleTensor and their gradients: as many, each either 1 or InputTensor's.
        /// Along dimensions of size 1 the tensors are broadcast and sums are taken.
        mean_dimensions: &'a [usize],
    }
    input_tensor: &'a [T] = Src,
    input_gradient_tensor: &'a [T] = DiffDst,
    mean_tensor: &'a [T] = Mean,
    variance_tensor: &'a [T] = Variance,
    scale_tensor: &'a [T] = Gamma,
}

outputs! {
    /// The output tensors, in host memory.
    GradOutputs<T> from Results<T, T, T> as [T]
    output_gradient_tensor: Vec<T> = data(DiffSrc),
    output_scale_gradient_tensor: Vec<T> = param(DiffGamma),
    output_bias_gradient_tensor: Vec<T> = param(DiffBeta),
}

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
/// | | member | sizes | in plans and errors |
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
/// use wgpu_norm::operators::directml::{BatchNormalizationGrad, GradInputs};
///
/// let op = BatchNormalizationGrad { epsilon: 1e-5 };
/// let inputs = GradInputs {
///     input_dimensions: &[1, 2, 1, 2], // one sample of two channels with two elements
///     mean_dimensions: &[1, 2, 1, 1],
///     input_tensor: &[1.0_f32, 3.0, 2.0, 6.0],
///     input_gradient_tensor: &[1.0, 2.0, 3.0, 4.0],
///     mean_tensor: &[2.0, 4.0],
///     variance_tensor: &[1.0, 4.0],
///     scale_tensor: &[1.0, 1.0],
/// };
/// let outputs = op.backward(&gpu, inputs).await?;
/// assert_eq!(outputs.output_bias_gradient_tensor, [3.0, 7.0]);
/// # Ok::<(), Error>(()) }).unwrap();
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct BatchNormalizationGrad {
    /// `Epsilon`: added to the variance; finite and above 0.
    pub epsilon: f32,
}

impl BatchNormalizationGrad {
    /// The operator as an operation.
    ///
    /// # Errors
    ///
    /// [`Error::Epsilon`], and errors in the dimensions.
    pub fn operation<T: DataType>(
        &self,
        input_dimensions: &[usize],
        mean_dimensions: &[usize],
    ) -> Result<Operation, Error> {
        let pass = Backward::default().with_through(Through::Constant);
        of_dimensions::<T>(pass, self.epsilon, input_dimensions, mean_dimensions)
    }

    /// Computes the output tensors from tensors in host memory.
    ///
    /// # Errors
    ///
    /// Those of [`Operation::run_into`].
    pub async fn backward<T: DataType>(
        &self,
        gpu: &GpuContext,
        inputs: GradInputs<'_, T>,
    ) -> Result<GradOutputs<T>, Error> {
        let (input, mean) = (inputs.input_dimensions, inputs.mean_dimensions);
        let call = inputs.call(self.operation::<T>(input, mean)?);
        Ok(call.run::<T, T, T>(gpu).await?.into())
    }
}

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
/// Members, their order and their names in plans and errors are those of [`BatchNormalizationGrad`].
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
/// use wgpu_norm::operators::directml::{BatchNormalizationTrainingGrad, GradInputs};
///
/// let op = BatchNormalizationTrainingGrad { epsilon: 1e-5 };
/// let inputs = GradInputs {
///     input_dimensions: &[1, 2, 1, 2], // one sample of two channels with two elements
///     mean_dimensions: &[1, 2, 1, 1],
///     input_tensor: &[1.0_f32, 3.0, 2.0, 6.0],
///     input_gradient_tensor: &[1.0, 2.0, 3.0, 4.0],
///     mean_tensor: &[2.0, 4.0],
///     variance_tensor: &[1.0, 4.0],
///     scale_tensor: &[1.0, 1.0],
/// };
/// let outputs = op.backward(&gpu, inputs).await?;
/// assert_eq!(outputs.output_bias_gradient_tensor, [3.0, 7.0]);
/// # Ok::<(), Error>(()) }).unwrap();
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct BatchNormalizationTrainingGrad {
    /// `Epsilon`: added to the variance; finite and above 0.
    pub epsilon: f32,
}

impl BatchNormalizationTrainingGrad {
    /// The operator as an operation.
    ///
    /// # Errors
    ///
    /// [`Error::Epsilon`], and errors in the dimensions.
    pub fn operation<T: DataType>(
        &self,
        input_dimensions: &[usize],
        mean_dimensions: &[usize],
    ) -> Result<Operation, Error> {
        let pass = Backward::default().with_through(Through::Batch);
        of_dimensions::<T>(pass, self.epsilon, input_dimensions, mean_dimensions)
    }

    /// Computes the output tensors from tensors in host memory.
    ///
    /// # Errors
    ///
    /// Those of [`Operation::run_into`].
    pub async fn backward<T: DataType>(
        &self,
        gpu: &GpuContext,
        inputs: GradInputs<'_, T>,
    ) -> Result<GradOutputs<T>, Error> {
        let (input, mean) = (inputs.input_dimensions, inputs.mean_dimensions);
        let call = inputs.call(self.operation::<T>(input, mean)?);
        Ok(call.run::<T, T, T>(gpu).await?.into())
    }
}

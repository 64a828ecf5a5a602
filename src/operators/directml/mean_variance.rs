//! Mean variance normalization.

use super::forward::activation;
use super::*;
use crate::operators::broadcast::{axes_along, common_sizes, expand};

/// The inputs of [`MeanVarianceNormalization1`] and [`MeanVarianceNormalization2`], in host memory.
#[derive(Clone, Copy, Debug)]
pub struct MeanVarianceNormalizationInputs<'a, T> {
    /// Sizes of InputTensor and OutputTensor: 1 to 8 of them.
    pub input_dimensions: &'a [usize],
    /// `InputTensor`: the layer's input.
    pub input_tensor: &'a [T],
    /// `ScaleTensor`, optional. If it is absent, it is 1.
    pub scale_tensor: Option<Parameter<'a, T>>,
    /// `BiasTensor`, optional. If it is absent, it is 0.
    pub bias_tensor: Option<Parameter<'a, T>>,
}

/// [`DML_MEAN_VARIANCE_NORMALIZATION1_OPERATOR_DESC`](https://learn.microsoft.com/en-us/windows/win32/api/directml/ns-directml-dml_mean_variance_normalization1_operator_desc):
/// Output = FusedActivation(Scale · (Input − Mean) / √(Variance + Epsilon) + Bias), with the mean and the biased variance
/// over Axes.
///
/// | | member | sizes | in plans and errors |
/// |---|---|---|---|
/// | 0 | `InputTensor` | InputDimensions, rank 1 to 8 | `src` |
/// | 1 | `ScaleTensor`, optional | its own | `gamma` |
/// | 2 | `BiasTensor`, optional | its own | `beta` |
/// | 3 | `OutputTensor` | InputDimensions | `dst` |
/// | 5 | `Axes` | | `axes` |
/// | 6 | `NormalizeVariance` | | `NormalizeVariance` |
/// | 7 | `Epsilon` | | `epsilon` |
/// | 8 | `FusedActivation`, optional: ReLU | | `activation` |
///
/// ScaleTensor and BiasTensor are each broadcast along their own dimensions of size 1.
///
/// # Differences
///
/// * NormalizeVariance must be true: without it, the operator only subtracts the mean.
/// * The kernels take a scale and a bias of one shape. Tensors of different sizes in host memory are first expanded on
///   the CPU to common sizes. On device buffers both must have one shape.
/// * The operation also writes mean and variance, in f32, which DirectML does not return.
/// * ReLU is the only activation. Epsilon must be above 0. Tensors are packed: there are no strides.
///
/// ```
/// # pollster::block_on(async {
/// # use wgpu_norm::{Error, GpuContext};
/// # if let Err(Error::NoAdapter { .. }) = GpuContext::new().await { return Ok(()) }
/// let gpu = GpuContext::new().await?;
/// use wgpu_norm::operators::directml::{
///     MeanVarianceNormalization1, MeanVarianceNormalizationInputs, Parameter,
/// };
///
/// let op = MeanVarianceNormalization1::new(&[1], 1e-5); // over channels
/// let inputs = MeanVarianceNormalizationInputs {
///     input_dimensions: &[1, 2, 1, 2],
///     input_tensor: &[0.0_f32, 1.0, 2.0, 5.0],
///     scale_tensor: Some(Parameter { dimensions: &[1, 2, 1, 1], tensor: &[1.0, 2.0] }),
///     bias_tensor: Some(Parameter { dimensions: &[1, 1, 1, 1], tensor: &[3.0] }),
/// };
/// let output = op.forward(&gpu, inputs).await?;
/// assert!((output[0] - 2.0).abs() < 1e-4 && (output[3] - 5.0).abs() < 1e-4);
/// # Ok::<(), Error>(()) }).unwrap();
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct MeanVarianceNormalization1 {
    /// `Axes`: the dimensions over which mean and variance are taken.
    pub axes: Vec<usize>,
    /// `NormalizeVariance`; only true is supported.
    pub normalize_variance: bool,
    /// `Epsilon`: added to the variance; finite and above 0.
    pub epsilon: f32,
    /// `FusedActivation`: applied last.
    pub fused_activation: Option<FusedActivation>,
}

/// [`DML_MEAN_VARIANCE_NORMALIZATION2_OPERATOR_DESC`](https://learn.microsoft.com/en-us/windows/ai/directml/api/ns-directml-dml_mean_variance_normalization2_operator_desc):
/// [`MeanVarianceNormalization1`] with UseMean and UseVariance in place of NormalizeVariance.
///
/// Both must be true; all else is as there.
///
/// ```
/// use wgpu_norm::operators::directml::MeanVarianceNormalization2;
/// let op = MeanVarianceNormalization2::new(&[2, 3], 1e-5); // instance norm, with a bias of each channel alone
/// let operation = op.operation::<f32>(&[8, 16, 14, 14], None, Some(&[1, 16, 1, 1]))?;
/// assert!(!operation.gamma && operation.beta);
///
/// let op = MeanVarianceNormalization2 { use_mean: false, ..op };
/// let error = op.operation::<f32>(&[8, 16, 14, 14], None, None).unwrap_err();
/// assert_eq!(error.to_string(), "UseMean: expected true, got false");
/// # Ok::<(), wgpu_norm::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct MeanVarianceNormalization2 {
    /// `Axes`: the dimensions over which mean and variance are taken.
    pub axes: Vec<usize>,
    /// `UseMean`; only true is supported.
    pub use_mean: bool,
    /// `UseVariance`; only true is supported.
    pub use_variance: bool,
    /// `Epsilon`: added to the variance; finite and above 0.
    pub epsilon: f32,
    /// `FusedActivation`: applied last.
    pub fused_activation: Option<FusedActivation>,
}

impl MeanVarianceNormalization1 {
    /// The operator with NormalizeVariance and without an activation.
    pub fn new(axes: &[usize], epsilon: f32) -> Self {
        Self {
            axes: axes.to_vec(),
            normalize_variance: true,
            epsilon,
            fused_activation: None,
        }
    }

    /// The operator as an operation, for scale and bias of these sizes.
    ///
    /// # Errors
    ///
    /// [`Error::Argument`] without NormalizeVariance, for an axis that InputTensor lacks or that is given twice, and for
    /// a scale and a bias of different sizes; [`Error::Epsilon`]; and those of the dimensions.
    pub fn operation<T: DataType>(
        &self,
        input_dimensions: &[usize],
        scale_dimensions: Option<&[usize]>,
        bias_dimensions: Option<&[usize]>,
    ) -> Result<Operation, Error> {
        required_attribute("NormalizeVariance", self.normalize_variance)?;
        if let (Some(scale), Some(bias)) = (scale_dimensions, bias_dimensions)
            && scale != bias
        {
            let expected = format!("gamma's sizes, {scale:?}, on device buffers");
            let got = format!("{bias:?}");
            return Err(Error::argument(Tensor::Beta.name(), expected, got));
        }
        let given = [
            (Tensor::Gamma, scale_dimensions),
            (Tensor::Beta, bias_dimensions),
        ];
        let given = given
            .into_iter()
            .filter_map(|(tensor, own)| Some((tensor, own?)));
        let common = common_sizes(input_dimensions, given)?;
        // A number that overflows is no axis.
        let axes = self.axes.iter();
        let axes = axes.map(|&axis| i64::try_from(axis).unwrap_or(i64::MAX));
        let norm = Norm::Axes {
            axes: axes.collect(),
            param_axes: axes_along(&common),
            centered: true,
        };
        let params = (scale_dimensions.is_some(), bias_dimensions.is_some());
        let (pass, epsilon) = (Forward::default(), self.epsilon);
        let plain = operation::<T, T, T::Sum>(norm, pass, input_dimensions, epsilon, params)?;
        let epilogue = Epilogue::new(Residual::None, activation(self.fused_activation));
        Ok(plain.with_epilogue(epilogue))
    }

    /// Computes OutputTensor from tensors in host memory.
    ///
    /// # Errors
    ///
    /// Those of the operation, of a parameter's sizes, and of [`Operation::run_into`].
    pub async fn forward<T: DataType>(
        &self,
        gpu: &GpuContext,
        inputs: MeanVarianceNormalizationInputs<'_, T>,
    ) -> Result<Vec<T>, Error> {
        let given = [
            (Tensor::Gamma, inputs.scale_tensor),
            (Tensor::Beta, inputs.bias_tensor),
        ];
        let given = given
            .into_iter()
            .filter_map(|(tensor, own)| Some((tensor, own?)));
        let dimensions = given.clone().map(|(tensor, own)| (tensor, own.dimensions));
        let common = common_sizes(inputs.input_dimensions, dimensions)?;
        let scale = inputs.scale_tensor.map(|_| &*common);
        let bias = inputs.bias_tensor.map(|_| &*common);
        let operation = self.operation::<T>(inputs.input_dimensions, scale, bias)?;
        let mut expanded = Vec::new();
        for (tensor, own) in given {
            let values = expand(tensor, own.dimensions, own.tensor, &common)?;
            expanded.push((tensor, values));
        }
        let mut call = Call::new(operation, inputs.input_tensor);
        for (tensor, values) in &expanded {
            call = call.with(*tensor, &**values);
        }
        Ok(call.run::<T, T, T::Sum>(gpu).await?.dst())
    }
}

impl MeanVarianceNormalization2 {
    /// The operator with UseMean and UseVariance and without an activation.
    pub fn new(axes: &[usize], epsilon: f32) -> Self {
        Self {
            axes: axes.to_vec(),
            use_mean: true,
            use_variance: true,
            epsilon,
            fused_activation: None,
        }
    }

    /// The operator that it is, if both attributes are true.
    fn checked(&self) -> Result<MeanVarianceNormalization1, Error> {
        required_attribute("UseMean", self.use_mean)?;
        required_attribute("UseVariance", self.use_variance)?;
        Ok(MeanVarianceNormalization1 {
            axes: self.axes.clone(),
            normalize_variance: true,
            epsilon: self.epsilon,
            fused_activation: self.fused_activation,
        })
    }

    /// Likewise [`MeanVarianceNormalization1::operation`].
    ///
    /// # Errors
    ///
    /// Those of [`MeanVarianceNormalization1::operation`]; [`Error::Argument`] without UseMean or UseVariance.
    pub fn operation<T: DataType>(
        &self,
        input_dimensions: &[usize],
        scale_dimensions: Option<&[usize]>,
        bias_dimensions: Option<&[usize]>,
    ) -> Result<Operation, Error> {
        let checked = self.checked()?;
        checked.operation::<T>(input_dimensions, scale_dimensions, bias_dimensions)
    }

    /// Likewise [`MeanVarianceNormalization1::forward`].
    ///
    /// # Errors
    ///
    /// Those of [`MeanVarianceNormalization1::forward`]; [`Error::Argument`] without UseMean or UseVariance.
    pub async fn forward<T: DataType>(
        &self,
        gpu: &GpuContext,
        inputs: MeanVarianceNormalizationInputs<'_, T>,
    ) -> Result<Vec<T>, Error> {
        self.checked()?.forward(gpu, inputs).await
    }
}

/// An error unless an attribute is true.
fn required_attribute(name: &'static str, is: bool) -> Result<(), Error> {
    match is {
        true => Ok(()),
        false => Err(Error::argument(name, "true", false)),
    }
}

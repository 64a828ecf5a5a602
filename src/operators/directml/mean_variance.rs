//! Mean variance normalization.

use super::forward::{FusedActivation, activated};
use crate::operators::broadcast::{axes_along, common_sizes};
use crate::operators::*;

operator! {
    /// [`DML_MEAN_VARIANCE_NORMALIZATION1_OPERATOR_DESC`](https://learn.microsoft.com/en-us/windows/win32/api/directml/ns-directml-dml_mean_variance_normalization1_operator_desc):
    /// Output = FusedActivation(Scale · (Input − Mean) / √(Variance + Epsilon) + Bias), with the mean and the biased
    /// variance over Axes.
    ///
    /// | | member | sizes | in plans |
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
    /// * The kernels take a scale and a bias of one shape. Tensors of different sizes in host memory are first expanded
    ///   on the CPU to common sizes. On device buffers both must have one shape.
    /// * The operation also writes mean and variance, in f32, which DirectML does not return.
    /// * ReLU is the only activation. Epsilon must be above 0. Tensors are packed: there are no strides.
    ///
    /// ```
    /// # pollster::block_on(async {
    /// # use wgpu_norm::{Error, GpuContext};
    /// # if let Err(Error::NoAdapter { .. }) = GpuContext::new().await { return Ok(()) }
    /// let gpu = GpuContext::new().await?;
    /// use wgpu_norm::operators::{Inputs, directml::MeanVarianceNormalization1};
    ///
    /// let op = MeanVarianceNormalization1::new(vec![1], 1e-5); // over channels
    /// let inputs = Inputs::new()
    ///     .with("InputTensor", &[1, 2, 1, 2], &[0.0_f32, 1.0, 2.0, 5.0])
    ///     .with("ScaleTensor", &[1, 2, 1, 1], &[1.0_f32, 2.0])
    ///     .with("BiasTensor", &[1, 1, 1, 1], &[3.0_f32]);
    /// let outputs = op.run(&gpu, &inputs).await?;
    /// let output: &[f32] = outputs.get("OutputTensor")?;
    /// assert!((output[0] - 2.0).abs() < 1e-4 && (output[3] - 5.0).abs() < 1e-4);
    /// # Ok::<(), Error>(()) }).unwrap();
    /// ```
    MeanVarianceNormalization1 {
        /// `Axes`: the dimensions over which mean and variance are taken.
        axes: Vec<usize>,
        /// `Epsilon`: added to the variance; finite and above 0.
        epsilon: f32,
    } {
        /// `NormalizeVariance`; only true is supported.
        normalize_variance: bool = true,
        /// `FusedActivation`: applied last.
        fused_activation: Option<FusedActivation> = None,
    }
    /// The operator without an activation.
    new
    inputs(_) { InputTensor: Src, ScaleTensor: Gamma.optional(), BiasTensor: Beta.optional() }
    outputs(_) { OutputTensor: Dst }
}

impl Definition for MeanVarianceNormalization1 {
    fn define(&self, given: &Given<'_>) -> Result<Operation, Error> {
        require("NormalizeVariance", self.normalize_variance)?;
        // A number that overflows is no axis.
        let axes = self
            .axes
            .iter()
            .map(|&axis| i64::try_from(axis).unwrap_or(i64::MAX));
        let sizes = common_sizes(given, &[Tensor::Gamma, Tensor::Beta])?;
        let norm = Norm::axes(&axes.collect::<Vec<_>>(), &axes_along(&sizes));
        let operation = given.operation_with_sums(norm, Forward::default(), self.epsilon)?;
        Ok(activated(operation, self.fused_activation))
    }
}

operator! {
    /// [`DML_MEAN_VARIANCE_NORMALIZATION2_OPERATOR_DESC`](https://learn.microsoft.com/en-us/windows/ai/directml/api/ns-directml-dml_mean_variance_normalization2_operator_desc):
    /// [`MeanVarianceNormalization1`] with UseMean and UseVariance in place of NormalizeVariance.
    ///
    /// Both must be true; all else is as there.
    ///
    /// ```
    /// use wgpu_norm::DType;
    /// use wgpu_norm::operators::{Inputs, directml::MeanVarianceNormalization2};
    ///
    /// let op = MeanVarianceNormalization2::new(vec![2, 3], 1e-5); // instance norm, with a bias of each channel alone
    /// let inputs = Inputs::new()
    ///     .described("InputTensor", &[8, 16, 14, 14], DType::F32)
    ///     .described("BiasTensor", &[1, 16, 1, 1], DType::F32);
    /// let operation = op.operation(&inputs)?;
    /// assert!(!operation.gamma && operation.beta);
    ///
    /// let op = MeanVarianceNormalization2 { use_mean: false, ..op };
    /// let error = op.operation(&inputs).unwrap_err();
    /// assert_eq!(error.to_string(), "UseMean: expected true, got false");
    /// # Ok::<(), wgpu_norm::Error>(())
    /// ```
    MeanVarianceNormalization2 {
        /// `Axes`: the dimensions over which mean and variance are taken.
        axes: Vec<usize>,
        /// `Epsilon`: added to the variance; finite and above 0.
        epsilon: f32,
    } {
        /// `UseMean`; only true is supported.
        use_mean: bool = true,
        /// `UseVariance`; only true is supported.
        use_variance: bool = true,
        /// `FusedActivation`: applied last.
        fused_activation: Option<FusedActivation> = None,
    }
    /// The operator without an activation.
    new
    inputs(_) { InputTensor: Src, ScaleTensor: Gamma.optional(), BiasTensor: Beta.optional() }
    outputs(_) { OutputTensor: Dst }
}

impl Definition for MeanVarianceNormalization2 {
    fn define(&self, given: &Given<'_>) -> Result<Operation, Error> {
        require("UseMean", self.use_mean)?;
        require("UseVariance", self.use_variance)?;
        let first = MeanVarianceNormalization1 {
            fused_activation: self.fused_activation,
            ..MeanVarianceNormalization1::new(self.axes.clone(), self.epsilon)
        };
        first.define(given)
    }
}

/// An error unless an attribute is true.
fn require(name: &'static str, is: bool) -> Result<(), Error> {
    if is {
        return Ok(());
    }
    Err(Error::argument(name, "true", is))
}

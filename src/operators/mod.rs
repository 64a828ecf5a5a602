//! The operators of other libraries as their documents define them, with their attributes, argument names and index
//! order. Each is converted into an [`Operation`].
//!
//! | document | operator | here |
//! |---|---|---|
//! | oneDNN Graph | `BatchNormForwardTraining` | [`onednn::BatchNormForwardTraining`] |
//! | oneDNN Graph | `BatchNormInference` | [`onednn::BatchNormInference`] |
//! | oneDNN Graph | `BatchNormTrainingBackward` | [`onednn::BatchNormTrainingBackward`] |
//! | oneDNN Graph | `LayerNorm` | [`onednn::LayerNorm`] |
//! | oneDNN Graph | `LayerNormBackward` | [`onednn::LayerNormBackward`] |
//! | oneDNN | batch normalization | [`onednn::BatchNormalization`], [`onednn::BatchNormalizationBackward`] |
//! | oneDNN | group normalization | [`onednn::GroupNormalization`], [`onednn::GroupNormalizationBackward`] |
//! | DirectML | `DML_BATCH_NORMALIZATION_TRAINING_OPERATOR_DESC` | [`directml::BatchNormalizationTraining`] |
//! | DirectML | `DML_BATCH_NORMALIZATION_OPERATOR_DESC` | [`directml::BatchNormalization`] |
//! | DirectML | `DML_BATCH_NORMALIZATION_GRAD_OPERATOR_DESC` | [`directml::BatchNormalizationGrad`] |
//! | DirectML | `DML_BATCH_NORMALIZATION_TRAINING_GRAD_OPERATOR_DESC` | [`directml::BatchNormalizationTrainingGrad`] |
//! | DirectML | `DML_MEAN_VARIANCE_NORMALIZATION1_OPERATOR_DESC` | [`directml::MeanVarianceNormalization1`] |
//! | DirectML | `DML_MEAN_VARIANCE_NORMALIZATION2_OPERATOR_DESC` | [`directml::MeanVarianceNormalization2`] |
//! | nGraph | `BatchNormTraining` | [`ngraph::BatchNormTraining`] |
//! | nGraph | `BatchNormInference` | [`ngraph::BatchNormInference`] |
//! | nGraph | `BatchNormTrainingBackprop` | [`ngraph::BatchNormTrainingBackprop`] |
//! | PyTorch | `native_batch_norm` | [`pytorch::NativeBatchNorm`] |
//! | PyTorch | `native_batch_norm_backward` | [`pytorch::NativeBatchNormBackward`] |
//! | PyTorch | `native_layer_norm` | [`pytorch::NativeLayerNorm`] |
//! | PyTorch | `native_layer_norm_backward` | [`pytorch::NativeLayerNormBackward`] |
//! | PyTorch | `rms_norm` | [`pytorch::RmsNorm`] |
//! | PyTorch | `native_group_norm` | [`pytorch::NativeGroupNorm`] |
//! | PyTorch | `native_group_norm_backward` | [`pytorch::NativeGroupNormBackward`] |
//! | ONNX | `BatchNormalization` | [`onnx::BatchNormalization`] |
//! | ONNX | `LayerNormalization` | [`onnx::LayerNormalization`] |
//! | ONNX | `RMSNormalization` | [`onnx::RmsNormalization`] |
//! | ONNX | `GroupNormalization` | [`onnx::GroupNormalization`] |
//! | ONNX | `InstanceNormalization` | [`onnx::InstanceNormalization`] |
//! | ONNX | `MeanVarianceNormalization` | [`onnx::MeanVarianceNormalization`] |
//!
//! An operator is a struct of its attributes, which are checked when it is used. [`Inputs`] are its tensors by the
//! document's names, each with its shape. `run` computes [`Outputs`] in host memory, likewise by name, and names inputs
//! in errors as the document does. `operation` converts the operator into an [`Operation`].
//!
//! Everything else follows from the operation: its tensors ([`Operation::tensors`]), and the plan for the caller's
//! buffers ([`Operation::plan`], [`own_buffers`](crate::guide::own_buffers)). There the tensors have the names of
//! [`Tensor`], such as `src`, `dst`, `diff_dst`, `mean`,
//! `variance`, `gamma` and `beta`; the table of each operator maps its own names to these.
//!
//! The documents differ on running statistics:
//!
//! | | momentum is the weight of | by default | running variance |
//! |---|---|---|---|
//! | oneDNN Graph | the old statistics | 0.5, if absent | biased |
//! | ONNX | the old statistics | 0.9 | biased |
//! | PyTorch | the batch | 0.1 | unbiased |
//!
//! DirectML and nGraph have no running statistics.
//!
//! If a document gives statistics the parameters' type, so does the operator here, even for 16-bit parameters. Such
//! statistics leave the range of 16 bits sooner than data do: see [`DTypes::statistics`](crate::DTypes::statistics).
//! The statistics of PyTorch's operators, and of ONNX's except batch norm, have the type of sums.
//!
//! Parameters and statistics may have sizes of 1 more or fewer than the document says, or one axis for all their
//! elements. Parameters may have any type that goes with the data's ([`ParamOf`](crate::ParamOf)), even where a
//! document gives both one type.
//!
//! An operator computes nothing beyond its operation, except on tensors as small as the parameters. For other element
//! types, constant statistics, a frozen layer or a residual, use [`Operation`].
//!
//! # On device buffers
//!
//! ```
//! # pollster::block_on(async {
//! use wgpu_norm::operators::{Inputs, onednn::BatchNormTrainingBackward};
//! use wgpu_norm::{BufferRange, DType, DataFormat, GpuContext, Tensor, wgpu};
//! # use wgpu_norm::Error;
//!
//! # if let Err(Error::NoAdapter { .. }) = GpuContext::new().await { return Ok(()) }
//! let gpu = GpuContext::new().await?;
//! let op = BatchNormTrainingBackward {
//!     data_format: DataFormat::Ncx,
//!     ..BatchNormTrainingBackward::new(1e-5)
//! };
//! let inputs = Inputs::new()
//!     .described("src", &[8, 16, 14, 14], DType::F32)
//!     .described("diff_dst", &[8, 16, 14, 14], DType::F32)
//!     .described("mean", &[16], DType::F32)
//!     .described("variance", &[16], DType::F32)
//!     .described("gamma", &[16], DType::F32);
//! let operation = op.operation(&inputs)?;
//! let plan = operation.plan(gpu.profile())?;
//! let buffer = |elements: u64| {
//!     gpu.device().create_buffer(&wgpu::BufferDescriptor {
//!         label: None,
//!         size: 4 * elements,
//!         usage: wgpu::BufferUsages::STORAGE,
//!         mapped_at_creation: false,
//!     })
//! };
//! let (src, diff) = (buffer(8 * 16 * 14 * 14), buffer(8 * 16 * 14 * 14));
//! let params = [(); 5].map(|()| buffer(16));
//! let [mean, variance, gamma, diff_gamma, diff_beta] = params.each_ref().map(BufferRange::from);
//! let buffers = [
//!     (Tensor::Src, (&src).into()),
//!     (Tensor::DiffDst, (&diff).into()),
//!     (Tensor::Mean, mean),
//!     (Tensor::Variance, variance),
//!     (Tensor::Gamma, gamma),
//!     (Tensor::DiffSrc, (&diff).into()), // over diff_dst
//!     (Tensor::DiffGamma, diff_gamma),
//!     (Tensor::DiffBeta, diff_beta),
//! ];
//! let bound = plan.bind(&gpu, &buffers)?;
//! let mut encoder = gpu.device().create_command_encoder(&Default::default());
//! bound.record(&mut encoder); // every step
//! gpu.queue().submit([encoder.finish()]);
//! # Ok::<(), Error>(()) }).unwrap();
//! ```

pub mod directml;
pub mod ngraph;
pub mod onednn;
pub mod onnx;
pub mod pytorch;

mod broadcast;
mod definition;
mod given;
mod inputs;
mod outputs;
mod row;
mod run;
mod table;

pub use definition::Operator;
pub use inputs::Inputs;
pub use outputs::{Output, Outputs};
pub use run::{operation, run};

// The imports of the operators' files, which get them from here.
use crate::context::GpuContext;
use crate::error::Error;
use crate::operation::{Backward, Channels, Epilogue, Forward, Norm, Operation, Pass, Residual};
use crate::options::{Activation, DataFormat, RunningUpdate, RunningVariance, Through};
use crate::tensor::Tensor;
use definition::Definition;
use given::Given;
use row::{Row, tensor};
use table::operator;

/// A forward pass with given statistics, or with those of src.
fn by_given(statistics: bool) -> Pass {
    if statistics {
        Pass::Inference
    } else {
        Forward::default().into()
    }
}

/// Whether a gradient treats statistics as constants.
const fn through(constants: bool) -> Through {
    if constants {
        Through::Constant
    } else {
        Through::Batch
    }
}

/// A forward pass with statistics among its results, or without.
fn forward(keep_statistics: bool) -> Forward {
    let pass = Forward::default();
    if keep_statistics {
        pass
    } else {
        pass.without_statistics()
    }
}

/// The update of running statistics if momentum is the weight of the old ones.
fn weighing_the_old(momentum: f32) -> Result<RunningUpdate, Error> {
    let weight = 1.0 - check_momentum(momentum)?;
    Ok(RunningUpdate::new(weight, RunningVariance::Biased))
}

/// An error unless momentum is from 0 to 1, as both weights of an update must be.
fn check_momentum(momentum: impl Into<f64> + Copy + std::fmt::Display) -> Result<f64, Error> {
    if (0.0..=1.0).contains(&momentum.into()) {
        return Ok(momentum.into());
    }
    let expected = "a number from 0 to 1";
    Err(Error::argument("momentum", expected, momentum))
}

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
//! An operator is a struct of its attributes, which are checked when it is used. `forward` and `backward` work on host
//! memory. `operation` converts it into an [`Operation`] for a shape and the optional tensors that are given.
//! Everything else follows from the operation: its tensors ([`Operation::tensors`]), and the plan for the caller's
//! buffers ([`Operation::plan`]). There and in the messages of [`Error`] the tensors have the names of [`Tensor`], such
//! as `src`, `dst`, `diff_dst`, `mean`, `variance`, `gamma` and `beta`; the table of each operator maps its own names
//! to these.
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
//! An operator computes nothing beyond its operation, except on tensors as small as the parameters. For other element
//! types, constant statistics, a frozen layer or a residual, use [`Operation`].
//!
//! # On device buffers
//!
//! ```
//! # pollster::block_on(async {
//! use wgpu_norm::operators::onednn::BatchNormTrainingBackward;
//! use wgpu_norm::{BufferRange, DataFormat, Error, GpuContext, Tensor};
//!
//! # if let Err(Error::NoAdapter { .. }) = GpuContext::new().await { return Ok(()) }
//! let gpu = GpuContext::new().await?;
//! let op = BatchNormTrainingBackward {
//!     data_format: DataFormat::Ncx,
//!     ..BatchNormTrainingBackward::new(1e-5)
//! };
//! let operation = op.operation::<f32, f32>(&[8, 16, 14, 14], true)?; // with gamma
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
mod table;

// The imports of the operators' files, which get them from here.
use crate::call::{Call, Results};
use crate::element::types;
use crate::geometry::check_length;
use crate::{
    Activation, Backward, Channels, DataFormat, Element, Epilogue, Error, Forward, GpuContext,
    Grads, Norm, Operation, ParamOf, Pass, Residual, RunningUpdate, RunningVariance, Tensor,
    Through, memory,
};
use std::borrow::Cow;
use table::{attributes, inputs, outputs};

/// An operation with data, parameters and statistics of these types; an error if it is invalid on any adapter.
fn operation<T: Element, P: ParamOf<T>, S: ParamOf<T>>(
    norm: Norm,
    pass: impl Into<Pass>,
    shape: &[usize],
    epsilon: impl Into<f64>,
    (gamma, beta): (bool, bool),
) -> Result<Operation, Error> {
    let operation = Operation::new(norm, pass, shape, types::<T, P, S>())
        .with_epsilon(epsilon.into())
        .with_params(gamma, beta);
    operation.check()?;
    Ok(operation)
}

/// Batch norm with channels along an axis.
const fn batch_norm(format: DataFormat) -> Norm {
    Norm::Batch(Channels::Axis(format))
}

/// A forward pass with given statistics, or with those of src.
fn by_given(statistics: bool) -> Pass {
    match statistics {
        true => Pass::Inference,
        false => Forward::default().into(),
    }
}

/// A gradient with both parameter gradients, or with neither but still scaled by gamma.
fn backward(param_grads: bool) -> Backward {
    Backward::default().with_param_grads(match param_grads {
        true => true,
        false => false,
    })
}

/// Whether a gradient treats statistics as constants.
const fn through(constants: bool) -> Through {
    match constants {
        true => Through::Constant,
        false => Through::Batch,
    }
}

/// A residual after the layer, or none.
const fn residual(there: bool) -> Residual {
    match there {
        true => Residual::After,
        false => Residual::None,
    }
}

/// A forward pass with statistics among its results, or without.
fn forward(keep_statistics: bool) -> Forward {
    match keep_statistics {
        true => Forward::default(),
        false => Forward::default().without_statistics(),
    }
}

/// The update of running statistics if momentum is the weight of the old ones.
fn weighing_the_old(momentum: f32) -> Result<RunningUpdate, Error> {
    Ok(RunningUpdate {
        weight: 1.0 - check_momentum(momentum.into())?,
        variance: RunningVariance::Biased,
    })
}

/// An error unless momentum is from 0 to 1, as both weights of an update must be.
fn check_momentum(momentum: f64) -> Result<f64, Error> {
    match (0.0..=1.0).contains(&momentum) {
        true => Ok(momentum),
        false => Err(Error::argument(
            "momentum",
            "a number from 0 to 1",
            momentum,
        )),
    }
}

/// An error unless a tensor is given exactly when an attribute is true.
fn exactly<V>(
    argument: &'static str,
    tensor: Option<V>,
    attribute: &str,
    is: bool,
) -> Result<(), Error> {
    let given = |there| if there { "a tensor" } else { "none" };
    match tensor.is_some() == is {
        true => Ok(()),
        false => {
            let expected = format!("{}, as {attribute} is {is}", given(is));
            Err(Error::argument(argument, expected, given(!is)))
        }
    }
}

/// A required tensor; an error if it is missing.
fn required<V>(argument: &'static str, why: &str, tensor: Option<V>) -> Result<V, Error> {
    tensor.ok_or_else(|| Error::argument(argument, format!("a tensor, {why}"), "none"))
}

/// Replaces variances by 1/√(variance + epsilon).
fn inverse_deviations<S: Element>(mut variances: Vec<S>, epsilon: f64) -> Vec<S> {
    for value in &mut variances {
        *value = S::from_f64(1.0 / (value.to_f64() + epsilon).sqrt());
    }
    variances
}

/// Computes variances from 1/√(variance + epsilon). If a variance is tiny beside epsilon, its relative error is large,
/// and it may even be below 0. But variance + epsilon, which is all that matters, is as exact as the given numbers.
fn variances<S: Element>(
    name: &'static str,
    inverse_deviations: &[S],
    epsilon: f64,
) -> Result<Vec<S>, Error> {
    let of = |r: &S| {
        let r = r.to_f64();
        S::from_f64(1.0 / (r * r) - epsilon)
    };
    memory::collect(name, inverse_deviations.iter().map(of))
}

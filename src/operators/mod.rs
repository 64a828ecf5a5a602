//! Find your operator: the documents' own operators, with their attributes, argument names and index
//! order, over [`GpuBatchNorm`](crate::GpuBatchNorm), [`GpuLayerNorm`](crate::GpuLayerNorm),
//! [`GpuRmsNorm`](crate::GpuRmsNorm), [`GpuGroupNorm`](crate::GpuGroupNorm) and
//! [`GpuInstanceNorm`](crate::GpuInstanceNorm).
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
//!
//! An operator is its attributes; they are checked when it is used. `forward` and `backward` take and give host
//! memory. `plan` is the first of the three stages on the caller's buffers, and gives the plan types
//! that the rest of the crate has, such as [`BatchNormBackwardPlan`](crate::BatchNormBackwardPlan). Their buffers and the messages of
//! [`Error`] call the tensors `src`, `dst`, `diff_dst`, `mean`, `variance`, `gamma`, `beta`,
//! `running_mean`, `running_variance`, `diff_src`, `diff_gamma` and `diff_beta`; each operator's table says which of its
//! own is which.
//!
//! Documents disagree about running statistics:
//!
//! | | momentum is the weight of | by default | running variance |
//! |---|---|---|---|
//! | oneDNN Graph | the old statistics | 0.5, if absent | biased |
//! | ONNX | the old statistics | 0.9 | biased |
//! | PyTorch | the batch | 0.1 | unbiased |
//!
//! DirectML and nGraph have no running statistics.
//!
//! Where a document has statistics of the parameters' type, an operator of 16-bit parameters has them so: they leave the
//! range of 16 bits sooner than data do, as [`DTypes::statistics`](crate::DTypes::statistics) says. Those of PyTorch, and ONNX's but
//! batch norm's, are kept in the type of sums.
//!
//! None computes anything of its own, but for tensors as small as the parameters: whoever needs more (other element
//! types, constant statistics, a frozen layer, a residual) finds it in the types above.
//!
//! # On device buffers
//!
//! ```
//! # pollster::block_on(async {
//! use wgpu_norm::operators::onednn::BatchNormTrainingBackward;
//! use wgpu_norm::{BatchNormBackwardBuffers, DataFormat, Error, GpuContext};
//!
//! let gpu = match GpuContext::new().await {
//!     Ok(gpu) => gpu,
//!     Err(Error::NoAdapter { .. }) => return Ok(()), // a machine without any driver
//!     Err(error) => return Err(error),
//! };
//! let op = BatchNormTrainingBackward {
//!     data_format: DataFormat::Ncx,
//!     ..BatchNormTrainingBackward::new(1e-5)
//! };
//! let plan = op.plan::<f32, f32>(&gpu, &[8, 16, 14, 14], true)?; // with gamma
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
//! let [mean, variance, gamma, diff_gamma, diff_beta] = &params;
//! let bound = plan.bind(
//!     &gpu,
//!     &BatchNormBackwardBuffers {
//!         src: (&src).into(),
//!         diff_dst: (&diff).into(),
//!         mean: mean.into(),
//!         variance: variance.into(),
//!         gamma: Some(gamma.into()),
//!         diff_src: (&diff).into(), // over diff_dst
//!         diff_gamma: Some(diff_gamma.into()),
//!         diff_beta: Some(diff_beta.into()),
//!         sums: None,
//!         workspace: None,
//!         beta: None,
//!         mask: None,
//!         diff_residual: None,
//!     },
//! )?;
//! let mut encoder = gpu.device().create_command_encoder(&Default::default());
//! bound.record(&mut encoder); // every step
//! gpu.queue().submit([encoder.finish()]);
//! # Ok(()) }).unwrap();
//! ```

pub mod directml;
pub mod ngraph;
pub mod onednn;
pub mod onnx;
pub mod pytorch;

use crate::{Element, Error, memory};

/// Either weight of a running update must be one.
fn check_momentum(momentum: f64) -> Result<f64, Error> {
    match (0.0..=1.0).contains(&momentum) {
        true => Ok(momentum),
        false => Err(Error::Argument {
            argument: "momentum",
            expected: "a number from 0 to 1".to_owned(),
            got: momentum.to_string(),
        }),
    }
}

/// Whether a tensor is given, in words.
const fn given(there: bool) -> &'static str {
    if there { "a tensor" } else { "none" }
}

/// 1/√(variance + epsilon).
fn inverse_deviations<S: Element>(
    name: &'static str,
    variance: &[S],
    epsilon: f64,
) -> Result<Vec<S>, Error> {
    let of = |variance: &S| S::from_f64(1.0 / (variance.to_f64() + epsilon).sqrt());
    memory::collect(name, variance.iter().map(of))
}

/// The variances of which these are 1/√(variance + epsilon). Where a variance is tiny beside epsilon its relative error is
/// large, it may even be below 0; but variance + epsilon, which is all that counts, is as exact as what is given.
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

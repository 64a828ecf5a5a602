//! Normalization layers and their gradients, computed by WGSL kernels through [`wgpu`] on any GPU.
//!
//! ```
//! use wgpu_norm::{BatchNormBackwardArgs, BatchNormOptions, Error, GpuBatchNorm, GpuContext};
//!
//! # fn main() -> Result<(), Error> { pollster::block_on(async {
//! let gpu = match GpuContext::new().await {
//!     Ok(gpu) => gpu,
//!     Err(Error::NoAdapter { .. }) => return Ok(()), // a machine without any driver
//!     Err(error) => return Err(error),
//! };
//! let layer = GpuBatchNorm::new(&gpu, BatchNormOptions::new(1e-5))?;
//! let grads = layer
//!     .backward(BatchNormBackwardArgs {
//!         shape: &[3, 2], // three samples of two channels
//!         src: &[1.0_f32, 10.0, 2.0, 20.0, 3.0, 30.0],
//!         diff_dst: &[0.0, 1.0, 1.0, 0.0, 0.0, 1.0],
//!         mean: &[2.0, 20.0],
//!         variance: &[2.0 / 3.0, 200.0 / 3.0],
//!         gamma: Some(&[1.0, 1.0]),
//!         beta: None,
//!         mask: None,
//!     })
//!     .await?;
//! assert_eq!(grads.diff_beta, Some(vec![1.0, 2.0]));
//! # Ok(()) }) }
//! ```
//!
//! # What there is
//!
//! | | |
//! |---|---|
//! | a GPU | [`GpuContext`], chosen by [`ContextOptions`] or made from a caller's device with [`DeviceOptions`]; [`adapters`] lists what there is, [`unfit`] says why one cannot be used |
//! | batch norm | [`GpuBatchNorm`] with [`BatchNormOptions`]: [`DataFormat`], [`Statistics`], [`ParamGrads`] |
//! | layer norm | [`GpuLayerNorm`] with [`LayerNormOptions`] |
//! | RMS norm | [`GpuRmsNorm`] with [`RmsNormOptions`] |
//! | group norm | [`GpuGroupNorm`] with [`GroupNormOptions`]: `forward` takes [`GroupNormForwardArgs`] and gives [`GroupNormOutput`], `infer` takes [`GroupNormInferenceArgs`], `backward` [`GroupNormBackwardArgs`]; on device buffers [`GroupNormForwardPlan`], [`GroupNormInferencePlan`] and [`GroupNormBackwardPlan`] |
//! | instance norm | [`GpuInstanceNorm`] with [`InstanceNormOptions`], and group norm's arguments |
//! | what follows batch, group or instance norm | [`Activation`] in their options, and a residual before it; [`BackwardOperands`] and [`InferenceOperands`] say which tensors a plan takes |
//! | your operator | [`operators`]: those of oneDNN Graph, DirectML, nGraph, PyTorch and ONNX under their own names |
//! | forward on host memory | [`GpuBatchNorm::forward`] takes [`BatchNormForwardArgs`] and gives [`BatchNormOutput`], [`GpuBatchNorm::infer`] takes [`BatchNormInferenceArgs`]; [`GpuLayerNorm::forward`] takes [`LayerNormForwardArgs`]; [`GpuRmsNorm::forward`] takes [`ForwardArgs`] and gives [`Output`] with [`SavedStatistics`] |
//! | gradients on host memory | [`GpuBatchNorm::backward`] takes [`BatchNormBackwardArgs`], [`GpuBatchNorm::backward_broadcast`] reduces any set of axes, [`GpuLayerNorm::backward`] takes [`LayerNormBackwardArgs`], [`GpuRmsNorm::backward`] [`BackwardArgs`], whose statistics are a [`StatisticsRef`]; all give [`Grads`] |
//! | gradients on device buffers | [`BatchNormBackwardPlan`] tells their [`BatchNormBackwardSizes`] and binds [`BatchNormBackwardBuffers`], each a [`BufferRange`], to a [`Bound`] that records into any encoder; [`LayerNormBackwardPlan`] likewise, with [`LayerNormBackwardSizes`] and [`LayerNormBackwardBuffers`], and [`RmsNormBackwardPlan`] with [`RmsNormBackwardSizes`] and [`RmsNormBackwardBuffers`] |
//! | forward on device buffers | [`GpuBatchNorm::plan_forward`], [`GpuBatchNorm::plan_inference`], [`GpuLayerNorm::plan_forward`] and [`GpuRmsNorm::plan_forward`] give plans likewise, for what [`BatchNormForwardOperands`], [`LayerNormForwardOperands`] and [`RmsNormForwardOperands`] say |
//! | running statistics | [`RunningStatistics`] in host memory, [`RunningUpdate`] and [`RunningVariance`]: how they take in the batch's |
//! | a batch spread over processes | [`synchronized`]: batch norm by the statistics of all of them |
//! | a batch spread over devices | [`Shards`], [`ChannelStatistics`], and the halves of [`Bound`] (below) |
//! | tensors larger than memory | [`stream`]: an operator over pieces that a caller reads and writes |
//! | element types | [`Element`] and [`ParamOf`] for Rust's types, [`DType`] as a value, [`DTypes`] for data, parameters and statistics |
//! | tuning | [`Profile`]: what plans know of an adapter, with its [`Tuning`]; [`Algorithm`]: what a plan chose, or is forced to take |
//! | another framework's launcher | [`export`]: plans without a GPU, and their dispatches as WGSL text, bindings and uniforms |
//! | checking | [`reference`](mod@reference): the same in float64 on the CPU, and [`reference::scaled_error`] |
//! | verifying an adapter | [`verify`]: cases of every kind, for the command `wgpu-norm verify`, tests, and other libraries |
//! | errors | [`Error`], whose variants carry what is needed to mend the call |
//!
//! # Your operator
//!
//! | document | operator | here |
//! |---|---|---|
//! | oneDNN Graph | `BatchNormForwardTraining` | [`operators::onednn::BatchNormForwardTraining`] |
//! | oneDNN Graph | `BatchNormInference` | [`operators::onednn::BatchNormInference`] |
//! | oneDNN Graph | `BatchNormTrainingBackward` | [`operators::onednn::BatchNormTrainingBackward`] |
//! | oneDNN Graph | `LayerNorm` | [`operators::onednn::LayerNorm`] |
//! | oneDNN Graph | `LayerNormBackward` | [`operators::onednn::LayerNormBackward`] |
//! | oneDNN | batch normalization | [`operators::onednn::BatchNormalization`], [`operators::onednn::BatchNormalizationBackward`] |
//! | oneDNN | group normalization | [`operators::onednn::GroupNormalization`], [`operators::onednn::GroupNormalizationBackward`] |
//! | DirectML | `DML_BATCH_NORMALIZATION_TRAINING_OPERATOR_DESC` | [`operators::directml::BatchNormalizationTraining`] |
//! | DirectML | `DML_BATCH_NORMALIZATION_OPERATOR_DESC` | [`operators::directml::BatchNormalization`] |
//! | DirectML | `DML_BATCH_NORMALIZATION_GRAD_OPERATOR_DESC` | [`operators::directml::BatchNormalizationGrad`] |
//! | DirectML | `DML_BATCH_NORMALIZATION_TRAINING_GRAD_OPERATOR_DESC` | [`operators::directml::BatchNormalizationTrainingGrad`] |
//! | nGraph | `BatchNormTraining` | [`operators::ngraph::BatchNormTraining`] |
//! | nGraph | `BatchNormInference` | [`operators::ngraph::BatchNormInference`] |
//! | nGraph | `BatchNormTrainingBackprop` | [`operators::ngraph::BatchNormTrainingBackprop`] |
//! | PyTorch | `native_batch_norm` | [`operators::pytorch::NativeBatchNorm`] |
//! | PyTorch | `native_batch_norm_backward` | [`operators::pytorch::NativeBatchNormBackward`] |
//! | PyTorch | `native_layer_norm` | [`operators::pytorch::NativeLayerNorm`] |
//! | PyTorch | `native_layer_norm_backward` | [`operators::pytorch::NativeLayerNormBackward`] |
//! | PyTorch | `rms_norm` | [`operators::pytorch::RmsNorm`] |
//! | PyTorch | `native_group_norm` | [`operators::pytorch::NativeGroupNorm`] |
//! | PyTorch | `native_group_norm_backward` | [`operators::pytorch::NativeGroupNormBackward`] |
//! | ONNX | `BatchNormalization` | [`operators::onnx::BatchNormalization`] |
//! | ONNX | `LayerNormalization` | [`operators::onnx::LayerNormalization`] |
//! | ONNX | `RMSNormalization` | [`operators::onnx::RmsNormalization`] |
//! | ONNX | `GroupNormalization` | [`operators::onnx::GroupNormalization`] |
//! | ONNX | `InstanceNormalization` | [`operators::onnx::InstanceNormalization`] |
//!
//! # On device buffers
//!
//! Three stages. [`GpuBatchNorm::plan_backward`] (forward: [`GpuBatchNorm::plan_forward`]) is pure and needed once for a shape;
//! [`BatchNormBackwardPlan::bind`] checks a set of buffers and makes all wgpu objects;
//! [`Bound::record`] writes commands into the caller's encoder, creates nothing, submits nothing and
//! reads nothing back; [`Bound::record_in`] writes them into a compute pass. [`Bound::record_reduce`] and
//! [`Bound::record_apply`] are its two halves, for a batch that is spread over several devices;
//! [`Bound::record_statistics`] and [`Bound::record_normalize`] are those of a forward plan. Between them gradients' sums are
//! added up over the devices, and statistics are put side by side.
//!
//! # How the crate is made
//!
//! Imports run downwards only:
//!
//! | module | knows |
//! |---|---|
//! | `operators` | other libraries' names for the operators |
//! | `verify` | cases of every kind, their data, and what they assert |
//! | `batch_norm`, `layer_norm`, `rms_norm`, `group_norm`, `instance_norm` | an operator's arguments; from them to geometry, plan, buffers |
//! | `args` | the tensors of typed calls, in host memory |
//! | `call` | an operation on host memory, by slices of its types |
//! | `synchronized` | batch norm's halves, and what passes between processes |
//! | `operands` | a plan, its buffers and their sizes, declared from one list of tensors |
//! | `export` | a plan's dispatches, for another framework's launcher |
//! | `host` | uploads, runs a plan, reads back |
//! | `stream` | the same piece by piece, of tensors that a caller reads and writes |
//! | `bound` | checks buffers and binds a plan to them |
//! | `context` | adapter, device, queue, compiled pipelines, read-back |
//! | `plan` | from geometry, types and [`Profile`] to dispatches; a pure function |
//! | `kernels` | the WGSL in `shaders/`, its bindings, uniforms and variants |
//! | `profile` | an adapter's limits, as wgpu tells them |
//! | `tuning` | the sizes that suit it |
//! | `geometry` | shapes, layouts, lengths, overflow |
//! | `memory` | vectors as large as tensors |
//! | `algorithm`, `element`, `options`, `error`, `reference` | nothing of wgpu's objects |
//!
//! # Features
//!
//! * `native` (default): the wgpu backends Vulkan, Metal, DX12 and GL.
//! * `web`: the backend WebGPU.
//!
//! Without a backend for the target there are no adapters; a crate that wants fewer of them leaves `native` out
//! and names wgpu's own features.

// The README's example is compiled like any other.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

mod activated;
mod algorithm;
mod args;
mod batch_norm;
mod bound;
mod call;
mod context;
mod element;
mod error;
pub mod export;
mod geometry;
mod group_norm;
mod host;
mod instance_norm;
mod kernels;
mod layer_norm;
mod memory;
mod operands;
mod operation;
pub mod operators;
mod options;
mod plan;
mod planned;
mod profile;
pub mod reference;
mod rms_norm;
pub mod stream;
pub mod synchronized;
mod tensor;
mod tuning;
pub mod verify;

pub use activated::{BackwardOperands, InferenceOperands};
pub use algorithm::Algorithm;
pub use args::{BackwardArgs, ForwardArgs, Output, SavedStatistics, StatisticsRef};
pub use batch_norm::{
    BatchNormBackwardArgs, BatchNormBackwardBuffers, BatchNormBackwardPlan, BatchNormBackwardSizes,
    BatchNormForwardArgs, BatchNormForwardBuffers, BatchNormForwardOperands, BatchNormForwardPlan,
    BatchNormForwardSizes, BatchNormInferenceArgs, BatchNormInferenceBuffers,
    BatchNormInferencePlan, BatchNormInferenceSizes, BatchNormOptions, BatchNormOutput,
    ChannelStatistics, GpuBatchNorm, RunningStatistics,
};
pub use bound::{Bound, BufferRange};
pub use context::{ContextOptions, DeviceOptions, GpuContext, adapters, unfit};
pub use element::{DType, DTypes, Element, ParamOf};
pub use error::Error;
pub use group_norm::{
    GpuGroupNorm, GroupNormBackwardArgs, GroupNormBackwardBuffers, GroupNormBackwardPlan,
    GroupNormBackwardSizes, GroupNormForwardArgs, GroupNormForwardBuffers,
    GroupNormForwardOperands, GroupNormForwardPlan, GroupNormForwardSizes, GroupNormInferenceArgs,
    GroupNormInferenceBuffers, GroupNormInferencePlan, GroupNormInferenceSizes, GroupNormOptions,
    GroupNormOutput,
};
pub use host::Grads;
pub use instance_norm::{GpuInstanceNorm, InstanceNormOptions};
pub use layer_norm::{
    GpuLayerNorm, LayerNormBackwardArgs, LayerNormBackwardBuffers, LayerNormBackwardPlan,
    LayerNormBackwardSizes, LayerNormForwardArgs, LayerNormForwardBuffers,
    LayerNormForwardOperands, LayerNormForwardPlan, LayerNormForwardSizes, LayerNormOptions,
    LayerNormOutput,
};
pub use operation::{Axis, Backward, Channels, Epilogue, Forward, Norm, Operation, Pass, Residual};
pub use options::{
    Activation, DataFormat, ParamGrads, RunningUpdate, RunningVariance, Shards, Statistics,
};
pub use planned::{BufferUse, Plan};
pub use profile::Profile;
pub use rms_norm::{
    GpuRmsNorm, RmsNormBackwardBuffers, RmsNormBackwardPlan, RmsNormBackwardSizes,
    RmsNormForwardBuffers, RmsNormForwardOperands, RmsNormForwardPlan, RmsNormForwardSizes,
    RmsNormOptions,
};
pub use tensor::{Access, Format, Need, Ranks, Slot, Tensor, TensorUse};
pub use tuning::Tuning;

/// The crates whose types stand in signatures here, in the versions that these use.
#[doc(no_inline)]
pub use {bytemuck, half, wgpu};

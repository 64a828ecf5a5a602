//! Normalization layers and their gradients, computed by WGSL kernels through [wgpu](https://docs.rs/wgpu) on any GPU.
//!
//! ```
//! use wgpu_norm::{BackwardArgs, ForwardArgs, GpuContext};
//! use wgpu_norm::{BatchNormOptions, DataFormat, GpuBatchNorm};
//! # use wgpu_norm::Error;
//!
//! # pollster::block_on(async {
//! # if let Err(Error::NoAdapter { .. }) = GpuContext::new().await { return Ok(()) }
//! let gpu = GpuContext::new().await?;
//! let options = BatchNormOptions::new(DataFormat::Ncx);
//! let layer = GpuBatchNorm::new(&gpu, options)?;
//! let shape = [3, 2]; // three samples of two channels
//! let src = [1.0_f32, 10.0, 2.0, 20.0, 3.0, 30.0];
//! let (gamma, beta) = ([1.0_f32, 1.0], [0.0, 0.0]);
//! let args = ForwardArgs::new(&shape, &src).gamma(&gamma).beta(&beta);
//! let output = layer.forward(args).await?;
//! assert_eq!(output.saved.mean, [2.0, 20.0]);
//!
//! let diff_dst = [0.0, 1.0, 1.0, 0.0, 0.0, 1.0];
//! let args = BackwardArgs::new(&shape, &src, &diff_dst, &output.saved);
//! let grads = layer.backward(args.gamma(&gamma).beta(&beta)).await?;
//! assert_eq!(grads.diff_beta, Some(vec![1.0, 2.0]));
//! # Ok::<(), Error>(()) }).unwrap();
//! ```
//!
//! # Overview
//!
//! | for | there is |
//! |---|---|
//! | a GPU | [`GpuContext`], chosen by [`ContextOptions`] or made from a caller's device with [`DeviceOptions`]; [`adapters`] lists the adapters, [`unfit`] says why one cannot be used |
//! | a layer's parameters | [`Parameters`], with [`Running`] statistics |
//! | layers on host memory | [`GpuBatchNorm`], [`GpuGroupNorm`], [`GpuInstanceNorm`], [`GpuLayerNorm`], [`GpuRmsNorm`], [`GpuAxesNorm`], each with its options; `forward` takes [`ForwardArgs`] and returns [`Output`], `infer` takes [`InferenceArgs`], `backward` takes [`BackwardArgs`] and returns [`Grads`] |
//! | any layer and pass as a value | [`Operation`]: a [`Norm`], a [`Pass`], a shape and [`DTypes`]; [`Operation::tensors`] lists the tensors that it reads and writes, [`Operation::run_into`] runs it on bytes |
//! | your own buffers | [`Operation::plan`], [`Plan::bind`], [`Bound::record`]: see [`guide::own_buffers`] |
//! | your operator | [`operators`]: the operators of oneDNN Graph, DirectML, nGraph, PyTorch and ONNX under their own names |
//! | a batch spread over processes | [`synchronized`]: batch norm with statistics over all processes |
//! | a batch spread over devices | the two halves of [`Bound`], with [`synchronized::SumsLayout::merge`] between them; [`synchronized::Shards`] |
//! | tensors larger than memory | [`stream`]: an operation over pieces that a caller reads and writes |
//! | element types | [`Element`] and [`ParamOf`] for Rust's types, [`DType`] as a value, [`DTypes`] for data, parameters and statistics |
//! | tuning | [`Profile`]: the limits and sizes that plans assume for an adapter, with its [`Tuning`]; [`Algorithm`]: the algorithm that a plan chose or was forced to use |
//! | another framework's launcher | [`export`]: plans without a GPU, and their dispatches as WGSL text, bindings and uniforms |
//! | checking | the crate [`wgpu-norm-verify`](https://docs.rs/wgpu-norm-verify): a float64 reference on the CPU and test cases of every kind, for the command `wgpu-norm verify`, tests, and other libraries |
//! | errors | [`Error`], whose variants carry the values needed to fix the call |
//!
//! # Guide
//!
//! | to | read |
//! |---|---|
//! | train, or move a model from PyTorch | [`guide::training`] |
//! | run on your own device, buffers and encoder | [`guide::own_buffers`] |
//! | know the kernels, and when results are the same bits | [`guide::how_it_works`] |
//! | know the limits and the tests | [`guide::limits`] |
//!
//! # Features
//!
//! * `native` (default): the wgpu backends Vulkan, Metal, DX12 and GL.
//! * `safetensors`: [`Parameters`] to and from files of that format.
//! * `web`: the backend WebGPU. For a browser, use it alone: `default-features = false, features = ["web"]`.
//!
//! Without a backend for the target there are no adapters. To compile fewer backends, disable `native` and enable
//! wgpu's own features instead.
//!
//! # What versions promise
//!
//! A version that cargo takes for compatible keeps what is documented here: names, signatures, formulas, and the errors
//! that arguments give. Enums and structs that may grow are `non_exhaustive`. It may change the texts of errors, the
//! kernels and which of them run, hence the last bits of results, the workspace that a plan needs, what [`export`]
//! writes, and the fields of [`Tuning`]. A new major version of wgpu or safetensors, whose types are in signatures, is
//! a new major version of this crate. What is hidden from the documentation may change in any version.
//! `docs/public-api.txt` in the repository lists all public items.

// The README's example is compiled like any other.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

mod algorithm;
mod bound;
mod call;
mod context;
mod element;
mod error;
pub mod export;
mod f16_encoder;
mod geometry;
pub mod guide;
mod host;
mod kernels;
mod layers;
mod memory;
mod operation;
pub mod operators;
mod options;
mod plan;
mod planned;
mod profile;
#[cfg(test)]
#[path = "tests/refused.rs"]
mod refused;
pub mod stream;
mod sums;
pub mod synchronized;
mod tensor;
mod tuning;

pub use algorithm::Algorithm;
pub use bound::{Bound, BufferRange};
pub use call::Grads;
pub use context::{ContextOptions, DeviceOptions, GpuContext, adapters, unfit};
pub use element::{DType, DTypes, Element, ParamOf};
pub use error::Error;
pub use f16_encoder::F16Encoder;
pub use layers::*;
pub use operation::{Axis, Backward, Channels, Epilogue, Forward, Norm, Operation, Pass, Residual};
pub use options::{Activation, DataFormat, RunningUpdate, RunningVariance, Through};
pub use planned::{BufferUse, Plan};
pub use profile::Profile;
pub use tensor::{Access, Format, Tensor, TensorUse};
pub use tuning::Tuning;

/// What the command and the checks share with this crate. It may change in any version.
#[doc(hidden)]
pub mod support {
    pub use crate::memory::{collect, filled, room};
    pub use crate::tensor::{Need, Slot};
}

/// The crates whose types appear in this crate's signatures, in the versions used there.
#[cfg(feature = "safetensors")]
#[doc(no_inline)]
pub use safetensors;
#[doc(no_inline)]
pub use {bytemuck, half, wgpu};

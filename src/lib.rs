//! Gradients of normalization layers, computed by WGSL kernels through [`wgpu`] on any GPU.

mod batch_norm;
mod bound;
mod context;
mod element;
mod error;
mod geometry;
mod host;
mod kernels;
mod layer_norm;
mod options;
mod plan;
mod profile;
pub mod reference;

pub use batch_norm::{
    BatchNormArgs, BatchNormBuffers, BatchNormGrads, BatchNormOptions, BatchNormPlan, GpuBatchNorm,
};
pub use bound::{Bound, BufferRange};
pub use context::{ContextOptions, DeviceOptions, GpuContext, adapters, unfit};
pub use element::{DType, Element, ParamOf};
pub use error::Error;
pub use layer_norm::{
    GpuLayerNorm, LayerNormArgs, LayerNormBuffers, LayerNormGrads, LayerNormOptions, LayerNormPlan,
};
pub use options::{DataFormat, ParamGrads, Statistics};
pub use profile::{Profile, Tuning};

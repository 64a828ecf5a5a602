//! The layers, called on tensors in host memory.

mod args;
mod axes_norm;
mod batch_norm;
mod group_norm;
mod instance_norm;
mod layer;
mod layer_norm;
mod parameters;
mod rms_norm;
#[cfg(feature = "safetensors")]
mod safetensors;

pub use args::{
    BackwardArgs, ForwardArgs, InferenceArgs, Output, RunningStatistics, Saved, SavedRef,
};
pub use axes_norm::{AxesNormOptions, GpuAxesNorm};
pub use batch_norm::{BatchNormOptions, GpuBatchNorm};
pub use group_norm::{GpuGroupNorm, GroupNormOptions};
pub use instance_norm::{GpuInstanceNorm, InstanceNormOptions};
pub use layer_norm::{GpuLayerNorm, LayerNormOptions};
pub use parameters::{Parameters, Running};
pub use rms_norm::{GpuRmsNorm, RmsNormOptions};

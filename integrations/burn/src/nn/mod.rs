//! Burn's normalization layers, with its configs, fields, defaults and records.

mod batch_norm;
mod batch_norm_add_relu;
mod batch_norm_relu;
mod group_norm;
mod instance_norm;
mod layer_norm;
mod rms_norm;

pub use batch_norm::{BatchNorm, BatchNormConfig};
pub use batch_norm_add_relu::{BatchNormAddRelu, BatchNormAddReluConfig};
pub use batch_norm_relu::{BatchNormRelu, BatchNormReluConfig};
pub use group_norm::{GroupNorm, GroupNormConfig};
pub use instance_norm::{InstanceNorm, InstanceNormConfig};
pub use layer_norm::{LayerNorm, LayerNormConfig};
pub use rms_norm::{RmsNorm, RmsNormConfig};

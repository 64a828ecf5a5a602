//! The operators of [ONNX](https://onnx.ai/onnx/operators/), with its attributes and argument names.

mod batch_norm;
mod group_norm;
mod layer_norm;

pub use batch_norm::{BatchNormalization, BatchNormalizationInputs, BatchNormalizationOutputs};
pub use group_norm::{GroupNormalization, GroupNormalizationInputs, InstanceNormalization};
pub use layer_norm::{
    LayerNormalization, LayerNormalizationInputs, LayerNormalizationOutputs, RmsNormalization,
    RmsNormalizationInputs,
};

//! The operators of [ONNX](https://onnx.ai/onnx/operators/), with its attributes and argument names.

mod batch_norm;
mod group_norm;
mod layer_norm;

pub use batch_norm::*;
pub use group_norm::*;
pub use layer_norm::*;

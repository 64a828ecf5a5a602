//! The operators of [ONNX](https://onnx.ai/onnx/operators/), with its attributes and argument names.
//!
//! T, the type of the data, is any [`Element`](crate::Element) type: f16, bf16, f32 or f64.

mod batch_norm;
mod group_norm;
mod layer_norm;
mod mean_variance;

pub use batch_norm::*;
pub use group_norm::*;
pub use layer_norm::*;
pub use mean_variance::*;

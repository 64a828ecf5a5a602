//! The operators that [PyTorch](https://pytorch.org)'s normalization layers run, with the names of their arguments. The
//! channel axis is axis 1: `(N, C, …)`.
//!
//! input and weight may have any pair of types that [`ParamOf`](crate::ParamOf) allows; bias and the gradients of both
//! have weight's type.
//!
//! Statistics have the type in which PyTorch's CUDA kernels save them, [`Element::Sum`](crate::Element::Sum): f32, or
//! f64 for f64 data. So do running statistics, although PyTorch converts them too when it converts a whole model to f16
//! or bf16.

mod batch_norm;
mod group_norm;
mod layer_norm;

pub use batch_norm::*;
pub use group_norm::*;
pub use layer_norm::*;

use super::*;

/// The gradient for a mask of its outputs: weight scales grad_input even if neither parameter gradient is requested.
fn masked([_, weight, bias]: [bool; 3]) -> Backward {
    Backward::default().with_param_grads(weight || bias)
}

/// The forward pass's eps, or the smallest that is allowed: 1/rstd² already contains it. On device buffers the variance
/// itself is bound, which does not.
fn forward_eps(given: &Given<'_>, eps: Option<f64>) -> Result<f64, Error> {
    if eps.is_none() && given.planned {
        let expected = "the forward pass's, as buffers hold the variance in place of rstd";
        return Err(Error::argument("eps", expected, "none"));
    }
    Ok(eps.unwrap_or(f32::MIN_POSITIVE.into()))
}

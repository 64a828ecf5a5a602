//! The operators that [PyTorch](https://pytorch.org)'s normalization layers run, with the names of their arguments. The
//! channel axis is axis 1: `(N, C, …)`.
//!
//! input and weight may have any pair of types that [`ParamOf`] allows; bias and the gradients of both have weight's
//! type.
//!
//! Statistics have the type in which PyTorch's CUDA kernels save them, [`Element::Sum`]: f32, or f64 for f64 data. So
//! do running statistics, although PyTorch converts them too when it converts a whole model to f16 or bf16.

mod batch_norm;
mod group_norm;
mod layer_norm;

pub use batch_norm::*;
pub use group_norm::*;
pub use layer_norm::*;

use super::*;

/// The outputs of [`NativeBatchNormBackward`], [`NativeLayerNormBackward`] and [`NativeGroupNormBackward`], in host
/// memory, as the output mask selects them.
#[derive(Clone, Debug, PartialEq)]
pub struct GradOutputs<T, P> {
    /// Gradient with respect to input, of its shape.
    pub grad_input: Option<Vec<T>>,
    /// Gradient with respect to weight.
    pub grad_weight: Option<Vec<P>>,
    /// Gradient with respect to bias.
    pub grad_bias: Option<Vec<P>>,
}

impl<T, P> GradOutputs<T, P> {
    fn masked(grads: Grads<T, P>, [input, weight, bias]: [bool; 3]) -> Self {
        Self {
            grad_input: input.then_some(grads.diff_src),
            grad_weight: grads.diff_gamma.filter(|_| weight),
            grad_bias: grads.diff_beta.filter(|_| bias),
        }
    }
}

/// weight scales grad_input even if neither parameter gradient is requested.
fn masked([_, weight, bias]: [bool; 3]) -> Backward {
    backward(weight || bias)
}

/// The outputs of layer norm and group norm, in host memory, in PyTorch's order.
#[derive(Clone, Debug, PartialEq)]
pub struct NormOutputs<T, S> {
    /// The layer's output, of input's shape.
    pub output: Vec<T>,
    /// Mean of each row, or of each group, `(N, group)`.
    pub mean: Vec<S>,
    /// 1/√(variance + eps) of each of them, with the biased variance.
    pub rstd: Vec<S>,
}

impl<T, S: Element> NormOutputs<T, S> {
    fn new<P>(mut results: Results<T, P, S>, eps: f64) -> Self {
        let variance = results.statistic(Tensor::Variance).unwrap_or_default();
        Self {
            output: results.dst(),
            mean: results.statistic(Tensor::Mean).unwrap_or_default(),
            rstd: inverse_deviations(variance, eps),
        }
    }
}

/// The smallest epsilon allowed: 1/rstd² already contains the forward pass's epsilon.
const EPSILON: f64 = f32::MIN_POSITIVE as f64;

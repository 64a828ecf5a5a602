//! The operators of [PyTorch](https://pytorch.org) that its normalization layers run, by the names of their arguments.
//! Channels are axis 1: `(N, C, …)`.
//!
//! Statistics are of the type that PyTorch's CUDA kernels save them in, [`Element::Sum`]: f32, or f64
//! beside f64. So are running statistics, although PyTorch converts those of a whole model in f16 or bf16, too.

mod batch_norm;
mod group_norm;
mod layer_norm;

pub use batch_norm::*;
pub use group_norm::*;
pub use layer_norm::*;

use super::*;

/// The outputs of [`NativeBatchNormBackward`], [`NativeLayerNormBackward`] and [`NativeGroupNormBackward`], in host memory:
/// those of the output mask.
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

/// weight scales grad_input also where neither parameter's gradient is asked for.
fn masked([_, weight, bias]: [bool; 3]) -> Backward {
    backward(weight || bias)
}

/// What layer norm and group norm give, in host memory, in PyTorch's order.
#[derive(Clone, Debug, PartialEq)]
pub struct NormOutputs<T, S> {
    /// The layer's output, of input's shape.
    pub output: Vec<T>,
    /// Mean of each row, or of each group, `(N, group)`.
    pub mean: Vec<S>,
    /// 1/√(variance + eps) of each of them, variance being the biased one.
    pub rstd: Vec<S>,
}

impl<T, S: Element> NormOutputs<T, S> {
    fn new<P>(mut results: call::Results<T, P, S>, eps: f64) -> Self {
        let variance = results.statistic(Tensor::Variance).unwrap_or_default();
        Self {
            output: results.dst(),
            mean: results.statistic(Tensor::Mean).unwrap_or_default(),
            rstd: inverse_deviations(variance, eps),
        }
    }
}

/// The smallest epsilon that there may be, for 1/rstd² has the forward pass's in it already.
const EPSILON: f64 = f32::MIN_POSITIVE as f64;

//! The operations that follow a layer and are computed with it: an added residual, and an activation after that; and
//! how its gamma is used.

use super::Body;
use super::files::{File, file};
use crate::options::Activation;
use crate::tensor::Tensor;

/// dst = activation(norm(src) + residual).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Epilogue {
    pub activation: Activation,
    /// Whether a residual is added. Then a mask, which a forward pass in training writes and the gradient reads, says
    /// which elements passed the activation.
    pub residual: bool,
    /// Whether gamma is stored less 1.
    pub zero_centered_gamma: bool,
    /// Whether a gate multiplies the layer's output.
    pub gated: bool,
}

impl Epilogue {
    /// The activation that a kernel computes. A gradient with a mask computes none.
    pub fn computed(self, body: Body) -> Activation {
        if body.is_gradient() && self.residual {
            Activation::None
        } else {
            self.activation
        }
    }

    /// Whether the gradient recomputes the layer's output from src, statistics, gamma and beta.
    pub fn is_recomputed(self) -> bool {
        self.activation != Activation::None && !self.residual
    }

    /// Whether elements depend on a parameter: a gradient's on beta only through the activation.
    pub fn uses(self, param: Tensor, body: Body) -> bool {
        param != Tensor::Beta || !body.is_gradient() || self.is_recomputed()
    }
}

/// The file of an activation.
pub(super) const fn file(activation: Activation) -> File {
    match activation {
        Activation::None => file!("activations/none"),
        Activation::Relu => file!("activations/relu"),
        Activation::Silu => file!("activations/silu"),
        Activation::Gelu => file!("activations/gelu"),
        Activation::GeluTanh => file!("activations/gelu_tanh"),
    }
}

//! What comes after a layer and is computed with it: an activation, and before that a residual that is added.

use super::Body;
use super::files::{File, file};
use crate::Activation;

/// dst = activation(norm(src) + residual).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Epilogue {
    pub activation: Activation,
    /// Whether a residual is added. What passed the activation then stands in a mask, which a forward pass in training
    /// writes and the gradient reads.
    pub residual: bool,
    /// Whether gamma counts for the activation alone, not for the gradient.
    pub gamma_ignored: bool,
}

impl Epilogue {
    /// The activation that a kernel computes: with a mask a gradient does not.
    pub fn computed(self, body: Body) -> Activation {
        match body.is_gradient() && self.residual {
            true => Activation::None,
            false => self.activation,
        }
    }

    /// Whether the gradient finds the layer's output again, from src, statistics, gamma and beta.
    pub fn is_recomputed(self) -> bool {
        self.activation != Activation::None && !self.residual
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

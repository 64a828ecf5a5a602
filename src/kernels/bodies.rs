//! The operators: the bodies of `shaders/operators/`, which say what a kernel computes of the elements that it walks.

use super::Tensor;

/// What a kernel computes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Body {
    /// The gradient of batch norm and of layer norm.
    Gradient,
    /// Mean and variance in one reading, which the forward passes will begin with.
    #[cfg(test)]
    Statistics,
}

impl Body {
    /// Name of its file.
    #[cfg(test)]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Gradient => "gradient",
            Self::Statistics => "statistics",
        }
    }

    pub(super) const fn text(self) -> &'static str {
        match self {
            Self::Gradient => include_str!("../../shaders/operators/gradient.wgsl"),
            #[cfg(test)]
            Self::Statistics => include_str!("../../shaders/operators/statistics.wgsl"),
        }
    }

    /// The tensors that its body names. Those that a kernel does not bind read as 1 and are not written.
    pub(super) const fn tensors(self) -> &'static [Tensor] {
        match self {
            Self::Gradient => &[
                Tensor::Mean,
                Tensor::Variance,
                Tensor::DiffGamma,
                Tensor::DiffBeta,
                Tensor::Workspace,
            ],
            #[cfg(test)]
            Self::Statistics => &[Tensor::Workspace],
        }
    }
}

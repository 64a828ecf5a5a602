//! The operators: the bodies of `shaders/operators/`, which say what a kernel computes of the elements that it walks.

#[cfg(test)]
use super::Kernel;
use super::Tensor;

/// What a kernel computes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Body {
    /// The gradient of batch norm and of layer norm.
    Gradient,
    /// The gradient of RMS norm.
    RmsGradient,
    /// Mean and variance in one reading, which the forward passes will begin with.
    #[cfg(test)]
    Statistics,
}

impl Body {
    #[cfg(test)]
    pub const ALL: [Self; 3] = [Self::Gradient, Self::RmsGradient, Self::Statistics];

    /// Name of its file.
    #[cfg(test)]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Gradient => "gradient",
            Self::RmsGradient => "rms_gradient",
            Self::Statistics => "statistics",
        }
    }

    pub(super) const fn text(self) -> &'static str {
        match self {
            Self::Gradient => include_str!("../../shaders/operators/gradient.wgsl"),
            Self::RmsGradient => include_str!("../../shaders/operators/rms_gradient.wgsl"),
            #[cfg(test)]
            Self::Statistics => include_str!("../../shaders/operators/statistics.wgsl"),
        }
    }

    /// The operands that its kernels read and write, but for the statistics. Those that a kernel does not bind read as 1
    /// and are not written.
    pub const fn tensors(self) -> &'static [Tensor] {
        match self {
            Self::Gradient => &[
                Tensor::Src,
                Tensor::DiffDst,
                Tensor::Gamma,
                Tensor::DiffSrc,
                Tensor::DiffGamma,
                Tensor::DiffBeta,
            ],
            Self::RmsGradient => &[
                Tensor::Src,
                Tensor::DiffDst,
                Tensor::Gamma,
                Tensor::DiffSrc,
                Tensor::DiffGamma,
            ],
            #[cfg(test)]
            Self::Statistics => &[Tensor::Src],
        }
    }

    /// What it reads of each group of elements that are normalized together. With epsilon, the last is above 0.
    pub const fn statistics(self) -> &'static [Tensor] {
        match self {
            Self::Gradient => &[Tensor::Mean, Tensor::Variance],
            Self::RmsGradient => &[Tensor::MeanSquare],
            #[cfg(test)]
            Self::Statistics => &[],
        }
    }

    /// Whether its text fits a kernel.
    #[cfg(test)]
    pub fn fits(self, kernel: Kernel) -> bool {
        match self {
            Self::Gradient => true,
            Self::RmsGradient => matches!(
                kernel,
                Kernel::PackStatistics
                    | Kernel::RowsReduce
                    | Kernel::RowsApply
                    | Kernel::RowsFused
                    | Kernel::Finish
            ),
            Self::Statistics => matches!(
                kernel,
                Kernel::ChannelsFirstReduce | Kernel::ChannelsLastReduce
            ),
        }
    }
}

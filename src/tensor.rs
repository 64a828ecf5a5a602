//! The tensors that operations read and write.

use crate::DType;

/// A tensor of an operation, or scratch memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Tensor {
    /// The layer's input.
    Src,
    /// Gradient with respect to the layer's output.
    DiffDst,
    /// Mean of what is normalized together.
    Mean,
    /// Biased variance of it.
    Variance,
    /// Mean of its squares: RMS norm's statistic.
    MeanSquare,
    /// Added to src, before layer and RMS norm; or to the output of the others.
    Residual,
    /// Scale.
    Gamma,
    /// Shift.
    Beta,
    /// One bit for each element: whether an activation let it pass.
    Mask,
    /// Running mean, read and written.
    RunningMean,
    /// Running variance, read and written.
    RunningVariance,
    /// Gradient with respect to src.
    DiffSrc,
    /// Gradient with respect to the residual.
    DiffResidual,
    /// Gradient with respect to gamma.
    DiffGamma,
    /// Gradient with respect to beta.
    DiffBeta,
    /// The layer's output.
    Dst,
    /// src and residual added, before layer and RMS norm.
    Sum,
    /// What devices exchange between the two halves of batch norm.
    Sums,
    /// Scratch memory.
    Workspace,
}

impl Tensor {
    pub(crate) const ALL: [Self; 19] = [
        Self::Src,
        Self::DiffDst,
        Self::Mean,
        Self::Variance,
        Self::MeanSquare,
        Self::Residual,
        Self::Gamma,
        Self::Beta,
        Self::Mask,
        Self::RunningMean,
        Self::RunningVariance,
        Self::DiffSrc,
        Self::DiffResidual,
        Self::DiffGamma,
        Self::DiffBeta,
        Self::Dst,
        Self::Sum,
        Self::Sums,
        Self::Workspace,
    ];

    /// Its name, as buffers and the command have it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Src => "src",
            Self::DiffDst => "diff_dst",
            Self::Mean => "mean",
            Self::Variance => "variance",
            Self::MeanSquare => "mean_square",
            Self::Residual => "residual",
            Self::Gamma => "gamma",
            Self::Beta => "beta",
            Self::Mask => "mask",
            Self::RunningMean => "running_mean",
            Self::RunningVariance => "running_variance",
            Self::DiffSrc => "diff_src",
            Self::DiffResidual => "diff_residual",
            Self::DiffGamma => "diff_gamma",
            Self::DiffBeta => "diff_beta",
            Self::Dst => "dst",
            Self::Sum => "sum",
            Self::Sums => "sums",
            Self::Workspace => "workspace",
        }
    }

    /// Whether it has the data's element type.
    pub const fn is_data(self) -> bool {
        matches!(
            self,
            Self::Src
                | Self::DiffDst
                | Self::Residual
                | Self::DiffSrc
                | Self::DiffResidual
                | Self::Dst
                | Self::Sum
        )
    }

    /// Whether it is none of the caller's operands.
    pub(crate) const fn is_scratch(self) -> bool {
        matches!(self, Self::Sums | Self::Workspace)
    }

    /// Whether it has the parameters' element type.
    pub const fn is_param(self) -> bool {
        matches!(
            self,
            Self::Gamma | Self::Beta | Self::DiffGamma | Self::DiffBeta
        )
    }

    /// Whether there is one of it for each group of elements that are normalized together.
    pub(crate) const fn is_statistic(self) -> bool {
        matches!(self, Self::Mean | Self::Variance | Self::MeanSquare) || self.is_running()
    }

    /// Whether it is read and written in its place.
    pub(crate) const fn is_running(self) -> bool {
        matches!(self, Self::RunningMean | Self::RunningVariance)
    }
}

/// How an operation uses a tensor.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Access {
    /// It is read.
    In,
    /// It is written.
    Out,
    /// It is read, then written in its place.
    InOut,
}

impl Access {
    /// Whether it is read.
    pub const fn reads(self) -> bool {
        matches!(self, Self::In | Self::InOut)
    }

    /// Whether it is written.
    pub const fn writes(self) -> bool {
        matches!(self, Self::Out | Self::InOut)
    }
}

/// When an operation has a tensor.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Need {
    /// Always.
    Always,
    /// If the layer has it: gamma, beta, a residual.
    Given,
    /// By the operation's options, such as which gradients are wanted.
    Options,
}

/// What a tensor's elements are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Format {
    /// Numbers.
    Elements(DType),
    /// A mask's bits, in words of 32: bit i of word w is of element 32 · w + i in storage order.
    Bits,
}

/// How the ranks of a process group share a tensor, each with some of the samples.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Ranks {
    /// By samples: each has its own part.
    Split,
    /// Each has all of it, the same everywhere.
    Same,
    /// Each computes the sum over its samples; the sums are added up.
    Added,
    /// Each computes statistics of its samples, which merge to those of all.
    Merged,
}

/// A tensor that an operation may have.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct Slot {
    /// Which one.
    pub tensor: Tensor,
    /// How it is used.
    pub access: Access,
    /// When it is there.
    pub need: Need,
}

/// A tensor that an operation has.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct TensorUse {
    /// Which one.
    pub tensor: Tensor,
    /// How it is used.
    pub access: Access,
    /// What its elements are.
    pub format: Format,
    /// Its sizes; of a mask those of the tensor whose elements its bits are of. A single number has none.
    pub shape: Vec<usize>,
    /// How processes share it.
    pub ranks: Ranks,
}

impl TensorUse {
    /// How many numbers it has; of a mask, how many words.
    pub fn elements(&self) -> u64 {
        // Operations are made of shapes whose products fit.
        let sizes = self.shape.iter().map(|&size| size as u64);
        let elements = sizes.fold(1_u64, u64::saturating_mul);
        match self.format {
            Format::Elements(_) => elements,
            Format::Bits => elements.div_ceil(32),
        }
    }

    /// Bytes of a number, or of a word.
    pub fn element_size(&self) -> u64 {
        match self.format {
            Format::Elements(dtype) => dtype.size(),
            Format::Bits => 4,
        }
    }

    /// Bytes of its elements.
    pub fn bytes(&self) -> u64 {
        self.elements().saturating_mul(self.element_size())
    }
}

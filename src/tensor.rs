//! The tensors that operations read and write.

use crate::element::DType;
use std::fmt;

/// A tensor of an operation, or scratch memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Tensor {
    /// The layer's input.
    Src,
    /// Gradient with respect to the layer's output.
    DiffDst,
    /// Mean of the elements that are normalized together.
    Mean,
    /// Their biased variance.
    Variance,
    /// Mean of their squares: RMS norm's statistic.
    MeanSquare,
    /// Added to src before layer and RMS norm, or to the output of the other layers.
    Residual,
    /// Scale.
    Gamma,
    /// Shift.
    Beta,
    /// Scale of the layer's output.
    Gate,
    /// The activation mask: one bit for each element, set if the activation let it pass.
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
    /// Gradient with respect to the gate.
    DiffGate,
    /// The layer's output.
    Dst,
    /// src + residual, before layer and RMS norm.
    Sum,
    /// The sums that devices exchange between the two halves of batch norm.
    Sums,
    /// Scratch memory.
    Workspace,
}

impl Tensor {
    pub(crate) const ALL: [Self; 21] = [
        Self::Src,
        Self::DiffDst,
        Self::Mean,
        Self::Variance,
        Self::MeanSquare,
        Self::Residual,
        Self::Gamma,
        Self::Beta,
        Self::Gate,
        Self::Mask,
        Self::RunningMean,
        Self::RunningVariance,
        Self::DiffSrc,
        Self::DiffResidual,
        Self::DiffGamma,
        Self::DiffBeta,
        Self::DiffGate,
        Self::Dst,
        Self::Sum,
        Self::Sums,
        Self::Workspace,
    ];

    /// Its name in buffers' labels, in errors and in the command.
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
            Self::Gate => "gate",
            Self::Mask => "mask",
            Self::RunningMean => "running_mean",
            Self::RunningVariance => "running_variance",
            Self::DiffSrc => "diff_src",
            Self::DiffResidual => "diff_residual",
            Self::DiffGamma => "diff_gamma",
            Self::DiffBeta => "diff_beta",
            Self::DiffGate => "diff_gate",
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

    /// Whether it is scratch memory and not an operand.
    pub(crate) const fn is_scratch(self) -> bool {
        matches!(self, Self::Sums | Self::Workspace)
    }

    /// Whether it has the parameters' element type.
    pub const fn is_param(self) -> bool {
        matches!(
            self,
            Self::Gamma
                | Self::Beta
                | Self::Gate
                | Self::DiffGamma
                | Self::DiffBeta
                | Self::DiffGate
        )
    }

    /// Whether it has one number for each set of elements that are normalized together, running statistics included.
    pub const fn is_statistic(self) -> bool {
        matches!(self, Self::Mean | Self::Variance | Self::MeanSquare) || self.is_running()
    }

    /// Whether it is the statistic that epsilon is added to: the sum must be above 0.
    pub const fn takes_epsilon(self) -> bool {
        matches!(self, Self::Variance | Self::MeanSquare)
    }

    /// Whether it is read and updated in place.
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
#[non_exhaustive]
pub enum Need {
    /// Always.
    Always,
    /// If the layer has it: gamma, beta, a residual.
    Given,
    /// If the operation's options require it, such as which gradients are computed.
    Options,
}

/// The kind of a tensor's elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Format {
    /// Numbers.
    Elements(DType),
    /// A mask's bits, in words of 32: bit i of word w belongs to element 32 · w + i in storage order.
    Bits,
}

impl From<DType> for Format {
    fn from(dtype: DType) -> Self {
        Self::Elements(dtype)
    }
}

impl Format {
    /// Bytes of an element, or of a mask's word.
    pub const fn size(self) -> u64 {
        match self {
            Self::Elements(dtype) => dtype.size(),
            Self::Bits => 4,
        }
    }
}

impl fmt::Display for Format {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Elements(dtype) => write!(f, "{dtype} elements"),
            Self::Bits => f.write_str("a mask's words"),
        }
    }
}

/// How the ranks of a process group share a tensor. Each rank has some of the samples.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Ranks {
    /// Each rank has the part of its own samples.
    Split,
    /// Each rank has the whole tensor, the same everywhere.
    Same,
    /// Each rank computes the sum over its samples; the sums are added up.
    Added,
    /// Each rank computes the statistics of its samples; they are merged into those of all samples.
    Merged,
}

/// A tensor that an operation may have.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct Slot {
    /// The tensor.
    pub tensor: Tensor,
    /// How it is used.
    pub access: Access,
    /// When the operation has it.
    pub need: Need,
}

/// A tensor that an operation has.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct TensorUse {
    /// The tensor.
    pub tensor: Tensor,
    /// How it is used.
    pub access: Access,
    /// The kind of its elements.
    pub format: Format,
    /// Its sizes; for a mask, those of the tensor that it is a mask of. A single number has none.
    pub shape: Vec<usize>,
    /// How processes share it.
    pub ranks: Ranks,
}

impl TensorUse {
    /// Its number of elements; for a mask, of words.
    pub fn elements(&self) -> u64 {
        // The product of an operation's sizes was checked to fit.
        let sizes = self.shape.iter().map(|&size| size as u64);
        let elements = sizes.fold(1_u64, u64::saturating_mul);
        match self.format {
            Format::Elements(_) => elements,
            Format::Bits => elements.div_ceil(32),
        }
    }

    /// Bytes of an element, or of a mask's word.
    pub fn element_size(&self) -> u64 {
        self.format.size()
    }

    /// Bytes of its elements.
    pub fn bytes(&self) -> u64 {
        self.elements().saturating_mul(self.element_size())
    }
}

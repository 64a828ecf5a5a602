//! The operators: the bodies of `shaders/operators/`, which say what a kernel computes from the elements that it walks.

use super::files::{File, file};
use super::sums::{Sum, not_taken, taken};
use super::{BLOCK_VECTORS, Constant};
use crate::operation::{Norm, Pass};
use crate::tensor::Tensor;

/// What a kernel computes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Body {
    pub computes: Computes,
    /// Whether the mean is subtracted.
    pub centered: bool,
    /// Whether several channels of a sample share statistics.
    pub of_groups: bool,
    /// Whether the text is for rows alone: RMS norm's, or that of statistics of what registers hold.
    pub of_rows: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Computes {
    Gradient,
    /// A forward pass by the statistics of its input.
    Forward,
    /// A forward pass by given statistics.
    Inference,
}

impl Computes {
    const fn by(pass: Pass) -> Self {
        match pass {
            Pass::Forward(_) => Self::Forward,
            Pass::Inference => Self::Inference,
            Pass::Backward(_) => Self::Gradient,
        }
    }
}

impl Body {
    /// The body of a pass of a norm.
    pub fn of(norm: &Norm, pass: Pass) -> Self {
        let is_over_rows = norm.is_over_rows();
        Self {
            computes: Computes::by(pass),
            centered: norm.is_centered(),
            of_groups: !is_over_rows && !matches!(norm, Norm::Batch(_)),
            of_rows: is_over_rows && !norm.is_centered(),
        }
    }

    /// The body of a pass of axes norm over rows or columns.
    pub const fn over_rows(centered: bool, pass: Pass) -> Self {
        let computes = Computes::by(pass);
        Self {
            computes,
            centered,
            of_groups: matches!(computes, Computes::Inference),
            of_rows: !centered && matches!(computes, Computes::Forward),
        }
    }

    /// Whether it is a gradient.
    pub const fn is_gradient(self) -> bool {
        matches!(self.computes, Computes::Gradient)
    }

    /// Whether it is a forward pass by given statistics.
    pub const fn is_inference(self) -> bool {
        matches!(self.computes, Computes::Inference)
    }

    /// Whether it merges statistics: a forward pass whose sums are partial.
    const fn merges(self) -> bool {
        matches!(self.computes, Computes::Forward) && !self.of_rows
    }

    pub(super) const fn file(self) -> File {
        match (self.computes, self.of_rows) {
            (Computes::Gradient, _) => file!("operators/gradient"),
            (_, true) => file!("operators/rows_forward"),
            (_, false) => file!("operators/forward"),
        }
    }

    /// The sums that it takes.
    pub(super) const fn sums(self) -> &'static [Sum] {
        let is_rms = self.of_rows && !self.centered;
        match (self.computes, self.of_rows) {
            (Computes::Gradient, _) if is_rms => const { &[not_taken("d"), taken("d_xhat")] },
            (Computes::Gradient, _) => const { &[taken("d"), taken("d_xhat")] },
            (_, true) if is_rms => const { &[not_taken("e"), taken("e2")] },
            (_, true) => const { &[taken("e"), taken("e2")] },
            _ => const { &[taken("count"), taken("shift"), taken("delta"), taken("m2")] },
        }
    }

    /// The tensors that it reads element by element: the fields of WGSL's `Inputs`.
    pub const fn inputs(self) -> &'static [Tensor] {
        if self.is_gradient() {
            &[Tensor::Src, Tensor::DiffDst]
        } else {
            &[Tensor::Src, Tensor::Residual]
        }
    }

    /// The tensors that it writes element by element, the fields of WGSL's `Outputs`; the first is written in every
    /// pass.
    pub const fn outputs(self) -> &'static [Tensor] {
        if self.is_gradient() {
            &[Tensor::DiffSrc, Tensor::DiffResidual]
        } else {
            &[Tensor::Dst, Tensor::Sum]
        }
    }

    /// The statistics of elements that are normalized together.
    const fn statistics_of_norm(self) -> &'static [Tensor] {
        if self.centered {
            &[Tensor::Mean, Tensor::Variance]
        } else {
            &[Tensor::MeanSquare]
        }
    }

    /// Those that it reads. The last one plus epsilon is above 0.
    pub const fn statistics(self) -> &'static [Tensor] {
        match self.computes {
            Computes::Forward => &[],
            _ => self.statistics_of_norm(),
        }
    }

    /// Whether it is batch norm's or layer norm's, with neither groups nor a text for rows alone.
    const fn is_plain(self) -> bool {
        self.centered && !self.of_groups && !self.of_rows
    }

    /// Whether it is RMS norm's gradient, with neither beta nor gate.
    const fn is_rms_gradient(self) -> bool {
        self.is_gradient() && self.of_rows
    }

    /// Whether its kernels read one of the caller's tensors.
    pub fn reads(self, tensor: Tensor) -> bool {
        match tensor {
            Tensor::Gamma => true,
            Tensor::Beta => !self.is_rms_gradient(),
            Tensor::Gate if self.is_inference() => !self.is_plain(),
            Tensor::Gate => !self.is_rms_gradient(),
            Tensor::Mask => self.is_gradient() && (self.centered || self.of_groups),
            Tensor::RunningMean | Tensor::RunningVariance => self.is_plain() && self.merges(),
            _ => self.inputs().contains(&tensor) || self.statistics().contains(&tensor),
        }
    }

    /// The parameters that a parameter's gradient follows from, besides sums.
    pub const fn read_for(gradient: Tensor) -> &'static [Tensor] {
        match gradient {
            Tensor::DiffGate => &[Tensor::Gamma, Tensor::Beta],
            Tensor::DiffGamma | Tensor::DiffBeta => &[Tensor::Gate],
            _ => &[],
        }
    }

    /// Whether its kernels write one of the caller's tensors.
    pub fn writes(self, tensor: Tensor) -> bool {
        match tensor {
            Tensor::DiffGamma => self.is_gradient(),
            Tensor::DiffBeta | Tensor::DiffGate => self.is_gradient() && !self.of_rows,
            Tensor::Mask => self.merges(),
            Tensor::RunningMean | Tensor::RunningVariance => self.is_plain() && self.merges(),
            Tensor::Mean | Tensor::Variance | Tensor::MeanSquare => {
                self.computes == Computes::Forward && self.statistics_of_norm().contains(&tensor)
            }
            _ => self.outputs().contains(&tensor),
        }
    }

    /// Whether a record holds the sums of two channels, two words each.
    pub const fn pairs(self) -> bool {
        self.is_inference() || (!self.of_groups && self.sums().len() <= 2)
    }

    /// The most reals of workgroup memory that a kernel of a body that takes two sums has for each invocation.
    pub const FEWEST_REALS: u64 = 10;

    /// The same of this body: an accumulator and a total.
    pub const fn shared_reals(self) -> u64 {
        if self.is_inference() {
            Self::FEWEST_REALS
        } else {
            let sums = self.sums().len() as u64;
            4 * sums + sums.next_power_of_two()
        }
    }

    /// Rows in a block of the kernels over columns.
    pub const fn block_rows(self) -> u64 {
        if self.merges() { 16 } else { 64 }
    }

    /// Vectors in a block, where an invocation has `vectors` of a plane: as many in each block, and none too many. If a
    /// block may have more than one, it has a shift.
    pub fn block_vectors(self, vectors: u64) -> u32 {
        let most = if self.merges() {
            BLOCK_VECTORS.into()
        } else {
            1
        };
        let blocks = vectors.div_ceil(most).max(1);
        u32::try_from(vectors.div_ceil(blocks).max(1)).unwrap_or(1)
    }

    /// How often it reduces a row in registers.
    pub const fn row_reductions(self) -> u64 {
        if self.of_rows && self.centered && !self.is_gradient() {
            2
        } else {
            1
        }
    }

    /// The constants that its text reads.
    pub(super) fn constants(self) -> [(&'static str, Constant); 7] {
        [
            (
                "statistics_given",
                Constant::Flag(!self.statistics().is_empty()),
            ),
            ("of_groups", Constant::Flag(self.of_groups)),
            ("centered", Constant::Flag(self.centered)),
            ("paired_records", Constant::Flag(self.pairs())),
            (
                "row_reductions",
                Constant::Size(self.row_reductions() as u32),
            ),
            (
                "in_blocks",
                Constant::Flag(self.merges() && BLOCK_VECTORS > 1),
            ),
            ("block_rows", Constant::Size(self.block_rows() as u32)),
        ]
    }
}

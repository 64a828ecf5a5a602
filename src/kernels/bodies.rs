//! The operators: the bodies of `shaders/operators/`, which say what a kernel computes from the elements that it walks.

use super::files::{File, file};
use super::{BLOCK_VECTORS, Constant};
use crate::Tensor;
use crate::operation::{Norm, Pass};

/// What a kernel computes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Body {
    /// The gradient of batch norm and of layer norm.
    Gradient,
    /// The gradient of RMS norm.
    RmsGradient,
    /// The gradient of layer norm without a mean, which is RMS norm with beta.
    UncenteredGradient,
    /// Batch norm and layer norm forward, by the statistics of their input.
    Forward,
    /// Batch norm forward, by given statistics.
    Inference,
    /// Layer norm forward over rows in registers.
    RowsForward,
    /// RMS norm forward, with or without beta.
    RmsForward,
    /// The gradient of group norm.
    GroupGradient,
    /// Group norm forward, by the statistics of its input.
    GroupForward,
    /// Group norm forward, by given statistics.
    GroupInference,
    /// These three without a mean: the statistic is the mean of squares.
    GroupRmsGradient,
    GroupRmsForward,
    GroupRmsInference,
}

/// A body's description.
pub(super) struct Entry {
    #[cfg_attr(not(test), expect(dead_code, reason = "for the labels of variants"))]
    pub name: &'static str,
    file: File,
    /// The tensors that it reads and writes element by element: the fields of WGSL's `Inputs` and `Outputs`.
    inputs: &'static [Tensor],
    outputs: &'static [Tensor],
    /// The statistics that it reads, of elements that are normalized together. The last one plus epsilon is above 0.
    statistics: &'static [Tensor],
    /// The other tensors that it reads.
    reads: &'static [Tensor],
    /// The other tensors that it writes.
    writes: &'static [Tensor],
    /// Whether a record holds the sums of two channels, two words each.
    pairs: bool,
    /// How often a row in registers is reduced.
    row_reductions: u32,
    /// The most vectors of a plane, and rows of columns, in a block. If that is more than one vector, each block has a shift.
    block_vectors: u32,
    block_rows: u32,
    /// The most reals of workgroup memory that a kernel has for each invocation.
    shared_reals: u64,
}

impl Entry {
    /// The entry of a gradient by plain sums.
    const GRADIENT: Self = Self {
        name: "",
        file: file!("operators/gradient"),
        inputs: &[Tensor::Src, Tensor::DiffDst],
        outputs: &[Tensor::DiffSrc],
        statistics: &[],
        reads: &[Tensor::Gamma],
        writes: &[Tensor::DiffGamma],
        pairs: true,
        row_reductions: 1,
        block_vectors: 1,
        block_rows: 64,
        shared_reals: 10,
    };
    /// The entry of a forward pass by plain sums.
    const FORWARD: Self = Self {
        file: file!("operators/forward"),
        inputs: &[Tensor::Src, Tensor::Residual],
        outputs: &[Tensor::Dst, Tensor::Sum],
        reads: &[Tensor::Gamma, Tensor::Beta, Tensor::Gate],
        writes: &[],
        ..Self::GRADIENT
    };
}

const MEAN_AND_VARIANCE: &[Tensor] = &[Tensor::Mean, Tensor::Variance];
const MEAN_SQUARE: &[Tensor] = &[Tensor::MeanSquare];

impl Body {
    /// The body of a pass of a norm.
    pub fn of(norm: &Norm, pass: Pass) -> Self {
        let [forward, inference, gradient] = match norm {
            Norm::Batch(_) => [Self::Forward, Self::Inference, Self::Gradient],
            Norm::Group { .. } | Norm::Instance { .. } | Norm::Axes { centered: true, .. } => [
                Self::GroupForward,
                Self::GroupInference,
                Self::GroupGradient,
            ],
            Norm::Axes { .. } => [
                Self::GroupRmsForward,
                Self::GroupRmsInference,
                Self::GroupRmsGradient,
            ],
            // These normalize by the statistics of src in inference, too, as in a forward pass.
            Norm::Layer { .. } => [Self::Forward, Self::Forward, Self::Gradient],
            Norm::Rms { .. } => [Self::RmsForward, Self::RmsForward, Self::RmsGradient],
        };
        match pass {
            Pass::Forward(_) => forward,
            Pass::Inference => inference,
            Pass::Backward(_) => gradient,
        }
    }

    /// The body of a pass of axes norm over rows or columns.
    pub const fn of_rows(centered: bool, pass: Pass) -> Self {
        match (pass, centered) {
            (Pass::Inference, true) => Self::GroupInference,
            (Pass::Inference, false) => Self::GroupRmsInference,
            (Pass::Forward(_), true) => Self::Forward,
            (Pass::Forward(_), false) => Self::RmsForward,
            (Pass::Backward(_), true) => Self::Gradient,
            (Pass::Backward(_), false) => Self::UncenteredGradient,
        }
    }

    pub(super) const fn entry(self) -> Entry {
        match self {
            Self::Gradient => Entry {
                name: "gradient",
                outputs: &[Tensor::DiffSrc, Tensor::DiffResidual],
                statistics: MEAN_AND_VARIANCE,
                reads: &[Tensor::Gamma, Tensor::Beta, Tensor::Gate, Tensor::Mask],
                writes: &[Tensor::DiffGamma, Tensor::DiffBeta, Tensor::DiffGate],
                ..Entry::GRADIENT
            },
            Self::RmsGradient => Entry {
                name: "rms_gradient",
                file: file!("operators/rms_gradient"),
                statistics: MEAN_SQUARE,
                ..Entry::GRADIENT
            },
            Self::UncenteredGradient => Entry {
                name: "uncentered_gradient",
                statistics: MEAN_SQUARE,
                reads: &[Tensor::Gamma, Tensor::Beta, Tensor::Gate],
                ..Self::Gradient.entry()
            },
            Self::Forward => Entry {
                name: "forward",
                reads: &[
                    Tensor::Gamma,
                    Tensor::Beta,
                    Tensor::Gate,
                    Tensor::RunningMean,
                    Tensor::RunningVariance,
                ],
                writes: &[
                    Tensor::Mask,
                    Tensor::Mean,
                    Tensor::Variance,
                    Tensor::RunningMean,
                    Tensor::RunningVariance,
                ],
                pairs: false,
                block_vectors: BLOCK_VECTORS,
                block_rows: 16,
                shared_reals: 20,
                ..Entry::FORWARD
            },
            Self::Inference => Entry {
                name: "inference",
                statistics: MEAN_AND_VARIANCE,
                reads: &[Tensor::Gamma, Tensor::Beta],
                ..Entry::FORWARD
            },
            Self::RowsForward => Entry {
                name: "rows_forward",
                file: file!("operators/rows_forward"),
                writes: MEAN_AND_VARIANCE,
                row_reductions: 2,
                ..Entry::FORWARD
            },
            Self::RmsForward => Entry {
                name: "rms_forward",
                file: file!("operators/rms_forward"),
                writes: &[Tensor::MeanSquare],
                ..Entry::FORWARD
            },
            Self::GroupGradient => Entry {
                name: "group_gradient",
                pairs: false,
                ..Self::Gradient.entry()
            },
            Self::GroupForward => Entry {
                name: "group_forward",
                reads: Entry::FORWARD.reads,
                writes: &[Tensor::Mask, Tensor::Mean, Tensor::Variance],
                ..Self::Forward.entry()
            },
            Self::GroupInference => Entry {
                name: "group_inference",
                reads: Entry::FORWARD.reads,
                ..Self::Inference.entry()
            },
            Self::GroupRmsGradient => Entry {
                name: "group_rms_gradient",
                statistics: MEAN_SQUARE,
                ..Self::GroupGradient.entry()
            },
            Self::GroupRmsForward => Entry {
                name: "group_rms_forward",
                writes: &[Tensor::Mask, Tensor::MeanSquare],
                ..Self::GroupForward.entry()
            },
            Self::GroupRmsInference => Entry {
                name: "group_rms_inference",
                statistics: MEAN_SQUARE,
                ..Self::GroupInference.entry()
            },
        }
    }

    pub(super) const fn file(self) -> File {
        self.entry().file
    }

    /// The tensors that it reads element by element.
    pub const fn inputs(self) -> &'static [Tensor] {
        self.entry().inputs
    }

    /// The tensors that it writes element by element; the first is written in every pass.
    pub const fn outputs(self) -> &'static [Tensor] {
        self.entry().outputs
    }

    /// The statistics that it reads, of elements that are normalized together. The last one plus epsilon is above 0.
    pub const fn statistics(self) -> &'static [Tensor] {
        self.entry().statistics
    }

    /// Whether its kernels read one of the caller's tensors.
    pub fn reads(self, tensor: Tensor) -> bool {
        let entry = self.entry();
        [entry.inputs, entry.statistics, entry.reads]
            .iter()
            .any(|tensors| tensors.contains(&tensor))
    }

    /// Whether its kernels write one of the caller's tensors.
    pub fn writes(self, tensor: Tensor) -> bool {
        let entry = self.entry();
        entry.outputs.contains(&tensor) || entry.writes.contains(&tensor)
    }

    /// Whether a record holds the sums of two channels.
    pub const fn pairs(self) -> bool {
        self.entry().pairs
    }

    /// The most reals of workgroup memory that a kernel has for each invocation.
    pub const fn shared_reals(self) -> u64 {
        self.entry().shared_reals
    }

    /// Rows in a block of the channels-last kernels.
    pub fn block_rows(self) -> u64 {
        self.entry().block_rows.into()
    }

    /// Vectors in a block, where an invocation has `vectors` of a plane: as many in each block, and none too many.
    pub fn block_vectors(self, vectors: u64) -> u32 {
        let most = u64::from(self.entry().block_vectors);
        let blocks = vectors.div_ceil(most).max(1);
        u32::try_from(vectors.div_ceil(blocks).max(1)).unwrap_or(1)
    }

    /// The constants that its text reads.
    pub(super) fn constants(self) -> [(&'static str, Constant); 7] {
        let entry = self.entry();
        [
            (
                "statistics_given",
                Constant::Flag(!entry.statistics.is_empty()),
            ),
            ("of_groups", Constant::Flag(self.of_groups())),
            (
                "centered",
                Constant::Flag(!self.reads(Tensor::MeanSquare) && !self.writes(Tensor::MeanSquare)),
            ),
            ("paired_records", Constant::Flag(entry.pairs)),
            ("row_reductions", Constant::Size(entry.row_reductions)),
            ("in_blocks", Constant::Flag(entry.block_vectors > 1)),
            ("block_rows", Constant::Size(entry.block_rows)),
        ]
    }

    /// Whether it is a gradient.
    pub fn is_gradient(self) -> bool {
        self.entry().inputs.contains(&Tensor::DiffDst)
    }

    /// Whether it is a forward pass by given statistics.
    pub fn is_inference(self) -> bool {
        !self.is_gradient() && !self.statistics().is_empty()
    }

    /// Whether several channels of a sample share statistics.
    pub const fn of_groups(self) -> bool {
        matches!(
            self,
            Self::GroupGradient
                | Self::GroupForward
                | Self::GroupInference
                | Self::GroupRmsGradient
                | Self::GroupRmsForward
                | Self::GroupRmsInference
        )
    }

    /// How often it reduces a row in registers.
    pub fn row_reductions(self) -> u64 {
        self.entry().row_reductions.into()
    }
}

//! The operators: the bodies of `shaders/operators/`, which say what a kernel computes of the elements that it walks.

#[cfg(test)]
use super::Kernel;
use crate::Tensor;
use crate::operation::{Norm, Pass};

/// What a kernel computes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Body {
    /// The gradient of batch norm and of layer norm.
    Gradient,
    /// The gradient of RMS norm.
    RmsGradient,
    /// Batch norm and layer norm forward, by statistics of what they read.
    Forward,
    /// Batch norm forward, by statistics that are given.
    Inference,
    /// Layer norm forward over rows that registers hold.
    RowsForward,
    /// RMS norm forward.
    RmsForward,
    /// The gradient of group norm.
    GroupGradient,
    /// Group norm forward, by statistics of what it reads.
    GroupForward,
    /// Group norm forward, by statistics that are given.
    GroupInference,
}

/// What there is to say of a body.
struct Entry {
    #[cfg_attr(not(test), expect(dead_code, reason = "for the labels of variants"))]
    name: &'static str,
    text: &'static str,
    /// What it reads beside src, element by element: where texts say `second`.
    second: Option<Tensor>,
    /// What it writes, element by element: where texts say `result`.
    result: Tensor,
    /// What it reads of each group of elements that are normalized together. With epsilon, the last is above 0.
    statistics: &'static [Tensor],
    /// What else it reads.
    inputs: &'static [Tensor],
    /// What else it writes.
    outputs: &'static [Tensor],
    /// Whether a record holds the sums of two cells: a part of the sums is two words.
    pairs: bool,
    /// Reals of workgroup memory that a kernel has for each invocation, at most.
    shared_reals: u64,
    /// Rows that the channels-last kernels add up before they add the sum to others.
    block_rows: u64,
}

const FORWARD: &str = include_str!("../../shaders/operators/forward.wgsl");

impl Body {
    #[cfg(test)]
    pub const ALL: [Self; 9] = [
        Self::Gradient,
        Self::RmsGradient,
        Self::Forward,
        Self::Inference,
        Self::RowsForward,
        Self::RmsForward,
        Self::GroupGradient,
        Self::GroupForward,
        Self::GroupInference,
    ];

    /// That of a pass of a norm.
    pub fn of(norm: &Norm, pass: Pass) -> Self {
        let [forward, inference, gradient] = match norm {
            Norm::Batch(_) => [Self::Forward, Self::Inference, Self::Gradient],
            Norm::Group { .. } | Norm::Instance { .. } => [
                Self::GroupForward,
                Self::GroupInference,
                Self::GroupGradient,
            ],
            // These take the statistics of src in inference, too: that is a forward pass.
            Norm::Layer { .. } => [Self::Forward, Self::Forward, Self::Gradient],
            Norm::Rms { .. } => [Self::RmsForward, Self::RmsForward, Self::RmsGradient],
        };
        match pass {
            Pass::Forward(_) => forward,
            Pass::Inference => inference,
            Pass::Backward(_) => gradient,
        }
    }

    const fn entry(self) -> Entry {
        match self {
            Self::Gradient => Entry {
                name: "gradient",
                text: include_str!("../../shaders/operators/gradient.wgsl"),
                second: Some(Tensor::DiffDst),
                result: Tensor::DiffSrc,
                statistics: &[Tensor::Mean, Tensor::Variance],
                inputs: &[Tensor::Gamma, Tensor::Beta, Tensor::Mask],
                outputs: &[Tensor::DiffGamma, Tensor::DiffBeta, Tensor::DiffResidual],
                pairs: true,
                shared_reals: 8,
                block_rows: 64,
            },
            Self::RmsGradient => Entry {
                name: "rms_gradient",
                text: include_str!("../../shaders/operators/rms_gradient.wgsl"),
                second: Some(Tensor::DiffDst),
                result: Tensor::DiffSrc,
                statistics: &[Tensor::MeanSquare],
                inputs: &[Tensor::Gamma],
                outputs: &[Tensor::DiffGamma],
                pairs: true,
                shared_reals: 8,
                block_rows: 64,
            },
            Self::Forward => Entry {
                name: "forward",
                text: FORWARD,
                second: Some(Tensor::Residual),
                result: Tensor::Dst,
                statistics: &[],
                inputs: &[
                    Tensor::Gamma,
                    Tensor::Beta,
                    Tensor::RunningMean,
                    Tensor::RunningVariance,
                ],
                outputs: &[
                    Tensor::Sum,
                    Tensor::Mask,
                    Tensor::Mean,
                    Tensor::Variance,
                    Tensor::RunningMean,
                    Tensor::RunningVariance,
                ],
                pairs: false,
                shared_reals: 16,
                block_rows: 16,
            },
            Self::Inference => Entry {
                name: "inference",
                text: FORWARD,
                second: Some(Tensor::Residual),
                result: Tensor::Dst,
                statistics: &[Tensor::Mean, Tensor::Variance],
                inputs: &[Tensor::Gamma, Tensor::Beta],
                outputs: &[],
                pairs: true,
                shared_reals: 8,
                block_rows: 16,
            },
            Self::RowsForward => Entry {
                name: "rows_forward",
                text: include_str!("../../shaders/operators/rows_forward.wgsl"),
                second: Some(Tensor::Residual),
                result: Tensor::Dst,
                statistics: &[],
                inputs: &[Tensor::Gamma, Tensor::Beta],
                outputs: &[Tensor::Sum, Tensor::Mean, Tensor::Variance],
                pairs: true,
                shared_reals: 8,
                block_rows: 64,
            },
            Self::RmsForward => Entry {
                name: "rms_forward",
                text: include_str!("../../shaders/operators/rms_forward.wgsl"),
                second: Some(Tensor::Residual),
                result: Tensor::Dst,
                statistics: &[],
                inputs: &[Tensor::Gamma],
                outputs: &[Tensor::Sum, Tensor::MeanSquare],
                pairs: true,
                shared_reals: 8,
                block_rows: 64,
            },
            Self::GroupGradient => Entry {
                name: "group_gradient",
                pairs: false,
                ..Self::Gradient.entry()
            },
            Self::GroupForward => Entry {
                name: "group_forward",
                inputs: &[Tensor::Gamma, Tensor::Beta],
                outputs: &[Tensor::Mask, Tensor::Mean, Tensor::Variance],
                ..Self::Forward.entry()
            },
            Self::GroupInference => Entry {
                name: "group_inference",
                ..Self::Inference.entry()
            },
        }
    }

    /// Its name, for variants' labels.
    #[cfg(test)]
    pub const fn name(self) -> &'static str {
        self.entry().name
    }

    pub(super) const fn text(self) -> &'static str {
        self.entry().text
    }

    /// The tensor that texts call `second`, if there is one.
    pub const fn second(self) -> Option<Tensor> {
        self.entry().second
    }

    /// The tensor that texts call `result`.
    pub const fn result(self) -> Tensor {
        self.entry().result
    }

    /// What it reads of each group of elements that are normalized together. With epsilon, the last is above 0.
    pub const fn statistics(self) -> &'static [Tensor] {
        self.entry().statistics
    }

    /// Whether its kernels read a tensor of the caller's.
    pub fn reads(self, tensor: Tensor) -> bool {
        let entry = self.entry();
        tensor == Tensor::Src
            || entry.second == Some(tensor)
            || entry.statistics.contains(&tensor)
            || entry.inputs.contains(&tensor)
    }

    /// Whether its kernels write a tensor of the caller's.
    pub fn writes(self, tensor: Tensor) -> bool {
        let entry = self.entry();
        entry.result == tensor || entry.outputs.contains(&tensor)
    }

    /// Whether a record holds the sums of two cells.
    pub const fn pairs(self) -> bool {
        self.entry().pairs
    }

    /// Reals of workgroup memory that a kernel has for each invocation, at most.
    pub const fn shared_reals(self) -> u64 {
        self.entry().shared_reals
    }

    /// Rows that the channels-last kernels add up before they add the sum to others.
    pub const fn block_rows(self) -> u64 {
        self.entry().block_rows
    }

    /// Whether it is a gradient.
    pub fn is_gradient(self) -> bool {
        self.second() == Some(Tensor::DiffDst)
    }

    /// Whether several channels of a sample share statistics.
    pub const fn of_groups(self) -> bool {
        matches!(
            self,
            Self::GroupGradient | Self::GroupForward | Self::GroupInference
        )
    }

    /// How often it takes the sums of a row that registers hold.
    pub fn rounds(self) -> u64 {
        match self {
            Self::RowsForward => 2,
            _ => 1,
        }
    }

    /// Whether its text fits a kernel.
    #[cfg(test)]
    pub fn fits(self, kernel: Kernel) -> bool {
        use Kernel::*;
        match self {
            Self::Gradient => !matches!(kernel, CombineGroups | FlatApply),
            Self::RmsGradient => matches!(
                kernel,
                PackStatistics | PackWeights | RowsReduce | RowsApply | RowsFused | Finish
            ),
            Self::Forward => matches!(
                kernel,
                PackWeights
                    | ChannelsFirstReduce
                    | ChannelsFirstApply
                    | ChannelsFirstFused
                    | ChannelsLastReduce
                    | ChannelsLastApply
                    | ChannelsLastFused
                    | FlatApply
                    | RowsApply
                    | Finish
            ),
            Self::GroupGradient => matches!(
                kernel,
                PackStatistics
                    | ChannelsFirstReduce
                    | ChannelsFirstApply
                    | ChannelsFirstFused
                    | ChannelsLastReduce
                    | ChannelsLastApply
                    | CombineGroups
                    | Finish
            ),
            Self::GroupForward => matches!(
                kernel,
                ChannelsFirstReduce
                    | ChannelsFirstApply
                    | ChannelsFirstFused
                    | ChannelsLastReduce
                    | ChannelsLastApply
                    | CombineGroups
                    | FlatApply
                    | Finish
            ),
            Self::Inference | Self::GroupInference => matches!(
                kernel,
                PackStatistics | ChannelsFirstApply | ChannelsLastApply
            ),
            Self::RowsForward => kernel == RowsFused,
            Self::RmsForward => {
                matches!(
                    kernel,
                    PackWeights | ChannelsFirstReduce | RowsApply | RowsFused | Finish
                )
            }
        }
    }
}

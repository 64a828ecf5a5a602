//! What tests ask of kernels and bodies.

use crate::Tensor;
use crate::kernels::{Body, Kernel};

impl Kernel {
    pub const ALL: [Self; 16] = [
        Self::PackStatistics,
        Self::PackWeights,
        Self::ChannelsFirstReduce,
        Self::ChannelsLastReduce,
        Self::CombineGroups,
        Self::Finish,
        Self::ChannelsFirstApply,
        Self::ChannelsLastApply,
        Self::ChannelsFirstFused,
        Self::ChannelsLastFused,
        Self::FlatApply,
        Self::RowsFused,
        Self::RowsReduce,
        Self::RowsApply,
        Self::ColumnsWalk,
        Self::ColumnsFused,
    ];
}

impl Body {
    pub const ALL: [Self; 13] = [
        Self::Gradient,
        Self::RmsGradient,
        Self::UncenteredGradient,
        Self::Forward,
        Self::Inference,
        Self::RowsForward,
        Self::RmsForward,
        Self::GroupGradient,
        Self::GroupForward,
        Self::GroupInference,
        Self::GroupRmsGradient,
        Self::GroupRmsForward,
        Self::GroupRmsInference,
    ];

    /// All tensors that its kernels may bind.
    pub fn tensors(self) -> impl Iterator<Item = Tensor> {
        let is_bound = move |&tensor: &Tensor| {
            tensor.is_scratch() || self.reads(tensor) || self.writes(tensor)
        };
        Tensor::ALL.into_iter().filter(is_bound)
    }

    /// Its name, for variants' labels.
    pub const fn name(self) -> &'static str {
        self.entry().name
    }

    /// Whether its text fits a kernel.
    pub fn fits(self, kernel: Kernel) -> bool {
        use Kernel::*;
        match self {
            Self::Gradient => !matches!(kernel, CombineGroups | FlatApply | ColumnsFused),
            Self::UncenteredGradient => Self::RmsGradient.fits(kernel) || kernel == ColumnsWalk,
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
                    | ColumnsWalk
                    | Finish
            ),
            Self::GroupGradient | Self::GroupRmsGradient => matches!(
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
            Self::GroupForward | Self::GroupRmsForward => matches!(
                kernel,
                PackStatistics
                    | ChannelsFirstReduce
                    | ChannelsFirstApply
                    | ChannelsFirstFused
                    | ChannelsLastReduce
                    | ChannelsLastApply
                    | CombineGroups
                    | FlatApply
                    | Finish
            ),
            Self::Inference => matches!(
                kernel,
                PackStatistics | ChannelsFirstApply | ChannelsLastApply
            ),
            Self::GroupInference | Self::GroupRmsInference => {
                Self::Inference.fits(kernel)
                    || matches!(kernel, PackWeights | RowsApply | ColumnsWalk)
            }
            Self::RowsForward => matches!(kernel, RowsFused | ColumnsFused),
            Self::RmsForward => {
                matches!(
                    kernel,
                    PackWeights
                        | ChannelsFirstReduce
                        | RowsApply
                        | RowsFused
                        | ColumnsWalk
                        | ColumnsFused
                        | Finish
                )
            }
        }
    }
}

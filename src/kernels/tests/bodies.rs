//! What tests ask of kernels and bodies.

use crate::kernels::{Body, Computes, Kernel};
use crate::tensor::Tensor;

const fn body(computes: Computes, centered: bool, of_groups: bool, of_rows: bool) -> Body {
    Body {
        computes,
        centered,
        of_groups,
        of_rows,
    }
}

impl Body {
    /// The gradient of layer norm without a mean, which is RMS norm with beta.
    pub const UNCENTERED_GRADIENT: Self = body(Computes::Gradient, false, false, false);
    pub const ALL: [Self; 13] = {
        use Computes::{Forward, Gradient, Inference};
        [
            body(Gradient, true, false, false),
            body(Gradient, false, false, true),
            Self::UNCENTERED_GRADIENT,
            body(Forward, true, false, false),
            body(Inference, true, false, false),
            body(Forward, true, false, true),
            body(Forward, false, false, true),
            body(Gradient, true, true, false),
            body(Forward, true, true, false),
            body(Inference, true, true, false),
            body(Gradient, false, true, false),
            body(Forward, false, true, false),
            body(Inference, false, true, false),
        ]
    };

    /// All tensors that its kernels may bind.
    pub fn tensors(self) -> impl Iterator<Item = Tensor> {
        let is_bound = move |&tensor: &Tensor| {
            tensor.is_scratch() || self.reads(tensor) || self.writes(tensor)
        };
        Tensor::ALL.into_iter().filter(is_bound)
    }

    /// Its name, for variants' labels.
    pub fn name(self) -> String {
        let flags = [
            (self.of_groups, "group_"),
            (self.of_rows, "rows_"),
            (!self.centered, "uncentered_"),
        ];
        let named = flags.iter().filter(|(is_set, _)| *is_set);
        let computes = format!("{:?}", self.computes).to_lowercase();
        named.map(|(_, name)| *name).chain([&*computes]).collect()
    }

    /// Whether its text fits a kernel.
    pub fn fits(self, kernel: Kernel) -> bool {
        use Kernel::*;
        let is_rms = self.of_rows && !self.centered;
        match (self.computes, self.of_groups) {
            (Computes::Gradient, true) => matches!(
                kernel,
                PackStatistics
                    | ChannelsFirstReduce
                    | ChannelsFirstApply
                    | ChannelsFirstFused
                    | ColumnsWalk
                    | CombineGroups
                    | Finish
            ),
            (Computes::Gradient, false) if self.centered => {
                !matches!(kernel, CombineGroups | FlatApply)
            }
            (Computes::Gradient, false) => matches!(
                kernel,
                PackStatistics | PackParams | InRegisters | ColumnsWalk | Finish
            ),
            (Computes::Forward, true) => matches!(
                kernel,
                ChannelsFirstReduce
                    | ChannelsFirstApply
                    | ChannelsFirstFused
                    | ColumnsWalk
                    | CombineGroups
                    | FlatApply
                    | Finish
            ),
            (Computes::Forward, false) if is_rms => matches!(
                kernel,
                PackParams | ChannelsFirstReduce | InRegisters | ColumnsWalk | Finish
            ),
            (Computes::Forward, false) if self.of_rows => kernel == InRegisters,
            (Computes::Forward, false) => matches!(
                kernel,
                PackParams
                    | ChannelsFirstReduce
                    | ChannelsFirstApply
                    | ChannelsFirstFused
                    | FlatApply
                    | ColumnsWalk
                    | Finish
            ),
            (Computes::Inference, of_groups) => match kernel {
                PackStatistics | ChannelsFirstApply | ColumnsWalk => true,
                PackParams => of_groups,
                _ => false,
            },
        }
    }
}

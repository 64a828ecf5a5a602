//! An operator with its shape and options: what a case computes.

use super::batch_norm::BatchNormBackward;
use super::batch_norm_forward::BatchNormForward;
use super::batch_norm_inference::BatchNormInference;
use super::group_norm::GroupNormBackward;
use super::group_norm_forward::GroupNormForward;
use super::groups::Groups;
use super::layer_norm::LayerNormBackward;
use super::layer_norm_forward::LayerNormForward;
use super::operator::Operator;
use super::rms_norm::RmsNormBackward;
use super::rms_norm_forward::RmsNormForward;
use crate::Shards;
use std::ops::Range;

/// An operator, its shape and options.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Problem {
    BatchBackward(BatchNormBackward),
    BatchForward(BatchNormForward),
    BatchInference(BatchNormInference),
    LayerBackward(LayerNormBackward),
    LayerForward(LayerNormForward),
    RmsBackward(RmsNormBackward),
    RmsForward(RmsNormForward),
    /// Of group norm or instance norm.
    GroupBackward(GroupNormBackward),
    GroupForward(GroupNormForward),
}

impl Problem {
    /// The names of all operators.
    pub const NAMES: [&'static str; 12] = [
        BatchNormBackward::NAME,
        BatchNormForward::NAME,
        BatchNormInference::NAME,
        LayerNormBackward::NAME,
        LayerNormForward::NAME,
        RmsNormBackward::NAME,
        RmsNormForward::NAME,
        GroupNormBackward::NAME,
        GroupNormBackward::INSTANCE,
        GroupNormForward::NAME,
        GroupNormForward::INFERENCE,
        GroupNormForward::INSTANCE,
    ];

    pub fn new(operator: &str, shape: &[usize]) -> Option<Self> {
        Some(match operator {
            BatchNormBackward::NAME => Self::BatchBackward(BatchNormBackward::new(shape)),
            BatchNormForward::NAME => Self::BatchForward(BatchNormForward::new(shape)),
            BatchNormInference::NAME => Self::BatchInference(BatchNormInference::new(shape)),
            LayerNormBackward::NAME => Self::LayerBackward(LayerNormBackward::new(shape)),
            LayerNormForward::NAME => Self::LayerForward(LayerNormForward::new(shape)),
            RmsNormBackward::NAME => Self::RmsBackward(RmsNormBackward::new(shape)),
            RmsNormForward::NAME => Self::RmsForward(RmsNormForward::new(shape)),
            GroupNormBackward::NAME => {
                Self::GroupBackward(GroupNormBackward::new(Groups::new(shape)))
            }
            GroupNormBackward::INSTANCE => {
                Self::GroupBackward(GroupNormBackward::new(Groups::of_channels(shape)))
            }
            GroupNormForward::NAME => Self::GroupForward(GroupNormForward::new(Groups::new(shape))),
            GroupNormForward::INFERENCE => {
                Self::GroupForward(GroupNormForward::inference(Groups::new(shape)))
            }
            GroupNormForward::INSTANCE => {
                Self::GroupForward(GroupNormForward::new(Groups::of_channels(shape)))
            }
            _ => return None,
        })
    }

    pub fn operator(&self) -> &dyn Operator {
        match self {
            Self::BatchBackward(operator) => operator,
            Self::BatchForward(operator) => operator,
            Self::BatchInference(operator) => operator,
            Self::LayerBackward(operator) => operator,
            Self::LayerForward(operator) => operator,
            Self::RmsBackward(operator) => operator,
            Self::RmsForward(operator) => operator,
            Self::GroupBackward(operator) => operator,
            Self::GroupForward(operator) => operator,
        }
    }

    pub fn operator_mut(&mut self) -> &mut dyn Operator {
        match self {
            Self::BatchBackward(operator) => operator,
            Self::BatchForward(operator) => operator,
            Self::BatchInference(operator) => operator,
            Self::LayerBackward(operator) => operator,
            Self::LayerForward(operator) => operator,
            Self::RmsBackward(operator) => operator,
            Self::RmsForward(operator) => operator,
            Self::GroupBackward(operator) => operator,
            Self::GroupForward(operator) => operator,
        }
    }

    /// The same of some of the samples, which are this part of the batch.
    pub fn shard(&self, samples: Range<usize>, part: Shards) -> Option<Self> {
        match self {
            Self::BatchBackward(operator) => operator.shard(samples, part).map(Self::BatchBackward),
            Self::BatchForward(operator) => operator.shard(samples, part).map(Self::BatchForward),
            _ => None,
        }
    }
}

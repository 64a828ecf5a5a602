//! An operator with its shape and options: what a case computes.

use super::batch_norm::BatchNormBackward;
use super::batch_norm_forward::BatchNormForward;
use super::batch_norm_inference::BatchNormInference;
use super::expected::Expected;
use super::group_norm::GroupNormBackward;
use super::group_norm_forward::GroupNormForward;
use super::groups::Groups;
use super::layer_norm::LayerNormBackward;
use super::layer_norm_forward::LayerNormForward;
use super::numbers::Numbers;
use super::rms_norm::RmsNormBackward;
use super::rms_norm_forward::RmsNormForward;
use super::values::Values;
use crate::plan::Plan;
use crate::{DTypes, Error, GpuContext, Shards, Tensor};
use std::ops::Range;

/// What the cases need to know of an operator.
pub(super) trait Operator {
    /// The first part of its cases' IDs.
    fn name(&self) -> &'static str;

    /// Of src.
    fn shape(&self) -> &[usize];

    /// The options, as parts of an ID.
    fn tokens(&self) -> Vec<String>;

    /// Takes a part of an ID, if it is an option of this operator.
    fn set(&mut self, token: &str) -> bool;

    /// The tensors that it reads.
    fn inputs(&self, types: DTypes, values: Values) -> Vec<Numbers>;

    /// The tensors that it writes, by the reference.
    fn expected(
        &self,
        inputs: &[Numbers],
        types: DTypes,
        values: Values,
    ) -> Result<Vec<Expected>, Error>;

    /// How a GPU does it.
    fn plan(&self, gpu: &GpuContext, types: DTypes, values: Values) -> Result<Plan, Error>;

    /// The same of some of the samples, which are this part of the batch, if it can be recorded in two halves.
    fn shard(&self, _samples: Range<usize>, _part: Shards) -> Option<Self>
    where
        Self: Sized,
    {
        None
    }

    /// What is between its halves, if that is no sums which are added.
    fn records(&self) -> Option<Records> {
        None
    }
}

/// Records of each part of a batch, one after another, of each channel four numbers.
#[derive(Clone, Copy, Debug)]
pub(super) struct Records {
    /// Whose are written.
    pub part: Shards,
    /// The first number of each of these: how many elements a channel has.
    pub count: f64,
}

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

/// A tensor's values.
pub(super) fn of_tensor(inputs: &[Numbers], tensor: Tensor) -> &[f64] {
    let found = inputs.iter().find(|numbers| numbers.tensor == tensor);
    found.map_or(&[], |numbers| &numbers.values)
}

/// `2x3x5` as numbers.
pub(super) fn read_shape(text: &str) -> Option<Vec<usize>> {
    text.split('x').map(|size| size.parse().ok()).collect()
}

pub(super) fn show_shape(shape: &[usize]) -> String {
    let sizes: Vec<_> = shape.iter().map(usize::to_string).collect();
    sizes.join("x")
}

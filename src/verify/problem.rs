//! An operator with its shape and options: what a case computes.

use super::batch_norm::BatchNormBackward;
use super::expected::Expected;
use super::layer_norm::LayerNormBackward;
use super::numbers::Numbers;
use super::values::{Types, Values};
use crate::kernels::Tensor;
use crate::plan::Plan;
use crate::{Error, GpuContext};
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
    fn inputs(&self, types: Types, values: Values) -> Vec<Numbers>;

    /// The tensors that it writes, by the reference.
    fn expected(
        &self,
        inputs: &[Numbers],
        types: Types,
        values: Values,
    ) -> Result<Vec<Expected>, Error>;

    /// How a GPU does it.
    fn plan(&self, gpu: &GpuContext, types: Types, values: Values) -> Result<Plan, Error>;

    /// Whether it can be recorded in two halves.
    fn has_halves(&self) -> bool {
        false
    }

    /// The same of some of the samples, if it has halves whose sums can be added.
    fn shard(&self, _samples: Range<usize>) -> Option<Self>
    where
        Self: Sized,
    {
        None
    }
}

/// An operator, its shape and options.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Problem {
    BatchNormBackward(BatchNormBackward),
    LayerNormBackward(LayerNormBackward),
}

impl Problem {
    /// The names of all operators.
    pub const NAMES: [&'static str; 2] = [BatchNormBackward::NAME, LayerNormBackward::NAME];

    pub fn new(operator: &str, shape: &[usize]) -> Option<Self> {
        match operator {
            BatchNormBackward::NAME => Some(Self::BatchNormBackward(BatchNormBackward::new(shape))),
            LayerNormBackward::NAME => Some(Self::LayerNormBackward(LayerNormBackward::new(shape))),
            _ => None,
        }
    }

    pub fn operator(&self) -> &dyn Operator {
        match self {
            Self::BatchNormBackward(operator) => operator,
            Self::LayerNormBackward(operator) => operator,
        }
    }

    pub fn operator_mut(&mut self) -> &mut dyn Operator {
        match self {
            Self::BatchNormBackward(operator) => operator,
            Self::LayerNormBackward(operator) => operator,
        }
    }

    /// The same of some of the samples.
    pub fn shard(&self, samples: Range<usize>) -> Option<Self> {
        match self {
            Self::BatchNormBackward(operator) => {
                operator.shard(samples).map(Self::BatchNormBackward)
            }
            Self::LayerNormBackward(operator) => {
                operator.shard(samples).map(Self::LayerNormBackward)
            }
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

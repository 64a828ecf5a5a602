//! An operator with its shape and options: what a case computes.

use super::batch_norm::BatchNormBackward;
use super::expected::Expected;
use super::layer_norm::LayerNormBackward;
use super::numbers::Numbers;
use super::rms_norm::RmsNormBackward;
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
    Batch(BatchNormBackward),
    Layer(LayerNormBackward),
    Rms(RmsNormBackward),
}

impl Problem {
    /// The names of all operators.
    pub const NAMES: [&'static str; 3] = [
        BatchNormBackward::NAME,
        LayerNormBackward::NAME,
        RmsNormBackward::NAME,
    ];

    pub fn new(operator: &str, shape: &[usize]) -> Option<Self> {
        match operator {
            BatchNormBackward::NAME => Some(Self::Batch(BatchNormBackward::new(shape))),
            LayerNormBackward::NAME => Some(Self::Layer(LayerNormBackward::new(shape))),
            RmsNormBackward::NAME => Some(Self::Rms(RmsNormBackward::new(shape))),
            _ => None,
        }
    }

    pub fn operator(&self) -> &dyn Operator {
        match self {
            Self::Batch(operator) => operator,
            Self::Layer(operator) => operator,
            Self::Rms(operator) => operator,
        }
    }

    pub fn operator_mut(&mut self) -> &mut dyn Operator {
        match self {
            Self::Batch(operator) => operator,
            Self::Layer(operator) => operator,
            Self::Rms(operator) => operator,
        }
    }

    /// The same of some of the samples.
    pub fn shard(&self, samples: Range<usize>) -> Option<Self> {
        match self {
            Self::Batch(operator) => operator.shard(samples).map(Self::Batch),
            Self::Layer(operator) => operator.shard(samples).map(Self::Layer),
            Self::Rms(operator) => operator.shard(samples).map(Self::Rms),
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

//! What cases need to know of an operator.

use super::expected::Expected;
use super::numbers::Numbers;
use super::values::Values;
use crate::plan::Plan;
use crate::{DTypes, Error, GpuContext, Shards};
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

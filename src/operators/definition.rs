//! What an operator's document defines.

use super::given::Given;
use super::row::Row;
use crate::{Error, Operation};

/// An operator's tensors.
pub(super) trait Tensors {
    /// The inputs in the document's order. Which are required may follow from attributes.
    fn inputs(&self) -> Vec<Row>;

    /// The outputs in the document's order. Those that the operation does not write are left out.
    fn outputs(&self) -> Vec<Row>;
}

/// The operation that an operator is.
pub(super) trait Definition: Tensors {
    /// The operation on these inputs.
    fn define(&self, given: &Given<'_>) -> Result<Operation, Error>;

    /// The sizes that parameters and statistics are expanded to, if each is broadcast on its own.
    fn parameter_sizes(&self, _given: &Given<'_>) -> Result<Option<Vec<usize>>, Error> {
        Ok(None)
    }
}

//! What an operator's document defines.

use super::given::Given;
use super::row::Row;
use crate::error::Error;
use crate::operation::Operation;
use crate::tensor::Tensor;

/// The tables of an operator.
pub trait Tables {
    /// The inputs in the document's order. Which are required may follow from attributes.
    fn input_rows(&self) -> Vec<Row>;

    /// The outputs in the document's order. Those that the operation does not write are left out.
    fn output_rows(&self) -> Vec<Row>;
}

/// The operation that an operator is.
pub trait Definition: Tables + Send + Sync {
    /// The operation on these inputs.
    fn define(&self, given: &Given<'_>) -> Result<Operation, Error>;
}

/// Any operator: for a program that chooses one at run time, and calls [`operation`](super::operation) and
/// [`run`](super::run).
///
/// ```
/// use wgpu_norm::Tensor;
/// use wgpu_norm::operators::{Operator, onnx};
///
/// fn operator(op_type: &str) -> Option<Box<dyn Operator>> {
///     match op_type {
///         "LayerNormalization" => Some(Box::new(onnx::LayerNormalization::default())),
///         "RMSNormalization" => Some(Box::new(onnx::RmsNormalization::default())),
///         _ => None,
///     }
/// }
/// let names = operator("LayerNormalization").map(|operator| operator.inputs()).unwrap_or_default();
/// assert_eq!(names[1], ("Scale", Some(Tensor::Gamma)));
/// ```
pub trait Operator: Definition {
    /// The inputs' names in the document's order, and the tensors that they may be; none for one that is not read with
    /// these attributes. An operation lists the tensors that it has ([`Operation::tensors`]).
    fn inputs(&self) -> Vec<(&'static str, Option<Tensor>)> {
        names(self.input_rows())
    }

    /// The outputs' names, likewise.
    fn outputs(&self) -> Vec<(&'static str, Option<Tensor>)> {
        names(self.output_rows())
    }
}

impl<D: Definition> Operator for D {}

fn names(rows: Vec<Row>) -> Vec<(&'static str, Option<Tensor>)> {
    rows.into_iter().map(|row| (row.name, row.tensor)).collect()
}

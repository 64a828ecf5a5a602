//! The operators of [DirectML](https://learn.microsoft.com/en-us/windows/ai/directml/dml), whose
//! parameters have the rank of the data. Names are DirectML's, in Rust's spelling.

mod backward;
mod forward;

pub use backward::{
    BatchNormalizationGrad, BatchNormalizationTrainingGrad, GradInputs, GradOutputs,
};
pub use forward::{
    BatchNormalization, BatchNormalizationInputs, BatchNormalizationTraining, FusedActivation,
    Parameter, TrainingInputs, TrainingOutputs,
};

use super::checked;
use crate::element::types;
use crate::{Channels, Element, Epilogue, Error, Norm, Operation, ParamOf, Pass};
use half::f16;

/// A data type that all tensors of an operator have alike: FLOAT32 (`f32`) or FLOAT16 (`f16`).
pub trait DataType: Element + ParamOf<Self> {}

impl DataType for f32 {}
impl DataType for f16 {}

/// Batch norm by parameters of these dimensions.
fn operation<T: DataType>(
    pass: impl Into<Pass>,
    epsilon: f32,
    input: &[usize],
    parameters: &[usize],
    epilogue: Epilogue,
) -> Result<Operation, Error> {
    let norm = Norm::Batch(Channels::Broadcast(parameters.to_vec()));
    let operation = Operation::new(norm, pass, input, types::<T, T, T>());
    checked(
        operation
            .with_epsilon(epsilon.into())
            .with_epilogue(epilogue),
    )
}

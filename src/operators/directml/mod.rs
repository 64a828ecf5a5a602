//! The operators of [DirectML](https://learn.microsoft.com/en-us/windows/ai/directml/dml), whose
//! parameters have the rank of the data. All tensors of an operator have one [`DataType`]. Names are DirectML's, in
//! Rust's spelling.

mod backward;
mod forward;
mod mean_variance;

pub use backward::*;
pub use forward::*;
pub use mean_variance::*;

use super::*;
use half::f16;

/// The data type of all tensors of an operator: FLOAT32 (`f32`) or FLOAT16 (`f16`).
pub trait DataType: Element + ParamOf<Self> {}

impl DataType for f32 {}
impl DataType for f16 {}

/// Batch norm with parameters of these dimensions.
fn of_dimensions<T: DataType>(
    pass: impl Into<Pass>,
    epsilon: f32,
    input: &[usize],
    parameters: &[usize],
) -> Result<Operation, Error> {
    let norm = Norm::Batch(Channels::Broadcast(parameters.to_vec()));
    operation::<T, T, T>(norm, pass, input, epsilon, (true, true))
}

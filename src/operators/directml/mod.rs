//! The operators of [DirectML](https://learn.microsoft.com/en-us/windows/ai/directml/dml), whose parameters have the
//! rank of the data: along dimensions of size 1 they are broadcast. All tensors of an operator have one data type in
//! the documents, FLOAT32 or FLOAT16; here parameters may have any type that goes with the data's.

mod backward;
mod forward;
mod mean_variance;

pub use backward::*;
pub use forward::*;
pub use mean_variance::*;

//! The operators of [oneDNN Graph](https://oneapi-src.github.io/oneDNN/), from which this crate takes its argument
//! names, and oneDNN's primitives for batch and group normalization.

mod backward;
mod batch_norm;
mod forward;
mod group_norm;

pub use backward::*;
pub use batch_norm::*;
pub use forward::*;
pub use group_norm::*;

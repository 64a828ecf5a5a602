//! Whether an adapter computes what `wgpu-norm` should.
//!
//! [`reference`](mod@reference) computes any [`Operation`](wgpu_norm::Operation) in float64 on the CPU, with a tolerance for
//! each element.

mod memory;
pub mod reference;

//! The guide: pages on topics that concern more than one item of the crate.
//!
//! Other modules document topics of their own: [`operators`](crate::operators) the operators of other libraries,
//! [`synchronized`](crate::synchronized) a batch over several processes or devices, [`stream`](crate::stream) tensors
//! larger than memory, and [`export`](crate::export) plans for another framework's launcher.

#[doc = include_str!("../docs/guide/training.md")]
pub mod training {}

#[doc = include_str!("../docs/guide/own_buffers.md")]
pub mod own_buffers {}

#[doc = include_str!("../docs/guide/how_it_works.md")]
pub mod how_it_works {}

#[doc = include_str!("../docs/guide/limits.md")]
pub mod limits {}

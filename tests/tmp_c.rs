#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    dead_code,
    missing_docs
)]
#[path = "library/batch_norm_shapes.rs"]
mod batch_norm_shapes;
#[path = "library/batch_norm_vectors.rs"]
mod batch_norm_vectors;
#[path = "library/broadcast.rs"]
mod broadcast;
#[path = "library/common/mod.rs"]
mod common;

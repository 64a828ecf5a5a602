//! Tests of the library through its public functions, on every adapter found. They are one program, since linking wgpu
//! takes longer than most of them.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod bad_arguments;
mod bad_buffers;
mod batch_norm_shapes;
mod batch_norm_vectors;
mod broadcast;
mod common;
mod determinism;
mod devices;
mod layer_norm;
mod operators;
mod oracles;
mod record;
mod verify;

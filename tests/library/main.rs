//! The library's tests, on every adapter found.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod activation;
mod axes_norm;
mod bad_arguments;
mod bad_buffers;
mod batch_norm_shapes;
mod batch_norm_vectors;
mod broadcast;
mod common;
mod determinism;
mod devices;
mod export;
mod f16_encoder;
mod faults;
mod forward;
mod group_norm;
mod imports;
mod layer_norm;
mod links;
mod operators;
mod oracles;
mod parameters;
mod ranks;
mod record;
mod statistics;
mod stream;
mod synchronized;
mod verify;
mod words;

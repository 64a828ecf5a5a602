#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    dead_code,
    missing_docs
)]
#[path = "library/activation.rs"]
mod activation;
#[path = "library/common/mod.rs"]
mod common;
#[path = "library/forward.rs"]
mod forward;
#[path = "library/group_norm.rs"]
mod group_norm;
#[path = "library/layer_norm.rs"]
mod layer_norm;
#[path = "library/statistics.rs"]
mod statistics;

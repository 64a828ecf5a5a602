//! Tests of the command, run as a process on the adapter that the environment chooses.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod bench;
mod command;
mod report;
mod verify;

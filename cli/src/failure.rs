//! Why the command failed.

use crate::text::excerpt;
use std::io;
use std::path::PathBuf;

/// A failure; its text names the tensor or file, what was expected and what was given.
#[derive(Debug, thiserror::Error)]
pub enum Failure {
    /// The library refused, or the GPU failed.
    #[error(transparent)]
    Library(#[from] wgpu_norm::Error),
    /// A tensor is too large for a buffer of the adapter.
    #[error(
        "{tensor}: expected at most {most} bytes, the adapter's max_buffer_size, got {bytes}; \
         --memory-budget 1GB computes larger tensors in pieces"
    )]
    TooLarge {
        tensor: &'static str,
        most: u64,
        bytes: u64,
    },
    /// The input file cannot be read.
    #[error("{}: cannot be read: {source}", .path.display())]
    Read { path: PathBuf, source: io::Error },
    /// The input file does not have the required content.
    #[error("{}: expected {expected}, got {got}", .path.display())]
    Format {
        path: PathBuf,
        expected: String,
        got: String,
    },
    /// A tensor that the operator needs is not in the file.
    #[error("{tensor}: expected a tensor of this name{why}, got none in {}, which has {has}", .path.display())]
    Missing {
        tensor: &'static str,
        why: &'static str,
        path: PathBuf,
        has: String,
    },
    /// A tensor's element type is wrong.
    #[error("{tensor}: expected element type {expected}, got {got}")]
    DType {
        tensor: &'static str,
        expected: String,
        got: String,
    },
    /// A tensor's shape is wrong.
    #[error("{tensor}: expected shape {}{why}, got {}", excerpt(.expected), excerpt(&format!("{got:?}")))]
    Shape {
        tensor: &'static str,
        expected: String,
        why: String,
        got: Vec<usize>,
    },
    /// src has one axis, and the parameters' only axis does not tell whether that one holds channels or is reduced.
    #[error("src: expected a rank from 2 to 8, or from 1 with --data-format broadcast, got rank 1")]
    RankOne,
    /// An attribute in the file's metadata is invalid.
    #[error("metadata {key}: expected {expected}, got \"{}\"", excerpt(.got))]
    Metadata {
        key: String,
        expected: String,
        got: String,
    },
    /// An attribute without a default is missing.
    #[error(
        "{attribute}: expected --{} or metadata of this name in the file, got neither",
        .attribute.replace('_', "-")
    )]
    NoAttribute { attribute: &'static str },
    /// The results differ from the reference's by more than rounding error.
    #[error(
        "check: expected results within rounding error of the float64 reference, \
         got others in {tensor}; nothing was written"
    )]
    Check { tensor: &'static str },
    /// Parts of a report failed; the others are written.
    #[error("report: {what}")]
    Report { what: String },
    /// Cases of `verify` failed.
    #[error("verify: expected every case to pass, got {failed} that failed")]
    Verify { failed: usize },
    /// The output file cannot be written.
    #[error("{}: cannot be written: {source}", .path.display())]
    Write { path: PathBuf, source: io::Error },
    /// The command line is invalid.
    #[error("{0}")]
    Arguments(String),
    /// Another process of the batch failed.
    #[error("rank {rank}: {failure}")]
    Rank { rank: usize, failure: String },
    /// The other processes of the batch cannot be reached.
    #[error("other ranks: {0}")]
    Ranks(String),
    /// Stdout cannot be written.
    #[error("stdout: cannot be written: {0}")]
    Stdout(io::Error),
}

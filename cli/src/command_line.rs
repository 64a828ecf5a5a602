//! The command line.

use crate::args::GpuArgs;
use crate::bench::Bench;
use crate::operators::Operators;
use crate::report::Report;
use crate::verify::Verify;
use clap::{Parser, Subcommand};

/// What the command leaves behind.
const EXIT: &str =
    "Results go to stdout, everything else to stderr; RUST_LOG=info or debug says more.
Exit status: 0; 1 if it failed; 2 if the arguments make no sense; 128 + n if signal n ended it.";

/// Normalization layers and their gradients, computed on any GPU.
#[derive(Debug, Parser)]
#[command(name = "wgpu-norm", version, arg_required_else_help = true, after_help = EXIT)]
pub struct Cli {
    #[command(flatten)]
    pub gpu: GpuArgs,
    #[command(subcommand)]
    pub command: Command,
}

#[derive(Debug, Subcommand)]
pub enum Command {
    #[command(flatten)]
    Operator(Operators),
    /// Lists the adapters of this machine, their limits, and the element types that run on them
    Adapters,
    /// Times the gradients, or forward passes, beside the adapter's copy bandwidth
    ///
    /// Times are medians: by GPU timestamps where the adapter has them, else from submission to
    /// completion; warm, over buffers that take turns so that caches do not flatter. In the same rounds
    /// a copy kernel, the best of a fixed set, moves as many bytes as the operator under its plain model: of a
    /// gradient 5n (src and diff_dst read twice, diff_src written once; 3n where second reads come from a cache), of a
    /// forward pass 3n (src read twice, dst written once; 2n likewise), of inference 2n.
    Bench(Box<Bench>),
    /// Verifies and measures an adapter in ten minutes, and writes a page of results
    ///
    /// Writes report.md, report.svg and report.json into DIR, all again after each measurement, so that a report that
    /// is cut off leaves what it has. In this order, as far as the minutes reach: the adapters; opening a device and a
    /// first call; results against the float64 reference; times of the shapes for the adapter's kind and of small ones;
    /// a search for a faster tuning.
    ///
    /// benches/peers/pytorch.py --like DIR/report.json adds PyTorch's times.
    Report(Box<Report>),
    /// Shows whether an adapter computes what it should
    ///
    /// Runs a list of cases, of every operator, algorithm, layout and element type that the adapter supports, and holds
    /// each against the float64 reference: within a tolerance, nothing changed around the tensors, the same bits again.
    Verify(Verify),
}

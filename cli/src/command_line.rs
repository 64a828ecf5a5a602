//! The command line.

use crate::args::GpuArgs;
use crate::bench::Bench;
use crate::operators::Operators;
use crate::report::Report;
use crate::verify::Verify;
use clap::{Parser, Subcommand};

/// The end of the help text: streams and exit status.
const EXIT: &str =
    "Results go to stdout, everything else to stderr; RUST_LOG=info or debug logs more.
Exit status: 0 on success; 1 on failure; 2 if the arguments are invalid; 128 + n if signal n ended the command.";

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
    /// Lists this machine's adapters, their limits and the element types that run on them
    Adapters,
    /// Times gradients or forward passes, and compares them with the adapter's copy bandwidth
    ///
    /// Times are medians, by GPU timestamps where the adapter has them, otherwise from submission to completion. Runs
    /// are warm and alternate between several sets of buffers, so that caches do not improve the results. In the same
    /// rounds a copy kernel, the best of a fixed set, moves as many bytes as the operator under its plain model: 5n for
    /// a gradient (src and diff_dst read twice, diff_src written once; 3n if a cache serves the second reads), 3n for a
    /// forward pass (src read twice, dst written once; 2n likewise), 2n for inference.
    Bench(Box<Bench>),
    /// Verifies and measures an adapter in ten minutes, and writes a page of results
    ///
    /// Writes report.md, report.svg and report.json into DIR, and rewrites them after each measurement, so that an
    /// interrupted report keeps what it has. The order, as far as time allows: the adapters; opening a device and a
    /// first call; results against the float64 reference; times of the shapes for the adapter's kind and of small ones;
    /// a search for a faster tuning.
    ///
    /// benches/peers/pytorch.py --like DIR/report.json adds PyTorch's times.
    Report(Box<Report>),
    /// Shows whether an adapter computes correct results
    ///
    /// Runs a list of cases that covers every operator, algorithm, layout and element type that the adapter supports,
    /// and checks each against the float64 reference: errors are within a tolerance, nothing around the tensors
    /// changes, and a second run gives the same bits.
    Verify(Verify),
}

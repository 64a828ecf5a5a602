//! The command line.

use crate::bench::Bench;
use crate::files;
use crate::operators::Operators;
use crate::report::Report;
use crate::text::excerpt;
use crate::verify::Verify;
use bytesize::ByteSize;
use clap::builder::{PathBufValueParser, PossibleValuesParser, TypedValueParser};
use clap::{Args, Parser, Subcommand, ValueEnum};
use std::path::{Path, PathBuf};
use wgpu_norm::{Algorithm, Tuning};

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

/// Which adapter to run on.
#[derive(Debug, Args)]
#[command(next_help_heading = "Adapter")]
pub struct GpuArgs {
    /// A part of the adapter's name, in any case [default: $WGPU_ADAPTER_NAME, else the best there is]
    #[arg(long, value_name = "NAME", global = true)]
    pub adapter: Option<String>,
    /// The graphics interface to use [default: $WGPU_BACKEND, else any]
    #[arg(long, global = true)]
    pub backend: Option<Backend>,
    /// Sizes that override the adapter's, as `bench --tune` prints them: key=value,... or a file of
    /// such lines [default: $WGPU_NORM_PROFILE]
    #[arg(long, value_name = "PROFILE", global = true, value_parser = profile)]
    pub profile: Option<String>,
    /// The algorithm to take, whether or not it is fast [default: the first that pays]
    #[arg(long, value_name = "NAME", global = true, value_parser = algorithm())]
    pub algorithm: Option<Algorithm>,
}

/// The names of all algorithms, for the help text as well.
fn algorithm() -> impl clap::builder::TypedValueParser<Value = Algorithm> {
    let names = PossibleValuesParser::new(Algorithm::ALL.map(Algorithm::name));
    names.try_map(|name| name.parse::<Algorithm>())
}

/// The text of a profile, or of the file that holds it; checked.
fn profile(argument: &str) -> Result<String, String> {
    let text = if argument.contains('=') {
        argument.to_owned()
    } else {
        files::read_text(Path::new(argument))
            .map_err(|error| format!("no key=value, and {error}"))?
    };
    match Tuning::GPU.overridden(&text) {
        Ok(_) => Ok(text),
        Err(error) => Err(excerpt(&error.to_string())),
    }
}

/// The parser of a file's or folder's path. What is `-` elsewhere, stdin or stdout, cannot be one: files are read at
/// any place, and appear whole.
pub fn path() -> impl TypedValueParser<Value = PathBuf> {
    PathBufValueParser::new().try_map(|path| match path.as_os_str() == "-" {
        true => Err("a file or folder is needed, for which stdin and stdout cannot stand"),
        false => Ok(path),
    })
}

#[derive(Clone, Copy, Debug, ValueEnum)]
pub enum Backend {
    Vulkan,
    Gl,
    Metal,
    Dx12,
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

/// The files of an operator.
#[derive(Debug, Args)]
pub struct FileArgs {
    /// The safetensors file to read. Tensors that have PyTorch's or ONNX's names stand for those of help where these are not
    /// there: weight or Scale for gamma, bias or B for beta, running_var or input_var for running_variance, input_mean for
    /// running_mean, X for src; of batch-norm-inference running statistics for mean and variance. A warning names what is
    /// left out
    #[arg(value_name = "IN.safetensors", value_parser = path())]
    pub input: PathBuf,
    /// The safetensors file to write; it may be IN, whose tensors are lost then
    #[arg(short, long, value_name = "OUT.safetensors", value_parser = path())]
    pub output: PathBuf,
    /// Compare with the float64 reference, and write nothing where the difference is beyond rounding
    #[arg(long)]
    pub check: bool,
    /// Memory for tensors, of the adapter and of this process together, as 512MB or 2GiB: larger tensors are read and
    /// written in pieces. The results are the same to the bit, unless a tensor would be computed by an algorithm that
    /// cannot be cut. variance + epsilon is not checked [default: as much as all of them take]
    #[arg(long, value_name = "SIZE", conflicts_with = "check")]
    pub memory_budget: Option<ByteSize>,
}

//! Groups of arguments that subcommands share.

use crate::files;
use crate::text::excerpt;
use bytesize::ByteSize;
use clap::builder::{PathBufValueParser, PossibleValuesParser, TypedValueParser};
use clap::{Args, ValueEnum};
use std::path::{Path, PathBuf};
use wgpu_norm::{Algorithm, Tuning};

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

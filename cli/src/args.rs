//! Groups of arguments that subcommands share.

use crate::files;
use crate::pipeline_cache::Opened;
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
    /// Part of the adapter's name, case-insensitive [default: $WGPU_ADAPTER_NAME, else the best adapter]
    #[arg(long, value_name = "NAME", global = true)]
    pub adapter: Option<String>,
    /// The graphics API to use [default: $WGPU_BACKEND, else any]
    #[arg(long, global = true)]
    pub backend: Option<Backend>,
    /// Tuning sizes that override the adapter's, as `bench --tune` prints them: key=value,... or a file of such lines
    /// [default: $WGPU_NORM_PROFILE]
    #[arg(long, value_name = "PROFILE", global = true, value_parser = profile)]
    pub profile: Option<String>,
    /// The algorithm to use, whether or not it is fast [default: the first that is worthwhile]
    #[arg(long, value_name = "NAME", global = true, value_parser = algorithm())]
    pub algorithm: Option<Algorithm>,
    /// Keep compiled kernels in this folder and reuse them in later runs, on Vulkan; most drivers for desktops keep
    /// them by themselves. Nobody else may write to the folder: drivers trust its contents
    #[arg(long, value_name = "FOLDER", global = true, value_parser = path())]
    pub pipeline_cache: Option<PathBuf>,
    #[arg(skip)]
    pub opened: Opened,
}

/// Parses an algorithm's name; the help text lists all names.
fn algorithm() -> impl clap::builder::TypedValueParser<Value = Algorithm> {
    let names = PossibleValuesParser::new(Algorithm::ALL.map(Algorithm::name));
    names.try_map(|name| name.parse::<Algorithm>())
}

/// The text of a profile given directly or in a file, checked.
fn profile(argument: &str) -> Result<String, String> {
    let text = if argument.contains('=') {
        argument.to_owned()
    } else {
        files::read_text(Path::new(argument))
            .map_err(|error| format!("neither key=value nor a readable file: {error}"))?
    };
    match Tuning::GPU.overridden(&text) {
        Ok(_) => Ok(text),
        Err(error) => Err(excerpt(&error.to_string())),
    }
}

/// Parses the path of a file or folder. Refuses `-`, elsewhere the name of stdin or stdout: files are read at arbitrary
/// offsets and appear as a whole.
pub fn path() -> impl TypedValueParser<Value = PathBuf> {
    PathBufValueParser::new().try_map(|path| match path.as_os_str() == "-" {
        true => Err("expected a file or folder; stdin and stdout are not supported"),
        false => Ok(path),
    })
}

/// The name of a value on the command line.
pub fn name_of(value: impl ValueEnum) -> String {
    let value = value.to_possible_value();
    value.map_or(String::new(), |value| value.get_name().to_owned())
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
    /// The safetensors file to read. Where a tensor is missing under the name in this help, its PyTorch or ONNX name is
    /// tried: weight or Scale for gamma, bias or B for beta, running_var or input_var for running_variance, input_mean
    /// for running_mean, X for src; in batch-norm-inference and instance-norm-inference also the names of running
    /// statistics for mean and variance. A warning names the tensors that are left out
    #[arg(value_name = "IN.safetensors", value_parser = path())]
    pub input: PathBuf,
    /// The safetensors file to write; it may be IN, whose tensors are then lost
    #[arg(short, long, value_name = "OUT.safetensors", value_parser = path())]
    pub output: PathBuf,
    /// Compare with the float64 reference, and write nothing if the difference exceeds rounding error. NaN is correct
    /// where squares overflow
    #[arg(long)]
    pub check: bool,
    /// Memory for tensors, on the adapter and in this process together, like 512MB or 2GiB; larger tensors are read and
    /// written in pieces. The results are the same to the bit, unless the whole tensor would be computed by an
    /// algorithm that cannot work in pieces. variance + epsilon is not checked [default: as much as all tensors need]
    #[arg(long, value_name = "SIZE", conflicts_with = "check")]
    pub memory_budget: Option<ByteSize>,
}

//! The flags of `wgpu-norm bench`.

use crate::args::path;
use crate::attributes::{Choice as _, choice};
use crate::measure::budget;
use crate::measure::selection::Selection;
use crate::measure::sets::Set;
use clap::Args;
use std::path::PathBuf;
use wgpu_norm::DType;

#[derive(Debug, Args)]
pub struct Bench {
    /// The set of shapes [default: software or gpu, by the adapter's kind]
    #[arg(long, conflicts_with = "shape")]
    pub set: Option<Set>,
    /// The element types, separated by commas
    #[arg(long, value_name = DType::VALUE_NAME, value_delimiter = ',', value_parser = choice::<DType>(),
        ignore_case = true, default_value = "f32")]
    pub dtype: Vec<DType>,
    #[command(flatten)]
    pub selection: Selection,
    /// Samples of each case [default: at least 9 and half a second, at most 1000; 5 with --tune]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub rounds: Option<u32>,
    /// Write the results as JSON
    #[arg(long, value_name = "FILE.json", value_parser = path())]
    pub json: Option<PathBuf>,
    /// Draw the results as an SVG file
    #[arg(long, value_name = "FILE.svg", value_parser = path())]
    pub plot: Option<PathBuf>,
    /// Put a table into this document, between <!-- bench:begin NAME --> and <!-- bench:end NAME -->
    #[arg(long, value_name = "FILE.md", value_parser = path())]
    pub markdown: Option<PathBuf>,
    /// The NAME in the document [default: the set's name]
    #[arg(long, requires = "markdown")]
    pub name: Option<String>,
    /// Measure nothing: show what --json or `report` wrote
    #[arg(long, value_name = "FILE.json", value_parser = path(),
        conflicts_with_all = ["set", "op", "dtype", "data_format", "shape", "statistics", "param_grads", "activation",
        "cache", "rounds", "json", "adapter", "backend", "profile"])]
    pub from_json: Option<PathBuf>,
    /// Search for the sizes that are fastest on the adapter, and print them as a profile
    #[arg(long, conflicts_with_all = ["set", "json", "plot", "markdown", "from_json"])]
    pub tune: bool,
    /// End the search after this many minutes, with the best so far [default: after everything was tried]
    #[arg(long, value_name = "N", requires = "tune", allow_negative_numbers = true,
        value_parser = budget::parse)]
    pub minutes: Option<f64>,
}

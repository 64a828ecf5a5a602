//! The flags of `wgpu-norm report`.

use crate::args::path;
use crate::attributes::{Choice as _, choice};
use crate::measure::budget;
use crate::measure::selection::Selection;
use clap::{Args, ValueEnum};
use serde::{Deserialize, Serialize};
use std::path::PathBuf;
use wgpu_norm::DType;

#[derive(Debug, Args)]
pub struct Report {
    /// The folder for report.md, report.svg and report.json; it is created if needed, and must not have a report.json
    /// yet
    #[arg(value_name = "DIR", value_parser = path())]
    pub dir: PathBuf,
    /// The time limit; a measurement under way is still finished
    #[arg(long, value_name = "N", default_value = "10", allow_negative_numbers = true,
        value_parser = budget::parse)]
    pub minutes: f64,
    /// The parts to measure, separated by commas [default: all]
    #[arg(long, value_name = "PART", value_delimiter = ',')]
    pub part: Vec<Kind>,
    /// The element types, separated by commas, the most important first; the search uses only the first
    #[arg(long, value_name = DType::VALUE_NAME, value_delimiter = ',', value_parser = choice::<DType>(),
        ignore_case = true, default_value = "f32,f16,bf16")]
    pub dtype: Vec<DType>,
    #[command(flatten)]
    pub selection: Selection,
    /// Samples of each case [default: at least 9 and half a second, at most 1000; 5 in the search]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub rounds: Option<u32>,
    /// Measure nothing: rewrite DIR's report.md and report.svg from its report.json
    #[arg(long, conflicts_with_all = ["minutes", "part", "op", "dtype", "data_format", "shape", "statistics",
        "param_grads", "activation", "cache", "rounds", "adapter", "backend", "profile", "algorithm"])]
    pub redraw: bool,
}

/// The parts of a report, in the order in which they are measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    /// The adapters of the machine
    Adapters,
    /// Costs around the kernels: first of all, while no driver has compiled any
    Around,
    /// Results against the float64 reference
    Verify,
    /// Times
    Bench,
    /// A search for a faster tuning, with at least a quarter of the time
    Search,
}

impl Report {
    /// The requested parts, in order.
    pub fn parts(&self) -> Vec<Kind> {
        let all = Kind::value_variants().iter().copied();
        let asked = |kind: &Kind| self.part.is_empty() || self.part.contains(kind);
        all.filter(asked).collect()
    }
}

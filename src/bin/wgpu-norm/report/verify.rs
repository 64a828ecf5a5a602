//! Results against the float64 reference.

use crate::failure::Failure;
use crate::measure::budget::Budget;
use crate::progress::Progress;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use wgpu_norm::GpuContext;

/// Why there may be no verdict.
pub const NONE: &str = "this version has no `verify`";

/// What was found.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Verdict {
    pub passed: bool,
    /// How many cases, and how far off the worst is; or what is wrong.
    pub words: String,
    /// Markdown, a line for each algorithm.
    pub table: String,
    /// All of it.
    pub details: Value,
}

/// Runs the cases as far as the budget reaches; none where there is nothing to run.
pub fn measure(
    _gpu: &GpuContext,
    _budget: Budget,
    _progress: &Progress,
) -> Result<Option<Verdict>, Failure> {
    Ok(None)
}

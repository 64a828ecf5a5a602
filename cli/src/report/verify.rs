//! The comparison with the float64 reference.

use super::order;
use crate::failure::Failure;
use crate::measure::budget::Budget;
use crate::progress::Progress;
use crate::verify;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use wgpu_norm::GpuContext;
use wgpu_norm_verify::cases;

/// The result.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Verdict {
    pub passed: bool,
    /// The number of cases, and of those that failed; the kinds that no case is of.
    pub words: String,
    /// Markdown, a line for each algorithm.
    pub table: String,
    /// The result of each case.
    pub details: Value,
}

/// Runs the default cases while the budget lasts.
pub fn measure(gpu: &GpuContext, budget: Budget, progress: &Progress) -> Result<Verdict, Failure> {
    let cases = order::spread(cases(false));
    let summary = verify::measure(gpu, &[], &cases, progress, || !budget.is_over())?;
    let details = summary.to_json();
    let left = details.get("out_of_time").and_then(Value::as_u64);
    let done = cases.len().saturating_sub(left.unwrap_or(0) as usize);
    Ok(Verdict {
        passed: summary.failed() == 0,
        words: summary.verdict() + &order::none_of(&cases, done),
        table: summary.to_markdown(),
        details,
    })
}

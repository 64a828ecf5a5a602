//! The results as report.json, which `wgpu-norm report DIR --redraw` turns into its page: the fields have the names
//! that the command reads.

use super::cases::{Case, is_software};
use super::row::Row;
use serde::Serialize;
use serde_json::Value;
use wgpu_norm::GpuContext;

/// What has become of a case.
#[derive(Clone, Debug)]
pub enum Outcome {
    Due,
    Measured(Box<Row>),
    /// The adapter cannot run it, and why.
    Skipped(String),
    /// An error that is not due to the adapter's limits.
    Failed(String),
}

/// report.json.
#[derive(Serialize)]
pub struct Report {
    command: &'static str,
    minutes: f64,
    parts: Vec<Part>,
    /// A browser shows one adapter only, which the other fields describe.
    adapters: [(); 0],
    verify: Option<Value>,
    adapter: String,
    backend: String,
    driver: String,
    kind: String,
    version: String,
    date: String,
    timing: String,
    profile: String,
    copy_gb_per_s: Option<f64>,
    around: Option<()>,
    results: Vec<Row>,
    skipped: Vec<Skipped>,
    search: Option<()>,
    pytorch: Option<()>,
}

#[derive(Serialize)]
struct Part {
    kind: &'static str,
    state: &'static str,
    note: String,
    seconds: f64,
}

#[derive(Serialize)]
struct Skipped {
    case: String,
    reason: String,
}

impl Report {
    /// A report of what has become of each case, by a clock's `timing`, in `seconds`, on a date like
    /// 2025-01-31T12:00:00Z.
    pub fn new(
        gpu: &GpuContext,
        name: Option<&str>,
        timing: String,
        outcomes: &[(Case, Outcome)],
        seconds: f64,
        verify: Option<Value>,
        date: String,
    ) -> Self {
        let info = gpu.adapter_info();
        let (mut results, mut skipped, mut failed) = (Vec::new(), Vec::new(), 0);
        for (case, outcome) in outcomes {
            let (Outcome::Skipped(reason) | Outcome::Failed(reason)) = outcome else {
                if let Outcome::Measured(row) = outcome {
                    results.push(Row::clone(row));
                }
                continue;
            };
            failed += usize::from(matches!(outcome, Outcome::Failed(_)));
            skipped.push(Skipped {
                case: case.to_string(),
                reason: reason.clone(),
            });
        }
        let done = results.len() + skipped.len();
        let (state, note) = match (failed, done == outcomes.len()) {
            (0, true) => ("done", format!("{done} cases")),
            (0, false) if done == 0 => ("not-begun", String::new()),
            (0, false) => ("under-way", format!("{done} of {} cases", outcomes.len())),
            _ => ("failed", format!("{failed} of {done} cases")),
        };
        let mut parts = Vec::from_iter(verify.as_ref().map(verified));
        parts.push(Part {
            kind: "bench",
            state,
            note,
            seconds,
        });
        // A driver for the CPU that a browser does not call one.
        let device_type = match is_software(gpu) {
            true => wgpu::DeviceType::Cpu,
            false => info.device_type,
        };
        let name = name.unwrap_or(&info.name).trim();
        let driver = format!("{} {}", info.driver, info.driver_info);
        let largest = results.iter().max_by_key(|row| row.bytes());
        Self {
            command: "the page of wgpu-norm",
            minutes: (seconds / 0.6).ceil() / 100.0,
            parts,
            adapters: [],
            verify,
            adapter: match name {
                "" => "an adapter that the browser does not name".to_owned(),
                name => name.to_owned(),
            },
            backend: info.backend.to_string(),
            driver: match driver.trim() {
                "" => "a driver that the browser does not name".to_owned(),
                driver => driver.to_owned(),
            },
            kind: format!("{device_type:?}"),
            version: version().to_owned(),
            date,
            timing,
            profile: gpu.profile().tuning.to_string(),
            copy_gb_per_s: largest.and_then(|row| row.copy_gb_per_s),
            around: None,
            results,
            skipped,
            search: None,
            pytorch: None,
        }
    }

    pub fn to_json(&self) -> String {
        // Keys are strings, and numbers are finite or null, so serialization succeeds.
        serde_json::to_string(self).unwrap_or_default()
    }
}

/// The part of a verdict.
fn verified(verdict: &Value) -> Part {
    let text = |key| verdict.get(key).and_then(Value::as_str).unwrap_or_default();
    let details = verdict.get("details");
    let seconds = details.and_then(|details| details.get("seconds"));
    Part {
        kind: "verify",
        state: match verdict.get("passed").and_then(Value::as_bool) {
            Some(true) => "done",
            _ => "failed",
        },
        note: text("words").to_owned(),
        seconds: seconds.and_then(Value::as_f64).unwrap_or(0.0),
    }
}

/// The version of wgpu-norm.
fn version() -> &'static str {
    crate::of_workspace("version").unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_version_is_the_crate_s() {
        assert!(version().split('.').count() == 3, "{}", version());
    }
}

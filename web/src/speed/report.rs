//! The results as report.json, which `wgpu-norm report DIR --redraw` turns into its page: the fields have the names that
//! the command reads.

use super::cases::{Case, is_software};
use serde::Serialize;
use serde_json::Value;
use wgpu_norm::GpuContext;

/// The measurements of one case.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Row {
    pub set: String,
    pub op: String,
    /// N x C x spatial in either format.
    pub shape: String,
    pub dtype: String,
    pub data_format: Option<String>,
    pub statistics: String,
    pub param_grads: String,
    pub activation: String,
    pub samples: Option<u64>,
    pub time_ms: f64,
    /// From submission to completion, of one run.
    pub wall_ms: f64,
    pub empty_submission_ms: Option<f64>,
    pub over_empty_ms: Option<f64>,
    /// The host's time to record: many in a row, and between submissions.
    pub record_us: f64,
    pub record_between_us: Option<f64>,
    pub copy_gb_per_s: Option<f64>,
    pub copy_kernel: Option<String>,
    pub portable_copy_gb_per_s: Option<f64>,
    /// Not measured: timestamps can only be written around passes.
    pub copy_buffer_gb_per_s: Option<f64>,
    /// The models that apply, the plain one first.
    pub models: Vec<Model>,
    pub kernel: String,
    pub dispatches: u64,
    pub workspace_bytes: Option<u64>,
}

/// A model of the traffic: every element is moved this many times.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Model {
    pub times: u64,
    pub bytes: u64,
    pub fraction_of_copy: Option<f64>,
}

impl Row {
    /// The bytes of the plain model.
    fn bytes(&self) -> u64 {
        self.models.first().map_or(0, |model| model.bytes)
    }
}

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

/// The version of wgpu-norm, whose workspace names it once.
fn version() -> &'static str {
    let mut lines = include_str!("../../../Cargo.toml").lines();
    let version = lines.find_map(|line| line.strip_prefix("version = "));
    version.unwrap_or_default().trim_matches('"')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_version_is_the_crate_s() {
        assert!(version().split('.').count() == 3, "{}", version());
    }
}

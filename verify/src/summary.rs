//! The results of many cases, as text, JSON and Markdown.

use crate::{Case, Outcome};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fmt::Write;
use wgpu_norm::{Algorithm, Error, GpuContext};

/// The results of cases on one adapter, and ways to show them.
#[derive(Clone, Debug)]
pub struct Summary {
    adapter: String,
    driver: String,
    backend: String,
    /// The time that the cases took together.
    seconds: f64,
    ran: Vec<Ran>,
    unsupported: Vec<(usize, Case, String)>,
    /// Cases that there was no time for.
    out_of_time: usize,
}

#[derive(Clone, Debug)]
struct Ran {
    /// The case's place in the list.
    index: usize,
    case: Case,
    /// None if the case failed before that was known.
    algorithm: Option<Algorithm>,
    error: f64,
    fault: Option<String>,
    seconds: f64,
}

/// The cases of one operator that one algorithm computed.
#[derive(Default)]
struct Row {
    cases: usize,
    failed: usize,
    largest: f64,
}

impl Summary {
    /// A summary for this adapter, without any case yet.
    pub fn new(gpu: &GpuContext) -> Self {
        let info = gpu.adapter_info();
        let driver = format!("{} {}", info.driver, info.driver_info);
        Self {
            adapter: info.name,
            driver: driver.trim().to_owned(),
            backend: info.backend.to_string(),
            seconds: 0.0,
            ran: Vec::new(),
            unsupported: Vec::new(),
            out_of_time: 0,
        }
    }

    /// Adds the outcome of the case at this place of the list, which took this time, and returns its fault, if any.
    pub fn add(
        &mut self,
        index: usize,
        case: &Case,
        outcome: Result<Outcome, Error>,
        seconds: f64,
    ) -> Option<&str> {
        let case = case.clone();
        let (algorithm, error, fault) = match outcome {
            Ok(Outcome::Unsupported { reason }) => {
                self.unsupported.push((index, case, reason));
                return None;
            }
            Ok(Outcome::Ran {
                algorithm,
                error,
                fault,
            }) => (Some(algorithm), error, fault),
            Err(error) => (None, f64::INFINITY, Some(error.to_string())),
        };
        self.ran.push(Ran {
            index,
            case,
            algorithm,
            error,
            fault,
            seconds,
        });
        self.ran.last()?.fault.as_deref()
    }

    /// Ends the run of a list of so many cases, which took this time, and sorts the results by their place in the list.
    pub fn finish(&mut self, listed: usize, seconds: f64) {
        self.seconds = seconds;
        self.out_of_time = listed.saturating_sub(self.ran.len() + self.unsupported.len());
        self.ran.sort_by_key(|ran| ran.index);
        self.unsupported.sort_by_key(|(index, ..)| *index);
    }

    /// How many cases failed.
    pub fn failed(&self) -> usize {
        self.ran.iter().filter(|ran| ran.fault.is_some()).count()
    }

    /// A row for each operator and algorithm.
    fn rows(&self) -> BTreeMap<(String, &'static str), Row> {
        let mut rows: BTreeMap<_, Row> = BTreeMap::new();
        for ran in &self.ran {
            let algorithm = ran.algorithm.map_or("none", Algorithm::name);
            let row = rows
                .entry((ran.case.operation().name(), algorithm))
                .or_default();
            row.cases += 1;
            row.failed += usize::from(ran.fault.is_some());
            row.largest = row.largest.max(ran.error);
        }
        rows
    }

    /// The reasons why cases did not run, and the number of cases for each.
    fn reasons(&self) -> BTreeMap<&str, usize> {
        let mut reasons = BTreeMap::new();
        for (_, _, reason) in &self.unsupported {
            *reasons.entry(reason.as_str()).or_default() += 1;
        }
        reasons
    }

    /// A summary in one line.
    pub fn verdict(&self) -> String {
        let (ran, failed) = (self.ran.len(), self.failed());
        let mut not_run = match self.unsupported.len() {
            0 => String::new(),
            count => format!(", {count} not supported"),
        };
        if self.out_of_time > 0 {
            not_run += &format!(", no time for {} more", self.out_of_time);
        }
        let result = match failed {
            0 if ran == 0 => "nothing was run".to_owned(),
            0 => "all right".to_owned(),
            failed => format!("{failed} FAILED"),
        };
        let cases = if ran == 1 { "case" } else { "cases" };
        format!("{ran} {cases} in {:.1} s: {result}{not_run}", self.seconds)
    }

    /// The table, what was not run, and how to run each case that failed, with the profile that the run had.
    pub fn to_text(&self, profile: Option<&str>) -> String {
        let mut lines = vec![
            format!("{} ({}, {})", self.adapter, self.backend, self.driver),
            format!(
                "  {:<24} {:<21} {:>5} {:>10}",
                "operator", "algorithm", "cases", "error"
            ),
        ];
        for ((operator, algorithm), row) in self.rows() {
            let result = match row.failed {
                0 => "ok".to_owned(),
                failed => format!("{failed} FAILED"),
            };
            lines.push(format!(
                "  {operator:<24} {algorithm:<21} {:>5} {:>10.3}  {result}",
                row.cases, row.largest
            ));
        }
        for (reason, count) in self.reasons() {
            lines.push(format!("  not supported: {count:>5}  {reason}"));
        }
        lines.push(format!("  {}", self.verdict()));
        lines.push(
            "  error: the largest one, in units of the tolerance; above 1 fails. Rounding to f16 or bf16 alone reaches almost 1."
                .to_owned(),
        );
        for ran in &self.ran {
            if let Some(fault) = &ran.fault {
                lines.push(format!("failed: {fault}"));
                lines.push(format!("  {}", self.command(&ran.case, profile)));
            }
        }
        lines.join("\n")
    }

    /// The command that runs a case alone.
    fn command(&self, case: &Case, profile: Option<&str>) -> String {
        let (backend, adapter) = (&self.backend, quoted(&self.adapter));
        let mut command = format!("wgpu-norm verify --backend {backend} --adapter {adapter}");
        if let Some(profile) = profile {
            command += &format!(" --profile {}", quoted(profile));
        }
        command + &format!(" --case {case}")
    }

    /// All results as JSON.
    pub fn to_json(&self) -> Value {
        let ran = self.ran.iter().map(|ran| {
            json!({
                "case": ran.case.to_string(),
                "algorithm": ran.algorithm.map(Algorithm::name),
                "error": ran.error.is_finite().then_some(ran.error),
                "fault": ran.fault,
                "seconds": ran.seconds,
            })
        });
        let unsupported = self
            .unsupported
            .iter()
            .map(|(_, case, reason)| json!({"case": case.to_string(), "unsupported": reason}));
        json!({
            "adapter": self.adapter,
            "driver": self.driver,
            "backend": self.backend,
            "seconds": self.seconds,
            "failed": self.failed(),
            "out_of_time": self.out_of_time,
            "cases": ran.chain(unsupported).collect::<Vec<_>>(),
        })
    }

    /// The table as Markdown.
    pub fn to_markdown(&self) -> String {
        let mut text = "| operator | algorithm | cases | largest error, of the tolerance | |\n|---|---|---|---|---|\n".to_owned();
        for ((operator, algorithm), row) in self.rows() {
            let result = if row.failed == 0 { "ok" } else { "FAILED" };
            // Writing to a string does not fail.
            let _ = writeln!(
                text,
                "| {operator} | {algorithm} | {} | {:.3} | {result} |",
                row.cases, row.largest
            );
        }
        for (reason, count) in self.reasons() {
            let _ = writeln!(text, "\n{count} not supported: {reason}");
        }
        text
    }
}

/// For a shell.
fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', "'\\''"))
}

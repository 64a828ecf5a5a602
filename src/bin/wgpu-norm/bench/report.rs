//! Results: as a table, and as JSON to and fro.

use crate::failure::Failure;
use crate::files;
use crate::stdout;
use crate::text::{excerpt, one_line};
use serde_json::{Map, Value, json};
use std::path::Path;

/// What was measured of a case.
#[derive(Clone, Debug, PartialEq)]
pub struct Row {
    pub op: String,
    pub shape: String,
    pub dtype: String,
    pub data_format: Option<String>,
    pub statistics: String,
    pub param_grads: String,
    pub samples: u64,
    pub time_ms: f64,
    pub wall_ms: f64,
    pub empty_submission_ms: f64,
    /// Recording in a row, and between submissions that are waited for, when the processor's caches hold
    /// other things.
    pub record_us: f64,
    pub record_between_us: f64,
    pub copy_gb_per_s: f64,
    pub copy_kernel: String,
    /// The best copy kernel without 64-bit words.
    pub portable_copy_gb_per_s: f64,
    pub copy_buffer_gb_per_s: f64,
    /// Of the models that apply: times all elements, bytes, fraction of the copy bandwidth.
    pub models: Vec<Model>,
    pub kernel: String,
    pub dispatches: u64,
    pub workspace_bytes: u64,
}

/// What a model of the traffic says of a case.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Model {
    pub times: u64,
    pub bytes: u64,
    pub fraction: f64,
}

/// Models that reports have columns for.
const MODELS: [u64; 3] = [5, 3, 2];

/// What surrounds the kernels, measured of one case.
#[derive(Clone, Debug, PartialEq)]
pub struct Around {
    pub case: String,
    pub open_ms: f64,
    pub bind_ms: f64,
    pub first_run_ms: f64,
    pub second_run_ms: f64,
    pub host_slices_ms: f64,
    pub host_slices_bytes: u64,
}

/// A run.
#[derive(Clone, Debug, PartialEq)]
pub struct Report {
    pub adapter: String,
    pub backend: String,
    pub driver: String,
    pub kind: String,
    pub version: String,
    pub date: String,
    pub set: String,
    pub timing: String,
    pub tuning: String,
    pub around: Option<Around>,
    pub rows: Vec<Row>,
    /// What could not be run here, and why.
    pub skipped: Vec<(String, String)>,
}

impl Row {
    /// The fraction of the copy bandwidth under a model, if it applies.
    pub fn fraction(&self, times: u64) -> Option<f64> {
        let found = self.models.iter().find(|model| model.times == times);
        found.map(|model| model.fraction)
    }

    /// From submission to completion, less an empty submission.
    pub fn over_empty_ms(&self) -> f64 {
        self.wall_ms - self.empty_submission_ms
    }

    /// What is not the usual: other than batch statistics with both parameter gradients.
    pub fn variant(&self) -> String {
        let mut words = Vec::new();
        if self.statistics != "batch" {
            words.push(self.statistics.as_str());
        }
        if self.param_grads != "both" {
            words.push(self.param_grads.as_str());
        }
        words.join(" ")
    }

    pub fn format(&self) -> &str {
        self.data_format.as_deref().unwrap_or("-")
    }

    fn to_json(&self) -> Value {
        let mut object = json!({
            "op": self.op,
            "shape": self.shape,
            "dtype": self.dtype,
            "data_format": self.data_format,
            "statistics": self.statistics,
            "param_grads": self.param_grads,
            "samples": self.samples,
            "time_ms": self.time_ms,
            "wall_ms": self.wall_ms,
            "empty_submission_ms": self.empty_submission_ms,
            "over_empty_ms": self.over_empty_ms(),
            "record_us": self.record_us,
            "record_between_us": self.record_between_us,
            "copy_gb_per_s": self.copy_gb_per_s,
            "copy_kernel": self.copy_kernel,
            "portable_copy_gb_per_s": self.portable_copy_gb_per_s,
            "copy_buffer_gb_per_s": self.copy_buffer_gb_per_s,
            "kernel": self.kernel,
            "dispatches": self.dispatches,
            "workspace_bytes": self.workspace_bytes,
        });
        if let Some(object) = object.as_object_mut() {
            for times in MODELS {
                let model = self.models.iter().find(|model| model.times == times);
                let (bytes, fraction) = (model.map(|m| m.bytes), model.map(|m| m.fraction));
                object.insert(format!("bytes_{times}n"), json!(bytes));
                object.insert(format!("fraction_of_copy_{times}n"), json!(fraction));
            }
        }
        object
    }

    fn from_json(from: &Object<'_>) -> Result<Self, Failure> {
        let mut models = Vec::new();
        for times in MODELS {
            let bytes = from
                .optional(&format!("bytes_{times}n"))
                .and_then(Value::as_u64);
            let fraction = from.optional(&format!("fraction_of_copy_{times}n"));
            if let (Some(bytes), Some(fraction)) = (bytes, fraction.and_then(Value::as_f64)) {
                models.push(Model {
                    times,
                    bytes,
                    fraction,
                });
            }
        }
        Ok(Self {
            op: from.text("op")?,
            shape: from.text("shape")?,
            dtype: from.text("dtype")?,
            data_format: from
                .optional("data_format")
                .and_then(Value::as_str)
                .map(str::to_owned),
            statistics: from.text("statistics")?,
            param_grads: from.text("param_grads")?,
            samples: from.count("samples")?,
            time_ms: from.number("time_ms")?,
            wall_ms: from.number("wall_ms")?,
            empty_submission_ms: from.number("empty_submission_ms")?,
            record_us: from.number("record_us")?,
            record_between_us: from.number("record_between_us")?,
            copy_gb_per_s: from.number("copy_gb_per_s")?,
            copy_kernel: from.text("copy_kernel")?,
            portable_copy_gb_per_s: from.number("portable_copy_gb_per_s")?,
            copy_buffer_gb_per_s: from.number("copy_buffer_gb_per_s")?,
            models,
            kernel: from.text("kernel")?,
            dispatches: from.count("dispatches")?,
            workspace_bytes: from.count("workspace_bytes")?,
        })
    }
}

impl Around {
    fn to_json(&self) -> Value {
        json!({
            "case": self.case,
            "open_ms": self.open_ms,
            "bind_ms": self.bind_ms,
            "first_run_ms": self.first_run_ms,
            "second_run_ms": self.second_run_ms,
            "host_slices_ms": self.host_slices_ms,
            "host_slices_bytes": self.host_slices_bytes,
        })
    }

    fn from_json(from: &Object<'_>) -> Result<Self, Failure> {
        Ok(Self {
            case: from.text("case")?,
            open_ms: from.number("open_ms")?,
            bind_ms: from.number("bind_ms")?,
            first_run_ms: from.number("first_run_ms")?,
            second_run_ms: from.number("second_run_ms")?,
            host_slices_ms: from.number("host_slices_ms")?,
            host_slices_bytes: from.count("host_slices_bytes")?,
        })
    }
}

impl Report {
    /// The copy bandwidth where most bytes are moved, so that caches help least.
    pub fn copy_gb_per_s(&self) -> Option<f64> {
        let bytes = |row: &&Row| row.models.iter().map(|model| model.bytes).max();
        self.rows
            .iter()
            .max_by_key(bytes)
            .map(|row| row.copy_gb_per_s)
    }

    /// What it ran on, in words.
    pub fn place(&self) -> String {
        let Self {
            adapter,
            backend,
            driver,
            ..
        } = self;
        format!("{adapter} ({backend}, {driver})")
    }

    pub fn to_json(&self) -> String {
        let skipped = self
            .skipped
            .iter()
            .map(|(case, reason)| json!({ "case": case, "reason": reason }));
        let rows = self.rows.iter().map(Row::to_json);
        let object = json!({
            "adapter": self.adapter,
            "backend": self.backend,
            "driver": self.driver,
            "kind": self.kind,
            "version": self.version,
            "date": self.date,
            "set": self.set,
            "timing": self.timing,
            "profile": self.tuning,
            "copy_gb_per_s": self.copy_gb_per_s(),
            "around": self.around.as_ref().map(Around::to_json),
            "results": rows.collect::<Vec<_>>(),
            "skipped": skipped.collect::<Vec<_>>(),
        });
        format!("{object:#}\n")
    }

    /// Reads what [`to_json`](Self::to_json) wrote.
    pub fn read(path: &Path) -> Result<Self, Failure> {
        let text = files::read_text(path).map_err(|source| Failure::Read {
            path: path.to_owned(),
            source,
        })?;
        Self::parse(path, &text)
    }

    fn parse(path: &Path, text: &str) -> Result<Self, Failure> {
        let malformed = |error: serde_json::Error| Failure::Format {
            path: path.to_owned(),
            expected: "a report of `wgpu-norm bench --json`".to_owned(),
            got: excerpt(&error.to_string()),
        };
        let value: Value = serde_json::from_str(text).map_err(malformed)?;
        let from = Object::new(path, "report", &value)?;
        let rows = from.list("results")?.iter().map(|row| {
            let row = Object::new(path, "results", row)?;
            Row::from_json(&row)
        });
        let skipped = from.list("skipped")?.iter().map(|one| {
            let one = Object::new(path, "skipped", one)?;
            Ok((one.text("case")?, one.text("reason")?))
        });
        let around = match from.optional("around") {
            None | Some(Value::Null) => None,
            Some(around) => Some(Around::from_json(&Object::new(path, "around", around)?)?),
        };
        Ok(Self {
            adapter: from.text("adapter")?,
            backend: from.text("backend")?,
            driver: from.text("driver")?,
            kind: from.text("kind")?,
            version: from.text("version")?,
            date: from.text("date")?,
            set: from.text("set")?,
            timing: from.text("timing")?,
            tuning: from.text("profile")?,
            around,
            rows: rows.collect::<Result<_, Failure>>()?,
            skipped: skipped.collect::<Result<_, Failure>>()?,
        })
    }

    /// Prints all of it.
    pub fn print(&self) -> Result<(), Failure> {
        self.print_head()?;
        for row in &self.rows {
            stdout::line(line(row))?;
        }
        self.print_rest()
    }

    /// Prints what it ran on, and the table's head.
    pub fn print_head(&self) -> Result<(), Failure> {
        stdout::line(self.place())?;
        stdout::line(format_args!(
            "{}; wgpu-norm {}; time by {}, wall from submission to completion, medians",
            self.date, self.version, self.timing
        ))?;
        stdout::line(format_args!("profile {}\n", self.tuning))?;
        stdout::line(head())
    }

    /// Prints what comes after the table.
    pub fn print_rest(&self) -> Result<(), Failure> {
        stdout::line("")?;
        for (case, reason) in &self.skipped {
            stdout::line(format_args!("skipped {case}: {reason}"))?;
        }
        for line in self.summary() {
            stdout::line(line)?;
        }
        if let Some(copy) = self.copy_gb_per_s() {
            stdout::line(format_args!(
                "copy bandwidth, moving the largest shape's 5n: {copy:.1} GB/s"
            ))?;
        }
        if let Some(around) = &self.around {
            stdout::line(format_args!(
                "around the kernels, {}: open a device {:.1} ms; first call {:.1} ms to plan, compile and \
                 bind, {:.1} ms to run (second run {:.1} ms); host slices, {:.1} MB to and fro, {:.1} ms",
                around.case,
                around.open_ms,
                around.bind_ms,
                around.first_run_ms,
                around.second_run_ms,
                around.host_slices_bytes as f64 / 1e6,
                around.host_slices_ms
            ))?;
        }
        Ok(())
    }

    /// Geometric means and the lowest, of each operator, element type and model.
    pub fn summary(&self) -> Vec<String> {
        let mut lines = Vec::new();
        let mut subjects: Vec<(&str, &str)> = Vec::new();
        for row in &self.rows {
            let subject = (row.op.as_str(), row.dtype.as_str());
            if !subjects.contains(&subject) {
                subjects.push(subject);
            }
        }
        for (op, dtype) in subjects {
            for times in MODELS {
                let of_op = self
                    .rows
                    .iter()
                    .filter(|row| row.op == op && row.dtype == dtype);
                let fractions: Vec<(f64, &Row)> = of_op
                    .filter(|row| row.models.first().is_some_and(|m| m.times == times))
                    .filter_map(|row| Some((row.fraction(times)?, row)))
                    .collect();
                let lowest = fractions.iter().min_by(|(a, _), (b, _)| a.total_cmp(b));
                if let Some((fraction, row)) = lowest {
                    let mean = geometric_mean(fractions.iter().map(|(fraction, _)| *fraction));
                    let of_portable = |(fraction, row): &(f64, &Row)| {
                        fraction * row.copy_gb_per_s / row.portable_copy_gb_per_s
                    };
                    lines.push(format!(
                        "{op} {dtype}: {mean:.2} of copy bandwidth at {times}n (geometric mean of {}), \
                         lowest {fraction:.2}: {} {}; {:.2} of a copy by 32-bit words",
                        fractions.len(),
                        row.shape,
                        row.format(),
                        geometric_mean(fractions.iter().map(of_portable)),
                    ));
                }
            }
        }
        lines
    }
}

pub fn geometric_mean(values: impl ExactSizeIterator<Item = f64>) -> f64 {
    let count = values.len().max(1) as f64;
    (values.map(f64::ln).sum::<f64>() / count).exp()
}

/// A line of the table, from its cells.
fn columns(cells: [&str; 18]) -> String {
    let [
        op,
        shape,
        dtype,
        format,
        variant,
        time,
        wall,
        over,
        five,
        three,
        copy,
        of_five,
        of_three,
        of_two,
        record,
        dispatches,
        workspace,
        kernels,
    ] = cells;
    format!(
        "{op:<10} {shape:<18} {dtype:<4} {format:<6} {variant:<16} {time:>10} {wall:>10} {over:>10} \
         {five:>7} {three:>7} {copy:>9} {of_five:>7} {of_three:>7} {of_two:>7} {record:>9} {dispatches:>10} \
         {workspace:>9} {kernels}"
    )
}

/// The table's head.
fn head() -> String {
    columns([
        "op",
        "shape",
        "type",
        "format",
        "",
        "time ms",
        "wall ms",
        "-empty us",
        "MB 5n",
        "MB 3n",
        "copy GB/s",
        "5n/copy",
        "3n/copy",
        "2n/copy",
        "record us",
        "dispatches",
        "workspace",
        "kernels",
    ])
}

/// A row of the table.
pub fn line(row: &Row) -> String {
    let megabytes = |times| {
        let model = row.models.iter().find(|model| model.times == times);
        model.map_or("-".to_owned(), |m| format!("{:.1}", m.bytes as f64 / 1e6))
    };
    let fraction = |times| {
        let fraction = row.fraction(times);
        fraction.map_or("-".to_owned(), |f| format!("{f:.2}"))
    };
    columns([
        &row.op,
        &row.shape,
        &row.dtype,
        row.format(),
        &row.variant(),
        &format!("{:.4}", row.time_ms),
        &format!("{:.4}", row.wall_ms),
        &format!("{:.1}", row.over_empty_ms() * 1e3),
        &megabytes(5),
        &megabytes(3),
        &format!("{:.1}", row.copy_gb_per_s),
        &fraction(5),
        &fraction(3),
        &fraction(2),
        &format!("{:.1}", row.record_us),
        &row.dispatches.to_string(),
        &row.workspace_bytes.to_string(),
        &row.kernel,
    ])
}

/// An object of a file, whose values are asked for by key.
struct Object<'a> {
    path: &'a Path,
    object: &'a Map<String, Value>,
}

impl<'a> Object<'a> {
    fn new(path: &'a Path, what: &str, value: &'a Value) -> Result<Self, Failure> {
        match value.as_object() {
            Some(object) => Ok(Self { path, object }),
            None => Err(wrong(path, what, "an object")),
        }
    }

    fn optional(&self, key: &str) -> Option<&'a Value> {
        self.object.get(key)
    }

    fn get<T>(
        &self,
        key: &str,
        expected: &str,
        convert: impl FnOnce(&'a Value) -> Option<T>,
    ) -> Result<T, Failure> {
        let found = self.optional(key).and_then(convert);
        found.ok_or_else(|| wrong(self.path, key, expected))
    }

    fn text(&self, key: &str) -> Result<String, Failure> {
        self.get(key, "a string", |v| v.as_str().map(one_line))
    }

    fn number(&self, key: &str) -> Result<f64, Failure> {
        self.get(key, "a number", Value::as_f64)
    }

    fn count(&self, key: &str) -> Result<u64, Failure> {
        self.get(key, "a whole number", Value::as_u64)
    }

    fn list(&self, key: &str) -> Result<&'a [Value], Failure> {
        self.get(key, "a list", |v| v.as_array().map(Vec::as_slice))
    }
}

fn wrong(path: &Path, key: &str, expected: &str) -> Failure {
    Failure::Format {
        path: path.to_owned(),
        expected: format!("{expected} as \"{key}\", as `wgpu-norm bench --json` writes it"),
        got: "something else".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    /// A row with numbers of as many digits as a measurement has.
    fn row(number: f64) -> Row {
        Row {
            op: "batch-norm".to_owned(),
            shape: "4x8x16x16".to_owned(),
            dtype: "f32".to_owned(),
            data_format: Some("NCX".to_owned()),
            statistics: "batch".to_owned(),
            param_grads: "both".to_owned(),
            samples: 7,
            time_ms: number,
            wall_ms: 2.0 * number,
            empty_submission_ms: number / 3.0,
            record_us: number / 7.0,
            record_between_us: number / 11.0,
            copy_gb_per_s: number / 13.0,
            copy_kernel: "vec4".to_owned(),
            portable_copy_gb_per_s: number / 17.0,
            copy_buffer_gb_per_s: number / 19.0,
            models: MODELS
                .map(|times| Model {
                    times,
                    bytes: times * 32768,
                    fraction: number / times as f64,
                })
                .to_vec(),
            kernel: "fused_runs".to_owned(),
            dispatches: 1,
            workspace_bytes: 768,
        }
    }

    #[test]
    fn a_file_holds_every_bit() {
        let report = Report {
            adapter: "an adapter".to_owned(),
            backend: "vulkan".to_owned(),
            driver: "a driver".to_owned(),
            kind: "Cpu".to_owned(),
            version: "0.1.0".to_owned(),
            date: "1970-01-01T00:00:00Z".to_owned(),
            set: "software".to_owned(),
            timing: "GPU timestamps".to_owned(),
            tuning: "runs_workgroup=8".to_owned(),
            around: Some(Around {
                case: "batch-norm 4x8x16x16 f32 NCX".to_owned(),
                open_ms: 100.0 / 3.0,
                bind_ms: 100.0 / 7.0,
                first_run_ms: 100.0 / 9.0,
                second_run_ms: 100.0 / 11.0,
                host_slices_ms: 100.0 / 13.0,
                host_slices_bytes: 100,
            }),
            rows: (1..1000).map(|n| row(n as f64 / 100.0)).collect(),
            skipped: vec![("a case".to_owned(), "a reason".to_owned())],
        };
        let read = Report::parse(Path::new("report"), &report.to_json()).unwrap();
        assert!(read.rows == report.rows, "numbers of the results changed");
        assert_eq!(
            Report {
                rows: vec![],
                ..read
            },
            Report {
                rows: vec![],
                ..report
            }
        );
    }
}

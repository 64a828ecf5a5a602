//! The table of a report in a document, between two marks:
//!
//! ```text
//! <!-- bench:begin NAME -->
//! <!-- bench:end NAME -->
//! ```

use super::report::{Report, Row};
use crate::failure::Failure;
use crate::files;
use crate::output::Output;
use std::io::ErrorKind;
use std::path::Path;

/// A document whose table is to be replaced.
pub struct Document {
    output: Output,
    before: String,
    after: String,
}

impl Document {
    /// Looks for the marks, before work is spent on the table. A document that is not there yet will
    /// have nothing else.
    pub fn open(path: &Path, name: &str) -> Result<Self, Failure> {
        let output = Output::prepare(path)?;
        let (begin, end) = marks(name);
        let text = match files::read_text(path) {
            Ok(text) => text,
            Err(error) if error.kind() == ErrorKind::NotFound => format!("{begin}\n{end}\n"),
            Err(source) => {
                let path = path.to_owned();
                return Err(Failure::Read { path, source });
            }
        };
        let parts = text.split_once(&begin).and_then(|(before, rest)| {
            let (_, after) = rest.split_once(&end)?;
            Some((format!("{before}{begin}\n"), format!("{end}{after}")))
        });
        let (before, after) = parts.ok_or_else(|| Failure::Format {
            path: path.to_owned(),
            expected: format!("the lines {begin} and {end}"),
            got: "a text without them".to_owned(),
        })?;
        Ok(Self {
            output,
            before,
            after,
        })
    }

    /// Writes the document with the report's table.
    pub fn write(&self, report: &Report) -> Result<(), Failure> {
        let text = format!("{}\n{}\n{}", self.before, table(report), self.after);
        self.output.write_bytes(&[text.as_bytes()])
    }
}

fn marks(name: &str) -> (String, String) {
    (
        format!("<!-- bench:begin {name} -->"),
        format!("<!-- bench:end {name} -->"),
    )
}

fn table(report: &Report) -> String {
    let mut lines = vec![
        format!(
            "{}; wgpu-norm {}, {}; time by {}, medians. Profile `{}`.",
            plain(&report.place()),
            plain(&report.version),
            plain(&report.date),
            plain(&report.timing),
            report.tuning.replace('`', "")
        ),
        String::new(),
    ];
    let small = report.set == "small";
    let head = match small {
        true => {
            "| operator | shape | type | format | over an empty submission, µs | empty submission, µs | \
                 wall, µs | time, µs | record, µs | dispatches | kernels |"
        }
        false => {
            "| operator | shape | type | format | time, ms | wall, ms | copy, GB/s | of copy at 5n | at 3n \
                  | at 2n | record, µs | dispatches | workspace, bytes | kernels |"
        }
    };
    lines.push(head.to_owned());
    let columns = head.matches('|').count() - 1;
    lines.push(format!("|---|---|---|---|{}", "--:|".repeat(columns - 5)) + "---|");
    lines.extend(report.rows.iter().map(|row| match small {
        true => latency(row),
        false => bandwidth(row),
    }));
    lines.push(String::new());
    for (case, reason) in &report.skipped {
        lines.push(format!("Not run: {}: {}.\n", plain(case), plain(reason)));
    }
    if !small {
        lines.extend(report.summary().iter().map(|line| format!("* {line}")));
        if let Some(copy) = report.copy_gb_per_s() {
            lines.push(format!(
                "* copy bandwidth, moving the largest shape's 5n: {copy:.1} GB/s"
            ));
        }
    }
    if let Some(around) = &report.around {
        lines.push(format!(
            "* around the kernels, {}: {:.1} ms to open a device; first call {:.1} ms to plan, compile and \
             bind and {:.1} ms to run, where a second run takes {:.1} ms; from and to host slices, {:.1} MB in \
             all, {:.1} ms",
            plain(&around.case),
            around.open_ms,
            around.bind_ms,
            around.first_run_ms,
            around.second_run_ms,
            around.host_slices_bytes as f64 / 1e6,
            around.host_slices_ms
        ));
    }
    lines.push(String::new());
    lines.join("\n")
}

fn subject(row: &Row) -> String {
    let op = format!("{} {}", row.op, row.variant());
    let shape = row.shape.replace('x', "×");
    let cells = [op.trim(), &shape, &row.dtype, row.format()].map(plain);
    format!("| {} ", cells.join(" | "))
}

fn bandwidth(row: &Row) -> String {
    let fraction = |times| {
        let fraction = row.fraction(times);
        fraction.map_or(String::new(), |f| format!("{f:.2}"))
    };
    format!(
        "{}| {:.3} | {:.3} | {:.1} | {} | {} | {} | {:.1} | {} | {} | {} |",
        subject(row),
        row.time_ms,
        row.wall_ms,
        row.copy_gb_per_s,
        fraction(5),
        fraction(3),
        fraction(2),
        row.record_us,
        row.dispatches,
        row.workspace_bytes,
        plain(&row.kernel)
    )
}

fn latency(row: &Row) -> String {
    format!(
        "{}| {:.1} | {:.1} | {:.1} | {:.1} | {:.1} | {} | {} |",
        subject(row),
        row.over_empty_ms() * 1e3,
        row.empty_submission_ms * 1e3,
        row.wall_ms * 1e3,
        row.time_ms * 1e3,
        row.record_us,
        row.dispatches,
        plain(&row.kernel)
    )
}

/// Text that stays in its cell, and cannot end the marked place.
fn plain(text: &str) -> String {
    text.replace(['|', '<', '>', '\n', '\r'], " ")
}

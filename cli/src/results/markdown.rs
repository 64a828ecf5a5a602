//! All results as Markdown.

use super::summary::summary;
use super::{Results, Row};
use crate::text::one_line;
use std::fmt::Display;

/// The environment, the tables, and the costs around the kernels.
pub fn all(results: &Results) -> String {
    let head = format!(
        "{}; wgpu-norm {}, {}; time by {}, medians. Profile `{}`.\n",
        plain(&results.place()),
        plain(&results.version),
        plain(&results.date),
        plain(&results.timing),
        code(&results.profile)
    );
    let mut lines = vec![head, tables(&results.rows)];
    for one in &results.skipped {
        lines.push(format!(
            "Not run: {}: {}.\n",
            plain(&one.case),
            plain(&one.reason)
        ));
    }
    if results.rows.iter().any(|row| !row.is_small()) {
        lines.extend(summary(&results.rows).iter().map(item));
        if let Some(copy) = results.copy_gb_per_s {
            lines.push(item(format_args!(
                "copy bandwidth, moving as many bytes as the largest case: {copy:.1} GB/s"
            )));
        }
    }
    lines.extend(results.stamps.iter().map(item));
    lines.extend(results.around.iter().map(item));
    lines.push(String::new());
    lines.join("\n")
}

/// A line for every case: bandwidth for large ones, latency for small ones.
pub fn tables(rows: &[Row]) -> String {
    let (small, large): (Vec<&Row>, Vec<&Row>) = rows.iter().partition(|row| row.is_small());
    let mut lines = Vec::new();
    let mut table = |head: &str, rows: Vec<&Row>, line: fn(&Row) -> String| {
        if rows.is_empty() {
            return;
        }
        let columns = head.matches('|').count() - 1;
        lines.push(head.to_owned());
        lines.push(format!(
            "|---|---|---|---|{}---|",
            "--:|".repeat(columns - 5)
        ));
        lines.extend(rows.into_iter().map(line));
        lines.push(String::new());
    };
    table(
        "| operator | shape | type | format | time, ms | repeats | wall, ms | copy, GB/s | of copy at 5n | at 3n \
         | at 2n | limit | record, µs | dispatches | workspace, bytes | kernels |",
        large,
        bandwidth,
    );
    table(
        "| operator | shape | type | format | over an empty submission, µs | empty submission, µs | \
         wall, µs | time, µs | repeats | record, µs | dispatches | kernels |",
        small,
        latency,
    );
    lines.join("\n")
}

fn item(text: impl Display) -> String {
    format!("* {}", plain(&text.to_string()))
}

fn subject(row: &Row) -> String {
    let op = format!("{} {}", row.op, row.variant());
    let cells = [op.trim(), &row.times_shape(), &row.dtype, row.format()].map(plain);
    format!("| {} ", cells.join(" | "))
}

fn bandwidth(row: &Row) -> String {
    let fraction = |times| digits(row.fraction_at(times), 2);
    format!(
        "{}| {:.3} | {} | {:.3} | {} | {} | {} | {} | {} | {:.1} | {} | {} | {} |",
        subject(row),
        row.time_ms,
        digits(row.repeats.map(|runs| runs as f64), 0),
        row.wall_ms,
        digits(row.copy_gb_per_s, 1),
        fraction(5),
        fraction(3),
        fraction(2),
        digits(row.fraction_of_limit(), 2),
        row.record_us,
        row.dispatches,
        digits(row.workspace_bytes.map(|bytes| bytes as f64), 0),
        plain(&row.kernel)
    )
}

fn latency(row: &Row) -> String {
    format!(
        "{}| {} | {} | {:.1} | {:.1} | {} | {:.1} | {} | {} |",
        subject(row),
        digits(row.over_empty_ms.map(|ms| ms * 1e3), 1),
        digits(row.empty_submission_ms.map(|ms| ms * 1e3), 1),
        row.wall_ms * 1e3,
        row.time_ms * 1e3,
        digits(row.repeats.map(|runs| runs as f64), 0),
        row.record_us,
        row.dispatches,
        plain(&row.kernel)
    )
}

/// A number's cell; empty if it is unknown.
pub fn digits(value: Option<f64>, digits: usize) -> String {
    value.map_or(String::new(), |value| format!("{value:.digits$}"))
}

/// Text that stays in its cell and contains no HTML.
pub fn plain(text: &str) -> String {
    one_line(&text.replace(['|', '<', '>', '\n', '\r'], " "))
}

/// The same for a code span.
pub fn code(text: &str) -> String {
    plain(text).replace('`', "'")
}

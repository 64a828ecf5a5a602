//! Results as lines on stdout.

use super::summary::summary;
use super::{Results, Row};
use crate::failure::Failure;
use crate::stdout;
use crate::text::one_line;
use std::fmt::Display;

/// Prints everything. Names from a driver or a file stay on their lines.
pub fn print(results: &Results) -> Result<(), Failure> {
    print_head(results)?;
    for row in &results.rows {
        print_line(line(row))?;
    }
    print_rest(results)
}

/// Prints the environment and the table's head.
pub fn print_head(results: &Results) -> Result<(), Failure> {
    print_line(results.place())?;
    print_line(format_args!(
        "{}; wgpu-norm {}; time by {}, wall from submission to completion, medians",
        results.date, results.version, results.timing
    ))?;
    print_line(format_args!("profile {}", results.profile))?;
    stdout::line("")?;
    stdout::line(head())
}

/// Prints everything after the table.
pub fn print_rest(results: &Results) -> Result<(), Failure> {
    stdout::line("")?;
    for one in &results.skipped {
        print_line(format_args!("skipped {}: {}", one.case, one.reason))?;
    }
    for group in summary(&results.rows) {
        print_line(group)?;
    }
    if let Some(copy) = results.copy_gb_per_s {
        stdout::line(format_args!(
            "copy bandwidth, moving as many bytes as the largest case: {copy:.1} GB/s"
        ))?;
    }
    match &results.around {
        Some(around) => print_line(around),
        None => Ok(()),
    }
}

fn print_line(text: impl Display) -> Result<(), Failure> {
    stdout::line(one_line(&text.to_string()))
}

/// A number's cell.
fn number(value: Option<f64>, digits: usize) -> String {
    value.map_or("-".to_owned(), |value| format!("{value:.digits$}"))
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
        "{op:<20} {shape:<18} {dtype:<4} {format:<6} {variant:<16} {time:>10} {wall:>10} {over:>10} \
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
        let model = row.model(times);
        model.map_or("-".to_owned(), |m| format!("{:.1}", m.bytes as f64 / 1e6))
    };
    let fraction = |times| {
        let model = row.model(times);
        number(model.and_then(|m| m.fraction_of_copy), 2)
    };
    columns([
        &row.op,
        &row.shape,
        &row.dtype,
        row.format(),
        &row.variant(),
        &format!("{:.4}", row.time_ms),
        &format!("{:.4}", row.wall_ms),
        &number(row.over_empty_ms.map(|ms| ms * 1e3), 1),
        &megabytes(5),
        &megabytes(3),
        &number(row.copy_gb_per_s, 1),
        &fraction(5),
        &fraction(3),
        &fraction(2),
        &format!("{:.1}", row.record_us),
        &row.dispatches.to_string(),
        &row.workspace_bytes
            .map_or("-".to_owned(), |bytes| bytes.to_string()),
        &row.kernel,
    ])
}

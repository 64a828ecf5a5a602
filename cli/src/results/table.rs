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
    let mut encoder = results.f16_encoder.iter();
    encoder.try_for_each(|name| print_line(format_args!("f16 is rounded by {name}")))?;
    results.stamps.iter().try_for_each(print_line)?;
    stdout::line("")?;
    stdout::line(columns(HEAD.split(',')))
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
    results.around.iter().try_for_each(print_line)
}

fn print_line(text: impl Display) -> Result<(), Failure> {
    stdout::line(one_line(&text.to_string()))
}

/// A number's cell.
fn number(value: Option<f64>, digits: usize) -> String {
    value.map_or("-".to_owned(), |value| format!("{value:.digits$}"))
}

/// The columns' names.
const HEAD: &str = "op,shape,type,format,,time ms,repeats,wall ms,-empty us,MB 5n,MB 3n,copy GB/s,5n/copy,3n/copy,\
                    2n/copy,limit,record us,dispatches,workspace,kernels";
const WIDTHS: [usize; 20] = [
    20, 18, 4, 6, 16, 10, 7, 10, 10, 7, 7, 9, 7, 7, 7, 7, 9, 10, 9, 0,
];

/// A line of the table, from its cells: five of words, then numbers.
fn columns<'a>(cells: impl Iterator<Item = &'a str>) -> String {
    let columns = cells.zip(WIDTHS).enumerate();
    let padded = columns.map(|(index, (cell, width))| {
        if index < 5 {
            format!("{cell:<width$}")
        } else {
            format!("{cell:>width$}")
        }
    });
    padded.collect::<Vec<_>>().join(" ")
}

/// A row of the table.
pub fn line(row: &Row) -> String {
    let count = |value: Option<u64>| number(value.map(|value| value as f64), 0);
    let megabytes = |times| number(row.model(times).map(|model| model.bytes as f64 / 1e6), 1);
    let fraction = |times| number(row.fraction_at(times), 2);
    let cells = [
        row.op.as_str(),
        &row.shape,
        &row.dtype,
        row.format(),
        &row.variant(),
        &format!("{:.4}", row.time_ms),
        &count(row.repeats),
        &format!("{:.4}", row.wall_ms),
        &number(row.over_empty_ms.map(|ms| ms * 1e3), 1),
        &megabytes(5),
        &megabytes(3),
        &number(row.copy_gb_per_s, 1),
        &fraction(5),
        &fraction(3),
        &fraction(2),
        &number(row.fraction_of_limit(), 2),
        &format!("{:.1}", row.record_us),
        &row.dispatches.to_string(),
        &count(row.workspace_bytes),
        &row.kernel,
    ];
    columns(cells.into_iter())
}

//! Measurements of all peers in one Markdown table.

use crate::Result;
use crate::peer::OURS;
use crate::report::{Entry, Report};
use std::fmt::Write as _;
use std::path::Path;

/// A column or a pair of them: all reports of one peer on one device.
struct Column<'a> {
    title: String,
    reports: Vec<&'a Report>,
}

impl<'a> Column<'a> {
    /// The peer's best time of a row. Where it has several ways, that is the one to compare with.
    fn best(&self, row: &Entry) -> Option<&'a Entry> {
        let entries = self.reports.iter().flat_map(|report| &report.results);
        entries
            .filter(|entry| same_row(entry, row))
            .min_by(|a, b| a.time_ms.total_cmp(&b.time_ms))
    }

    /// Whether its variants tell anything.
    fn several(&self) -> bool {
        let mut variants = self.reports.iter().flat_map(|report| &report.results);
        let first = variants.next().map(|entry| &entry.variant);
        variants.any(|entry| Some(&entry.variant) != first)
    }
}

fn same_row(a: &Entry, b: &Entry) -> bool {
    let key = |entry: &Entry| {
        (
            entry.op.clone(),
            entry.shape.clone(),
            entry.dtype.clone(),
            entry.data_format.clone(),
        )
    };
    key(a) == key(b)
}

/// The table, and below it what each column was measured on.
pub fn markdown(reports: &[Report]) -> Result<String> {
    let ours: Vec<&Report> = reports.iter().filter(|r| r.peer == OURS).collect();
    let Some(first) = ours.first() else {
        return Err(format!("no file has measurements of {OURS}").into());
    };
    if let Some(other) = ours.iter().find(|r| r.device != first.device) {
        let (a, b) = (&first.device, &other.device);
        return Err(format!("{OURS} was measured on {a} and on {b}: make a table of each").into());
    }
    let ours = Column {
        title: OURS.to_owned(),
        reports: ours,
    };
    let peers = columns(reports);

    let mut text = String::from("| operator | shape | wgpu-norm ms |");
    for peer in &peers {
        write!(text, " {} ms | ratio |", peer.title)?;
    }
    text.push_str("\n|---|---|---:|");
    text.push_str(&"---:|---:|".repeat(peers.len()));
    text.push('\n');
    for row in rows(reports) {
        let format = match &row.data_format {
            Some(format) => format!(" {format}"),
            None => String::new(),
        };
        let our = ours.best(row);
        let time = our.map_or("–".to_owned(), |our| ms(our.time_ms));
        write!(text, "| {}{format} | {} | {time} |", row.op, row.shape)?;
        for peer in &peers {
            let Some(best) = peer.best(row) else {
                text.push_str(" – | – |");
                continue;
            };
            let variant = match peer.several() {
                true => format!(" ({})", best.variant),
                false => String::new(),
            };
            let ratio = our.map_or("–".to_owned(), |our| {
                format!("{:.2}", best.time_ms / our.time_ms)
            });
            write!(text, " {}{variant} | {ratio} |", ms(best.time_ms))?;
        }
        text.push('\n');
    }
    text.push('\n');
    for peer in &peers {
        // Of peers in turns with this crate in two sizes, both ratios count.
        let beside = peers.iter().filter(|beside| {
            let is_ours = |column: &Column<'_>| column.title.starts_with(OURS);
            is_ours(beside) && !is_ours(peer)
        });
        for beside in std::iter::once(&ours).chain(beside) {
            write!(
                text,
                "* {} over {}, geometric means:",
                peer.title, beside.title
            )?;
            text.push_str(&means(peer, beside, &rows(reports)));
            text.push('\n');
        }
    }
    let columns = std::iter::once(&ours).chain(&peers);
    for report in columns.filter_map(|column| column.reports.first()) {
        let details = [
            &report.version,
            &report.device,
            &report.driver,
            &report.date,
        ];
        let details = details.into_iter().chain(&report.times);
        let details: Vec<&str> = details.map(String::as_str).collect();
        writeln!(text, "* {}: {}", report.peer, details.join(", "))?;
    }
    Ok(text)
}

/// The mean ratio of each operator that both were timed with.
fn means(peer: &Column<'_>, beside: &Column<'_>, rows: &[&Entry]) -> String {
    let mut ratios: Vec<(&str, Vec<f64>)> = Vec::new();
    for row in rows {
        let (Some(time), Some(other)) = (peer.best(row), beside.best(row)) else {
            continue;
        };
        let log = (time.time_ms / other.time_ms).ln();
        match ratios.iter_mut().find(|(op, _)| *op == row.op) {
            Some((_, logs)) => logs.push(log),
            None => ratios.push((&row.op, vec![log])),
        }
    }
    let means = ratios.iter().map(|(op, logs)| {
        let mean = (logs.iter().sum::<f64>() / logs.len() as f64).exp();
        format!(" {op} {mean:.2}")
    });
    means.collect::<Vec<String>>().join(",")
}

/// The other peers, in the order of the files. One that ran on two devices has two columns.
fn columns(reports: &[Report]) -> Vec<Column<'_>> {
    let mut columns: Vec<Column<'_>> = Vec::new();
    for report in reports.iter().filter(|report| report.peer != OURS) {
        let same = columns.iter_mut().find(|column| {
            let first = column.reports.first();
            first
                .is_some_and(|first| (&first.peer, &first.device) == (&report.peer, &report.device))
        });
        match same {
            Some(column) => column.reports.push(report),
            None => columns.push(Column {
                title: match columns.iter().any(|column| column.title == report.peer) {
                    true => format!("{}, {}", report.peer, report.device),
                    false => report.peer.clone(),
                },
                reports: vec![report],
            }),
        }
    }
    columns
}

/// One entry of each row, in the order of the files.
fn rows(reports: &[Report]) -> Vec<&Entry> {
    let mut rows: Vec<&Entry> = Vec::new();
    for entry in reports.iter().flat_map(|report| &report.results) {
        if !rows.iter().any(|row| same_row(row, entry)) {
            rows.push(entry);
        }
    }
    rows
}

/// Three digits that count.
fn ms(time: f64) -> String {
    match time {
        ..10.0 => format!("{time:.3}"),
        ..100.0 => format!("{time:.2}"),
        _ => format!("{time:.1}"),
    }
}

/// Replaces what stands between a document's two marks.
pub fn insert(document: &Path, name: &str, table: &str) -> Result<()> {
    let path = document.display();
    let text =
        std::fs::read_to_string(document).map_err(|error| format!("reading {path}: {error}"))?;
    let begin = format!("<!-- bench:begin {name} -->");
    let end = format!("<!-- bench:end {name} -->");
    let missing = |mark: &str| format!("{path} has no line '{mark}'");
    let (before, rest) = text.split_once(&begin).ok_or_else(|| missing(&begin))?;
    let (_, after) = rest.split_once(&end).ok_or_else(|| missing(&end))?;
    let text = format!("{before}{begin}\n{table}{end}{after}");
    std::fs::write(document, text).map_err(|error| format!("writing {path}: {error}").into())
}

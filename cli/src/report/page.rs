//! A report for people: report.md. The findings come first, then the picture, then all numbers.

use super::data::{Data, State};
use super::options::Kind;
use crate::results::markdown::{code, digits, plain, tables};
use crate::results::summary::{Group, distinct, median, summary};
use crate::results::{Pytorch, Row, Tuned};
use crate::text::visible;
use std::collections::BTreeMap;

/// The picture's file name.
pub const PLOT: &str = "report.svg";

pub fn markdown(data: &Data) -> String {
    let results = &data.results;
    let mut page = Page(Vec::new());
    page.line(format!("# wgpu-norm on {}\n", plain(&results.adapter)));
    page.warnings(data);
    page.place(data);
    page.overview(data);
    if !results.rows.is_empty() {
        page.line(format!("![all results]({PLOT})\n"));
    }
    page.tables(&results.rows, data.pytorch.as_ref());
    if let Some(tuned) = &data.search {
        page.search(tuned);
    }
    if let Some(verdict) = &data.verify {
        page.line("## Results against the float64 reference\n");
        page.line(format!("{}.\n", plain(&verdict.words)));
        page.line(
            "The largest error is a fraction of the tolerance: 1 is the largest error allowed, and above 1 a result \
             is wrong. Rounding alone, of a right result to f16 or bf16, comes close to 1.\n",
        );
        page.line(format!("{}\n", visible(&verdict.table)));
    }
    page.parts(data);
    page.adapters(data);
    page.all_numbers(data);
    page.line(format!("{}\n", WHERE_TO_SEND.trim_end()));
    page.0.join("\n")
}

/// Asks for the file that has all numbers. The repository's address is empty until there is one.
pub const WHERE_TO_SEND: &str = concat!(
    "Please send report.json, also if all results are right, in an issue of wgpu-norm's repository ",
    env!("CARGO_PKG_REPOSITORY")
);

/// The lines.
struct Page(Vec<String>);

impl Page {
    fn line(&mut self, text: impl Into<String>) {
        self.0.push(text.into());
    }

    /// A table's head; a column whose name begins with `<` holds text.
    fn head(&mut self, columns: &[impl AsRef<str>]) {
        let columns = columns.iter().map(AsRef::as_ref);
        let names = columns
            .clone()
            .map(|name: &str| name.trim_start_matches('<'));
        let names: Vec<String> = names.map(plain).collect();
        self.line(format!("| {} |", names.join(" | ")));
        let rule = columns.map(|name| match name.starts_with('<') {
            true => "---|",
            false => "--:|",
        });
        self.line(format!("|{}", rule.collect::<String>()));
    }

    fn cells(&mut self, cells: &[String]) {
        let cells: Vec<String> = cells.iter().map(|cell| plain(cell)).collect();
        self.line(format!("| {} |", cells.join(" | ")));
    }

    /// Warnings that must not be overlooked.
    fn warnings(&mut self, data: &Data) {
        if let Some(verdict) = data.verify.as_ref().filter(|verdict| !verdict.passed) {
            self.line(format!(
                "**RESULTS ARE WRONG on this adapter: {}.** The times below are those of wrong results.\n",
                plain(&verdict.words)
            ));
        }
        self.line(format!("{}\n", plain(&data.extent().join(" "))));
        if data.results.is_software() {
            self.line(
                "**This adapter is a CPU**, not a GPU: the times are those of a software driver.\n",
            );
        }
        // The line above says it of these two.
        let others = data
            .parts
            .iter()
            .filter(|part| !matches!(part.kind, Kind::Verify | Kind::Bench));
        let missing = others.filter(|part| part.state != State::Done);
        let missing: Vec<String> = missing.map(|part| plain(&part.to_string())).collect();
        if !missing.is_empty() {
            self.line(format!(
                "Not everything was measured. {}.\n",
                missing.join("; ")
            ));
        }
    }

    fn place(&mut self, data: &Data) {
        let results = &data.results;
        let mut facts = vec![
            ("adapter", results.adapter.clone()),
            ("kind", results.kind.clone()),
            ("driver", format!("{}, {}", results.backend, results.driver)),
            (
                "measured",
                format!(
                    "{} by wgpu-norm {}; time by {}, medians",
                    results.date, results.version, results.timing
                ),
            ),
            (
                "copy bandwidth",
                match results.copy_gb_per_s {
                    Some(copy) => {
                        format!("{copy:.1} GB/s, half read and half written, of the largest case")
                    }
                    None => "not measured".to_owned(),
                },
            ),
            (
                "results against float64",
                match (&data.verify, data.part(Kind::Verify)) {
                    (Some(verdict), _) => verdict.words.clone(),
                    (None, Some(part)) => part.to_string(),
                    (None, None) => "not asked for".to_owned(),
                },
            ),
        ];
        let stamps = results.stamps.iter();
        facts.extend(stamps.map(|stamps| ("fixed costs", stamps.to_string())));
        let encoder = results.f16_encoder.iter();
        facts.extend(encoder.map(|encoder| ("f16 is rounded by", encoder.clone())));
        if let Some(pytorch) = &data.pytorch {
            let Pytorch {
                version,
                device,
                driver,
                ..
            } = pytorch;
            facts.push(("PyTorch", format!("{version} on {device}, {driver}")));
        }
        self.line("| | |\n|---|---|");
        for (what, value) in facts {
            self.cells(&[what.to_owned(), value]);
        }
        self.line("");
    }

    /// A line for each kind of case.
    fn overview(&mut self, data: &Data) {
        let (small, large): (Vec<Row>, Vec<Row>) =
            data.results.rows.iter().cloned().partition(Row::is_small);
        let pytorch = data.pytorch.as_ref();
        if !large.is_empty() {
            self.line("## Results\n");
            self.line(
                "Fraction of the copy bandwidth: the model's bytes, relative to what a copy kernel moves in the same \
                 time. At 5n, a gradient's plain model, src and diff_dst count twice; a kernel that reads them once \
                 can reach 1.67. At 3n, a forward pass's plain model, src counts twice; a kernel that reads it once \
                 can reach 1.5. The limit counts what has to be moved; its column has geometric means.\n",
            );
            let columns = ["<model", "cases", "median", "lowest", "<shape", "limit"];
            self.groups(&columns, &large, pytorch, |group| {
                let fractions = group.fractions.as_ref();
                let lowest = fractions.map(|f| f.lowest);
                vec![
                    format!("{}n", group.times),
                    group.rows.len().to_string(),
                    digits(fractions.map(|f| f.median), 2),
                    digits(lowest.map(|(fraction, _)| fraction), 2),
                    lowest.map_or(String::new(), |(_, row)| row.times_shape()),
                    digits(fractions.and_then(|f| f.of_limit), 2),
                ]
            });
        }
        if !small.is_empty() {
            self.line("Small shapes, by latency: from submission to completion, minus an empty submission.\n");
            let columns = [
                "cases",
                "median, µs",
                "longest, µs",
                "<shape",
                "empty submission, µs",
            ];
            self.groups(&columns, &small, pytorch, |group| {
                let over = |row: &&Row| Some((row.over_empty_ms? * 1e3, row.times_shape()));
                let times: Vec<(f64, String)> = group.rows.iter().filter_map(over).collect();
                let (longest, shape) = times
                    .iter()
                    .max_by(|(a, _), (b, _)| a.total_cmp(b))
                    .cloned()
                    .unzip();
                let overs: Vec<f64> = times.iter().map(|(over, _)| *over).collect();
                let empties = group.rows.iter().filter_map(|row| row.empty_submission_ms);
                let empties: Vec<f64> = empties.map(|ms| ms * 1e3).collect();
                let middle = |values: &[f64]| (!values.is_empty()).then(|| median(values));
                vec![
                    group.rows.len().to_string(),
                    digits(middle(&overs), 1),
                    digits(longest, 1),
                    shape.unwrap_or_default(),
                    digits(middle(&empties), 1),
                ]
            });
        }
    }

    /// A table of these columns with a line for each group of rows, compared with PyTorch if its times are known.
    fn groups(
        &mut self,
        columns: &[&str],
        rows: &[Row],
        pytorch: Option<&Pytorch>,
        cells: impl Fn(&Group<'_>) -> Vec<String>,
    ) {
        let mut names = [&["<operator", "<layout", "<type"], columns].concat();
        names.extend(pytorch.map(|_| "times as fast as PyTorch"));
        self.head(&names);
        for group in summary(rows) {
            let mut line = [group.op, group.format, group.dtype]
                .map(str::to_owned)
                .to_vec();
            line.extend(cells(&group));
            line.extend(pytorch.map(|pytorch| {
                let ratio = |row: &&Row| Some(pytorch.of(row)?.time_ms / row.time_ms);
                let ratios: Vec<f64> = group.rows.iter().filter_map(ratio).collect();
                match ratios.is_empty() {
                    true => "-".to_owned(),
                    false => format!("{:.2}", median(&ratios)),
                }
            }));
            self.cells(&line);
        }
        self.line("");
    }

    /// A table for each operator and layout: a line for each shape, columns for each type.
    fn tables(&mut self, rows: &[Row], pytorch: Option<&Pytorch>) {
        let mut blocks: BTreeMap<_, Vec<&Row>> = BTreeMap::new();
        for row in rows {
            let block = (row.is_small(), row.op.as_str(), row.format(), row.variant());
            blocks.entry(block).or_default().push(row);
        }
        for ((small, op, format, variant), rows) in blocks {
            let mut words = vec![if small { "small" } else { "" }, op, format, &variant];
            words.retain(|word| !matches!(*word, "" | "-"));
            self.line(format!("### {}\n", plain(&words.join(" "))));
            self.table(small, &rows, pytorch);
        }
    }

    fn table(&mut self, small: bool, rows: &[&Row], pytorch: Option<&Pytorch>) {
        let dtypes = distinct(rows.iter().map(|row| row.dtype.as_str()));
        let shapes = distinct(rows.iter().map(|row| row.shape.as_str()));
        let mut columns = vec!["<shape".to_owned()];
        for dtype in &dtypes {
            columns.push(format!("{dtype}, µs"));
            let second = if small { "over empty, µs" } else { "of copy" };
            columns.push(second.to_owned());
            if pytorch.is_some() {
                columns.extend(["PyTorch, µs", "times as fast"].map(str::to_owned));
            }
        }
        columns.push(format!("<kernels, {}", dtypes.first().unwrap_or(&"")));
        self.head(&columns);
        for shape in shapes {
            let mut cells = vec![shape.replace('x', "×")];
            for dtype in &dtypes {
                let mut of_shape = rows.iter().filter(|row| row.shape == *shape);
                let row = of_shape.find(|row| row.dtype == *dtype);
                cells.push(digits(row.map(|row| row.time_ms * 1e3), 1));
                cells.push(match small {
                    true => digits(row.and_then(|row| row.over_empty_ms).map(|ms| ms * 1e3), 1),
                    false => digits(row.and_then(|row| row.fraction()), 2),
                });
                if let Some(pytorch) = pytorch {
                    let pair = row.and_then(|row| Some((row, pytorch.of(row)?)));
                    cells.push(digits(pair.map(|(_, theirs)| theirs.time_ms * 1e3), 1));
                    cells.push(digits(
                        pair.map(|(row, theirs)| theirs.time_ms / row.time_ms),
                        2,
                    ));
                }
            }
            let kernels = rows.iter().find(|row| row.shape == *shape);
            cells.push(kernels.map_or(String::new(), |row| row.kernel.clone()));
            self.cells(&cells);
        }
        self.line("");
    }

    fn search(&mut self, tuned: &Tuned) {
        self.line("## The search for a tuning\n");
        let end = match tuned.complete {
            true => "until nothing more was found",
            false => "until time ended",
        };
        self.line(format!(
            "{} values tried, {end}. The result is {:.2} times as fast as the initial profile, by the geometric mean \
             of {} cases: {}.\n",
            tuned.tried,
            tuned.times_as_fast(),
            tuned.cases.len(),
            plain(&tuned.cases.join(", "))
        ));
        if tuned.changes.is_empty() {
            return;
        }
        self.line("Each change was measured in alternation with the best before it:\n");
        self.head(&[
            "<change",
            "times as fast",
            "in cases",
            "least",
            "<of these in",
            "all so far",
        ]);
        for change in &tuned.changes {
            let least = change.least();
            self.cells(&[
                format!("`{}={}` instead of {}", change.key, change.to, change.from),
                format!("{:.3}", change.times_as_fast),
                change.cases.len().to_string(),
                least.map_or(String::new(), |one| format!("{:.3}", one.times_as_fast)),
                least.map_or(String::new(), |one| one.case.clone()),
                format!("{:.3}", change.in_all),
            ]);
        }
        let text = "To use or measure the result, pass this to `--profile` or `WGPU_NORM_PROFILE`:";
        self.line(format!("\n{text}\n"));
        let changed = tuned.to.split(',').filter(|pair| {
            let key = pair.split('=').next().unwrap_or_default();
            tuned.changes.iter().any(|change| change.key == key)
        });
        let changed: Vec<&str> = changed.collect();
        self.line(format!("```\n{}\n```\n", code(&changed.join(","))));
    }

    fn parts(&mut self, data: &Data) {
        self.line("## How it was measured\n");
        self.line(format!(
            "`{}`, within {} minutes; `docs/measuring-a-gpu.md` explains the method.\n",
            code(&data.command),
            data.minutes
        ));
        for part in &data.parts {
            let text = plain(&part.to_string());
            self.line(format!("* {text}; {:.1} s", part.seconds));
        }
        if let Some(around) = &data.results.around {
            self.line(format!("* {}", plain(&around.to_string())));
        }
        for one in &data.results.skipped {
            self.line(format!(
                "* not run: {}: {}",
                plain(&one.case),
                plain(&one.reason)
            ));
        }
        for one in data.pytorch.iter().flat_map(|pytorch| &pytorch.skipped) {
            self.line(format!(
                "* not timed, PyTorch's {}: {}",
                plain(&one.case),
                plain(&one.reason)
            ));
        }
        self.line(format!("* profile `{}`\n", code(&data.results.profile)));
    }

    fn adapters(&mut self, data: &Data) {
        if data.adapters.is_empty() {
            return;
        }
        self.line("## The adapters of this machine\n");
        let mut columns = vec!["<".to_owned()];
        columns.extend(data.adapters.iter().map(|one| format!("<{}", one.name)));
        self.head(&columns);
        let facts: Vec<_> = data.adapters.iter().map(|one| one.facts()).collect();
        for index in 0..facts.first().map_or(0, |facts| facts.len()) {
            let of_index: Vec<_> = facts.iter().filter_map(|facts| facts.get(index)).collect();
            let name = of_index.first().map_or("", |(what, _)| what);
            let mut cells = vec![name.to_owned()];
            cells.extend(of_index.iter().map(|(_, value)| (*value).to_owned()));
            self.cells(&cells);
        }
        self.line("");
    }

    fn all_numbers(&mut self, data: &Data) {
        if data.results.rows.is_empty() {
            return;
        }
        self.line("<details><summary>Every case</summary>\n");
        self.line(tables(&data.results.rows));
        self.line("</details>\n");
    }
}

#[cfg(test)]
mod tests {
    use super::super::data::Part;
    use super::super::verify::Verdict;
    use super::*;
    use crate::results::{Change, Ratio, Results};
    use serde_json::Value;

    fn data() -> Data {
        let results = Results {
            adapter: "an <adapter>".to_owned(),
            backend: "vulkan".to_owned(),
            driver: "a | driver".to_owned(),
            kind: "DiscreteGpu".to_owned(),
            version: "0.1.0".to_owned(),
            date: "1970-01-01T00:00:00Z".to_owned(),
            timing: "GPU timestamps".to_owned(),
            profile: "workgroup=8".to_owned(),
            f16_encoder: None,
            stamps: None,
            copy_gb_per_s: None,
            around: None,
            rows: Vec::new(),
            skipped: Vec::new(),
        };
        let mut data = Data::new(results, 10.0, &[Kind::Verify, Kind::Bench]);
        for part in &mut data.parts {
            part.state = State::Done;
        }
        data
    }

    fn verdict(passed: bool) -> Verdict {
        Verdict {
            passed,
            words: "2 of 90 cases".to_owned(),
            table: "| a | table |".to_owned(),
            details: Value::Null,
        }
    }

    #[test]
    fn a_failed_verify_stands_at_the_top() {
        let mut data = data();
        data.verify = Some(verdict(true));
        let page = markdown(&data);
        assert!(!page.contains("WRONG"), "{page}");
        assert!(
            page.contains("| results against float64 | 2 of 90 cases |"),
            "{page}"
        );
        assert!(page.contains("| a | table |"), "{page}");
        data.verify = Some(verdict(false));
        let page = markdown(&data);
        let lines: Vec<&str> = page.lines().filter(|line| !line.is_empty()).collect();
        assert!(
            lines
                .get(1)
                .is_some_and(|line| line
                    .starts_with("**RESULTS ARE WRONG on this adapter: 2 of 90 cases.**")),
            "{page}"
        );
    }

    #[test]
    fn the_page_begins_with_its_extent_and_ends_with_where_to_send_it() {
        let mut data = data();
        data.verify = Some(verdict(true));
        data.note(Kind::Verify, "2 of 90 cases".to_owned());
        if let Some(part) = data.parts.last_mut() {
            part.state = State::OutOfTime;
        }
        data.note(Kind::Bench, "7 of 156 cases, none of f16".to_owned());
        let page = markdown(&data);
        let extent = "Verified: 2 of 90 cases. Measured: out of time, 7 of 156 cases, none of f16.";
        assert_eq!(page.lines().nth(2), Some(extent), "{page}");
        let last = page.lines().last().unwrap_or_default();
        assert!(last.starts_with("Please send report.json, "), "{page}");
        // The table's numbers are explained above it.
        let explained = page.find("1 is the largest error allowed");
        assert!(
            explained.is_some() && explained < page.find("| a | table |"),
            "{page}"
        );
        data.parts.clear();
        let extent = "Verified: not asked for. Measured: not asked for.";
        assert!(markdown(&data).contains(extent));
    }

    #[test]
    fn what_is_missing_is_said_and_a_gpu_is_no_cpu() {
        let mut data = data();
        let page = markdown(&data);
        assert!(
            !page.contains("is a CPU") && !page.contains("Not everything"),
            "{page}"
        );
        // A name cannot break the page.
        assert!(page.starts_with("# wgpu-norm on an  adapter \n"), "{page}");
        data.results.kind = "Cpu".to_owned();
        data.parts.push(Part {
            kind: Kind::Search,
            state: State::OutOfTime,
            note: String::new(),
            seconds: 0.0,
        });
        let page = markdown(&data);
        assert!(page.contains("**This adapter is a CPU**"), "{page}");
        let missing = "Not everything was measured. search: left out for want of time.";
        assert!(page.contains(missing), "{page}");
    }

    #[test]
    fn small_cases_are_apart_and_every_type_has_its_columns() {
        let mut data = data();
        for (set, dtype) in [("gpu", "f32"), ("gpu", "f16"), ("small", "f32")] {
            data.results.push(Row {
                set: set.to_owned(),
                dtype: dtype.to_owned(),
                ..Row::example(0.5)
            });
        }
        let page = markdown(&data);
        for text in [
            "| batch-norm | NCX | f16 | 5n | 1 | 0.10 | 0.10 | 4×8×16×16 | 0.17 |",
            "### batch-norm NCX\n\n| shape | f32, µs | of copy | f16, µs | of copy | kernels, f32 |",
            "| 4×8×16×16 | 500.0 | 0.10 | 500.0 | 0.10 | channels_first_fused |",
            "### small batch-norm NCX\n\n| shape | f32, µs | over empty, µs |",
        ] {
            assert!(page.contains(text), "no '{text}' in: {page}");
        }
    }

    #[test]
    fn the_search_says_what_each_change_gained() {
        let mut data = data();
        data.search = Some(Tuned {
            from: "a=1,b=2".to_owned(),
            to: "a=4,b=2".to_owned(),
            tried: 7,
            changes: vec![Change {
                key: "a".to_owned(),
                from: "1".to_owned(),
                to: "4".to_owned(),
                times_as_fast: 1.25,
                cases: vec![Ratio {
                    case: "a case".to_owned(),
                    times_as_fast: 1.25,
                }],
                in_all: 1.1,
            }],
            ..Tuned::default()
        });
        let page = markdown(&data);
        for text in [
            "7 values tried, until time ended. The result is 1.10 times as fast",
            "| `a=4` instead of 1 | 1.250 | 1 | 1.250 | a case | 1.100 |",
            "```\na=4\n```",
        ] {
            assert!(page.contains(text), "no '{text}' in: {page}");
        }
    }
}

//! A picture of results, one page high: a block for each operator, a panel for each layout, a line for each shape, a
//! mark for each element type.

use super::summary::{distinct, median};
use super::svg::{Mark, Picture};
use super::{Pytorch, Results, Row};
use std::collections::BTreeSet;

const WIDTH: f64 = 1000.0;
const LABELS: f64 = 140.0;
const GAP: f64 = 30.0;
const PANEL: f64 = (WIDTH - LABELS - 20.0) / 2.0 - GAP;
const LINE: f64 = 19.0;

const DARK: &str = "#222222";
const PALE: &str = "#666666";
const GOAL: &str = "#c53030";

/// Element types, in the order of their marks on a line.
const TYPES: [(&str, Mark, &str); 4] = [
    ("f32", Mark::Circle, "#2b6cb0"),
    ("f16", Mark::Square, "#d9822b"),
    ("bf16", Mark::Triangle, "#3f9142"),
    ("f64", Mark::Diamond, "#7b4fa6"),
];

/// The quantity that the marks show.
struct Scale {
    title: &'static str,
    value: fn(&Row) -> Option<f64>,
    /// The value for PyTorch's GPU time, if it is shown.
    peer: fn(&Row, f64) -> Option<f64>,
    digits: usize,
    /// Whether there are goals.
    has_goals: bool,
    legend: &'static str,
    /// The largest end of the scale; marks beyond it are drawn there.
    most: f64,
}

const BANDWIDTH: Scale = Scale {
    title: "Fraction of the copy bandwidth, counting every read: higher is better",
    value: Row::fraction,
    peer: Row::fraction_in,
    digits: 2,
    has_goals: true,
    legend: "red: as fast as a copy of all reads; the same with every tensor read once",
    most: 2.5,
};

/// For small shapes, about which bandwidth says nothing.
const LATENCY: Scale = Scale {
    title: "Small shapes: microseconds from submission to completion, minus an empty submission: lower is better",
    value: |row| row.over_empty_ms.map(|over| over.max(0.0) * 1e3),
    peer: |_, _| None,
    digits: 0,
    has_goals: false,
    legend: "",
    most: f64::INFINITY,
};

impl Scale {
    /// The goals for these rows.
    fn goals(&self, rows: &[&Row]) -> Vec<f64> {
        if !self.has_goals {
            return vec![];
        }
        let of_one_reading = rows.iter().filter_map(|row| row.fraction_of_one_reading());
        distinct([1.0].into_iter().chain(of_one_reading))
    }
}

/// The picture as SVG.
pub fn svg(results: &Results, pytorch: Option<&Pytorch>) -> String {
    let (small, large): (Vec<&Row>, Vec<&Row>) =
        results.rows.iter().partition(|row| row.is_small());
    let mut plot = Plot {
        picture: Picture::new(WIDTH),
        y: 26.0,
        pytorch,
    };
    plot.head(results);
    plot.part(&BANDWIDTH, &large);
    plot.part(&LATENCY, &small);
    plot.picture.finish(plot.y)
}

struct Plot<'a> {
    picture: Picture,
    /// The position of the next element.
    y: f64,
    pytorch: Option<&'a Pytorch>,
}

impl Plot<'_> {
    /// Names the adapter and explains the marks.
    fn head(&mut self, results: &Results) {
        let out = &mut self.picture;
        out.text((16.0, self.y), "start", "title", DARK, &results.place());
        let subtitle = format!(
            "wgpu-norm {}, {}; {}",
            results.version, results.date, results.timing
        );
        out.text((16.0, self.y + 19.0), "start", "", PALE, &subtitle);
        self.y += 42.0;
        let mut x = 22.0;
        let mut entry = |out: &mut Picture, mark, colour, full, text: &str| {
            out.mark(mark, (x, self.y - 4.0), colour, full);
            out.text((x + 9.0, self.y), "start", "", DARK, text);
            x += 34.0 + 7.0 * text.chars().count() as f64;
        };
        for (dtype, mark, colour) in TYPES {
            if results.rows.iter().any(|row| row.dtype == dtype) {
                entry(out, mark, colour, true, dtype);
            }
        }
        if let Some(pytorch) = self.pytorch {
            let text = format!("hollow: PyTorch {} on {}", pytorch.version, pytorch.device);
            entry(out, Mark::Circle, PALE, false, &text);
        }
        self.y += 14.0;
    }

    /// Draws the blocks of one scale.
    fn part(&mut self, scale: &Scale, rows: &[&Row]) {
        let peers = rows.iter().filter_map(|row| self.peer(scale, row));
        let values = rows
            .iter()
            .filter_map(|row| (scale.value)(row))
            .chain(peers);
        let goals = scale.goals(rows).into_iter().map(|goal| goal * 1.05);
        let largest = values
            .filter(|v| v.is_finite())
            .chain(goals)
            .fold(0.0, f64::max);
        let beyond = largest > scale.most;
        let largest = match largest > 0.0 {
            true => (largest * 1.03).min(scale.most),
            false => 1.0,
        };
        let blocks = distinct(rows.iter().map(|row| (row.op.as_str(), row.variant())));
        if !rows.is_empty() {
            self.y += 20.0;
            self.picture
                .text((16.0, self.y), "start", "head", DARK, scale.title);
            let mut legend = scale.legend.to_owned();
            if beyond {
                legend.push_str("; marks at the right edge lie beyond it");
            }
            self.y += 16.0;
            self.picture
                .text((16.0, self.y), "start", "note", GOAL, &legend);
            self.y += 6.0;
        }
        for (op, variant) in blocks {
            let of_block = |row: &&&Row| row.op == op && row.variant() == variant;
            let rows: Vec<&Row> = rows.iter().filter(of_block).copied().collect();
            let name = format!("{} {variant}", op.replace('-', " "));
            self.block(scale, largest, name.trim(), &rows);
        }
    }

    /// Draws an operator: panels side by side, whose lines are the same shapes.
    fn block(&mut self, scale: &Scale, largest: f64, name: &str, rows: &[&Row]) {
        // Large shapes first, in whatever order they were measured.
        let mut shapes = rows.to_vec();
        shapes.sort_by_key(|row| std::cmp::Reverse((elements(&row.shape), row.shape.clone())));
        shapes.dedup_by(|one, other| one.shape == other.shape);
        let formats: BTreeSet<&str> = rows.iter().map(|row| row.format()).collect();
        let top = self.y + 36.0;
        let bottom = top + LINE * shapes.len() as f64;
        for (index, row) in shapes.iter().enumerate() {
            let y = top + LINE * index as f64;
            if index % 2 == 0 {
                let width = (PANEL + GAP) * formats.len() as f64;
                self.picture.bar((LABELS, y), width, LINE, "#f5f5f5");
            }
            let label = (LABELS - 8.0, y + 14.0);
            self.picture
                .text(label, "end", "", DARK, &row.times_shape());
        }
        for (index, format) in formats.iter().enumerate() {
            let left = LABELS + GAP / 2.0 + (PANEL + GAP) * index as f64;
            let title = match *format {
                "-" => name.to_owned(),
                format => format!("{name}, {format}"),
            };
            let panel = Panel {
                left,
                top,
                bottom,
                largest,
            };
            let of_panel = rows.iter().filter(|row| row.format() == *format);
            let of_panel: Vec<&Row> = of_panel.copied().collect();
            self.panel(scale, &panel, &title, &shapes, &of_panel);
        }
        self.y = bottom + 26.0;
    }

    fn panel(&mut self, scale: &Scale, panel: &Panel, title: &str, shapes: &[&Row], rows: &[&Row]) {
        let out = &mut self.picture;
        out.text((panel.left, panel.top - 20.0), "start", "head", DARK, title);
        let label = (panel.left, panel.top - 6.0);
        out.text(label, "start", "note", PALE, "median (worst)");
        let mut x = panel.left + 90.0;
        for (dtype, _, colour) in TYPES {
            let of_type = rows.iter().filter(|row| row.dtype == dtype);
            let values: Vec<f64> = of_type.filter_map(|row| (scale.value)(row)).collect();
            if values.is_empty() {
                continue;
            }
            let digits = scale.digits;
            let lowest = values.iter().copied().fold(f64::INFINITY, f64::min);
            let highest = values.iter().copied().fold(0.0, f64::max);
            let worst = if scale.has_goals { lowest } else { highest };
            let text = format!("{dtype} {:.digits$} ({worst:.digits$})", median(&values));
            out.text((x, panel.top - 6.0), "start", "note", colour, &text);
            x += 16.0 + 6.0 * text.chars().count() as f64;
        }
        let step = step(panel.largest);
        let mut tick = 0.0;
        while tick <= panel.largest {
            out.line(panel.x(tick), panel.top, panel.bottom, "grid");
            let text = format!("{tick}");
            let place = (panel.x(tick), panel.bottom + 14.0);
            out.text(place, "middle", "note", PALE, &text);
            tick += step;
        }
        for goal in scale.goals(rows) {
            out.line(panel.x(goal), panel.top - 2.0, panel.bottom, "goal");
        }
        for (line, shape) in shapes.iter().enumerate() {
            let of_line = rows.iter().filter(|row| row.shape == shape.shape);
            let is_there = |dtype| of_line.clone().any(|row| row.dtype == dtype);
            let types = TYPES.iter().filter(|(dtype, ..)| is_there(*dtype));
            // Around the middle of the band.
            let middle = panel.top + LINE * (line as f64 + 0.5);
            let first = middle - 2.0 * (types.clone().count() as f64 - 1.0);
            for (kind, (dtype, mark, colour)) in types.enumerate() {
                let y = first + 4.0 * kind as f64;
                for row in of_line.clone().filter(|row| row.dtype == *dtype) {
                    if let Some(value) = self.peer(scale, row) {
                        let place = (panel.x(value), y);
                        self.picture.mark(*mark, place, colour, false);
                    }
                    if let Some(value) = (scale.value)(row) {
                        let place = (panel.x(value), y);
                        self.picture.mark(*mark, place, colour, true);
                    }
                }
            }
        }
    }

    fn peer(&self, scale: &Scale, row: &Row) -> Option<f64> {
        let time = self.pytorch?.of(row)?.time_ms;
        (scale.peer)(row, time)
    }
}

/// An area with a scale from 0 to `largest`.
struct Panel {
    left: f64,
    top: f64,
    bottom: f64,
    largest: f64,
}

impl Panel {
    fn x(&self, value: f64) -> f64 {
        self.left + PANEL * (value / self.largest).clamp(0.0, 1.0)
    }
}

/// A round distance between ticks, for about eight of them.
fn step(largest: f64) -> f64 {
    let power = 10_f64.powf((largest / 8.0).log10().floor());
    let steps = [1.0, 2.0, 2.5, 5.0, 10.0].map(|step| step * power);
    let fits = steps.into_iter().find(|step| largest / step <= 8.0);
    fits.unwrap_or(largest)
}

fn elements(shape: &str) -> u64 {
    let sizes = shape.split('x').filter_map(|size| size.parse::<u64>().ok());
    sizes.fold(1, u64::saturating_mul)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marks_lie_around_the_middle_of_their_band() {
        let heights = |dtypes: &[&str]| -> (f64, Vec<f64>) {
            let mut plot = Plot {
                picture: Picture::new(WIDTH),
                y: 0.0,
                pytorch: None,
            };
            let row = |dtype: &&str| Row {
                dtype: (*dtype).to_owned(),
                ..Row::example(0.5)
            };
            let rows: Vec<Row> = dtypes.iter().map(row).collect();
            plot.block(&BANDWIDTH, 1.0, "a name", &rows.iter().collect::<Vec<_>>());
            let picture = plot.picture.finish(plot.y);
            let numbers = |line: &str| -> Vec<f64> {
                let words = line.split(['"', ',', ' ']);
                words.filter_map(|word| word.parse().ok()).collect()
            };
            let band = picture.lines().find(|line| line.contains("#f5f5f5"));
            let band = numbers(band.unwrap_or_default())[1] + LINE / 2.0;
            // A circle's centre, and the middle of a square's upper and lower corners.
            let marks = picture.lines().filter_map(|line| {
                let numbers = numbers(line);
                if line.starts_with("<circle") {
                    return Some(numbers[1]);
                }
                let is_mark = line.starts_with("<polygon");
                is_mark.then(|| f64::midpoint(numbers[1], numbers[5]))
            });
            (band, marks.collect())
        };
        for dtypes in [&["f32"][..], &["f16"], &["f32", "f16"]] {
            let (band, marks) = heights(dtypes);
            assert_eq!(marks.len(), dtypes.len());
            let middle = marks.iter().sum::<f64>() / marks.len() as f64;
            assert!(
                (middle - band).abs() < 0.1,
                "{dtypes:?}: {marks:?} in {band}"
            );
        }
    }

    #[test]
    fn ticks_are_round_and_few() {
        for (largest, want) in [(1.8, 0.25), (1.0, 0.2), (3.0, 0.5), (900.0, 200.0)] {
            assert!(
                (step(largest) - want).abs() < 1e-9,
                "{largest}: {}",
                step(largest)
            );
        }
    }
}

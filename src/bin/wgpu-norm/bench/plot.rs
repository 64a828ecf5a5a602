//! A picture of a report: a bar a result, the copy bandwidth as the line to reach.

use super::report::{Report, Row};
use std::fmt::Write;

const LEFT: f64 = 300.0;
const WIDTH: f64 = 560.0;
const RIGHT: f64 = 170.0;
const TOP: f64 = 104.0;
const ROW: f64 = 20.0;

/// What the bars show.
struct Axis {
    title: &'static str,
    one: &'static str,
    value: fn(&Row) -> f64,
    label: fn(&Row) -> String,
    /// Whether the second model is marked too.
    marks: bool,
}

const BANDWIDTH: Axis = Axis {
    title: "fraction of the copy bandwidth",
    one: "copy bandwidth",
    value: |row| row.models.first().map_or(0.0, |model| model.fraction),
    label: |row| {
        let model = row.models.first();
        let (times, fraction) = model.map_or((0, 0.0), |m| (m.times, m.fraction));
        format!("{fraction:.2} at {times}n, {:.3} ms", row.time_ms)
    },
    marks: true,
};

/// For small shapes: bandwidth says nothing of them.
const LATENCY: Axis = Axis {
    title: "time over an empty submission, in empty submissions",
    one: "one empty submission",
    value: |row| row.over_empty_ms().max(0.0) / row.empty_submission_ms,
    label: |row| {
        let (over, empty) = (row.over_empty_ms() * 1e3, row.empty_submission_ms * 1e3);
        format!("{over:.1} µs over {empty:.1} µs")
    },
    marks: false,
};

/// The kinds of bars, and their colours.
fn kind(row: &Row) -> (&'static str, &'static str) {
    match (row.op.as_str(), row.data_format.as_deref()) {
        ("batch-norm", Some("NXC")) => ("batch norm, NXC", "#d9822b"),
        ("batch-norm", _) => ("batch norm, NCX", "#2b6cb0"),
        _ => ("layer norm", "#3f9142"),
    }
}

/// The picture as SVG.
pub fn svg(report: &Report) -> String {
    let axis = match report.set.as_str() {
        "small" => &LATENCY,
        _ => &BANDWIDTH,
    };
    let values = report.rows.iter().flat_map(|row| {
        let second = row.models.get(1).filter(|_| axis.marks);
        [
            (axis.value)(row),
            second.map_or(0.0, |model| model.fraction),
        ]
    });
    let largest = values.filter(|v| v.is_finite()).fold(1.1, f64::max);
    let step = [0.25, 0.5, 1.0, 2.0, 5.0, 10.0, 20.0, 50.0];
    let step = step.into_iter().find(|step| largest / step <= 8.0);
    let step = step.unwrap_or(largest / 8.0);
    let x = |value: f64| LEFT + WIDTH * (value / largest).clamp(0.0, 1.0);
    let bottom = TOP + ROW * report.rows.len() as f64;
    let (width, height) = (LEFT + WIDTH + RIGHT, bottom + 44.0);

    let mut out = Picture::new(width, height);
    out.text(16.0, 26.0, "start", "title", &report.place());
    let subtitle = format!(
        "wgpu-norm {}, set {}, {}; {}",
        report.version, report.set, report.date, report.timing
    );
    out.text(16.0, 46.0, "start", "", &subtitle);
    let mut from = 16.0;
    let mut entry = |out: &mut Picture, colour: &str, text: &str| {
        out.bar(from, 62.0, 12.0, 12.0, colour);
        out.text(from + 18.0, 72.0, "start", "", text);
        from += 40.0 + 7.0 * text.chars().count() as f64;
    };
    let mut kinds: Vec<(&str, &str)> = report.rows.iter().map(kind).collect();
    kinds.sort_unstable();
    kinds.dedup();
    for (text, colour) in kinds {
        entry(&mut out, colour, text);
    }
    if axis.marks && report.rows.iter().any(|row| row.models.len() > 1) {
        out.circle(from + 6.0, 68.0);
        let text = "the same time under the 3n model (second reads from cache)";
        out.text(from + 18.0, 72.0, "start", "", text);
    }

    let mut tick = 0.0;
    while tick <= largest {
        out.line(x(tick), TOP, bottom, "grid");
        let text = format!("{tick}");
        out.text(x(tick), bottom + 16.0, "middle", "", &text);
        tick += step;
    }
    out.text(LEFT + WIDTH / 2.0, bottom + 34.0, "middle", "", axis.title);

    for (index, row) in report.rows.iter().enumerate() {
        let y = TOP + ROW * index as f64;
        let name = [
            row.op.as_str(),
            &row.shape,
            &row.dtype,
            row.data_format.as_deref().unwrap_or_default(),
            &row.variant(),
        ];
        let words: Vec<&str> = name.into_iter().filter(|word| !word.is_empty()).collect();
        out.text(LEFT - 8.0, y + 14.0, "end", "", &words.join(" "));
        let value = (axis.value)(row);
        let (_, colour) = kind(row);
        out.bar(LEFT, y + 3.0, x(value) - LEFT, ROW - 6.0, colour);
        if axis.marks
            && let Some(second) = row.models.get(1)
        {
            out.circle(x(second.fraction), y + ROW / 2.0);
        }
        out.text(
            LEFT + WIDTH + 8.0,
            y + 14.0,
            "start",
            "",
            &(axis.label)(row),
        );
    }
    out.line(x(1.0), TOP - 6.0, bottom, "one");
    out.text(x(1.0), TOP - 10.0, "middle", "", axis.one);
    out.finish()
}

struct Picture(String);

impl Picture {
    fn new(width: f64, height: f64) -> Self {
        let mut out = Self(String::new());
        out.put(format_args!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width}\" height=\"{height}\" \
             viewBox=\"0 0 {width} {height}\" font-family=\"sans-serif\" font-size=\"12\">"
        ));
        out.put(format_args!(
            "<style>.title{{font-size:15px;font-weight:bold}}\
             .grid{{stroke:#dddddd}}.one{{stroke:#c53030;stroke-width:1.5;stroke-dasharray:5 3}}\
             text{{fill:#222222}}</style>"
        ));
        out.put(format_args!(
            "<rect width=\"{width}\" height=\"{height}\" fill=\"white\"/>"
        ));
        out
    }

    fn put(&mut self, element: std::fmt::Arguments<'_>) {
        // Writing to a string cannot fail.
        let _ = writeln!(self.0, "{element}");
    }

    fn text(&mut self, x: f64, y: f64, anchor: &str, class: &str, text: &str) {
        let text = escape(text);
        self.put(format_args!(
            "<text x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"{anchor}\" class=\"{class}\">{text}</text>"
        ));
    }

    fn bar(&mut self, x: f64, y: f64, width: f64, height: f64, colour: &str) {
        self.put(format_args!(
            "<rect x=\"{x:.1}\" y=\"{y:.1}\" width=\"{width:.1}\" height=\"{height:.1}\" fill=\"{colour}\"/>"
        ));
    }

    fn circle(&mut self, x: f64, y: f64) {
        self.put(format_args!(
            "<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"4\" fill=\"white\" stroke=\"#222222\"/>"
        ));
    }

    fn line(&mut self, x: f64, from: f64, to: f64, class: &str) {
        self.put(format_args!(
            "<line x1=\"{x:.1}\" y1=\"{from:.1}\" x2=\"{x:.1}\" y2=\"{to:.1}\" class=\"{class}\"/>"
        ));
    }

    fn finish(mut self) -> String {
        self.put(format_args!("</svg>"));
        self.0
    }
}

/// Text of a name that came from a driver or a file, as XML; control characters have no place in it.
fn escape(text: &str) -> String {
    let mut out = String::new();
    for character in text.chars() {
        match character {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            c if c.is_control() => out.push(' '),
            c => out.push(c),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_cannot_break_the_picture() {
        assert_eq!(escape("a<b>&\"c\"\u{1}"), "a&lt;b&gt;&amp;&quot;c&quot; ");
    }
}

//! An SVG picture under construction.

use crate::text::one_line;
use std::fmt::Write;

/// The elements so far.
pub struct Picture {
    elements: String,
    width: f64,
}

/// The marks on a scale.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Mark {
    Circle,
    Square,
    Triangle,
    Diamond,
}

impl Picture {
    pub fn new(width: f64) -> Self {
        Self {
            elements: String::new(),
            width,
        }
    }

    fn put(&mut self, element: std::fmt::Arguments<'_>) {
        // Writing to a string cannot fail.
        let _ = writeln!(self.elements, "{element}");
    }

    /// Text of a class (`title`, `note` or none) and a colour, beginning, centred or ending at x.
    pub fn text(
        &mut self,
        (x, y): (f64, f64),
        anchor: &str,
        class: &str,
        colour: &str,
        text: &str,
    ) {
        let text = escape(text);
        self.put(format_args!(
            "<text x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"{anchor}\" class=\"{class}\" \
             fill=\"{colour}\">{text}</text>"
        ));
    }

    pub fn bar(&mut self, (x, y): (f64, f64), width: f64, height: f64, colour: &str) {
        self.put(format_args!(
            "<rect x=\"{x:.1}\" y=\"{y:.1}\" width=\"{width:.1}\" height=\"{height:.1}\" fill=\"{colour}\"/>"
        ));
    }

    /// A vertical line.
    pub fn line(&mut self, x: f64, from: f64, to: f64, class: &str) {
        self.put(format_args!(
            "<line x1=\"{x:.1}\" y1=\"{from:.1}\" x2=\"{x:.1}\" y2=\"{to:.1}\" class=\"{class}\"/>"
        ));
    }

    /// A mark around a place, full or hollow.
    pub fn mark(&mut self, mark: Mark, (x, y): (f64, f64), colour: &str, full: bool) {
        let fill = if full { colour } else { "white" };
        let paint = format!("fill=\"{fill}\" stroke=\"{colour}\" stroke-width=\"1.2\"");
        let corners: &[(f64, f64)] = match mark {
            Mark::Circle => {
                return self.put(format_args!(
                    "<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"3.6\" {paint}/>"
                ));
            }
            Mark::Square => &[(-3.2, -3.2), (3.2, -3.2), (3.2, 3.2), (-3.2, 3.2)],
            Mark::Triangle => &[(0.0, -4.2), (4.0, 3.2), (-4.0, 3.2)],
            Mark::Diamond => &[(0.0, -4.5), (4.5, 0.0), (0.0, 4.5), (-4.5, 0.0)],
        };
        let points = corners
            .iter()
            .map(|(dx, dy)| format!("{:.1},{:.1}", x + dx, y + dy));
        let points = points.collect::<Vec<_>>().join(" ");
        self.put(format_args!("<polygon points=\"{points}\" {paint}/>"));
    }

    /// The picture, with this height.
    pub fn finish(self, height: f64) -> String {
        let Self { elements, width } = self;
        format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width}\" height=\"{height}\" \
             viewBox=\"0 0 {width} {height}\" font-family=\"sans-serif\" font-size=\"12\">\n\
             <style>.title{{font-size:15px;font-weight:bold}}.head{{font-weight:bold}}.note{{font-size:11px}}\
             .grid{{stroke:#dddddd}}.goal{{stroke:#c53030;stroke-width:1.2;stroke-dasharray:5 3}}</style>\n\
             <rect width=\"{width}\" height=\"{height}\" fill=\"white\"/>\n{elements}</svg>\n"
        )
    }
}

/// Text from a driver or a file as XML, where control characters are not allowed.
fn escape(text: &str) -> String {
    let mut out = String::new();
    for character in one_line(text).chars() {
        match character {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
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
        assert_eq!(
            escape("a<b>&\"c\"\u{1}"),
            "a&lt;b&gt;&amp;&quot;c&quot;\\u{1}"
        );
    }
}

//! Two curves over the steps as an SVG, one above the other.

use std::fmt::Write;

const WIDTH: f64 = 720.0;
const HEIGHT: f64 = 520.0;
const LEFT: f64 = 64.0;
const RIGHT: f64 = 640.0;

/// A curve with a vertical axis of its own.
struct Panel<'a> {
    title: &'a str,
    color: &'a str,
    /// The position in the picture.
    top: f64,
    bottom: f64,
    /// The end of the axis, which begins at 0 and has a line at each tick.
    max: f64,
    tick: f64,
    points: &'a [(usize, f32)],
    /// The radius of the dot at each point but the last.
    dot: f64,
    /// The label of the last point.
    last: String,
}

/// The picture, from the loss of each step and the test accuracy (of 100) at some of them.
pub fn svg(adapter: &str, losses: &[(usize, f32)], accuracies: &[(usize, f32)]) -> String {
    let last = |points: &[(usize, f32)]| points.last().copied().unwrap_or_default();
    let (steps, loss) = last(losses);
    let (_, accuracy) = last(accuracies);
    let largest = losses.iter().map(|point| f64::from(point.1));
    let largest = largest.fold(0.0, f64::max);
    let tick = tick(largest);
    let panels = [
        Panel {
            title: "loss of each batch (mean cross entropy)",
            color: "#1f5fa8",
            top: 96.0,
            bottom: 256.0,
            max: (largest / tick).ceil() * tick,
            tick,
            points: losses,
            dot: 0.0,
            last: format!("{loss:.3}"),
        },
        Panel {
            title: "test accuracy in %, with running statistics",
            color: "#b4501e",
            top: 312.0,
            bottom: 472.0,
            max: 100.0,
            tick: 20.0,
            points: accuracies,
            dot: 2.5,
            last: format!("{accuracy:.1} %"),
        },
    ];
    let mut svg = format!(
        r##"<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{HEIGHT}" viewBox="0 0 {WIDTH} {HEIGHT}" font-family="sans-serif" font-size="12" fill="#333">
<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>
<text x="{LEFT}" y="32" font-size="18" fill="#111">Learning scikit-learn's digits</text>
<text x="{LEFT}" y="52" fill="#666">batch norm and layer norm, forward and backward, on {}</text>
"##,
        escaped(adapter)
    );
    for panel in &panels {
        panel.draw(&mut svg, steps);
    }
    let middle = f64::midpoint(LEFT, RIGHT);
    text(&mut svg, (middle, HEIGHT - 12.0), "middle", "step");
    svg.push_str("</svg>\n");
    svg
}

impl Panel<'_> {
    fn draw(&self, svg: &mut String, steps: usize) {
        let x = |step: f64| LEFT + (RIGHT - LEFT) * step / steps.max(1) as f64;
        let y = |value: f64| self.bottom - (self.bottom - self.top) * value / self.max;

        text(svg, (LEFT, self.top - 14.0), "start", self.title);
        for value in multiples(self.tick, self.max) {
            line(svg, (LEFT, y(value)), (RIGHT, y(value)));
            // As many decimals as the ticks need.
            let decimals = if self.tick < 1.0 { 1 } else { 0 };
            let label = format!("{value:.decimals$}");
            text(svg, (LEFT - 8.0, y(value) + 4.0), "end", &label);
        }
        let tick = tick(steps as f64).max(1.0);
        for step in multiples(tick, steps as f64) {
            line(svg, (x(step), self.bottom), (x(step), self.bottom + 4.0));
            let label = format!("{step:.0}");
            text(svg, (x(step), self.bottom + 18.0), "middle", &label);
        }

        let place = |&(step, value): &(usize, f32)| (x(step as f64), y(f64::from(value)));
        let places: Vec<(f64, f64)> = self.points.iter().map(place).collect();
        let words = places.iter().map(|(x, y)| format!("{x:.1},{y:.1}"));
        let points = words.collect::<Vec<_>>().join(" ");
        let color = self.color;
        put(
            svg,
            format_args!(
                r#"<polyline points="{points}" fill="none" stroke="{color}" stroke-width="2" stroke-linejoin="round"/>"#
            ),
        );
        let mut dot = |(x, y): (f64, f64), radius: f64| {
            put(
                svg,
                format_args!(r#"<circle cx="{x:.1}" cy="{y:.1}" r="{radius}" fill="{color}"/>"#),
            );
        };
        if self.dot > 0.0 {
            places.iter().for_each(|&place| dot(place, self.dot));
        }
        if let Some(&(x, y)) = places.last() {
            dot((x, y), 3.5);
            text(svg, (x + 9.0, y + 4.0), "start", &self.last);
        }
    }
}

/// The distance of ticks: 1, 2 or 5 times a power of ten, for four to seven ticks up to `max`.
fn tick(max: f64) -> f64 {
    let least = (max / 7.5).max(0.1);
    let power = 10.0_f64.powf(least.log10().floor());
    let factors = [1.0, 2.0, 5.0];
    let factor = factors.into_iter().find(|factor| factor * power >= least);
    factor.unwrap_or(10.0) * power
}

fn multiples(tick: f64, max: f64) -> impl Iterator<Item = f64> {
    let count = (max / tick + 1e-9).floor() as u32;
    (0..=count).map(move |number| f64::from(number) * tick)
}

fn line(svg: &mut String, (x1, y1): (f64, f64), (x2, y2): (f64, f64)) {
    put(
        svg,
        format_args!(
            r##"<line x1="{x1:.1}" y1="{y1:.1}" x2="{x2:.1}" y2="{y2:.1}" stroke="#ddd"/>"##
        ),
    );
}

fn text(svg: &mut String, (x, y): (f64, f64), anchor: &str, words: &str) {
    put(
        svg,
        format_args!(r#"<text x="{x:.1}" y="{y:.1}" text-anchor="{anchor}">{words}</text>"#),
    );
}

fn put(svg: &mut String, element: std::fmt::Arguments<'_>) {
    // Writing to a string cannot fail.
    let _ = writeln!(svg, "{element}");
}

/// A driver may give its adapter any name.
fn escaped(words: &str) -> String {
    words.replace('&', "&amp;").replace('<', "&lt;")
}

//! Loss curves as a picture.

const WIDTH: f64 = 640.0;
const HEIGHT: f64 = 360.0;
const LEFT: f64 = 48.0;
const TOP: f64 = 48.0;
const COLORS: [&str; 2] = ["#c44e1b", "#1f5fa8"];

/// The curves, each with its name. The second is dashed, so that the first shows through.
pub fn svg(curves: &[(&str, &[f32])]) -> String {
    let largest = curves.iter().flat_map(|(_, losses)| losses.iter().copied());
    let largest = f64::from(largest.fold(0.1, f32::max));
    let mut picture = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" \
         font-family=\"sans-serif\" font-size=\"13\">\n\
         <rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n\
         <text x=\"{LEFT}\" y=\"24\">loss of each batch (mean cross entropy)</text>\n"
    );
    let bottom = HEIGHT - 32.0;
    let y = |loss: f64| bottom - loss / largest * (bottom - TOP);
    for part in 0..=4 {
        let loss = largest * f64::from(part) / 4.0;
        picture += &format!(
            "<path d=\"M{LEFT} {y:.1}H{WIDTH}\" stroke=\"#ddd\"/>\
             <text x=\"8\" y=\"{y:.1}\">{loss:.2}</text>\n",
            y = y(loss)
        );
    }
    for (place, (name, losses)) in curves.iter().enumerate() {
        let color = COLORS[place % COLORS.len()];
        let step = (WIDTH - LEFT - 8.0) / (losses.len().max(2) - 1) as f64;
        let points = losses.iter().enumerate().map(|(index, &loss)| {
            let x = LEFT + step * index as f64;
            format!("{x:.1},{:.1} ", y(f64::from(loss)))
        });
        let dashes = ["", " stroke-dasharray=\"5 5\""][place % 2];
        picture += &format!(
            "<polyline points=\"{}\" fill=\"none\" stroke=\"{color}\" stroke-width=\"2\"{dashes}/>\n\
             <text x=\"{:.0}\" y=\"24\" fill=\"{color}\">{name}</text>\n",
            points.collect::<String>(),
            360.0 + 130.0 * place as f64,
        );
    }
    picture + "</svg>\n"
}

//! Goodput over loss, as a table and a plot in `docs/`.

use std::fmt::Write;
use std::fs;
use std::path::Path;

/// Measurements of one operation.
#[derive(Debug)]
pub struct Curve {
    pub name: String,
    pub points: Vec<Point>,
}

#[derive(Clone, Copy, Debug)]
pub struct Point {
    pub loss: f64,
    /// Goodput in bytes per second.
    pub found: f64,
    pub ideal: f64,
}

/// Lines of `docs/LOSS.md` around the measurements.
const BEGIN: &str = "<!-- measured -->\n";
const END: &str = "<!-- end -->\n";

/// Writes the measurements into `docs/`.
pub fn write(curves: &[Curve]) {
    let docs = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs");
    fs::write(docs.join("loss.svg"), plot(curves)).unwrap();
    let page = docs.join("LOSS.md");
    let text = fs::read_to_string(&page).unwrap();
    let (before, rest) = text.split_once(BEGIN).unwrap();
    let (_, after) = rest.split_once(END).unwrap();
    fs::write(page, format!("{before}{BEGIN}{}{END}{after}", table(curves))).unwrap();
}

fn table(curves: &[Curve]) -> String {
    let mut text = String::from("| loss | ideal |");
    curves.iter().for_each(|curve| write!(text, " {} |", curve.name).unwrap());
    writeln!(text, "\n|--:|--:|{}", "--:|".repeat(curves.len())).unwrap();
    for (i, point) in curves[0].points.iter().enumerate() {
        write!(text, "| {} % | {:.1} MB/s |", point.loss * 100.0, point.ideal / 1e6).unwrap();
        for curve in curves {
            let Point { found, ideal, .. } = curve.points[i];
            write!(text, " {:.1} MB/s ({:.0} %) |", found / 1e6, found / ideal * 100.0).unwrap();
        }
        text.push('\n');
    }
    text
}

const WIDTH: f64 = 640.0;
const HEIGHT: f64 = 400.0;
/// Margins: left, right, top and bottom.
const MARGINS: [f64; 4] = [70.0, 20.0, 20.0, 50.0];
const COLORS: [&str; 5] = ["#c0392b", "#2471a3", "#229954", "#e67e22", "#8e44ad"];

/// Returns the position of a point, both on logarithmic scales: 0.005 % to 20 %, 1 MB/s to 2 GB/s.
fn place(loss: f64, bytes: f64) -> (f64, f64) {
    let part = |value: f64, low: f64, high: f64| (value / low).log10() / (high / low).log10();
    let [left, right, top, bottom] = MARGINS;
    let x = left + part(loss, 5e-5, 0.2) * (WIDTH - left - right);
    let y = HEIGHT - bottom - part(bytes, 1e6, 2e9) * (HEIGHT - top - bottom);
    (x, y)
}

fn plot(curves: &[Curve]) -> String {
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" \
         font-family=\"sans-serif\" font-size=\"12\">\n\
         <rect width=\"{WIDTH}\" height=\"{HEIGHT}\" fill=\"white\"/>\n"
    );
    grid(&mut svg);
    let ideal = curves[0].points.iter().map(|point| (point.loss, point.ideal));
    line(&mut svg, ideal, "stroke=\"#888\" stroke-dasharray=\"6 4\"", "ideal go-back-N", 0);
    for (n, (curve, color)) in curves.iter().zip(COLORS).enumerate() {
        let found = curve.points.iter().map(|point| (point.loss, point.found));
        line(&mut svg, found.clone(), &format!("stroke=\"{color}\""), &curve.name, n + 1);
        for (x, y) in found.map(|(loss, bytes)| place(loss, bytes)) {
            writeln!(svg, "<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"3\" fill=\"{color}\"/>")
                .unwrap();
        }
    }
    svg + "</svg>\n"
}

fn grid(svg: &mut String) {
    let ((left, bottom), (right, top)) = (place(5e-5, 1e6), place(0.2, 2e9));
    for (bytes, name) in [(1e6, "1 MB/s"), (1e7, "10 MB/s"), (1e8, "100 MB/s"), (1e9, "1 GB/s")] {
        let y = place(0.1, bytes).1;
        writeln!(svg, "<path d=\"M{left} {y:.1}H{right}\" stroke=\"#ddd\"/>").unwrap();
        let x = left - 6.0;
        writeln!(svg, "<text x=\"{x}\" y=\"{:.1}\" text-anchor=\"end\">{name}</text>", y + 4.0)
            .unwrap();
    }
    for (loss, name) in [(1e-4, "0.01 %"), (1e-3, "0.1 %"), (1e-2, "1 %"), (1e-1, "10 %")] {
        let x = place(loss, 1e6).0;
        writeln!(svg, "<path d=\"M{x:.1} {top}V{bottom}\" stroke=\"#ddd\"/>").unwrap();
        let y = bottom + 18.0;
        writeln!(svg, "<text x=\"{x:.1}\" y=\"{y}\" text-anchor=\"middle\">{name}</text>").unwrap();
    }
    let (x, y) = ((left + right) / 2.0, HEIGHT - 12.0);
    writeln!(svg, "<text x=\"{x}\" y=\"{y}\" text-anchor=\"middle\">packets lost</text>").unwrap();
}

/// Draws a curve, and its name in the legend at the lower left.
fn line(
    svg: &mut String,
    points: impl Iterator<Item = (f64, f64)>,
    style: &str,
    name: &str,
    row: usize,
) {
    let points: Vec<_> = points
        .map(|(loss, bytes)| place(loss, bytes))
        .map(|(x, y)| format!("{x:.1},{y:.1}"))
        .collect();
    let points = points.join(" ");
    writeln!(svg, "<polyline points=\"{points}\" fill=\"none\" stroke-width=\"2\" {style}/>")
        .unwrap();
    let (x, y) = place(7e-5, 1e6);
    let y = y - 70.0 + 18.0 * row as f64;
    writeln!(svg, "<path d=\"M{x:.1} {y:.1}h30\" stroke-width=\"2\" {style}/>").unwrap();
    writeln!(svg, "<text x=\"{:.1}\" y=\"{:.1}\">{name}</text>", x + 38.0, y + 4.0).unwrap();
}

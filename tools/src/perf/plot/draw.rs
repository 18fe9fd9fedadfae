//! A figure as SVG.

use std::fmt::Write;

use super::figure::{Axis, Curve, Figure, Role};

/// Width and height of the figure. All lengths are in its units, which are pixels at its natural size.
const SIZE: (u32, u32) = (1000, 600);

/// Edges of the area between the axes.
const LEFT: f64 = 82.0;
const RIGHT: f64 = 960.0;
const TOP: f64 = 112.0;
const BOTTOM: f64 = 530.0;

/// Horizontal position of titles.
const TITLES_LEFT: f64 = 24.0;

// A light card with its own text color, readable on a page of any color.
const PAPER: &str = "#fcfcfa";
const INK: &str = "#1f2937";
const PENCIL: &str = "#6b7280";
const GRID: &str = "#e5e7eb";
// Two colors that remain distinct with color vision deficiency.
const BLUE: &str = "#0072b2";
const ORANGE: &str = "#d55e00";

/// A number of points above which they are not marked: those of a distribution are too dense.
const MAX_DOTS: usize = 32;

/// Returns the figure as SVG.
pub(super) fn svg(figure: &Figure) -> String {
    let mut svg = String::new();
    // Writing to a string does not fail.
    let _ = draw(figure, &mut svg);
    svg
}

fn draw(figure: &Figure, svg: &mut String) -> std::fmt::Result {
    let (width, height) = SIZE;
    writeln!(
        svg,
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width}\" height=\"{height}\" \
         viewBox=\"0 0 {width} {height}\" font-family=\"sans-serif\" font-size=\"16\">"
    )?;
    writeln!(svg, "<rect width=\"{width}\" height=\"{height}\" fill=\"{PAPER}\"/>")?;
    let Figure { title, subtitle, x, y, curves } = figure;
    text(svg, title, (TITLES_LEFT, 34.0), &format!("fill=\"{INK}\" font-size=\"26\""))?;
    let pencil = format!("fill=\"{PENCIL}\"");
    text(svg, subtitle, (TITLES_LEFT, 62.0), &pencil)?;
    text(svg, y.label, (TITLES_LEFT, 98.0), &pencil)?;
    legend(svg, curves)?;
    grid(svg, x, y)?;
    let middle = f64::midpoint(LEFT, RIGHT);
    text(svg, x.label, (middle, 580.0), &format!("{pencil} text-anchor=\"middle\""))?;
    for curve in curves {
        let at = |&(across, up): &(f64, f64)| (from_left(x, across), from_top(y, up));
        polyline(svg, curve.role, curve.points.iter().map(at))?;
        if has_dots(curve) {
            curve.points.iter().map(at).try_for_each(|at| dot(svg, curve.role, at))?;
        }
    }
    svg.write_str("</svg>\n")
}

/// Draws the axes, with a line and a label for each tick.
fn grid(svg: &mut String, x: &Axis, y: &Axis) -> std::fmt::Result {
    let ink = format!("fill=\"{INK}\"");
    for tick in &y.ticks {
        let at = from_top(y, tick.at);
        writeln!(svg, "<path d=\"M{LEFT} {at:.1}H{RIGHT}\" stroke=\"{GRID}\"/>")?;
        text(svg, &tick.label, (LEFT - 10.0, at + 5.0), &format!("{ink} text-anchor=\"end\""))?;
    }
    for tick in &x.ticks {
        let at = from_left(x, tick.at);
        writeln!(svg, "<path d=\"M{at:.1} {TOP}V{BOTTOM}\" stroke=\"{GRID}\"/>")?;
        let below = (at, BOTTOM + 24.0);
        text(svg, &tick.label, below, &format!("{ink} text-anchor=\"middle\""))?;
    }
    let axes = format!("M{LEFT} {TOP}V{BOTTOM}H{RIGHT}");
    writeln!(svg, "<path d=\"{axes}\" fill=\"none\" stroke=\"{PENCIL}\"/>")
}

/// Draws the names of the curves, in a line right of the unit.
fn legend(svg: &mut String, curves: &[Curve]) -> std::fmt::Result {
    let mut left = 230.0;
    for curve in curves {
        polyline(svg, curve.role, [(left, 92.0), (left + 34.0, 92.0)].into_iter())?;
        if has_dots(curve) {
            dot(svg, curve.role, (left + 17.0, 92.0))?;
        }
        text(svg, curve.name, (left + 44.0, 98.0), &format!("fill=\"{INK}\""))?;
        // A letter of this size is about nine units wide.
        left += 44.0 + 9.0 * curve.name.len() as f64 + 30.0;
    }
    Ok(())
}

/// Returns whether points are marked.
fn has_dots(curve: &Curve) -> bool {
    curve.role != Role::Ceiling && curve.points.len() <= MAX_DOTS
}

/// Draws a line through points, in the style of its role.
fn polyline(
    svg: &mut String,
    role: Role,
    points: impl Iterator<Item = (f64, f64)>,
) -> std::fmt::Result {
    svg.write_str("<polyline points=\"")?;
    for (index, (x, y)) in points.enumerate() {
        let space = if index == 0 { "" } else { " " };
        write!(svg, "{space}{x:.1},{y:.1}")?;
    }
    let style = match role {
        Role::Result => "stroke-width=\"3\"",
        Role::Side => "stroke-width=\"2\"",
        Role::Ceiling => "stroke-width=\"2\" stroke-dasharray=\"8 5\"",
    };
    writeln!(svg, "\" fill=\"none\" stroke=\"{}\" {style}/>", color(role))
}

fn dot(svg: &mut String, role: Role, (x, y): (f64, f64)) -> std::fmt::Result {
    writeln!(svg, "<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"4\" fill=\"{}\"/>", color(role))
}

/// Writes a line of text at a position, with these attributes.
fn text(svg: &mut String, text: &str, (x, y): (f64, f64), attributes: &str) -> std::fmt::Result {
    let text = text.replace('&', "&amp;").replace('<', "&lt;");
    writeln!(svg, "<text x=\"{x:.1}\" y=\"{y:.1}\" {attributes}>{text}</text>")
}

/// Returns the horizontal position of a value.
fn from_left(axis: &Axis, value: f64) -> f64 {
    LEFT + share(axis, value) * (RIGHT - LEFT)
}

/// Returns the vertical position of a value.
fn from_top(axis: &Axis, value: f64) -> f64 {
    BOTTOM - share(axis, value) * (BOTTOM - TOP)
}

/// Returns the position of a value on an axis, from 0 to 1.
fn share(axis: &Axis, value: f64) -> f64 {
    let length = axis.to - axis.from;
    if length > 0.0 { ((value - axis.from) / length).clamp(0.0, 1.0) } else { 0.5 }
}

const fn color(role: Role) -> &'static str {
    match role {
        Role::Result => BLUE,
        Role::Side => ORANGE,
        Role::Ceiling => PENCIL,
    }
}

#[cfg(test)]
mod tests {
    use roxmltree::Document;

    use super::super::figure::Tick;
    use super::*;

    fn figure() -> Figure {
        let tick = |at, label: &str| Tick { at, label: label.into() };
        let axis = |label, to, ticks| Axis { label, from: 0.0, to, ticks };
        let curve = |name, role, points: &[_]| Curve { name, role, points: points.to_vec() };
        Figure {
            title: "less < more & most".into(),
            subtitle: "of a test".into(),
            x: axis("bytes", 4.0, vec![tick(0.0, "1"), tick(4.0, "16")]),
            y: axis("Gbit/s", 10.0, vec![tick(5.0, "5")]),
            curves: vec![
                curve("limit", Role::Ceiling, &[(0.0, 10.0), (4.0, 10.0)]),
                curve("result", Role::Result, &[(0.0, 0.0), (2.0, 5.0), (4.0, f64::INFINITY)]),
            ],
        }
    }

    #[test]
    fn points_are_between_the_axes() {
        let svg = svg(&figure());
        let document = Document::parse(&svg).unwrap();
        let lines = document.descendants().filter(|node| node.has_tag_name("polyline"));
        let lines: Vec<_> = lines.map(|line| line.attribute("points").unwrap()).collect();
        let expected = ["82.0,112.0 960.0,112.0", "82.0,530.0 521.0,321.0 960.0,112.0"];
        // The legend has the first two.
        assert_eq!(lines[2..], expected);
        let dots = document.descendants().filter(|node| node.has_tag_name("circle")).count();
        assert_eq!(dots, 1 + 3, "{svg}");
    }

    #[test]
    fn texts_are_escaped_and_ticks_labeled() {
        let svg = svg(&figure());
        let document = Document::parse(&svg).unwrap();
        let texts: Vec<_> = document.descendants().filter_map(|node| node.text()).collect();
        for text in ["less < more & most", "of a test", "Gbit/s", "bytes", "1", "16", "5", "limit"]
        {
            assert!(texts.contains(&text), "{text} of {texts:?}");
        }
    }
}

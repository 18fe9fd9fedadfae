//! A figure as SVG.

use std::ops::Range;

use anyhow::anyhow;
use plotters::coord::Shift;
use plotters::coord::ranged1d::{KeyPointHint, NoDefaultFormatting, ValueFormatter};
use plotters::coord::types::RangedCoordf64;
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

use super::figure::{Axis, Curve, Figure, Role};

const SIZE: (u32, u32) = (1000, 600);

// A light card with its own text color, readable on a page of any color.
const PAPER: RGBColor = RGBColor(252, 252, 250);
const INK: RGBColor = RGBColor(31, 41, 55);
const PENCIL: RGBColor = RGBColor(107, 114, 128);
const GRID: RGBColor = RGBColor(229, 231, 235);
// Two colors that remain distinct with color vision deficiency.
const BLUE: RGBColor = RGBColor(0, 114, 178);
const ORANGE: RGBColor = RGBColor(213, 94, 0);

const FONT: &str = "sans-serif";
const LEFT: i32 = 24;

type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;

/// Returns the figure as SVG.
pub(super) fn svg(figure: &Figure) -> anyhow::Result<String> {
    let mut svg = String::new();
    draw(figure, &mut svg).map_err(|e| anyhow!("drawing the plot: {e}"))?;
    Ok(svg)
}

type Drawn = Result<(), DrawingAreaErrorKind<std::io::Error>>;

fn draw(figure: &Figure, svg: &mut String) -> Drawn {
    let area = SVGBackend::with_string(svg, SIZE).into_drawing_area();
    area.fill(&PAPER)?;
    write(&area, &figure.title, (LEFT, 34), 26, INK)?;
    write(&area, &figure.subtitle, (LEFT, 62), 16, PENCIL)?;
    legend(&area, &figure.curves)?;
    let (x, y) = (&figure.x, &figure.y);
    let mut chart = ChartBuilder::on(&area)
        .margin_top(112)
        .margin_right(40)
        .margin_bottom(14)
        .margin_left(10)
        .x_label_area_size(56)
        .y_label_area_size(72)
        .build_cartesian_2d(Scale(x.clone()), Scale(y.clone()))?;
    chart
        .configure_mesh()
        .light_line_style(TRANSPARENT)
        .bold_line_style(GRID)
        .axis_style(PENCIL)
        .label_style((FONT, 16).into_font().color(&INK))
        .axis_desc_style((FONT, 16).into_font().color(&PENCIL))
        .x_desc(x.label)
        .draw()?;
    write(&area, y.label, (LEFT, 100), 16, PENCIL)?;
    for curve in &figure.curves {
        let Curve { role, points, .. } = curve;
        let style = style(*role);
        match role {
            Role::Ceiling => {
                let dashes = DashedLineSeries::new(points.iter().copied(), 8, 5, style);
                chart.draw_series(dashes)?;
            }
            Role::Result | Role::Side => {
                chart.draw_series(LineSeries::new(points.iter().copied(), style))?;
            }
        }
        if has_dots(curve) {
            let dots = points.iter().map(|at| Circle::new(*at, 4, color(*role).filled()));
            chart.draw_series(dots)?;
        }
    }
    area.present()
}

/// Draws the names of the curves, in a line right of the unit.
fn legend(area: &Area<'_>, curves: &[Curve]) -> Drawn {
    let mut x = 230;
    for curve in curves {
        let Curve { name, role, .. } = curve;
        let line = [(x, 92), (x + 34, 92)];
        match role {
            Role::Ceiling => {
                let dashes =
                    [(x, 92), (x + 8, 92), (x + 13, 92), (x + 21, 92), (x + 26, 92), line[1]];
                for dash in dashes.chunks(2) {
                    area.draw(&PathElement::new(dash.to_vec(), style(*role)))?;
                }
            }
            Role::Result | Role::Side => {
                area.draw(&PathElement::new(line.to_vec(), style(*role)))?;
            }
        }
        if has_dots(curve) {
            area.draw(&Circle::new((x + 17, 92), 4, color(*role).filled()))?;
        }
        write(area, name, (x + 44, 98), 16, INK)?;
        // A letter of this size is about nine pixels wide.
        x += 44 + 9 * i32::try_from(name.len()).unwrap_or(0) + 30;
    }
    Ok(())
}

/// Returns whether points are marked; those of a distribution are too dense.
fn has_dots(curve: &Curve) -> bool {
    curve.role != Role::Ceiling && curve.points.len() <= 32
}

/// Writes a line of text at a position.
fn write(area: &Area<'_>, text: &str, at: (i32, i32), size: i32, color: RGBColor) -> Drawn {
    let style = (FONT, size).into_font().color(&color).pos(Pos::new(HPos::Left, VPos::Bottom));
    area.draw(&Text::new(text.to_owned(), at, style))
}

/// An axis for plotters.
struct Scale(Axis);

impl Ranged for Scale {
    type FormatOption = NoDefaultFormatting;
    type ValueType = f64;

    fn map(&self, value: &f64, limit: (i32, i32)) -> i32 {
        RangedCoordf64::from(self.range()).map(value, limit)
    }

    fn key_points<Hint: KeyPointHint>(&self, hint: Hint) -> Vec<f64> {
        match hint.weight().allow_light_points() {
            true => Vec::new(),
            false => self.0.ticks.iter().map(|tick| tick.at).collect(),
        }
    }

    fn range(&self) -> Range<f64> {
        self.0.from..self.0.to
    }
}

impl ValueFormatter<f64> for Scale {
    fn format(value: &f64) -> String {
        value.to_string()
    }

    fn format_ext(&self, value: &f64) -> String {
        let tick = self.0.ticks.iter().find(|tick| tick.at == *value);
        tick.map_or_else(|| Self::format(value), |tick| tick.label.clone())
    }
}

const fn color(role: Role) -> RGBColor {
    match role {
        Role::Result => BLUE,
        Role::Side => ORANGE,
        Role::Ceiling => PENCIL,
    }
}

fn style(role: Role) -> ShapeStyle {
    let width = match role {
        Role::Result => 3,
        Role::Side | Role::Ceiling => 2,
    };
    color(role).stroke_width(width)
}

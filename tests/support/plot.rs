//! Lines over a logarithmic axis, as SVG that follows the reader's choice of a light or a dark page.

use std::fmt::Write;

use serde::{Deserialize, Serialize};

/// Titles and scale of a plot.
#[derive(Debug, Deserialize, Serialize)]
pub(crate) struct Plot {
    pub(crate) title: String,
    /// Conditions that all points share.
    pub(crate) subtitle: String,
    /// Label of the horizontal axis, which is logarithmic.
    pub(crate) x: String,
    /// Label of the vertical axis.
    pub(crate) y: String,
    pub(crate) scale: Scale,
    /// Unit of a point's value.
    pub(crate) unit: String,
    /// Name of the line that the others are compared with.
    pub(crate) reference: Option<String>,
}

/// Scale of the vertical axis.
#[derive(Clone, Copy, Debug, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Scale {
    /// From zero.
    Linear,
    Logarithmic,
}

/// Place on the horizontal axis, and its label.
#[derive(Debug)]
pub(crate) struct Place<'a> {
    pub(crate) at: f64,
    pub(crate) label: &'a str,
}

/// Line of a plot: a value at each place.
#[derive(Debug)]
pub(crate) struct Line<'a> {
    pub(crate) name: &'a str,
    pub(crate) values: Vec<f64>,
}

const WIDTH: f64 = 760.0;
/// Height of the axes, in pixels.
const AXIS_HEIGHT: f64 = 288.0;
/// Margins of the axes in pixels; the upper one includes the first row of the legend.
const LEFT: f64 = 76.0;
const RIGHT: f64 = 24.0;
const TOP: f64 = 96.0;
const BOTTOM: f64 = 56.0;
const LEGEND_Y: f64 = 74.0;
const LEGEND_ROW_HEIGHT: f64 = 20.0;
/// Largest number of labels on an axis.
const MAX_LABELS_X: usize = 12;
const MAX_LABELS_Y: usize = 9;

/// Colors of lines on a light and on a dark page: distinct with color vision deficiency.
const COLORS: [[&str; 2]; 6] = [
    ["#0072b2", "#4aa8e8"],
    ["#d55e00", "#ff9d57"],
    ["#00825a", "#3fcf9f"],
    ["#9b4f96", "#d89ad3"],
    ["#8a6d00", "#e3c04a"],
    ["#b3202c", "#ff7b86"],
];
/// Color of the reference, which is dashed.
const REFERENCE: [&str; 2] = ["#6b7280", "#9198a1"];
const DASHES: &str = " stroke-dasharray=\"7 5\"";
/// Colors of a light and of a dark page.
const PAPER: [&str; 2] = ["#ffffff", "#0d1117"];
const INK: [&str; 2] = ["#1f2937", "#e6edf3"];
const PENCIL: [&str; 2] = ["#6b7280", "#9198a1"];
const GRID: [&str; 2] = ["#e5e7eb", "#2b323b"];

impl Plot {
    /// Draws the lines over places in ascending order.
    pub(crate) fn draw(&self, places: &[Place<'_>], lines: &[Line<'_>]) -> String {
        let (Some(first), Some(last)) = (places.first(), places.last()) else {
            panic!("{}: no points", self.title)
        };
        let values = lines.iter().flat_map(|line| line.values.iter().copied());
        let axis = match self.scale {
            Scale::Linear => Axis::from_zero(values),
            Scale::Logarithmic => Axis::decades(values),
        };
        let legend = self.legend(lines);
        let top = legend.last().map_or(TOP, |entry| TOP + entry.y - LEGEND_Y);
        let picture = Picture { x: [first.at, last.at], y: axis, top };
        let mut svg = picture.frame(self, places);
        for (line, entry) in lines.iter().zip(&legend) {
            let LegendEntry { class, dashes, x, y } = entry;
            let points: Vec<_> = places
                .iter()
                .zip(&line.values)
                .map(|(place, value)| (picture.x(place.at), picture.y(*value), value))
                .collect();
            let path: Vec<_> = points.iter().map(|(x, y, _)| format!("{x:.1},{y:.1}")).collect();
            let path = path.join(" ");
            writeln!(svg, "<polyline class=\"line {class}\" points=\"{path}\"{dashes}/>").unwrap();
            let (name, unit) = (escaped(line.name), escaped(&self.unit));
            for (x, y, value) in points {
                writeln!(
                    svg,
                    "<circle class=\"dot {class}\" cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"3\">\
                     <title>{name}: {value} {unit}</title></circle>"
                )
                .unwrap();
            }
            writeln!(svg, "<path class=\"line {class}\" d=\"M{x:.1} {y}h28\"{dashes}/>").unwrap();
            writeln!(svg, "<text x=\"{:.1}\" y=\"{}\">{name}</text>", x + 36.0, y + 4.5).unwrap();
        }
        svg + "</svg>\n"
    }

    /// Lays the names of the lines out in rows.
    fn legend(&self, lines: &[Line<'_>]) -> Vec<LegendEntry> {
        let (mut x, mut y, mut color) = (LEFT, LEGEND_Y, 0);
        let mut entries = Vec::new();
        for line in lines {
            let is_reference = self.reference.as_deref() == Some(line.name);
            let class = if is_reference { "reference".to_owned() } else { format!("c{color}") };
            color += usize::from(!is_reference);
            let letters = line.name.chars().fold(0.0, |sum, _| sum + 7.2);
            let width = 36.0 + letters;
            if x > LEFT && x + width > WIDTH - RIGHT {
                (x, y) = (LEFT, y + LEGEND_ROW_HEIGHT);
            }
            let dashes = if is_reference { DASHES } else { "" };
            entries.push(LegendEntry { class, dashes, x, y });
            x += width + 26.0;
        }
        assert!(color <= COLORS.len(), "{}: more lines than colors", self.title);
        entries
    }
}

/// Place and style of a line in the legend.
struct LegendEntry {
    class: String,
    dashes: &'static str,
    x: f64,
    y: f64,
}

/// Vertical axis.
struct Axis {
    low: f64,
    high: f64,
    scale: Scale,
    ticks: Vec<f64>,
}

impl Axis {
    /// Returns a logarithmic axis around the values, with 1, 2 and 5 of each power of ten.
    fn decades(values: impl Iterator<Item = f64> + Clone) -> Self {
        let (least, most) = (values.clone().fold(f64::MAX, f64::min), values.fold(0.0, f64::max));
        assert!(least > 0.0, "a logarithmic axis has no place for {least}");
        let marks: Vec<_> = (-6..10)
            .flat_map(|power| [1.0, 2.0, 5.0].map(|digit| (digit, digit * 10_f64.powi(power))))
            .collect();
        let low = marks.iter().rfind(|(_, mark)| *mark <= least).map_or(1e-6, |(_, mark)| *mark);
        let high = marks.iter().find(|(_, mark)| *mark >= most).map_or(1e10, |(_, mark)| *mark);
        let mut ticks: Vec<_> =
            marks.into_iter().filter(|(_, mark)| (low..=high).contains(mark)).collect();
        if ticks.len() > MAX_LABELS_Y {
            ticks.retain(|(digit, _)| *digit < 2.0);
        }
        let ticks = ticks.into_iter().map(|(_, mark)| mark).collect();
        Self { low, high, scale: Scale::Logarithmic, ticks }
    }

    /// Returns a linear axis from zero to a round number that no value exceeds.
    fn from_zero(values: impl Iterator<Item = f64>) -> Self {
        let most = values.fold(0.0, f64::max);
        assert!(most > 0.0, "all values are zero");
        let decade = 10_f64.powf((most / 8.0).log10().floor());
        let step = [1.0, 2.0, 2.5, 5.0, 10.0]
            .map(|step| step * decade)
            .into_iter()
            .find(|step| most <= 8.0 * step)
            .unwrap_or(most);
        let mut ticks = vec![0.0];
        while ticks[ticks.len() - 1] < most {
            ticks.push(step * ticks.iter().fold(0.0, |count, _| count + 1.0));
        }
        Self { low: 0.0, high: ticks[ticks.len() - 1], scale: Scale::Linear, ticks }
    }

    /// Returns where a value is, between 0 and 1.
    fn part(&self, value: f64) -> f64 {
        match self.scale {
            Scale::Linear => (value - self.low) / (self.high - self.low),
            Scale::Logarithmic => logarithmic(value, [self.low, self.high]),
        }
    }
}

/// Returns where a value is on a logarithmic axis, between 0 and 1.
fn logarithmic(value: f64, [low, high]: [f64; 2]) -> f64 {
    (value / low).ln() / (high / low).ln()
}

/// Coordinates of a plot.
struct Picture {
    /// First and last place of the horizontal axis.
    x: [f64; 2],
    y: Axis,
    top: f64,
}

impl Picture {
    fn bottom(&self) -> f64 {
        self.top + AXIS_HEIGHT
    }

    fn x(&self, at: f64) -> f64 {
        LEFT + logarithmic(at, self.x) * (WIDTH - LEFT - RIGHT)
    }

    fn y(&self, value: f64) -> f64 {
        self.bottom() - self.y.part(value) * AXIS_HEIGHT
    }

    /// Begins a picture: titles, axes and grid.
    fn frame(&self, plot: &Plot, places: &[Place<'_>]) -> String {
        let (right, bottom, height) = (WIDTH - RIGHT, self.bottom(), self.bottom() + BOTTOM);
        let [title, subtitle, x_label, y_label] =
            [&plot.title, &plot.subtitle, &plot.x, &plot.y].map(|text| escaped(text));
        let mut svg = format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" \
             font-family=\"sans-serif\" font-size=\"13\">\n{}\n\
             <rect class=\"paper\" width=\"{WIDTH}\" height=\"{height}\" rx=\"6\"/>\n\
             <text x=\"20\" y=\"30\" font-size=\"18\" font-weight=\"bold\">{title}</text>\n\
             <text x=\"20\" y=\"50\" class=\"pencil\">{subtitle}</text>\n",
            style()
        );
        for tick in &self.y.ticks {
            let (y, label) = (self.y(*tick), number(*tick));
            writeln!(svg, "<path class=\"grid\" d=\"M{LEFT} {y:.1}H{right}\"/>").unwrap();
            let (x, y) = (LEFT - 8.0, y + 4.5);
            writeln!(svg, "<text x=\"{x}\" y=\"{y:.1}\" text-anchor=\"end\">{label}</text>")
                .unwrap();
        }
        let top = self.top;
        for place in places.iter().step_by(places.len().div_ceil(MAX_LABELS_X)) {
            let (x, label) = (self.x(place.at), escaped(place.label));
            writeln!(svg, "<path class=\"grid\" d=\"M{x:.1} {top}V{bottom}\"/>").unwrap();
            let y = bottom + 20.0;
            writeln!(svg, "<text x=\"{x:.1}\" y=\"{y}\" text-anchor=\"middle\">{label}</text>")
                .unwrap();
        }
        let (x, y) = ((LEFT + right) / 2.0, height - 14.0);
        writeln!(
            svg,
            "<text x=\"{x}\" y=\"{y}\" text-anchor=\"middle\" class=\"pencil\">{x_label}</text>"
        )
        .unwrap();
        let y = (top + bottom) / 2.0;
        writeln!(
            svg,
            "<text transform=\"translate(20 {y}) rotate(-90)\" text-anchor=\"middle\" \
             class=\"pencil\">{y_label}</text>"
        )
        .unwrap();
        svg
    }
}

/// Returns a number without trailing zeros.
fn number(value: f64) -> String {
    format!("{value:.6}").trim_end_matches('0').trim_end_matches('.').to_owned()
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

/// Returns the colors of light and dark pages.
fn style() -> String {
    let rules = |shade: usize| {
        let [paper, ink, pencil, grid] = [PAPER, INK, PENCIL, GRID].map(|color| color[shade]);
        let mut rules = format!(
            ".paper{{fill:{paper}}}text{{fill:{ink}}}.pencil{{fill:{pencil}}}.grid{{stroke:{grid}}}"
        );
        let lines = COLORS.iter().enumerate().map(|(n, color)| (format!("c{n}"), color));
        for (class, color) in lines.chain([("reference".to_owned(), &REFERENCE)]) {
            let color = color[shade];
            write!(rules, ".line.{class}{{stroke:{color}}}.dot.{class}{{fill:{color}}}").unwrap();
        }
        rules
    };
    let (light, dark) = (rules(0), rules(1));
    format!(
        "<style>.line{{fill:none;stroke-width:2}}{light}\
         @media(prefers-color-scheme:dark){{{dark}}}</style>"
    )
}

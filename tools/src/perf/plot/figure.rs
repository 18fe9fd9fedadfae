//! The content of a plot: curves, and axes in the units of the drawing.

use softroce_cli::Test;

use super::super::row::{Latency, Row};

/// A figure with one pair of axes.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct Figure {
    pub(super) title: String,
    pub(super) subtitle: String,
    pub(super) x: Axis,
    pub(super) y: Axis,
    pub(super) curves: Vec<Curve>,
}

/// An axis; a logarithmic one has logarithms as its points.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct Axis {
    pub(super) label: &'static str,
    pub(super) from: f64,
    pub(super) to: f64,
    pub(super) ticks: Vec<Tick>,
}

/// A labeled position on an axis.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct Tick {
    pub(super) at: f64,
    pub(super) label: String,
}

/// A line through points.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct Curve {
    pub(super) name: &'static str,
    pub(super) role: Role,
    pub(super) points: Vec<(f64, f64)>,
}

/// The role of a curve in the figure.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Role {
    /// The measured quantity.
    Result,
    /// A quantity shown beside it.
    Side,
    /// The limit for comparison.
    Ceiling,
}

impl Figure {
    /// Returns the figure of the rows of a run; `None` without rows.
    pub(super) fn of(rows: &[Row]) -> Option<Self> {
        let first = rows.first()?;
        let (x, y, mut curves) = match (&first.latency_us, rows) {
            (None, _) => bandwidth(rows),
            (Some(latency), [row]) => distribution(row, latency),
            (Some(_), _) => latency(rows),
        };
        // A curve without points was not measured.
        curves.retain(|curve| !curve.points.is_empty());
        if first.subject.test == Test::Ceiling.name() {
            let ours = curves.iter_mut().filter(|curve| curve.name == VERBS);
            ours.for_each(|curve| curve.name = RAW);
        }
        Some(Self { title: title(first, rows.len()), subtitle: subtitle(first), x, y, curves })
    }
}

const RAW: &str = "raw UDP";
const VERBS: &str = "verbs";

fn title(row: &Row, rows: usize) -> String {
    match rows {
        1 => format!("roce perf {} of {} bytes", row.subject.test, row.subject.size),
        _ => format!("roce perf {}", row.subject.test),
    }
}

fn subtitle(row: &Row) -> String {
    let mut text = format!("{}, MTU {}", row.subject.transport.to_uppercase(), row.subject.mtu);
    match row.subject.qps {
        Some(1) => text += ", 1 queue pair",
        Some(n) => text += &format!(", {n} queue pairs"),
        None => {}
    }
    if row.subject.bidirectional {
        text += ", both ways";
    }
    text + concat!(", softroce ", env!("CARGO_PKG_VERSION"))
}

/// Gbit/s against message size.
fn bandwidth(rows: &[Row]) -> (Axis, Axis, Vec<Curve>) {
    let lost = rows.iter().any(|row| row.received < row.sent);
    let rate = |value: fn(&Row) -> Option<f64>| points(rows, value);
    let raw = Curve { name: RAW, role: Role::Ceiling, points: rate(|row| row.raw.gbit_per_s) };
    let result = rate(|row| row.gbit_per_s);
    let curves = match lost {
        false => vec![raw, Curve { name: VERBS, role: Role::Result, points: result }],
        true => vec![
            raw,
            Curve { name: "sent", role: Role::Side, points: rate(sent_gbit_per_s) },
            Curve { name: "received", role: Role::Result, points: result },
        ],
    };
    let most = most(&curves);
    (sizes(rows), linear("Gbit/s", most), curves)
}

/// Returns the sent rate, whether messages arrived or not.
fn sent_gbit_per_s(row: &Row) -> Option<f64> {
    let (sent, received) = (row.sent? as f64, row.received? as f64);
    Some(row.gbit_per_s? * sent / received.max(1.0))
}

/// Microseconds against message size.
fn latency(rows: &[Row]) -> (Axis, Axis, Vec<Curve>) {
    let time = |of: fn(&Row) -> Option<&Latency>, at: fn(&Latency) -> f64| {
        let points = rows.iter().filter_map(|row| Some((log_size(row), of(row).map(at)?.log10())));
        points.collect::<Vec<_>>()
    };
    let ours: fn(&Row) -> Option<&Latency> = |row| row.latency_us.as_ref();
    let curves = vec![
        Curve {
            name: "raw UDP, median",
            role: Role::Ceiling,
            points: time(|row| row.raw.latency.as_ref(), |latency| latency.p50),
        },
        Curve { name: "99 %", role: Role::Side, points: time(ours, |latency| latency.p99) },
        Curve { name: "median", role: Role::Result, points: time(ours, |latency| latency.p50) },
    ];
    let y = times(rows.first(), &curves);
    (sizes(rows), y, curves)
}

/// Time against the share of messages that were faster.
fn distribution(row: &Row, latency: &Latency) -> (Axis, Axis, Vec<Curve>) {
    let points = |latency: &Latency| {
        latency.tail.iter().map(|(nines, us)| (*nines, us.log10())).collect::<Vec<_>>()
    };
    let raw = row.raw.latency.as_ref().map(points).unwrap_or_default();
    let curves = vec![
        Curve { name: RAW, role: Role::Ceiling, points: raw },
        Curve { name: VERBS, role: Role::Result, points: points(latency) },
    ];
    let to = curves.iter().flat_map(|curve| &curve.points).map(|(x, _)| *x).fold(1.0, f64::max);
    let ticks = NINES.iter().take_while(|(at, _)| *at <= to);
    let ticks = ticks.map(|(at, label)| Tick { at: *at, label: (*label).into() }).collect();
    let x = Axis { label: "messages that took less", from: 0.0, to, ticks };
    let y = times(Some(row), &curves);
    (x, y, curves)
}

/// Shares of messages; the position is the negative logarithm of the rest.
const NINES: [(f64, &str); 8] = [
    (0.0, "0 %"),
    (std::f64::consts::LOG10_2, "50 %"),
    (1.0, "90 %"),
    (2.0, "99 %"),
    (3.0, "99.9 %"),
    (4.0, "99.99 %"),
    (5.0, "99.999 %"),
    (6.0, "99.9999 %"),
];

fn log_size(row: &Row) -> f64 {
    (row.subject.size.max(1) as f64).log2()
}

fn points(rows: &[Row], value: impl Fn(&Row) -> Option<f64>) -> Vec<(f64, f64)> {
    rows.iter().filter_map(|row| Some((log_size(row), value(row)?))).collect()
}

fn most(curves: &[Curve]) -> f64 {
    curves.iter().flat_map(|curve| &curve.points).map(|(_, y)| *y).fold(0.0, f64::max)
}

/// Powers of two, with as many labels as there is room for.
fn sizes(rows: &[Row]) -> Axis {
    let log = |row: Option<&Row>| row.map_or(0, |row| row.subject.size.max(1).ilog2());
    let (first, last) = (log(rows.first()), log(rows.last()));
    let step = if last - first > 12 { 2 } else { 1 };
    let exponents = (first..=last).step_by(step);
    let ticks = exponents.map(|at| Tick { at: at.into(), label: power_of_two(at) }).collect();
    let (from, to) = (first.into(), f64::from(last).max(f64::from(first) + 1.0));
    Axis { label: "bytes in a message", from, to, ticks }
}

fn power_of_two(exponent: u32) -> String {
    let unit = ["", "K", "M", "G"].get((exponent / 10) as usize).copied().unwrap_or("T");
    format!("{}{unit}", 1 << (exponent % 10))
}

/// Axis from zero to a round number that is at least `most`.
fn linear(label: &'static str, most: f64) -> Axis {
    let most = if most > 0.0 { most } else { 1.0 };
    let decade = 10f64.powf((most / 8.0).log10().floor());
    // At most eight steps of 1, 2, 2.5, 5 or 10 times a power of ten.
    let steps = [1.0, 2.0, 2.5, 5.0, 10.0].map(|step| step * decade);
    let step = steps.into_iter().find(|step| most / step <= 8.0).unwrap_or(most);
    let count = (most / step).ceil();
    let ticks = (0..=8u32).map(f64::from).take_while(|n| *n <= count);
    let ticks = ticks.map(|n| Tick { at: n * step, label: trimmed(n * step) }).collect();
    Axis { label, from: 0.0, to: count * step, ticks }
}

/// Logarithmic axis with 1, 2 and 5 of each power of ten.
fn times(row: Option<&Row>, curves: &[Curve]) -> Axis {
    let logs = || curves.iter().flat_map(|curve| &curve.points).map(|(_, y)| *y);
    let marks = || {
        let decades = (-3..=8).flat_map(|decade| [(decade, 1.0), (decade, 2.0), (decade, 5.0)]);
        decades.map(|(decade, digit)| digit * 10f64.powi(decade))
    };
    let (least, most) = (logs().fold(f64::MAX, f64::min), logs().fold(f64::MIN, f64::max));
    let from = marks().filter(|us| us.log10() <= least).fold(0.001, f64::max);
    let to = marks().filter(|us| us.log10() >= most).fold(f64::MAX, f64::min).min(1e9);
    let ticks = marks().filter(|us| (from..=to).contains(us));
    let ticks = ticks.map(|us| Tick { at: us.log10(), label: time(us) }).collect();
    let is_whole = row.is_some_and(|row| row.is_round_trip);
    let label = if is_whole { "round trip" } else { "half round trip" };
    Axis { label, from: from.log10(), to: to.log10(), ticks }
}

/// Formats microseconds in a fitting unit.
fn time(us: f64) -> String {
    match us {
        _ if us < 1.0 => format!("{} ns", trimmed(us * 1e3)),
        _ if us < 1e3 => format!("{} µs", trimmed(us)),
        _ if us < 1e6 => format!("{} ms", trimmed(us / 1e3)),
        _ => format!("{} s", trimmed(us / 1e6)),
    }
}

/// Formats a number without trailing zeros.
fn trimmed(number: f64) -> String {
    let text = format!("{number:.4}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn labels(axis: &Axis) -> Vec<&str> {
        axis.ticks.iter().map(|tick| tick.label.as_str()).collect()
    }

    #[test]
    fn a_linear_axis_ends_at_a_round_number() {
        assert_eq!(labels(&linear("", 37.0)), ["0", "5", "10", "15", "20", "25", "30", "35", "40"]);
        assert_eq!(labels(&linear("", 0.09)), ["0", "0.02", "0.04", "0.06", "0.08", "0.1"]);
        assert_eq!(labels(&linear("", 8.0)).len(), 9);
        assert_eq!(linear("", 0.0).to, 1.0);
    }

    #[test]
    fn times_are_named_in_the_unit_that_fits() {
        let points = vec![(0.0, 7f64.log10()), (1.0, 1_900f64.log10())];
        let axis = times(None, &[Curve { name: "", role: Role::Result, points }]);
        assert_eq!(
            labels(&axis),
            ["5 µs", "10 µs", "20 µs", "50 µs", "100 µs", "200 µs", "500 µs", "1 ms", "2 ms"]
        );
        assert_eq!(time(0.5), "500 ns");
    }

    #[test]
    fn sizes_have_the_suffixes_of_the_command_line() {
        let names = [0, 1, 9, 10, 16, 23].map(power_of_two);
        assert_eq!(names, ["1", "2", "512", "1K", "64K", "8M"]);
    }
}

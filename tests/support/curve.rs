//! Goodput over loss, as tables and a plot of `docs/results.json`.

use std::fs;
use std::path::PathBuf;

use serde_json::{Value, json};

/// Measurements of one operation.
#[derive(Debug)]
pub(crate) struct Curve {
    pub name: String,
    pub points: Vec<Point>,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Point {
    pub loss: f64,
    /// Goodput in bytes per second.
    pub found: f64,
    pub ideal: f64,
}

/// Command that writes the tables.
const COMMAND: &str = "SNAPSHOTS=write cargo test --test recovery";
/// Table of goodputs, and its plot.
const GOODPUTS: &str = "recovery";
/// Table of the same as percentages of the ideal.
const RATIOS: &str = "recovery-of-ideal";
/// Largest relative difference between published figures and those of this build.
const TOLERANCE: f64 = 0.1;

/// Writes the tables into `docs/results.json`.
pub(crate) fn publish(curves: &[Curve]) {
    let mut results = read();
    results[GOODPUTS] = goodputs(curves);
    results[RATIOS] = ratios(curves);
    fs::write(path(), format!("{results:#}\n")).unwrap();
}

/// Returns the rows of the published tables with a value that differs from that of these curves.
pub(crate) fn differences(curves: &[Curve]) -> Vec<String> {
    let published = read();
    let mut found = Vec::new();
    for (name, table) in [(GOODPUTS, goodputs(curves)), (RATIOS, ratios(curves))] {
        let (old, new) = (rows(&published[name]), rows(&table));
        assert_eq!(old.len(), new.len(), "{name}");
        for (old, new) in old.iter().zip(new) {
            let is_near = |(old, new): (&f64, &f64)| (old - new).abs() <= TOLERANCE * new;
            if old.len() != new.len() || !old.iter().zip(&new).all(is_near) {
                found.push(format!("{name}: {old:?} is published, {new:?} is measured"));
            }
        }
    }
    found
}

fn path() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("docs/results.json")
}

fn read() -> Value {
    serde_json::from_str(&fs::read_to_string(path()).unwrap()).unwrap()
}

/// Returns the values of a table.
fn rows(table: &Value) -> Vec<Vec<f64>> {
    let values = |row: &Value| {
        let values = row["values"].as_array().unwrap();
        values.iter().map(|value| value.as_f64().unwrap()).collect()
    };
    table["rows"].as_array().unwrap().iter().map(values).collect()
}

/// Returns the goodputs in MB/s, and their plot.
fn goodputs(curves: &[Curve]) -> Value {
    let mut columns = vec![json!({ "title": "ideal, MB/s", "digits": 1 })];
    columns.extend(
        curves.iter().map(|curve| json!({ "title": format!("{}, MB/s", curve.name), "digits": 1 })),
    );
    let in_mb = |bytes: f64| (bytes / 1e5).round() / 10.0;
    let rows: Vec<_> = points(curves)
        .map(|(loss, points)| {
            let values: Vec<_> = [points[0].ideal]
                .into_iter()
                .chain(points.iter().map(|point| point.found))
                .map(in_mb)
                .collect();
            json!({ "name": percent(loss), "at": loss * 100.0, "values": values })
        })
        .collect();
    json!({
        "command": COMMAND,
        "columns": columns,
        "rows": rows,
        "plot": {
            "title": "Goodput over loss",
            "subtitle": "RC, messages of 64 KiB, MTU 1024, 10 Gbit/s, loss in both directions, simulator",
            "x": "packets lost",
            "y": "MB/s",
            "unit": "MB/s",
            "scale": "logarithmic",
            "reference": "ideal",
        },
    })
}

/// Returns the goodputs in percent of the ideal.
fn ratios(curves: &[Curve]) -> Value {
    let title = |curve: &Curve| json!({ "title": format!("{}, %", curve.name), "digits": 0 });
    let columns: Vec<_> = curves.iter().map(title).collect();
    let rows: Vec<_> = points(curves)
        .map(|(loss, points)| {
            let ratio = |point: &Point| (point.found / point.ideal * 100.0).round();
            let values: Vec<_> = points.iter().map(ratio).collect();
            json!({ "name": percent(loss), "values": values })
        })
        .collect();
    json!({ "command": COMMAND, "columns": columns, "rows": rows })
}

/// Returns each loss, and the point of every curve at it.
fn points(curves: &[Curve]) -> impl Iterator<Item = (f64, Vec<Point>)> {
    (0..curves[0].points.len()).map(|n| {
        let points: Vec<_> = curves.iter().map(|curve| curve.points[n]).collect();
        (points[0].loss, points)
    })
}

fn percent(loss: f64) -> String {
    format!("{} %", loss * 100.0)
}

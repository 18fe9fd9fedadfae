//! A table, and how it is printed as text, CSV and JSON.

use std::fmt::{self, Display};
use std::io::{self, Write};

use serde_json::{Map, Value};
use softroce_pcap::analyze::{Rate, Share, Size, Span};

/// Rows of cells. A column's name is its key in CSV and JSON, where it ends with its unit.
pub(super) struct Table {
    columns: &'static [&'static str],
    rows: Vec<Vec<Cell>>,
}

/// A cell.
#[derive(Clone, PartialEq, Debug)]
pub(super) enum Cell {
    /// Text.
    Text(String),
    /// A number without a unit.
    Number(u64),
    /// Bytes.
    Bytes(u64),
    /// A time in nanoseconds.
    Time(u64),
    /// A part of a whole, from 0 to 1.
    Share(f64),
    /// A rate in Gbit/s, which CSV and JSON have in bits per second.
    Rate(f64),
    /// A value that the capture does not show.
    Unknown,
}

impl Table {
    /// Creates an empty table.
    pub(super) const fn new(columns: &'static [&'static str]) -> Self {
        Self { columns, rows: Vec::new() }
    }

    /// Adds a row, which has a cell for each column.
    pub(super) fn push(&mut self, row: Vec<Cell>) {
        debug_assert_eq!(row.len(), self.columns.len());
        self.rows.push(row);
    }

    /// Returns whether the table has no rows.
    pub(super) const fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// Prints aligned columns: text to the left, numbers to the right.
    pub(super) fn text(&self, out: &mut impl Write) -> io::Result<()> {
        let titles = self.columns.iter().map(|column| title(column)).collect::<Vec<_>>();
        let rows: Vec<Vec<_>> =
            self.rows.iter().map(|row| row.iter().map(ToString::to_string).collect()).collect();
        let width = |at: usize| {
            let cells = rows.iter().map(|row| row[at].chars().count());
            cells.chain([titles[at].chars().count()]).max().unwrap_or_default()
        };
        let widths: Vec<_> = (0..titles.len()).map(width).collect();
        let is_text =
            |at: usize| self.rows.first().is_some_and(|row| matches!(row[at], Cell::Text(_)));
        for row in std::iter::once(&titles).chain(&rows) {
            let mut line = String::new();
            for (at, (cell, width)) in row.iter().zip(&widths).enumerate() {
                match is_text(at) {
                    true => line.push_str(&format!("  {cell:width$}")),
                    false => line.push_str(&format!("  {cell:>width$}")),
                }
            }
            writeln!(out, "{}", line.trim_end())?;
        }
        Ok(())
    }

    /// Prints comma-separated values (RFC 4180): a header, then a line for each row, which begins with the file and the
    /// name of the table.
    pub(super) fn csv(&self, out: &mut impl Write, file: &str, name: &str) -> io::Result<()> {
        writeln!(out, "file,table,{}", self.columns.join(","))?;
        for row in &self.rows {
            write!(out, "{},{name}", quoted(file))?;
            for cell in row {
                write!(out, ",{}", quoted(&cell.plain()))?;
            }
            writeln!(out)?;
        }
        Ok(())
    }

    /// Returns a list with an object for each row.
    pub(super) fn json(&self) -> Value {
        let object = |row: &Vec<Cell>| -> Map<String, Value> {
            let cells = self.columns.iter().zip(row);
            cells.map(|(column, cell)| ((*column).to_owned(), cell.json())).collect()
        };
        self.rows.iter().map(object).collect()
    }
}

const BITS_PER_GIGABIT: f64 = 1e9;

/// Returns the title of a column in text: its name without the unit, which cells have.
fn title(column: &str) -> String {
    let name = column.strip_suffix("_ns").or_else(|| column.strip_suffix("_bits_per_second"));
    name.unwrap_or(column).replace('_', " ")
}

/// Returns a value as a field of CSV.
fn quoted(value: &str) -> String {
    match value.contains([',', '"', '\n', '\r']) {
        true => format!("\"{}\"", value.replace('"', "\"\"")),
        false => value.to_owned(),
    }
}

impl Cell {
    /// Returns the value without a unit, for other programs.
    fn plain(&self) -> String {
        match self {
            Self::Text(text) => text.clone(),
            Self::Number(value) | Self::Bytes(value) | Self::Time(value) => value.to_string(),
            Self::Share(value) => format!("{value:.6}"),
            Self::Rate(value) => format!("{:.0}", value * BITS_PER_GIGABIT),
            Self::Unknown => String::new(),
        }
    }

    fn json(&self) -> Value {
        match self {
            Self::Text(text) => text.clone().into(),
            Self::Number(value) | Self::Bytes(value) | Self::Time(value) => (*value).into(),
            Self::Share(value) => (*value).into(),
            Self::Rate(value) => (value * BITS_PER_GIGABIT).into(),
            Self::Unknown => Value::Null,
        }
    }
}

impl Display for Cell {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Text(text) => f.write_str(text),
            Self::Number(value) => value.fmt(f),
            Self::Bytes(value) => Size(*value).fmt(f),
            Self::Time(value) => Span(*value).fmt(f),
            Self::Share(value) => Share(*value).fmt(f),
            Self::Rate(value) => Rate(*value).fmt(f),
            Self::Unknown => f.write_str("-"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table() -> Table {
        let mut table = Table::new(&["name", "messages", "duration_ns", "share"]);
        let text = |text: &str| Cell::Text(text.to_owned());
        table.push(vec![text("a,\"b\""), Cell::Number(7), Cell::Time(1500), Cell::Share(0.5)]);
        table.push(vec![text("c"), Cell::Number(10_000), Cell::Unknown, Cell::Share(0.0)]);
        table
    }

    #[test]
    fn text_is_aligned_and_has_units() {
        let mut out = Vec::new();
        table().text(&mut out).unwrap();
        let text = String::from_utf8(out).unwrap();
        let expected = [
            "  name   messages  duration  share",
            "  a,\"b\"         7   1.50 µs   50 %",
            "  c         10000         -    0 %",
        ];
        assert_eq!(text.lines().collect::<Vec<_>>(), expected);
    }

    #[test]
    fn csv_quotes_its_fields() {
        let mut out = Vec::new();
        table().csv(&mut out, "x, y", "t").unwrap();
        let text = String::from_utf8(out).unwrap();
        let expected = "file,table,name,messages,duration_ns,share\n\
                        \"x, y\",t,\"a,\"\"b\"\"\",7,1500,0.500000\n\
                        \"x, y\",t,c,10000,,0.000000\n";
        assert_eq!(text, expected);
    }

    #[test]
    fn json_has_an_object_for_each_row() {
        let expected = serde_json::json!([
            { "name": "a,\"b\"", "messages": 7, "duration_ns": 1500, "share": 0.5 },
            { "name": "c", "messages": 10_000, "duration_ns": null, "share": 0.0 },
        ]);
        assert_eq!(table().json(), expected);
    }
}

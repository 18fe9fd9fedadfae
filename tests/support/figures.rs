//! Figures of the pages: tables and pictures of `docs/results.json`.

use std::collections::{BTreeMap, BTreeSet};

use serde::Deserialize;

use super::plot::{Line, Place, Plot};
use super::sources::read;

/// Entries of `docs/results.json` by their names. `tools/benchmark.py` and `tests/support/curve.rs` write them.
pub(crate) type Results = BTreeMap<String, Figures>;

/// Reads `docs/results.json`.
pub(crate) fn results() -> Results {
    serde_json::from_str(&read("docs/results.json")).unwrap()
}

/// Measurements of one command: a table, which may have a plot, or a recording.
#[derive(Debug, Deserialize)]
pub(crate) struct Figures {
    command: String,
    /// `None` for figures in virtual time.
    #[serde(flatten)]
    measured: Option<Measured>,
    #[serde(default)]
    columns: Vec<Column>,
    #[serde(default)]
    rows: Vec<Row>,
    plot: Option<Plot>,
    recording: Option<Recording>,
}

/// Time and place of a measurement.
#[derive(Debug, Deserialize)]
struct Measured {
    date: String,
    rounds: Option<usize>,
    machine: String,
    kernel: String,
}

#[derive(Debug, Deserialize)]
struct Column {
    title: String,
    /// Number of decimals.
    digits: usize,
}

#[derive(Debug, Deserialize)]
struct Row {
    name: String,
    /// Place on the horizontal axis of a plot.
    at: Option<f64>,
    values: Vec<f64>,
}

/// A picture that is the measurement itself, such as a flame graph.
#[derive(Debug, Deserialize)]
struct Recording {
    title: String,
    /// CRC-32 of the file.
    crc32: u32,
}

impl Figures {
    /// Returns the picture's title, if there is one.
    pub(crate) fn title(&self) -> Option<&str> {
        let plot = self.plot.as_ref().map(|plot| plot.title.as_str());
        plot.or(self.recording.as_ref().map(|recording| recording.title.as_str()))
    }

    /// Returns the line below a table or a picture.
    fn caption(&self) -> String {
        let conditions = match &self.measured {
            None => ", in virtual time".to_owned(),
            Some(Measured { date, rounds, machine, kernel }) => {
                let rounds = rounds.map_or(String::new(), |n| format!(" medians of {n} rounds,"));
                format!(":{rounds} {date}, {machine}, {kernel}")
            }
        };
        format!("`{}`{conditions}.", self.command)
    }

    fn table(&self) -> String {
        let titles: String =
            self.columns.iter().map(|column| format!(" {} |", column.title)).collect();
        let rule = "--:|".repeat(self.columns.len());
        let mut text = format!("| |{titles}\n|---|{rule}\n");
        for Row { name, values, .. } in &self.rows {
            let cells: String = values
                .iter()
                .zip(&self.columns)
                .map(|(value, column)| format!(" {value:.*} |", column.digits))
                .collect();
            text += &format!("| {name} |{cells}\n");
        }
        format!("{text}\n{}\n", self.caption())
    }

    /// Draws the plot, if there is one.
    pub(crate) fn draw(&self) -> Option<String> {
        let plot = self.plot.as_ref()?;
        let places: Vec<_> =
            self.rows.iter().map(|row| Place { at: row.at.unwrap(), label: &row.name }).collect();
        let lines: Vec<_> = self
            .columns
            .iter()
            .enumerate()
            .map(|(n, column)| Line {
                // A table of several units names them in its titles.
                name: column.title.trim_end_matches(&format!(", {}", plot.unit)),
                values: self.rows.iter().map(|row| row.values[n]).collect(),
            })
            .collect();
        Some(plot.draw(&places, &lines))
    }

    /// Returns the CRC-32 of the recording's file, if there is one.
    pub(crate) fn recorded(&self) -> Option<u32> {
        self.recording.as_ref().map(|recording| recording.crc32)
    }
}

/// Tables and pictures that pages show.
#[derive(Debug, Default)]
pub(crate) struct Shown {
    pub(crate) tables: BTreeSet<String>,
    pub(crate) pictures: BTreeSet<String>,
}

/// Returns a page with its figures as they are measured: tables between the marks `<!-- figures NAME -->` and
/// `<!-- end of figures -->`, and pictures between `<!-- picture NAME -->` and the same.
pub(crate) fn with_figures(page: &str, results: &Results, shown: &mut Shown) -> String {
    let page = with_blocks(page, "<!-- figures ", results, |name, figures| {
        shown.tables.insert(name.to_owned());
        figures.table()
    });
    with_blocks(&page, "<!-- picture ", results, |name, figures| {
        shown.pictures.insert(name.to_owned());
        let title = figures.title().unwrap_or_else(|| panic!("{name} has no picture"));
        format!("![{title}]({name}.svg)\n\n{}\n", figures.caption())
    })
}

fn with_blocks(
    page: &str,
    begin: &str,
    results: &Results,
    mut render: impl FnMut(&str, &Figures) -> String,
) -> String {
    const END: &str = "<!-- end of figures -->";
    let mut parts = page.split(begin);
    let mut text = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let (name, rest) =
            part.split_once(" -->\n").unwrap_or_else(|| panic!("a mark is not closed on its line"));
        let (_, rest) = rest.split_once(END).unwrap_or_else(|| panic!("{name} has no `{END}`"));
        let figures =
            results.get(name).unwrap_or_else(|| panic!("docs/results.json has no {name}"));
        text += &format!("{begin}{name} -->\n{}{END}{rest}", render(name, figures));
    }
    text
}

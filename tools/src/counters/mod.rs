//! Counters as a table for people, each with its meaning.

mod file;

use std::collections::BTreeMap;
use std::io::{self, Write};

use serde_json::{Value, json};
use softroce::port::PortCounters;
use softroce::runtime::LinkCounters;
use softroce::verbs::{Context, Counter, Counters};

use crate::output::{self, json_line};

pub(crate) use file::read;

/// Values by the name of the counter.
pub(crate) type Values = BTreeMap<String, u64>;

/// The values of one device or queue pair.
pub(crate) struct Column {
    pub(crate) heading: String,
    pub(crate) values: Values,
}

impl Column {
    pub(crate) fn new(heading: &str, values: Values) -> Self {
        Self { heading: heading.to_owned(), values }
    }
}

/// Returns every counter, with value 0.
pub(crate) fn known() -> impl Iterator<Item = Counter> {
    let (protocol, port) = (Counters::default(), PortCounters::default());
    protocol.iter().chain(port.iter()).chain(LinkCounters::default().iter())
}

/// Returns the counters of a device.
pub(crate) fn of_device(context: &Context) -> anyhow::Result<Values> {
    let counters = context.counters()?;
    Ok(counters.iter().map(|counter| (counter.name.to_owned(), counter.value)).collect())
}

/// Prints columns of values; counters that are 0 in all of them are left out.
pub(crate) fn print(out: &mut impl Write, columns: &[Column]) -> io::Result<()> {
    let value = |column: &Column, counter: &Counter| column.values.get(counter.name).copied();
    let row = |name: &str, cells: Vec<String>, help: &str| {
        let cells = cells.iter().map(|cell| format!(" {cell:>15}")).collect::<String>();
        format!("{name:<24}{cells}  {help}").trim_end().to_owned()
    };
    let headings = columns.iter().map(|column| column.heading.clone()).collect();
    writeln!(out, "{}", row("counter", headings, ""))?;
    for counter in known() {
        let values: Vec<_> =
            columns.iter().map(|column| value(column, &counter).unwrap_or_default()).collect();
        if values.iter().any(|value| *value > 0) {
            let cells = values.iter().map(ToString::to_string).collect();
            writeln!(out, "{}", row(counter.name, cells, counter.help))?;
        }
    }
    Ok(())
}

/// Returns all values as JSON.
pub(crate) fn as_json(columns: &[Column]) -> Value {
    let columns: BTreeMap<_, _> =
        columns.iter().map(|column| (&column.heading, &column.values)).collect();
    json!({ "counters": columns })
}

/// Prints columns on standard output, as a table or as a line of JSON.
pub(crate) fn show(columns: &[Column], as_an_object: bool) -> io::Result<()> {
    let mut out = output::stdout();
    match as_an_object {
        true => json_line(&mut out, &as_json(columns)),
        false => print(&mut out, columns),
    }
}

/// Prints the meaning of every counter, and its names in drivers.
pub(crate) fn explain(out: &mut impl Write) -> io::Result<()> {
    for counter in known() {
        writeln!(out, "{}", counter.name)?;
        writeln!(out, "\t{}", counter.help)?;
        let also = counter.also.iter().map(|(driver, name)| format!("{driver}: {name}"));
        let also: Vec<_> = also.collect();
        if !also.is_empty() {
            writeln!(out, "\t{}", also.join(", "))?;
        }
    }
    Ok(())
}

/// Returns the same as JSON.
pub(crate) fn explained() -> Value {
    let explained = known().map(|counter| {
        let also: BTreeMap<_, _> = counter.also.iter().copied().collect();
        json!({ "name": counter.name, "help": counter.help, "also": also })
    });
    json!({ "counters": explained.collect::<Vec<_>>() })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn column(heading: &str, values: &[(&str, u64)]) -> Column {
        let values = values.iter().map(|(name, value)| ((*name).to_owned(), *value));
        Column::new(heading, values.collect())
    }

    #[test]
    fn counters_at_zero_are_left_out() {
        let columns = [
            column("here", &[("timeouts", 3), ("retries", 0), ("port_tx_bursts", 12)]),
            column("there", &[("retries", 0), ("port_kernel_drops", 7)]),
        ];
        let mut text = Vec::new();
        print(&mut text, &columns).unwrap();
        let text = String::from_utf8(text).unwrap();
        let rows: Vec<Vec<_>> =
            text.lines().map(|line| line.split_whitespace().take(3).collect()).collect();
        let expected: [&[&str]; 4] = [
            &["counter", "here", "there"],
            &["timeouts", "3", "0"],
            &["port_tx_bursts", "12", "0"],
            &["port_kernel_drops", "0", "7"],
        ];
        assert_eq!(rows, expected);
        assert!(text.contains("no packet was acknowledged within the ACK timeout."), "{text}");
    }
}

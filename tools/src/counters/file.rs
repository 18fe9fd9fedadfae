//! Reads the files that devices write with `SOFTROCE_COUNTERS`.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use anyhow::{Context, bail};

use super::{Column, Values};

/// Labels of a series: names and values.
type Labels = BTreeMap<String, String>;

/// Reads a file: the device, then its queue pairs.
pub(crate) fn read(path: &Path) -> anyhow::Result<Vec<Column>> {
    let name = path.display();
    let text = fs::read_to_string(path).with_context(|| name.to_string())?;
    parse(&text).with_context(|| name.to_string())
}

fn parse(text: &str) -> anyhow::Result<Vec<Column>> {
    let mut things: Vec<(Labels, Values)> = Vec::new();
    for (number, line) in (1..).zip(text.lines()) {
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let Some((name, labels, value)) = series(line) else {
            bail!("line {number}: expected softroce_NAME_total{{LABELS}} COUNT, found `{line}`");
        };
        let at = things.iter().position(|(of, _)| *of == labels).unwrap_or_else(|| {
            things.push((labels, Values::new()));
            things.len() - 1
        });
        things[at].1.insert(name, value);
    }
    if things.is_empty() {
        bail!("no counters found: expected a file written with SOFTROCE_COUNTERS");
    }
    Ok(things.into_iter().map(|(labels, values)| Column::new(&heading(&labels), values)).collect())
}

/// Returns the heading of a device or queue pair.
fn heading(labels: &Labels) -> String {
    let of = |name: &str| labels.get(name).map_or("?", String::as_str);
    match labels.get("qp") {
        Some(qp) => format!("{} {qp}", of("device")),
        None => format!("{} {}", of("device"), of("ip")),
    }
}

/// Returns name, labels and value of a counter.
fn series(line: &str) -> Option<(String, Labels, u64)> {
    let (series, value) = line.rsplit_once(' ')?;
    let (metric, labels) = series.split_once('{')?;
    let name = metric.strip_prefix("softroce_")?.strip_suffix("_total")?;
    let name = name.strip_prefix("qp_").unwrap_or(name);
    Some((name.to_owned(), labels_of(labels)?, value.parse().ok()?))
}

/// Returns the labels between an opening brace and the closing one.
fn labels_of(mut text: &str) -> Option<Labels> {
    let mut labels = Labels::new();
    loop {
        let (name, rest) = text.split_once("=\"")?;
        let (value, rest) = quoted(rest)?;
        labels.insert(name.to_owned(), value);
        match rest.strip_prefix(',') {
            Some(more) => text = more,
            None => return (rest == "}").then_some(labels),
        }
    }
}

/// Returns the text up to the closing quotation mark, and the rest.
fn quoted(text: &str) -> Option<(String, &str)> {
    let mut value = String::new();
    let mut characters = text.char_indices();
    while let Some((at, c)) = characters.next() {
        match c {
            '"' => return Some((value, &text[at + 1..])),
            '\\' => value.push(match characters.next()?.1 {
                'n' => '\n',
                other => other,
            }),
            other => value.push(other),
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use softroce::counter::{Counter, Family, Sample};

    use super::*;

    #[test]
    fn files_of_the_library_are_read() {
        let device = "a\\b\"c\nd, e}";
        let labels = |qp: Option<&'static str>| {
            let labels = [("device", device), ("ip", "::1")];
            let labels = labels.into_iter().chain(qp.map(|qp| ("qp", qp)));
            labels.map(|(name, value)| (name, value.to_owned())).collect()
        };
        let counters: Vec<Counter> = super::super::known().collect();
        let family = |prefix, qps: &[Option<&'static str>]| {
            let sample = |qp: &_| Sample { labels: labels(*qp), counters: counters.clone() };
            Family { prefix, samples: qps.iter().map(sample).collect() }
        };
        let qps = [Some("0x000012"), Some("0x000013")];
        let text = format!("{}{}", family("softroce", &[None]), family("softroce_qp", &qps));
        let columns = parse(&text).unwrap();
        let headings: Vec<_> = columns.iter().map(|column| column.heading.as_str()).collect();
        let expected = ["::1", "0x000012", "0x000013"].map(|end| format!("{device} {end}"));
        assert_eq!(headings, expected);
        assert!(columns.iter().all(|column| column.values.len() == counters.len()));
    }

    #[test]
    fn errors_name_the_line() {
        let error = |text: &str| parse(text).err().unwrap().to_string();
        assert_eq!(
            error("# HELP x y\nnode_load1 0.5\n"),
            "line 2: expected softroce_NAME_total{LABELS} COUNT, found `node_load1 0.5`"
        );
        for wrong in [
            "softroce_retries_total{device=\"a\" 1",
            "softroce_retries_total{device=\"a} 1",
            "softroce_retries_total{device=\"a\"} -1",
            "softroce_retries_total 1",
            "softroce_retries{device=\"a\"} 1",
        ] {
            assert!(error(wrong).ends_with(&format!("found `{wrong}`")), "{wrong}");
        }
        assert!(error("").starts_with("no counters found"));
    }
}

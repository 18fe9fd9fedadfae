//! Text format of Prometheus, version 0.0.4, for its servers and for the textfile collector of the node exporter.

use std::fmt::{self, Write};

use super::Counter;

/// Labels of a set of counters, as names and values.
pub type Labels = Vec<(&'static str, String)>;

/// Counters of one object.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Sample {
    /// Labels of the object.
    pub labels: Labels,
    /// Counters of the object.
    pub counters: Vec<Counter>,
}

/// Objects of one kind, with the same counters. The text has one metric per counter, with a value for each object.
///
/// ```
/// use softroce::counter::{Family, Sample};
/// use softroce::transport::outputs::Counters;
///
/// let mut counters = Counters::default();
/// counters.timeouts = 3;
/// let labels = vec![("device", "softroce0".to_owned())];
/// let samples = vec![Sample { labels, counters: counters.iter().collect() }];
/// let text = Family { prefix: "softroce", samples }.to_string();
/// assert!(text.contains("# TYPE softroce_timeouts_total counter\n"));
/// assert!(text.contains("softroce_timeouts_total{device=\"softroce0\"} 3\n"));
/// ```
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Family {
    /// Prefix of the names of the metrics.
    pub prefix: &'static str,
    /// The objects.
    pub samples: Vec<Sample>,
}

impl fmt::Display for Family {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some(first) = self.samples.first() else { return Ok(()) };
        for (at, Counter { name, help, .. }) in first.counters.iter().enumerate() {
            let metric = format_args!("{}_{name}_total", self.prefix).to_string();
            writeln!(f, "# HELP {metric} {}", Escaped(help, &['\\', '\n']))?;
            writeln!(f, "# TYPE {metric} counter")?;
            for Sample { labels, counters } in &self.samples {
                let Some(counter) = counters.get(at) else { continue };
                writeln!(f, "{metric}{} {}", LabelSet(labels), counter.value)?;
            }
        }
        Ok(())
    }
}

/// Formats the labels after the name of a metric.
struct LabelSet<'a>(&'a Labels);

impl fmt::Display for LabelSet<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, (name, value)) in self.0.iter().enumerate() {
            f.write_char(if at == 0 { '{' } else { ',' })?;
            write!(f, "{name}=\"{}\"", Escaped(value, &['\\', '\n', '"']))?;
        }
        if self.0.is_empty() { Ok(()) } else { f.write_char('}') }
    }
}

/// Escapes some characters with a backslash, and a line feed as `\n`.
struct Escaped<'a>(&'a str, &'a [char]);

impl fmt::Display for Escaped<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for c in self.0.chars() {
            if self.1.contains(&c) {
                f.write_char('\\')?;
            }
            f.write_char(if c == '\n' { 'n' } else { c })?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(labels: &[(&'static str, &str)], value: u64) -> Sample {
        let labels = labels.iter().map(|(name, value)| (*name, (*value).to_owned())).collect();
        let help = "Two \"lines\",\nand a \\.";
        Sample { labels, counters: vec![Counter { name: "pears", help, also: &[], value }] }
    }

    #[test]
    fn metric_has_one_help_and_a_line_per_object() {
        let device = ("device", "a\\b\"c\nd");
        let samples =
            vec![sample(&[device, ("qp", "0x12")], 7), sample(&[device], 8), sample(&[], u64::MAX)];
        let expected = "\
# HELP fruit_pears_total Two \"lines\",\\nand a \\\\.
# TYPE fruit_pears_total counter
fruit_pears_total{device=\"a\\\\b\\\"c\\nd\",qp=\"0x12\"} 7
fruit_pears_total{device=\"a\\\\b\\\"c\\nd\"} 8
fruit_pears_total 18446744073709551615
";
        assert_eq!(Family { prefix: "fruit", samples }.to_string(), expected);
    }

    #[test]
    fn empty_family_has_no_text() {
        assert_eq!(Family { prefix: "fruit", samples: Vec::new() }.to_string(), "");
    }
}

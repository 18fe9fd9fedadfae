//! How two merged captures relate.

use std::fmt::Write as _;
use std::io::{self, Write};
use std::net::IpAddr;

use serde::Serialize;
use softroce_pcap::merge::{Merger, PathCounts};

/// How two captures relate.
#[derive(Serialize)]
pub(crate) struct Merged {
    captures: [End; 2],
    /// Time of the second clock less that of the first, at the start.
    offset_s: f64,
    drift_ppm: f64,
    shortest_delay_s: f64,
    /// Packets on which the estimate is based.
    compared: usize,
    paths: Vec<PathLine>,
}

/// A capture and the hosts at its end.
#[derive(Serialize)]
struct End {
    file: String,
    hosts: Vec<String>,
}

/// Packets from one host to another.
#[derive(Serialize)]
struct PathLine {
    from: String,
    to: String,
    arrived: u64,
    damaged: u64,
    lost: u64,
    missed_at_sender: u64,
    duplicated: u64,
    not_covered: u64,
}

impl Merged {
    pub(crate) fn of(merger: &Merger, names: &[String; 2]) -> Self {
        let alignment = merger.alignment();
        let end = |end: usize| End {
            file: names[end].clone(),
            hosts: alignment.hosts(end).iter().map(ToString::to_string).collect(),
        };
        let path = |((from, to), of): ((IpAddr, IpAddr), &PathCounts)| PathLine {
            from: from.to_string(),
            to: to.to_string(),
            arrived: of.arrived,
            damaged: of.damaged,
            lost: of.lost,
            missed_at_sender: of.missed_at_sender,
            duplicated: of.duplicated,
            not_covered: of.not_covered,
        };
        Self {
            captures: [end(0), end(1)],
            offset_s: alignment.offset() as f64 / 1e9,
            drift_ppm: alignment.drift_ppm(),
            shortest_delay_s: alignment.delay().as_secs_f64(),
            compared: alignment.matched(),
            paths: merger.paths().map(path).collect(),
        }
    }

    /// Writes the clocks, and a line for each path.
    pub(crate) fn text(&self, out: &mut impl Write) -> io::Result<()> {
        for End { file, hosts } in &self.captures {
            writeln!(out, "{file}: at {}", hosts.join(", "))?;
        }
        writeln!(
            out,
            "clocks: the second is {:+.6} s from the first, drift {:+.2} ppm, within {:.6} s; {} packets compared",
            self.offset_s, self.drift_ppm, self.shortest_delay_s, self.compared
        )?;
        for path in &self.paths {
            let mut line = format!("{} to {}: {} arrived", path.from, path.to, path.arrived);
            for (count, what) in [
                (path.damaged, "of them damaged"),
                (path.lost, "lost on the way"),
                (path.missed_at_sender, "missing from the sender's capture"),
                (path.duplicated, "copies made on the way"),
                (path.not_covered, "not covered by both captures"),
            ] {
                if count > 0 {
                    // A string takes whatever is written to it.
                    let _ = write!(line, ", {count} {what}");
                }
            }
            writeln!(out, "{line}")?;
        }
        Ok(())
    }
}

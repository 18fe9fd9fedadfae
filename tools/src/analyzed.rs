//! Captures, analyzed: the input of `roce analyze` and `roce stats`.

use std::path::{Path, PathBuf};

use softroce_cli::{InputArgs, SpanArgs};
use softroce_pcap::analyze::{Analysis, Analyzer, Filter, Limits};

use crate::both_ends::BothEnds;
use crate::capture;
use crate::merged::Merged;

/// An analyzed capture, or the captures of both ends.
pub(crate) struct Analyzed {
    /// Name of the capture, or names of both.
    pub(crate) name: String,
    pub(crate) inputs: Vec<PathBuf>,
    pub(crate) analysis: Analysis,
    /// How captures of both ends relate.
    pub(crate) merged: Option<Merged>,
}

/// Analyzes each capture, or those of both ends as one, and calls `take` with the result. A capture that ends with an
/// error is analyzed up to there, and the error is returned after `take`. It does not keep further captures from being
/// read.
pub(crate) fn for_each(
    input: &InputArgs,
    span: &SpanArgs,
    mut take: impl FnMut(Analyzed) -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    if !input.ends.is_empty() {
        let (analyzed, failure) = both(&input.ends, span)?;
        take(analyzed)?;
        return failure.map_or(Ok(()), Err);
    }
    capture::for_each(&input.files, |path| {
        let (analyzed, failure) = one(path, span)?;
        take(analyzed)?;
        failure.map_or(Ok(()), Err)
    })
}

/// Analyzes a capture; returns the error that it ends with, too.
fn one(path: &Path, span: &SpanArgs) -> anyhow::Result<(Analyzed, Option<anyhow::Error>)> {
    let name = path.display().to_string();
    let mut reader = capture::open(path)?;
    let mut analyzer = analyzer(span);
    let failure = loop {
        match reader.next_packet() {
            Ok(Some(packet)) => analyzer.packet(&packet),
            Ok(None) => break None,
            Err(e) => break Some(anyhow::Error::from(e).context(name.clone())),
        }
    };
    let inputs = vec![path.to_owned()];
    Ok((Analyzed { name, inputs, analysis: analyzer.finish(), merged: None }, failure))
}

/// Analyzes captures of both ends as one.
fn both(files: &[PathBuf], span: &SpanArgs) -> anyhow::Result<(Analyzed, Option<anyhow::Error>)> {
    let mut ends = BothEnds::open(files)?;
    let mut analyzer = analyzer(span);
    let failure = ends.for_each(|packet| {
        analyzer.ip_packet(packet.number, Some(packet.time), &packet.ip);
        Ok(())
    })?;
    let merged = Some(ends.merged());
    let inputs = files.to_vec();
    Ok((Analyzed { name: ends.name(), inputs, analysis: analyzer.finish(), merged }, failure))
}

fn analyzer(span: &SpanArgs) -> Analyzer {
    let filter = Filter {
        qps: span.qpn.clone(),
        addresses: span.addr.clone(),
        from: span.from,
        to: span.to,
    };
    Analyzer::new(Limits::default(), filter)
}

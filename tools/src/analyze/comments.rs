//! `roce analyze -w`: a copy of the capture with the causes of each flow's duration as comments.

use std::collections::HashMap;
use std::path::Path;

use anyhow::ensure;
use softroce_cli::AnalyzeArgs;
use softroce_pcap::analyze::{Analysis, Count, Flow, Size, Span};

use crate::annotated::Annotated;
use crate::capture;

use super::text::{ends, way};

/// Checks that one capture is given, and that it can be read twice.
pub(super) fn check(args: &AnalyzeArgs) -> anyhow::Result<()> {
    ensure!(
        args.input.files.len() == 1,
        "--write: {} captures are given, expected one, of which a copy is written",
        args.input.files.len()
    );
    ensure!(
        args.input.files.iter().all(|file| file.is_file()),
        "--write: expected a file, because the capture is read twice"
    );
    Ok(())
}

/// Writes the copy.
pub(super) fn write(to: &Path, from: &Path, analysis: &Analysis) -> anyhow::Result<()> {
    let mut comments: HashMap<u64, Vec<String>> = HashMap::new();
    for (number, flow) in (1..).zip(&analysis.flows) {
        let first = flow.streams.iter().map(|stream| stream.first_packet).min();
        comments.entry(first.unwrap_or_default()).or_default().extend(of_flow(number, flow));
    }
    let mut reader = capture::open(from)?;
    let mut copy = Annotated::create(to, from, "analyze")?;
    // The analysis has reported the error that ends a capture early.
    while let Ok(Some(block)) = reader.next_block() {
        let found = block.packet().and_then(|packet| comments.get(&packet.number));
        copy.block(&block, found.map_or(&[], Vec::as_slice));
        if copy.has_failed() {
            break;
        }
    }
    copy.finish(&summary(analysis))
}

/// Returns the comments of a flow: its ends and figures, then a comment for each cause of its duration.
fn of_flow(number: usize, flow: &Flow) -> Vec<String> {
    let head = format!(
        "FLOW-{number} {}: {}, {} in {}, {}",
        ends(flow),
        flow.transport,
        Size(flow.bytes()),
        Span(flow.duration()),
        flow.certainty.name()
    );
    let causes = flow.reasons().into_iter().map(|reason| {
        let stream = flow.streams.get(reason.stream).filter(|_| flow.streams.len() > 1);
        let side = stream.map_or(String::new(), |stream| format!("{}: ", way(flow, stream)));
        format!("FLOW-{number} {}: {side}{reason}", reason.what.name())
    });
    std::iter::once(head).chain(causes).collect()
}

/// Returns the counts of the capture, and as many flows as there is room for.
fn summary(analysis: &Analysis) -> String {
    let counts = &analysis.counts;
    let mut text = format!(
        "roce analyze: {} in {}, {} of RoCEv2, {}",
        Count(counts.packets, "packet"),
        Span(analysis.duration),
        counts.roce_packets,
        Count(analysis.flows.len() as u64, "flow")
    );
    for (number, flow) in (1..).zip(&analysis.flows).take(MAX_FLOWS_LISTED) {
        let causes = flow.reasons();
        let cause = causes.first().map_or(String::new(), |cause| format!(" ({})", cause.brief()));
        text.push_str(&format!("; FLOW-{number} {}{cause}", ends(flow)));
    }
    text
}

/// Number of flows that a summary lists.
const MAX_FLOWS_LISTED: usize = 8;

//! `roce analyze`: its options.

use std::path::PathBuf;

use clap::Args;
use softroce::ids::Qpn;

use super::{SpanArgs, units};

/// Say what the connections of a capture did, and what their time went into.
///
/// Both directions of a connection are joined into a flow. For each: what its time went into, in words
/// and in the order of what cost most; operations, bytes and goodput; the latency of messages and the round trip of
/// acknowledgements; what was sent again and why; NAKs, waiting for receive requests, order,
/// congestion; what was in flight; and what the connection managers agreed upon.
///
/// Times are those of the place of the capture: near the responder a latency is only the responder's share.
/// Packets with a bad ICRC count as lost, as they do for a receiver.
#[derive(Args, Debug)]
pub(crate) struct AnalyzeArgs {
    /// A pcap or pcapng file, also compressed with gzip or zstd; - for standard input.
    pub(crate) file: PathBuf,
    /// Only flows of this queue pair.
    #[arg(long, value_name = "QPN", value_parser = units::qpn)]
    pub(crate) qp: Vec<Qpn>,
    #[command(flatten)]
    pub(crate) span: SpanArgs,
    /// Flows to tell everything of; of the rest there is a line each.
    #[arg(long, value_name = "N", default_value_t = 8)]
    pub(crate) flows: usize,
    /// One object of JSON, with every flow.
    #[arg(long)]
    pub(crate) json: bool,
    /// Draw it as well: a page for a browser, in one file that needs no other and no network. It has
    /// PSNs over time, goodput, bytes in flight and latency, to zoom into and to move about in.
    #[arg(long, value_name = "FILE")]
    pub(crate) html: Option<PathBuf>,
}

//! `roce analyze`: its options.

use std::path::PathBuf;

use clap::{Args, ValueHint};

use crate::{InputArgs, SpanArgs};

/// Show what the connections of a capture did, and where their time went.
///
/// Both directions of a connection form a flow. For each flow: the causes of its duration, largest first;
/// operations, bytes and goodput; latencies of messages and round trips of acknowledgements; retransmissions and
/// their causes; NAKs, RNR waits, reordering and congestion marks; bytes in flight; and the parameters that the
/// connection managers exchanged.
///
/// Times are those at the point of capture, or with -r at the sender of each packet: near the responder, a latency is only the responder's share. Packets
/// with a bad ICRC count as lost, as they do for a receiver.
#[derive(Args, Debug)]
pub struct AnalyzeArgs {
    #[command(flatten)]
    pub input: InputArgs,
    #[command(flatten)]
    pub span: SpanArgs,
    /// Number of flows to print in full; each further flow has one line.
    #[arg(long, value_name = "N", default_value_t = 8)]
    pub flows: usize,
    /// Print one object of JSON for each file, with every flow.
    #[arg(long)]
    pub json: bool,
    /// Also write a page for a browser, which needs no other file and no network: PSNs over time, goodput, bytes in
    /// flight and latency, with zoom; all flows over time, when there are many.
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub html: Option<PathBuf>,
    /// Also write the capture to this pcapng file, with the causes of each flow's duration as comments of its first
    /// packet, which Wireshark and tshark show; - for standard output, in place of the report. The capture is read
    /// twice.
    #[arg(short, long, value_name = "FILE", conflicts_with = "ends", value_hint = ValueHint::FilePath)]
    pub write: Option<PathBuf>,
}

//! `roce check`: its options.

use std::path::PathBuf;

use clap::Args;

/// Hold captures against the rules of RoCEv2.
///
/// Every ICRC is verified, and every packet is held against the rules of headers, lengths, opcode
/// sequences and PSNs, answers against what they answer. A finding has the packet's number in the file as
/// Wireshark counts, seconds since the first packet, how bad it is, the rule, what was seen and expected, and
/// whose doing it is. It is a violation; or a quirk, which a widespread stack is known for, a habit in
/// every packet is told once for each direction; or a note: a retransmission and its cause, a NAK, packets that the capture does
/// not hold.
///
/// The exit status is 0 when no file has a violation, 1 when one has, 2 when one cannot be read.
#[derive(Args, Debug)]
pub(crate) struct CheckArgs {
    /// pcap or pcapng files; - for standard input.
    #[arg(required = true, value_name = "FILE")]
    pub(crate) files: Vec<PathBuf>,
    /// Findings to print of a file; the rest are counted.
    #[arg(long, value_name = "N", default_value_t = 10_000)]
    pub(crate) max: usize,
    /// An object of JSON a file.
    #[arg(long)]
    pub(crate) json: bool,
}

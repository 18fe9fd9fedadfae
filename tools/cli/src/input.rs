//! Captures that a command reads.

use std::path::PathBuf;

use clap::{Args, ValueHint};

/// Captures, or the two captures of both ends.
#[derive(Args, Debug)]
pub struct InputArgs {
    /// pcap or pcapng files, also compressed with gzip or zstd; - for standard input.
    #[arg(required_unless_present = "ends", value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub files: Vec<PathBuf>,
    /// Read captures of both ends as one; given twice, once for each end. The offset and the drift of the clocks are
    /// estimated from packets in both captures. The time of a packet is that at its sender, by the clock of the first
    /// capture.
    #[arg(short = 'r', long = "end", value_name = "FILE", conflicts_with = "files", value_hint = ValueHint::FilePath)]
    pub ends: Vec<PathBuf>,
}

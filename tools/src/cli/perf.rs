//! `roce perf`: the options of perftest under perftest's names.

use std::net::IpAddr;

use clap::{Args, ValueEnum};
use softroce::ids::Mtu;

use super::units;

/// Measure bandwidth or latency.
///
/// Without HOST both sides are started on this machine. For two machines, start the other one first
/// with the same test and --listen, then name it as HOST here.
#[derive(Args, Debug)]
pub(crate) struct PerfArgs {
    /// What to measure.
    #[arg(value_enum)]
    pub(crate) test: Test,
    /// The machine that listens.
    #[arg(conflicts_with = "listen")]
    pub(crate) host: Option<String>,

    /// Be the side that is named as HOST, for one test.
    #[arg(long)]
    pub(crate) listen: bool,
    /// TCP port over which the sides agree.
    #[arg(short, long, value_name = "PORT", default_value_t = 18515)]
    pub(crate) port: u16,
    /// Of `ceiling`: the test whose packets are imitated.
    #[arg(long, value_name = "TEST", value_enum, default_value_t = Test::WriteBw)]
    pub(crate) of: Test,

    /// Bytes in a message [default: 65536 for bandwidth, 2 for latency].
    #[arg(short, long, value_name = "BYTES", value_parser = units::bytes, conflicts_with = "all")]
    pub(crate) size: Option<usize>,
    /// Every power of two from 2 bytes to 8 MiB.
    #[arg(short, long)]
    pub(crate) all: bool,
    /// Measure for so long, a row.
    #[arg(short = 'D', long, value_name = "SECONDS")]
    pub(crate) duration: Option<f64>,
    /// Path MTU [default: the largest the interface carries].
    #[arg(short, long, value_name = "BYTES", value_parser = units::mtu)]
    pub(crate) mtu: Option<Mtu>,

    /// Our address.
    #[arg(long, value_name = "ADDRESS")]
    pub(crate) ip: Option<IpAddr>,
    /// Receive buffer of the sockets [default: as large as allowed].
    #[arg(long, value_name = "BYTES", value_parser = units::bytes)]
    pub(crate) rcvbuf: Option<usize>,
    /// Results as JSON, an object a row.
    #[arg(long)]
    pub(crate) json: bool,

    /// Tell the parent process where we listen.
    #[arg(long, hide = true)]
    pub(crate) announce: bool,
}

/// The tests, named as perftest names its programs.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub(crate) enum Test {
    /// RDMA WRITE, one way.
    WriteBw,
    /// SEND, one way.
    SendBw,
    /// RDMA READ, one way.
    ReadBw,
    /// SEND there and back: half round trip.
    SendLat,
    /// RDMA WRITE there and back, both sides polling memory: half round trip.
    WriteLat,
    /// Raw UDP in the shape of another test: what can be had.
    Ceiling,
}

impl Test {
    /// As on the command line.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::WriteBw => "write-bw",
            Self::SendBw => "send-bw",
            Self::ReadBw => "read-bw",
            Self::SendLat => "send-lat",
            Self::WriteLat => "write-lat",
            Self::Ceiling => "ceiling",
        }
    }

    /// Whether it measures a time and not a rate.
    pub(crate) const fn is_latency(self) -> bool {
        matches!(self, Self::SendLat | Self::WriteLat)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tests_are_named_as_on_the_command_line() {
        for test in Test::value_variants() {
            assert_eq!(test.to_possible_value().unwrap().get_name(), test.name());
        }
    }
}

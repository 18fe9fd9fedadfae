//! `roce perf`: the options of perftest under its names.

use clap::{Args, ValueEnum};
use softroce::ids::Mtu;

use super::{DeviceArgs, units};

/// Measure bandwidth or latency.
///
/// Without HOST both sides are started on this machine. For two machines, start the other one first
/// with the same test and --listen, then name it as HOST here.
///
/// Every result is also given as a fraction of what raw UDP does with the same datagrams, measured
/// just before it.
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
    /// TCP port over which the sides agree; with --listen, 0 is any.
    #[arg(short, long, value_name = "PORT", default_value_t = 18515)]
    pub(crate) port: u16,
    /// With --listen: print the TCP port when it can be connected to.
    #[arg(long, requires = "listen")]
    pub(crate) announce: bool,
    /// Of `ceiling`: the test whose packets are imitated [default: write-bw].
    #[arg(long, value_name = "TEST", value_enum)]
    pub(crate) of: Option<Test>,
    /// Do not measure raw UDP.
    #[arg(long)]
    pub(crate) no_ceiling: bool,
    /// An object of JSON a row.
    #[arg(long)]
    pub(crate) json: bool,

    #[command(flatten)]
    pub(crate) load: LoadArgs,
    #[command(flatten)]
    pub(crate) device: DeviceArgs,

    /// The other side runs on the first core of this machine.
    #[arg(long, hide = true)]
    pub(crate) second_core: bool,
}

/// What is sent, and how.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Load")]
pub(crate) struct LoadArgs {
    /// Bytes in a message [default: 65536 for bandwidth, 2 for latency].
    #[arg(short, long, value_name = "BYTES", value_parser = units::message, conflicts_with = "all")]
    pub(crate) size: Option<usize>,
    /// Every power of two from 2 bytes to 8 MiB.
    #[arg(short, long)]
    pub(crate) all: bool,
    /// Messages, a row.
    #[arg(short = 'n', long, value_name = "N", conflicts_with = "duration",
          value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) iters: Option<u64>,
    /// Seconds, a row [default: 1; with --all 0.25].
    #[arg(short = 'D', long, value_name = "SECONDS", value_parser = units::seconds)]
    pub(crate) duration: Option<std::time::Duration>,
    /// Queue pairs [default: 1].
    #[arg(short, long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub(crate) qp: Option<u32>,
    /// Path MTU [default: the largest that both interfaces carry].
    #[arg(short, long, value_name = "BYTES", value_parser = units::mtu)]
    pub(crate) mtu: Option<Mtu>,
    /// Messages posted and not complete, a queue pair.
    #[arg(short, long, value_name = "N", default_value_t = 128,
          value_parser = clap::value_parser!(u32).range(1..=16384))]
    pub(crate) tx_depth: u32,
    /// Receive requests posted, a queue pair.
    #[arg(short, long, value_name = "N", default_value_t = 512,
          value_parser = clap::value_parser!(u32).range(1..=16384))]
    pub(crate) rx_depth: u32,
    /// One completion for so many messages [default: a quarter of the depth, 16 at most].
    #[arg(short = 'Q', long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) cq_mod: Option<u32>,
    /// Messages up to so many bytes travel in the request itself [default: 220 for send-lat and
    /// write-lat, else 0].
    #[arg(short = 'I', long, alias = "inline_size", value_name = "BYTES")]
    pub(crate) inline_size: Option<u32>,
    /// Sleep until something completes, rather than poll.
    #[arg(short, long)]
    pub(crate) events: bool,
    /// ACK timeout: 4.096 µs × 2^N.
    #[arg(short = 'u', long, value_name = "N", default_value_t = 14,
          value_parser = clap::value_parser!(u8).range(..=31))]
    pub(crate) qp_timeout: u8,
    /// Which of our GIDs to use.
    #[arg(short = 'x', long, value_name = "INDEX", default_value_t = 0)]
    pub(crate) gid_index: u8,
    /// Accepted as perftest has it: we do not look at the frequency of CPUs.
    #[arg(short = 'F', long = "CPU-freq")]
    pub(crate) cpu_freq: bool,
    /// Accepted as perftest has it: all results are in Gbit/s.
    #[arg(long = "report_gbits", hide = true)]
    pub(crate) report_gbits: bool,
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

//! `roce perf`: the options of perftest under its names.

use std::path::PathBuf;

use clap::{Args, ValueEnum};
use serde::{Deserialize, Serialize};
use softroce::ids::Mtu;

use super::{DeviceArgs, Transport, units};

/// Measure bandwidth or latency.
///
/// Without HOST both sides are started on this machine. For two machines, start the other one first
/// with the same test and --listen, then name it as HOST here.
///
/// Every result is also given as a fraction of what raw UDP does with the same datagrams, measured
/// just before it.
///
/// RC and XRC carry all tests, UC those of WRITE and SEND, UD those of SEND. What UC and UD lose nobody
/// sends again: the rate is then of what arrived, and the row says how much was sent and received.
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
    /// With --listen: be that for so many at once, all on one device, and end when all have.
    #[arg(long, value_name = "COUNT", requires = "listen", default_value_t = 1,
          value_parser = clap::value_parser!(u8).range(1..))]
    pub(crate) clients: u8,
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
    /// Hold what this side sends and receives against the rules of RoCEv2, as `roce check` does with
    /// captures; findings on standard error, and exit status 1 with a violation. It costs speed.
    #[arg(long)]
    pub(crate) check: bool,
    /// At the end, print what the devices of both sides have counted, side by side; counters at 0 are left out.
    #[arg(long, conflicts_with = "listen")]
    pub(crate) counters: bool,
    /// An object of JSON a row.
    #[arg(long)]
    pub(crate) json: bool,
    /// Draw the result: against message size with --all, or else how the times of a latency test
    /// are distributed.
    #[arg(long, value_name = "FILE.svg", conflicts_with = "listen", value_parser = svg)]
    pub(crate) plot: Option<PathBuf>,

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
    /// Transport service [default: rc].
    #[arg(short, long, value_enum, ignore_case = true, value_name = "SERVICE")]
    pub(crate) connection: Option<Transport>,
    /// Bytes in a message, over UD the MTU at most [default: 65536 for bandwidth, over UD the MTU; 2
    /// for latency; atomics have 8].
    #[arg(short, long, value_name = "BYTES", value_parser = units::message, conflicts_with = "all")]
    pub(crate) size: Option<usize>,
    /// Every power of two from 2 bytes to 8 MiB, over UD to the MTU.
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
    #[arg(short, long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=16384))]
    pub(crate) qp: Option<u32>,
    /// Both sides send at once; results are sums of both.
    #[arg(short, long)]
    pub(crate) bidirectional: bool,
    /// What an atomic does [default: FETCH_AND_ADD].
    #[arg(
        short = 'A',
        long,
        alias = "atomic_type",
        value_enum,
        ignore_case = true,
        value_name = "TYPE"
    )]
    pub(crate) atomic_type: Option<AtomicType>,
    /// Path MTU [default: the largest that both interfaces carry].
    #[arg(short, long, value_name = "BYTES", value_parser = units::mtu)]
    pub(crate) mtu: Option<Mtu>,
    #[command(flatten)]
    pub(crate) queues: QueueArgs,
    /// Sleep until something completes, rather than poll. In a latency test raw UDP sleeps too.
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

/// Queues of each queue pair.
#[derive(Args, Clone, Debug)]
pub(crate) struct QueueArgs {
    /// Messages posted and not complete, a queue pair.
    #[arg(short, long, value_name = "N", default_value_t = 128,
          value_parser = clap::value_parser!(u32).range(1..=16384))]
    pub(crate) tx_depth: u32,
    /// Receive requests posted, a queue pair [default: 512; over UC and UD, where nobody waits for
    /// one, 4096 of all queue pairs if that is more].
    #[arg(short, long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=16384))]
    pub(crate) rx_depth: Option<u32>,
    /// One receive queue for all queue pairs; --rx-depth is then of that [default: 512 for each of
    /// them, 16384 at most]. With xrc always.
    #[arg(long, alias = "use_srq")]
    pub(crate) use_srq: bool,
    /// One completion for so many messages [default: a quarter of the depth, 16 at most].
    #[arg(short = 'Q', long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) cq_mod: Option<u32>,
    /// Messages up to so many bytes travel in the request itself [default: 220 for send-lat and
    /// write-lat, else 0].
    #[arg(short = 'I', long, alias = "inline_size", value_name = "BYTES")]
    pub(crate) inline_size: Option<u32>,
}

/// The tests, named as perftest names its programs.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub(crate) enum Test {
    /// RDMA WRITE, one way. Over UC with immediate data, so that the other side can count.
    WriteBw,
    /// RDMA READ, one way.
    ReadBw,
    /// SEND, one way.
    SendBw,
    /// Atomic operations on 8 bytes of the other side.
    AtomicBw,
    /// RDMA WRITE there and back, both sides polling memory: half round trip.
    WriteLat,
    /// RDMA READ: whole round trip.
    ReadLat,
    /// SEND there and back: half round trip.
    SendLat,
    /// An atomic operation: whole round trip.
    AtomicLat,
    /// Raw UDP in the shape of another test: what can be had.
    Ceiling,
}

/// What a message does.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) enum Verb {
    Write,
    Read,
    Send,
    Atomic,
}

/// What is measured of it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) enum Measure {
    Bandwidth,
    Latency,
}

/// Atomic operations, as perftest names them.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, ValueEnum, Serialize, Deserialize)]
pub(crate) enum AtomicType {
    /// Adds one.
    #[default]
    #[value(name = "FETCH_AND_ADD")]
    FetchAndAdd,
    /// Replaces each value by the next.
    #[value(name = "CMP_AND_SWAP")]
    CmpAndSwap,
}

impl Test {
    /// As on the command line.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::WriteBw => "write-bw",
            Self::ReadBw => "read-bw",
            Self::SendBw => "send-bw",
            Self::AtomicBw => "atomic-bw",
            Self::WriteLat => "write-lat",
            Self::ReadLat => "read-lat",
            Self::SendLat => "send-lat",
            Self::AtomicLat => "atomic-lat",
            Self::Ceiling => "ceiling",
        }
    }

    /// What it measures; `None` for the ceiling, which imitates another.
    pub(crate) const fn measures(self) -> Option<(Verb, Measure)> {
        Some(match self {
            Self::WriteBw => (Verb::Write, Measure::Bandwidth),
            Self::ReadBw => (Verb::Read, Measure::Bandwidth),
            Self::SendBw => (Verb::Send, Measure::Bandwidth),
            Self::AtomicBw => (Verb::Atomic, Measure::Bandwidth),
            Self::WriteLat => (Verb::Write, Measure::Latency),
            Self::ReadLat => (Verb::Read, Measure::Latency),
            Self::SendLat => (Verb::Send, Measure::Latency),
            Self::AtomicLat => (Verb::Atomic, Measure::Latency),
            Self::Ceiling => return None,
        })
    }
}

impl Verb {
    /// Whether a transport service has it.
    pub(crate) const fn exists_over(self, transport: Transport) -> bool {
        match transport {
            Transport::Rc | Transport::Xrc => true,
            Transport::Uc => matches!(self, Self::Write | Self::Send),
            Transport::Ud => matches!(self, Self::Send),
        }
    }

    /// Whether the other side's adapter answers with data, without its program.
    pub(crate) const fn is_answered(self) -> bool {
        matches!(self, Self::Read | Self::Atomic)
    }
}

/// The name of a picture.
fn svg(text: &str) -> Result<PathBuf, String> {
    let path = PathBuf::from(text);
    match path.extension() {
        Some(extension) if extension.eq_ignore_ascii_case("svg") => Ok(path),
        _ => Err("a plot is SVG: expected a name that ends in .svg".into()),
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

    #[test]
    fn plots_are_svg_files() {
        assert_eq!(svg("a/b.SVG"), Ok(PathBuf::from("a/b.SVG")));
        for wrong in ["", "plot", "plot.png", "svg", ".svg"] {
            assert!(svg(wrong).is_err(), "{wrong}");
        }
    }
}

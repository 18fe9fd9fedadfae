//! `roce perf`: the options of perftest under its names.

use std::path::PathBuf;

use clap::{Args, ValueEnum, ValueHint};
use serde::{Deserialize, Serialize};
use softroce::ids::Mtu;

use crate::{DeviceArgs, Transport, units};

/// Measure bandwidth or latency, with the options of perftest.
///
/// Without HOST both sides run on this machine. For two machines, start the same test there with --listen, then
/// name that machine as HOST here. `roce ib_write_bw` and the other names of perftest's programs work too; as in
/// perftest, they listen without HOST. The other side must be roce: perftest's own programs have another control
/// protocol.
///
/// Each result is also given as a fraction of the ceiling: raw UDP with the same datagrams, measured just before.
///
/// RC and XRC carry all tests, UC those of WRITE and SEND, UD those of SEND. UC and UD do not retransmit: the rate
/// counts messages that arrived, and the row shows how many were sent and received.
#[derive(Args, Debug)]
pub struct PerfArgs {
    /// Test to run.
    #[arg(value_enum)]
    pub test: Test,
    /// Host that listens.
    #[arg(conflicts_with = "listen")]
    pub host: Option<String>,

    /// Listen for one test of a side that names this machine as HOST.
    #[arg(long)]
    pub listen: bool,
    /// With --listen: serve this many sides at once on one device, then end.
    #[arg(long, value_name = "COUNT", requires = "listen", default_value_t = 1,
          value_parser = clap::value_parser!(u8).range(1..))]
    pub clients: u8,
    /// TCP port of the control connection; with --listen, 0 is any free one.
    #[arg(short, long, value_name = "PORT", default_value_t = 18515)]
    pub port: u16,
    /// With --listen: print the TCP port once it accepts connections.
    #[arg(long, requires = "listen")]
    pub announce: bool,
    /// With `ceiling`: the test whose packets raw UDP imitates [default: write-bw].
    #[arg(long, value_name = "TEST", value_enum)]
    pub of: Option<Test>,
    /// Do not measure raw UDP.
    #[arg(long)]
    pub no_ceiling: bool,
    /// Check sent and received packets of this side, as `roce check` does with captures; findings go to standard
    /// error, and the exit status is 1 after a violation. It costs speed.
    #[arg(long)]
    pub check: bool,
    /// At the end, print the counters of both devices side by side; those at 0 are left out.
    #[arg(long, conflicts_with = "listen")]
    pub counters: bool,
    /// Print one object of JSON for each row.
    #[arg(long)]
    pub json: bool,
    /// Draw the result as SVG: against message size with --all; otherwise the distribution of a latency test.
    #[arg(long, value_name = "FILE.svg", conflicts_with = "listen", value_parser = svg,
          value_hint = ValueHint::FilePath)]
    pub plot: Option<PathBuf>,

    #[command(flatten)]
    pub load: LoadArgs,
    #[command(flatten)]
    pub device: DeviceArgs,

    /// Run on the second core; the side that started this one runs on the first.
    #[arg(long, hide = true)]
    pub second_core: bool,
}

/// Maximum number of queue pairs of a test.
pub const MAX_QPS: u32 = 16384;

/// Options of the load.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Load")]
pub struct LoadArgs {
    /// Transport service [default: rc].
    #[arg(short, long, value_enum, ignore_case = true, value_name = "SERVICE")]
    pub connection: Option<Transport>,
    /// Bytes in a message, at least 1, with ud at most the MTU [default: 65536 for bandwidth, with ud the MTU; 2 for
    /// latency; 8 for atomics].
    #[arg(short, long, value_name = "BYTES", value_parser = units::full_message, conflicts_with = "all")]
    pub size: Option<usize>,
    /// Run every power of two from 2 bytes to 8 MiB, with ud to the MTU.
    #[arg(short, long)]
    pub all: bool,
    /// Number of messages in a row.
    #[arg(short = 'n', long, value_name = "N", conflicts_with = "duration",
          value_parser = clap::value_parser!(u64).range(1..))]
    pub iters: Option<u64>,
    /// Duration of a row [default: 1; with --all 0.25].
    #[arg(short = 'D', long, value_name = "SECONDS", value_parser = units::seconds)]
    pub duration: Option<std::time::Duration>,
    /// Number of queue pairs [default: 1].
    #[arg(short, long, value_name = "N",
          value_parser = clap::value_parser!(u32).range(1..=i64::from(MAX_QPS)))]
    pub qp: Option<u32>,
    /// Both sides send at once; results are sums of both.
    #[arg(short, long)]
    pub bidirectional: bool,
    /// Atomic operation [default: FETCH_AND_ADD].
    #[arg(
        short = 'A',
        long,
        alias = "atomic_type",
        value_enum,
        ignore_case = true,
        value_name = "TYPE"
    )]
    pub atomic_type: Option<AtomicType>,
    /// Path MTU [default: the largest that both interfaces carry].
    #[arg(short, long, value_name = "BYTES", value_parser = units::mtu)]
    pub mtu: Option<Mtu>,
    #[command(flatten)]
    pub queues: QueueArgs,
    /// Sleep until a completion arrives instead of polling. In a latency test raw UDP sleeps too.
    #[arg(short, long)]
    pub events: bool,
    /// ACK timeout: 4.096 µs × 2^N.
    #[arg(short = 'u', long, value_name = "N", default_value_t = 14,
          value_parser = clap::value_parser!(u8).range(..=31))]
    pub qp_timeout: u8,
    /// Index of the GID to use.
    #[arg(short = 'x', long, visible_alias = "gid-idx", value_name = "INDEX", default_value_t = 0)]
    pub gid_index: u8,
    /// Accepted for perftest: the CPU frequency is not checked.
    #[arg(short = 'F', long = "CPU-freq")]
    pub cpu_freq: bool,
    /// Accepted for perftest: all results are in Gbit/s.
    #[arg(long = "report_gbits", hide = true)]
    pub report_gbits: bool,
}

/// Queues of each queue pair, with the limits of perftest.
#[derive(Args, Clone, Debug)]
pub struct QueueArgs {
    /// Depth of the send queue of a queue pair, and so the messages posted and not complete.
    #[arg(short, long, value_name = "N", default_value_t = 128,
          value_parser = clap::value_parser!(u32).range(1..=15000))]
    pub tx_depth: u32,
    /// Depth of the receive queue of a queue pair [default: 512; with uc and ud, which lose messages that find no
    /// receive request, 4096 over all queue pairs if that is more].
    #[arg(short, long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=16384))]
    pub rx_depth: Option<u32>,
    /// One receive queue for all queue pairs, of the depth that --rx-depth gives [default: 512 for each queue pair,
    /// at most 16384]. With xrc always.
    #[arg(long, alias = "use_srq")]
    pub use_srq: bool,
    /// Bandwidth tests: number of send requests in one call of post_send, at most the depth.
    #[arg(short = 'l', long = "post_list", visible_alias = "post-list", value_name = "N", default_value_t = 1,
          value_parser = clap::value_parser!(u32).range(1..=15000))]
    pub post_list: u32,
    /// Number of messages for which there is one completion; with --post_list a divisor of that [default: the post
    /// list; without one 100, and 1 for messages of more than 8192 bytes].
    #[arg(short = 'Q', long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub cq_mod: Option<u32>,
    /// Largest message that travels in the request itself [default: 220 for send-lat and write-lat, else 0].
    #[arg(short = 'I', long, alias = "inline_size", value_name = "BYTES")]
    pub inline_size: Option<u32>,
}

/// The tests; perftest calls its programs so, with `ib_` before and `_` within.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum Test {
    /// Bandwidth of RDMA WRITE; with uc with immediate data, so that the other side can count.
    WriteBw,
    /// Bandwidth of RDMA READ.
    ReadBw,
    /// Bandwidth of SEND.
    SendBw,
    /// Rate of atomic operations on 8 bytes of the other side.
    AtomicBw,
    /// Half the round trip of two RDMA WRITEs; both sides poll memory.
    WriteLat,
    /// Round trip of an RDMA READ.
    ReadLat,
    /// Half the round trip of two SENDs.
    SendLat,
    /// Round trip of an atomic operation.
    AtomicLat,
    /// Raw UDP with the packets of another test: the upper limit.
    Ceiling,
}

/// Operation of a message.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Verb {
    Write,
    Read,
    Send,
    Atomic,
}

/// Measured quantity.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Measure {
    Bandwidth,
    Latency,
}

/// Atomic operations, as perftest names them.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, ValueEnum, Serialize, Deserialize)]
pub enum AtomicType {
    /// Adds one.
    #[default]
    #[value(name = "FETCH_AND_ADD")]
    FetchAndAdd,
    /// Replaces each value by the next.
    #[value(name = "CMP_AND_SWAP")]
    CmpAndSwap,
}

impl Test {
    /// Returns the name on the command line.
    pub const fn name(self) -> &'static str {
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

    /// Returns operation and quantity; `None` for the ceiling, which imitates another test.
    pub const fn measures(self) -> Option<(Verb, Measure)> {
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
    /// Returns whether a transport service has the operation.
    pub const fn exists_over(self, transport: Transport) -> bool {
        match transport {
            Transport::Rc | Transport::Xrc => true,
            Transport::Uc => matches!(self, Self::Write | Self::Send),
            Transport::Ud => matches!(self, Self::Send),
        }
    }

    /// Returns whether the responding device returns data, without its program.
    pub const fn is_answered(self) -> bool {
        matches!(self, Self::Read | Self::Atomic)
    }
}

/// Parses the name of an SVG file.
fn svg(text: &str) -> Result<PathBuf, String> {
    let path = PathBuf::from(text);
    match path.extension() {
        Some(extension) if extension.eq_ignore_ascii_case("svg") => Ok(path),
        _ => Err("expected a name that ends in .svg: a plot is SVG".into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn test_names_are_those_of_the_command_line() {
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

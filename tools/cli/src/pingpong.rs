//! `roce pingpong`: the options of `ibv_rc_pingpong` and its relatives.

use std::time::Duration;

use clap::Args;
use softroce::ids::Mtu;

use crate::{DeviceArgs, Transport, units};

/// Send one message back and forth.
///
/// Without HOST it listens, with HOST it sends first. The other side may be the rdma-core program of the transport
/// service: ibv_rc_pingpong, ibv_uc_pingpong, ibv_ud_pingpong, or ibv_xsrq_pingpong with one client for xrc, on a
/// host with rdma_rxe or an RDMA adapter (there it needs -g). `roce ibv_rc_pingpong` and so on take the options of
/// those programs, in which -c is --chk.
///
/// UC and UD do not retransmit. When messages stop arriving, the command prints how many were exchanged, and its
/// exit status is 1.
#[derive(Args, Debug)]
pub struct PingpongArgs {
    /// Host that listens.
    pub host: Option<String>,
    /// Transport service.
    #[arg(short, long, visible_alias = "transport", value_enum, ignore_case = true, value_name = "SERVICE",
          default_value_t = Transport::Rc)]
    pub connection: Transport,
    /// Use several RC queue pairs with one shared receive queue, each with a message in flight, as ibv_srq_pingpong
    /// does.
    #[arg(long)]
    pub use_srq: bool,
    /// With --use-srq: number of queue pairs.
    #[arg(short, long, visible_alias = "num-qp", value_name = "N", default_value_t = 16, requires = "use_srq",
          value_parser = clap::value_parser!(u32).range(1..=256))]
    pub qp: u32,
    /// TCP port over which the sides exchange their queue pairs; without HOST, 0 is any free one.
    #[arg(short, long, default_value_t = 18515)]
    pub port: u16,
    /// Without HOST: print the TCP port once it accepts connections.
    #[arg(long, conflicts_with = "host")]
    pub announce: bool,
    #[command(flatten)]
    pub load: PingpongLoad,
    /// Check sent and received packets, as `roce check` does with captures; findings go to standard error, and the
    /// exit status is 1 after a violation.
    #[arg(long)]
    pub check: bool,
    /// At the end, print the counters of the device; those at 0 are left out.
    #[arg(long)]
    pub counters: bool,
    /// Print the result as one object of JSON.
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    pub device: DeviceArgs,
}

/// The messages, and the queue pair that carries them.
#[derive(Args, Clone, Debug)]
pub struct PingpongLoad {
    /// Bytes in a message; with ud at most the MTU of the port [default: 4096, with ud 1024].
    #[arg(short, long, value_name = "BYTES", value_parser = units::message)]
    size: Option<usize>,
    /// Path MTU, the same on both sides. With ud it is the MTU of the port [default: 1024].
    #[arg(short, long, value_name = "BYTES", value_parser = units::mtu)]
    pub mtu: Option<Mtu>,
    /// Number of receive requests to post at a time.
    #[arg(short, long, value_name = "N", default_value_t = 500,
          value_parser = clap::value_parser!(u32).range(1..))]
    pub rx_depth: u32,
    /// Number of messages in each direction.
    #[arg(short = 'n', long, value_name = "N", default_value_t = 1000)]
    pub iters: u64,
    /// Service level: accepted, without effect on RoCEv2.
    #[arg(short = 'l', long, value_name = "N")]
    pub sl: Option<u8>,
    /// Sleep until a completion arrives instead of polling.
    #[arg(short, long)]
    pub events: bool,
    /// Index of the GID to use; -x as in perftest.
    #[arg(
        short,
        long,
        visible_short_alias = 'x',
        visible_alias = "gid-index",
        value_name = "INDEX",
        default_value_t = 0
    )]
    pub gid_idx: u8,
    /// Compare every received byte with what was sent.
    #[arg(long)]
    pub chk: bool,
    /// Time without a message after which the test fails.
    #[arg(long, alias = "patience", value_name = "SECONDS", default_value = "10", value_parser = units::seconds)]
    pub timeout: Duration,
}

impl PingpongArgs {
    /// Returns the bytes in a message; the default is that of the rdma-core program of the transport service.
    pub fn size(&self) -> usize {
        self.load.size.unwrap_or(match self.connection {
            Transport::Rc | Transport::Uc | Transport::Xrc => 4096,
            // Since rdma-core 26; the usage text there still says 2048.
            Transport::Ud => 1024,
        })
    }
}

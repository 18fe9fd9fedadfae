//! `roce pingpong`: the options of `ibv_rc_pingpong` and its like under their names.

use std::time::Duration;

use clap::Args;
use softroce::ids::Mtu;

use super::{DeviceArgs, Transport, units};

/// Send a message back and forth.
///
/// Without HOST it listens, with HOST it begins. The other half may be the stock program of the
/// transport, ibv_rc_pingpong, ibv_uc_pingpong, ibv_ud_pingpong or, for xrc, ibv_xsrq_pingpong with
/// one client, on a host with rdma_rxe or an RDMA adapter (there it needs -g).
///
/// UC and UD do not send again what is lost. When nothing comes any more, the command says how far
/// it came, and its exit status is 1.
#[derive(Args, Debug)]
pub(crate) struct PingpongArgs {
    /// The machine that listens.
    pub(crate) host: Option<String>,
    /// Transport service.
    #[arg(long, value_enum, default_value_t = Transport::Rc)]
    pub(crate) transport: Transport,
    /// Play as ibv_srq_pingpong does: several queue pairs of RC that share a receive queue, each with a
    /// message of its own under way.
    #[arg(long)]
    pub(crate) use_srq: bool,
    /// With --use-srq: queue pairs.
    #[arg(short = 'q', long, value_name = "N", default_value_t = 16, requires = "use_srq",
          value_parser = clap::value_parser!(u32).range(1..=256))]
    pub(crate) num_qp: u32,
    /// TCP port over which the queue pairs are made known; without HOST, 0 is any.
    #[arg(short, long, default_value_t = 18515)]
    pub(crate) port: u16,
    /// Without HOST: print the TCP port when it can be connected to.
    #[arg(long, conflicts_with = "host")]
    pub(crate) announce: bool,
    #[command(flatten)]
    pub(crate) load: PingpongLoad,
    /// Hold what is sent and received against the rules of RoCEv2, as `roce check` does with
    /// captures; findings on standard error, and exit status 1 with a violation.
    #[arg(long)]
    pub(crate) check: bool,
    /// At the end, print what the device has counted; counters at 0 are left out.
    #[arg(long)]
    pub(crate) counters: bool,
    /// The result as one object of JSON.
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) device: DeviceArgs,
}

/// The messages, and the queue pair that carries them.
#[derive(Args, Clone, Debug)]
pub(crate) struct PingpongLoad {
    /// Bytes in a message; with ud not more than the MTU of the port [default: 4096, with ud 1024].
    #[arg(short, long, value_name = "BYTES", value_parser = units::message)]
    size: Option<usize>,
    /// Path MTU; must be the other side's. With ud it is the port's [default: 1024].
    #[arg(short, long, value_name = "BYTES", value_parser = units::mtu)]
    pub(crate) mtu: Option<Mtu>,
    /// Receive requests to post at a time.
    #[arg(short, long, value_name = "N", default_value_t = 500,
          value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) rx_depth: u32,
    /// Messages each way.
    #[arg(short = 'n', long, value_name = "N", default_value_t = 1000)]
    pub(crate) iters: u64,
    /// Service level: accepted, and of no effect on RoCEv2.
    #[arg(short = 'l', long, value_name = "N")]
    pub(crate) sl: Option<u8>,
    /// Sleep until something completes, rather than poll.
    #[arg(short, long)]
    pub(crate) events: bool,
    /// Which of our GIDs to use.
    #[arg(short, long, value_name = "INDEX", default_value_t = 0)]
    pub(crate) gid_idx: u8,
    /// Look at what is received, every byte.
    #[arg(short, long)]
    pub(crate) chk: bool,
    /// How long nothing may come from the other side.
    #[arg(long, value_name = "SECONDS", default_value = "10", value_parser = units::seconds)]
    pub(crate) patience: Duration,
}

impl PingpongArgs {
    /// Bytes in a message: what the stock program of the transport sends when nothing is said.
    pub(crate) fn size(&self) -> usize {
        self.load.size.unwrap_or(match self.transport {
            Transport::Rc | Transport::Uc | Transport::Xrc => 4096,
            // As it is since rdma-core 26; its usage text still says 2048, as it was before.
            Transport::Ud => 1024,
        })
    }
}

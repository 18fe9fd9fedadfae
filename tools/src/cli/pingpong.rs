//! `roce pingpong`: the options of `ibv_rc_pingpong` under its names.

use clap::Args;
use clap::builder::{PossibleValuesParser, TypedValueParser};
use softroce::ids::Mtu;

use super::{DeviceArgs, Transport, units};

/// Send a message back and forth.
///
/// Without HOST it listens, with HOST it begins. The other half may be the stock program of the
/// transport, ibv_rc_pingpong, on a host with rdma_rxe or an RDMA adapter (there it needs -g).
#[derive(Args, Debug)]
pub(crate) struct PingpongArgs {
    /// The machine that listens.
    pub(crate) host: Option<String>,
    /// Transport service.
    #[arg(long, default_value = "rc",
          value_parser = PossibleValuesParser::new(["rc"]).map(|_| Transport::Rc))]
    pub(crate) transport: Transport,
    /// TCP port over which the queue pairs are made known; without HOST, 0 is any.
    #[arg(short, long, default_value_t = 18515)]
    pub(crate) port: u16,
    /// Without HOST: print the TCP port when it can be connected to.
    #[arg(long, conflicts_with = "host")]
    pub(crate) announce: bool,
    /// Bytes in a message.
    #[arg(short, long, value_name = "BYTES", default_value = "4096", value_parser = units::message)]
    pub(crate) size: usize,
    /// Path MTU; must be the other side's.
    #[arg(short, long, value_name = "BYTES", default_value = "1024", value_parser = units::mtu)]
    pub(crate) mtu: Mtu,
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
    /// The result as one object of JSON.
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) device: DeviceArgs,
}

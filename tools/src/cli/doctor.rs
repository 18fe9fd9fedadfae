//! `roce doctor`: its options.

use clap::Args;

use super::DeviceArgs;

/// Find out what keeps RoCEv2 from working, here or on the way to HOST.
///
/// Each finding is ok, a note, or a problem with what to do about it. It looks at who holds UDP port
/// 4791, at interfaces and MTUs, receive buffers and offloads.
///
/// With HOST also at the way there. Start `roce doctor --listen` on HOST for everything: which
/// packets get there and back, the path MTU, the verdict of the ICRC at both ends, TTL, DSCP and ECN.
/// Without it a kernel with rdma_rxe or an RDMA adapter is asked for a sign of life, and of anybody
/// else is told what can be told: route, MTU, and whether the port is refused or silent.
///
/// The exit status is 0 when there is no problem, 1 when there is one, 2 on an error.
#[derive(Args, Debug)]
pub(crate) struct DoctorArgs {
    /// The machine to look at the way to.
    #[arg(conflicts_with = "listen")]
    pub(crate) host: Option<String>,
    /// Be the side that is named as HOST, for one visit.
    #[arg(long)]
    pub(crate) listen: bool,
    /// TCP port over which the sides agree; with --listen, 0 is any.
    #[arg(short, long, value_name = "PORT", default_value_t = 18516)]
    pub(crate) port: u16,
    /// With --listen: print the TCP port when it can be connected to.
    #[arg(long, requires = "listen")]
    pub(crate) announce: bool,
    /// All findings as one object of JSON.
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) device: DeviceArgs,
}

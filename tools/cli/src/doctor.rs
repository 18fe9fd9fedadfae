//! `roce doctor`: its options.

use clap::Args;

use crate::DeviceArgs;

/// Find out what keeps RoCEv2 from working, on this machine or on the path to HOST.
///
/// Each finding is ok, a note, or a problem with what to do about it. The local checks cover the owner of UDP port
/// 4791, interfaces and MTUs, receive buffers and offloads.
///
/// With HOST, the path is checked too. Start `roce doctor --listen` on HOST for all checks: reachability in both
/// directions, the path MTU, the ICRC at both ends, TTL, DSCP and ECN. Without it, the doctor sends a management
/// query, which kernel rxe and RDMA adapters answer; for other hosts it reports the route, the MTU, and whether the
/// UDP port is closed or does not respond.
///
/// The exit status is 0 without problems, 1 with one, 2 on an error.
#[derive(Args, Debug)]
pub struct DoctorArgs {
    /// Host at the other end of the path.
    #[arg(conflicts_with = "listen")]
    pub host: Option<String>,
    /// Listen for one doctor that names this machine as HOST.
    #[arg(long)]
    pub listen: bool,
    /// TCP port of the control connection; with --listen, 0 is any free one.
    #[arg(short, long, value_name = "PORT", default_value_t = 18516)]
    pub port: u16,
    /// With --listen: print the TCP port once it accepts connections.
    #[arg(long, requires = "listen")]
    pub announce: bool,
    /// Print all findings as one object of JSON.
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    pub device: DeviceArgs,
}

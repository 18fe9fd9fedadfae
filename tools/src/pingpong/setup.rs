//! Definitions that both tests share: IDs of work requests, and the path MTU.

use anyhow::ensure;
use softroce::verbs::{DeviceInfo, Mtu};
use softroce_cli::{PingpongArgs, Transport};

/// Work request ID of send requests.
pub(super) const SEND_WR_ID: u64 = 1;

/// Work request ID of receive requests.
pub(super) const RECV_WR_ID: u64 = 2;

/// Returns the path MTU; a UD message must fit into one packet.
pub(super) fn mtu(args: &PingpongArgs, info: &DeviceInfo) -> anyhow::Result<Mtu> {
    let (size, active, ip) = (args.size(), info.active_mtu, info.ip);
    if args.connection == Transport::Ud {
        ensure!(
            size <= active.bytes(),
            "a message of {size} bytes is more than a packet of UD: the MTU of {ip} is {active} \
             (give -s {active} on both sides)"
        );
        return Ok(active);
    }
    let mtu = args.load.mtu.unwrap_or(Mtu::Mtu1024);
    ensure!(mtu <= active, "MTU {mtu}: the interface of {ip} carries {active}");
    Ok(mtu)
}

//! Setup that both tests share: the numbers of work requests, and the path MTU.

use anyhow::ensure;
use softroce::verbs::{DeviceInfo, Mtu};

use crate::cli::{PingpongArgs, Transport};

/// The number of a send request.
pub(super) const SEND: u64 = 1;

/// The number of a receive request.
pub(super) const RECV: u64 = 2;

/// The path MTU, which must carry the messages of UD whole.
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

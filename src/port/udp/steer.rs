//! Reuseport steering: several sockets at one address, one for each shard.
//!
//! Sockets that are bound to one port with `SO_REUSEPORT` form a group. For each buffer that arrives, a classic BPF
//! program selects one of them: that of the shard in the low bits of the first packet's destination QP. The program
//! returns an index in the order of the binds. If a socket is closed, the last one takes its index, so the group is
//! opened and closed as a whole.
//!
//! With the option another process of the same user could bind the address too, unnoticed, and receive part of the
//! packets. So the port takes the [lease](crate::port::shared::name_lease) of the address first, and then binds once
//! without the option, which fails if a program that takes no leases has the address.

use std::sync::Arc;

use socket2::SockFilter;

use super::sources::Sources;
use crate::ids::Qpn;
use crate::port::shared::bpf::{AND, DEST_QP_OFFSET, JUMP_IF_EQUAL, LOAD_WORD, RETURN, insn};
use crate::port::shared::name_lease::NameLease;

/// State that the ports of a group share.
#[derive(Clone, Debug)]
pub(super) struct ReuseportGroup {
    sources: Sources,
    _claim: Arc<NameLease>,
}

impl ReuseportGroup {
    /// Returns a group with the lease of its address.
    pub(super) fn new(claim: NameLease) -> Self {
        Self { sources: Sources::default(), _claim: Arc::new(claim) }
    }

    pub(super) fn sources(&self) -> Sources {
        self.sources.clone()
    }
}

const RETURN_ACCUMULATOR: u16 = 0x16;

/// Returns a program that selects the shard of the first packet's destination. It sees a buffer from its BTH on. A
/// datagram without one goes to the first shard: a load beyond its end returns 0.
pub(super) fn by_destination(shards: u8) -> [SockFilter; 6] {
    [
        insn(LOAD_WORD, DEST_QP_OFFSET),
        insn(AND, 0xff_ffff),
        SockFilter::new(JUMP_IF_EQUAL, 0, 1, Qpn::GSI.value()),
        insn(RETURN, 0),
        insn(AND, u32::from(shards.saturating_sub(1))),
        insn(RETURN_ACCUMULATOR, 0),
    ]
}

#[cfg(test)]
mod tests {
    use super::super::tests::{burst, config, open, path, receive};
    use super::super::{OpenError, UdpPort, socket};
    use super::*;
    use crate::net::{Burst, Path};
    use crate::port::{Control, Datapath};
    use crate::time::Instant;
    use crate::wire::Opcode;

    /// Returns one burst with datagrams to these queue pairs; the last byte of each is its index.
    fn to(path: Path, destinations: impl IntoIterator<Item = u32>) -> Burst {
        let mut burst = burst(path, &[]);
        for (place, qpn) in (0..).zip(destinations) {
            let bytes = burst.push(64);
            bytes.fill(0);
            (bytes[0], bytes[1], bytes[63]) = (Opcode::UdSendOnly.byte(), 0x40, place);
            bytes[4..8].copy_from_slice(&(qpn | 0xa500_0000).to_be_bytes());
        }
        burst
    }

    #[test]
    fn each_shard_gets_what_is_for_its_queue_pairs() {
        for shards in [2, 4, 64] {
            let config = config();
            let mut ports = UdpPort::open_shards(&config, shards).unwrap();
            assert_eq!(ports.len(), usize::from(shards));
            let mut sender = open(&super::super::tests::config());
            let path = path(&mut sender, config.ip, 0xc000);
            let numbers = (0x12_3400..0x12_3440).chain([Qpn::GSI.value(), 0xff_ffff, 0x80_0001]);
            for qpn in numbers {
                assert_eq!(sender.transmit(Instant::ZERO, &[to(path, [qpn])]), Ok(1));
                let shard = Qpn::new(qpn).shard() & (shards - 1);
                let got = receive(&mut ports[usize::from(shard)], 1);
                assert_eq!(got.len(), 1, "{qpn:#x} of {shards}");
            }
            for port in &mut ports {
                assert_eq!(port.receive(Instant::ZERO, &mut |_| panic!("a stray")).unwrap(), 0);
            }
        }
    }

    #[test]
    fn number_of_shards_is_a_power_of_two_up_to_64() {
        let config = config();
        for found in [0, 3, 5, 63, 65, 96, 128, 255] {
            let opened = UdpPort::open_shards(&config, found).map(|ports| ports.len());
            assert_eq!(
                opened.unwrap_err().to_string(),
                format!(
                    "{} is to be opened for {found} shards; expected a power of two from 1 to 64",
                    config.ip
                )
            );
        }
        // No socket or lease is left.
        assert_eq!(UdpPort::open_shards(&config, 64).unwrap().len(), 64);
    }

    #[test]
    fn a_burst_goes_where_its_first_packet_goes() {
        let config = config();
        let mut ports = UdpPort::open_shards(&config, 2).unwrap();
        let mut sender = open(&super::super::tests::config());
        let path = path(&mut sender, config.ip, 0xc000);
        let mixed = to(path, [0x41, 0x40, 0x42, 0x43]);
        assert_eq!(sender.transmit(Instant::ZERO, &[mixed]), Ok(1));
        let places: Vec<_> =
            receive(&mut ports[1], 1)[0].segments.iter().map(|segment| segment[63]).collect();
        assert_eq!(places, [0, 1, 2, 3]);
    }

    #[test]
    fn reuseport_group_excludes_other_sockets() {
        let config = config();
        let in_use = |result: Result<(), OpenError>| {
            let error = result.unwrap_err().to_string();
            let held = format!("UDP port 4791 of {} is held by this process; ", config.ip);
            assert!(error.starts_with(&held), "{error}");
        };
        let group = UdpPort::open_shards(&config, 2).unwrap();
        in_use(UdpPort::open(&config).map(drop));
        in_use(UdpPort::open_shards(&config, 2).map(drop));
        drop(group);
        let alone = open(&config);
        in_use(UdpPort::open_shards(&config, 2).map(drop));
        drop(alone);
        // A program with the same option that takes no lease.
        let stranger = socket::open(config.ip).unwrap();
        stranger.set_reuse_port(true).unwrap();
        let address: std::net::SocketAddr = (config.ip, crate::net::ROCE_PORT).into();
        stranger.bind(&address.into()).unwrap();
        in_use(UdpPort::open_shards(&config, 2).map(drop));
        drop(stranger);
        UdpPort::open_shards(&config, 4).unwrap();
    }

    #[test]
    fn the_ports_of_a_group_share_their_source_ports() {
        let mut config = config();
        let mut ports = UdpPort::open_shards(&config, 2).unwrap();
        let agreed: Vec<_> =
            ports.iter_mut().map(|port| port.source_port(config.ip, 0xc123)).collect();
        assert_eq!(agreed[0], agreed[1]);
        drop(ports);
        config.source_port = Some(agreed[0]);
        let ports = UdpPort::open_shards(&config, 4).unwrap();
        let mut peer = open(&super::super::tests::config());
        for mut port in ports {
            let path = path(&mut port, peer.info().ip, 0xd000);
            assert_eq!(path.source_port, agreed[0]);
            assert_eq!(port.transmit(Instant::ZERO, &[to(path, [7])]), Ok(1));
            assert_eq!(receive(&mut peer, 1)[0].meta.source.port(), agreed[0]);
        }
    }
}

//! Paths of connections, with the attributes that Linux gives them on RoCE.

use std::net::SocketAddr;

use crate::ids::Mtu;

use super::types::CmPath;

/// Bits of a flow label.
const FLOW_LABEL_MASK: u32 = 0xf_ffff;

/// Returns the path of a connection from `source` to `destination`, addresses of one IP version.
///
/// The flow label depends on both ports, so that switches distinguish connections (`cma_get_roce_udp_flow_label` of
/// Linux). An IPv6 destination with a flow label determines it.
pub fn path(source: SocketAddr, destination: SocketAddr, mtu: Mtu, traffic_class: u8) -> CmPath {
    let given = match destination {
        SocketAddr::V6(v6) => v6.flowinfo() & FLOW_LABEL_MASK,
        SocketAddr::V4(_) => 0,
    };
    let of_ports = u32::from(source.port()) * 31 + u32::from(destination.port());
    let flow_label = if given == 0 { of_ports & FLOW_LABEL_MASK } else { given };
    CmPath { flow_label, traffic_class, ..CmPath::between(source.ip(), destination.ip(), mtu) }
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddrV6;

    use super::*;

    #[test]
    fn ports_determine_the_flow_label() {
        let source = "10.0.0.1:40000".parse().unwrap();
        let path = path(source, "10.0.0.2:7174".parse().unwrap(), Mtu::Mtu1024, 8);
        assert_eq!(path.flow_label, (31 * 40_000 + 7174) & 0xf_ffff);
        assert_eq!((path.traffic_class, path.hop_limit, path.mtu), (8, 64, Mtu::Mtu1024));
        assert_eq!((path.source.ip(), path.life_time), (source.ip(), 16));
    }

    #[test]
    fn ipv6_destination_may_have_a_flow_label() {
        let source = "[fd00::1]:40000".parse().unwrap();
        let peer = |label| SocketAddrV6::new("fd00::2".parse().unwrap(), 7174, label, 0).into();
        assert_eq!(path(source, peer(0xf1_2345), Mtu::Mtu4096, 0).flow_label, 0x1_2345);
        assert_ne!(path(source, peer(0), Mtu::Mtu4096, 0).flow_label, 0);
    }
}

//! Identifiers in messages of the connection manager.

use std::net::IpAddr;

/// Communication ID: number of a connection, or of an attempt, on one side.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct CommId(pub u32);

/// Service ID of a listener. Service IDs of rdma_cm contain an IP protocol and a port.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct ServiceId(pub u64);

/// Globally unique identifier, for example of an adapter.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Guid(pub u64);

impl Guid {
    /// Returns the GUID of a device at an address. For IPv4 it is the EUI-64 of the locally administered MAC address that
    /// ends with the four bytes of the address; for IPv6 the interface identifier, changed by the prefix so that
    /// networks with the same identifiers have different GUIDs. It is never 0.
    pub const fn of(ip: IpAddr) -> Self {
        /// Odd, so that no two prefixes have the same product; the golden ratio of 2⁶⁴ spreads them.
        const SPREAD: u64 = 0x9e37_79b9_7f4a_7c15;
        let guid = match ip {
            IpAddr::V4(ip) => {
                let [a, b, c, d] = ip.octets();
                u64::from_be_bytes([0, 0, a, 0xff, 0xfe, b, c, d])
            }
            IpAddr::V6(ip) => {
                let [a, b, c, d, e, f, g, h, s, t, u, v, w, x, y, z] = ip.octets();
                let prefix = u64::from_be_bytes([a, b, c, d, e, f, g, h]);
                u64::from_be_bytes([s, t, u, v, w, x, y, z]) ^ prefix.wrapping_mul(SPREAD)
            }
        };
        match guid {
            0 => Self(1),
            guid => Self(guid),
        }
    }
}

impl ServiceId {
    /// Returns the IP protocol and the port of a service of rdma_cm: 6 for reliable connections (`RDMA_PS_TCP`), 17
    /// for datagrams (`RDMA_PS_UDP`).
    pub const fn ip_port(self) -> Option<(u8, u16)> {
        match self.0.to_be_bytes() {
            [0, 0, 0, 0, 1, protocol, p0, p1] => Some((protocol, u16::from_be_bytes([p0, p1]))),
            _ => None,
        }
    }
}

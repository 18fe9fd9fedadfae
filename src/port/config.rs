//! Configuration of a port.

use std::net::IpAddr;

/// Configuration of a port at one address.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PortConfig {
    /// Address to receive at and to send from: one of this machine's.
    pub ip: IpAddr,
    /// Size of the receive buffer in bytes, as the kernel counts them; the kernel caps it at twice `net.core.rmem_max`
    /// without CAP_NET_ADMIN. `None`: 8 MiB, or as much as the kernel grants.
    pub receive_buffer: Option<usize>,
    /// The only UDP source port, for firewalls with a fixed port; 4791 itself is allowed. `None`: each queue pair
    /// requests its own.
    pub source_port: Option<u16>,
    /// Whether the kernel splits bursts (UDP GSO).
    pub gso: bool,
    /// Whether the kernel merges received datagrams (UDP GRO).
    pub gro: bool,
    /// Receive multicast groups only. Other ports may then have the address too, and one of them receives its unicast
    /// datagrams.
    pub groups_only: bool,
}

impl PortConfig {
    /// Default size of a receive buffer in bytes, as the kernel counts it.
    pub const RECEIVE_BUFFER: usize = 8 << 20;

    /// Returns the default configuration for `ip`.
    pub fn new(ip: IpAddr) -> Self {
        Self {
            ip,
            receive_buffer: None,
            source_port: None,
            gso: true,
            gro: true,
            groups_only: false,
        }
    }
}

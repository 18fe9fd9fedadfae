//! Configuration of a port.

use std::net::IpAddr;

/// Configuration of a port at one address.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PortConfig {
    /// The address to receive at and to send from: one of this machine's.
    pub ip: IpAddr,
    /// Bytes that may wait to be received, as the kernel counts them. `None`: what the system
    /// allows, up to 8 MiB. It is capped at twice `net.core.rmem_max` without CAP_NET_ADMIN.
    pub receive_buffer: Option<usize>,
    /// The one UDP source port to send from, for firewalls that want to know it; 4791 itself is
    /// allowed. `None`: each queue pair asks for its own.
    pub source_port: Option<u16>,
    /// Whether to let the kernel cut bursts.
    pub gso: bool,
    /// Whether to let the kernel merge what arrives.
    pub gro: bool,
    /// Whether to receive multicast groups alone. Other ports may have the address too then, and one of them receives
    /// what is sent to it.
    pub groups_only: bool,
}

impl PortConfig {
    /// Default size of a receive buffer in bytes, as the kernel counts it.
    pub const RECEIVE_BUFFER: usize = 8 << 20;

    /// The usual port at `ip`.
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

//! Error for an address that a port cannot bind.

use std::io;
use std::net::IpAddr;

use thiserror::Error;

use super::socket_owner::{self, SocketOwner};
use crate::ids::Qpn;
use crate::net::ROCE_PORT;

/// Error for an address that a port cannot bind, or for a UDP socket there.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum OpenError {
    /// The address is `0.0.0.0`, `::` or a multicast group.
    #[error("{ip} is not the address of one host; give the one that peers send to")]
    NotOneHost {
        /// The address.
        ip: IpAddr,
    },
    /// No interface has the address.
    #[error("{ip} is not an address of this machine")]
    NotLocal {
        /// The address.
        ip: IpAddr,
    },
    /// The number of shards is no power of two, or too large.
    #[error(
        "{ip} is to be opened for {found} shards; expected a power of two from 1 to {}",
        Qpn::SHARDS
    )]
    Shards {
        /// The address.
        ip: IpAddr,
        /// The number of shards.
        found: u8,
    },
    /// Another socket has the RoCEv2 port of this address.
    #[error("UDP port {ROCE_PORT} of {ip} is held by {owner}; an address can have one holder")]
    InUse {
        /// The address.
        ip: IpAddr,
        /// The owner of that socket.
        owner: SocketOwner,
    },
    /// The requested source port is not available.
    #[error("cannot send from UDP port {port} of {ip}: {source}")]
    SourcePort {
        /// The address.
        ip: IpAddr,
        /// The port.
        port: u16,
        /// The error of the system.
        source: io::Error,
    },
    /// The system refuses a call that the port needs.
    #[error("{what} on a UDP socket of {ip}: {source}")]
    Os {
        /// The address.
        ip: IpAddr,
        /// The call or socket option.
        what: &'static str,
        /// The error of the system.
        source: io::Error,
    },
}

impl OpenError {
    /// Returns the error for an address that another socket has.
    pub(in crate::port) fn in_use(ip: IpAddr) -> Self {
        Self::InUse { ip, owner: socket_owner::find(ip) }
    }

    /// Returns the error for a `bind` to the address that failed.
    pub(in crate::port) fn bind(ip: IpAddr, source: io::Error) -> Self {
        match source.kind() {
            io::ErrorKind::AddrInUse => Self::in_use(ip),
            io::ErrorKind::AddrNotAvailable => Self::NotLocal { ip },
            _ => Self::Os { ip, what: "bind", source },
        }
    }
}

//! Error for an address that a port cannot have.

use std::io;
use std::net::IpAddr;

use thiserror::Error;

use super::holder::{self, Holder};
use crate::ids::Qpn;
use crate::net::ROCE_PORT;

/// Error for an address, or a UDP socket there, that cannot be had.
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
    /// Someone has the RoCEv2 port of this address.
    #[error("UDP port {ROCE_PORT} of {ip} is held by {holder}; an address can have one holder")]
    InUse {
        /// The address.
        ip: IpAddr,
        /// The holder of the port.
        holder: Holder,
    },
    /// The source port that was asked for cannot be had.
    #[error("cannot send from UDP port {port} of {ip}: {source}")]
    SourcePort {
        /// The address.
        ip: IpAddr,
        /// The port.
        port: u16,
        /// What the system says.
        source: io::Error,
    },
    /// The system refuses something that the port cannot do without.
    #[error("{what} on a UDP socket of {ip}: {source}")]
    Os {
        /// The address.
        ip: IpAddr,
        /// The call or socket option.
        what: &'static str,
        /// What the system says.
        source: io::Error,
    },
}

impl OpenError {
    /// Returns the error for an address that another port holds.
    pub(in crate::port) fn in_use(ip: IpAddr) -> Self {
        Self::InUse { ip, holder: holder::find(ip) }
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

//! Error for a packet port that cannot be opened.

use std::io;
use std::net::IpAddr;

use thiserror::Error;

use crate::ids::Qpn;

/// Error for a [`PacketPort`](super::PacketPort) that cannot be opened.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum OpenError {
    /// The process may not open packet sockets.
    #[error(
        "a packet socket on the interface of {ip} needs CAP_NET_RAW: run it as root, or give the program \
         the capability (setcap cap_net_raw+ep)"
    )]
    NotPermitted {
        /// The address.
        ip: IpAddr,
    },
    /// All slots at these addresses are taken.
    #[error(
        "all {shards} slots at {} are taken: each packet port there has one, and with it the queue pair \
         numbers that end in its number",
        words(ips),
        shards = Qpn::SHARDS
    )]
    Full {
        /// The addresses.
        ips: Vec<IpAddr>,
    },
    /// No interface has the address.
    #[error("no interface has the address {ip}, and a packet socket needs one")]
    NoInterface {
        /// The address.
        ip: IpAddr,
    },
    /// The interface is not Ethernet.
    #[error("interface {interface}, which has the address {ip}, is not of Ethernet")]
    NotEthernet {
        /// The address.
        ip: IpAddr,
        /// The number of the interface.
        interface: u32,
    },
    /// The system refuses a call that the port needs.
    #[error("{what} on a packet socket of {ip}: {source}")]
    Os {
        /// The address.
        ip: IpAddr,
        /// The call or socket option.
        what: &'static str,
        /// The error of the system.
        source: io::Error,
    },
}

/// Formats addresses for an error.
fn words(ips: &[IpAddr]) -> String {
    ips.iter().map(IpAddr::to_string).collect::<Vec<_>>().join(", ")
}

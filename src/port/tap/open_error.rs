//! Error for a TAP port that cannot be opened.

use std::io;
use std::net::IpAddr;

use thiserror::Error;

use super::config::TapConfig;
use super::host;

/// Error for a [`TapPort`](super::TapPort) that cannot be opened.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum OpenError {
    /// The system has no TAPs, or this process may not have them.
    #[error(
        "a TAP needs /dev/net/tun, which cannot be opened: {source} (modprobe tun; in a container: --device /dev/net/tun)"
    )]
    NoTun {
        /// What the system says.
        source: io::Error,
    },
    /// The process may not make interfaces.
    #[error(
        "there is no interface {name}, and to make a TAP needs CAP_NET_ADMIN: run the program as root, or make \
         it and give it to the user (ip tuntap add dev {name} mode tap user NAME)"
    )]
    MayNotMake {
        /// The interface.
        name: String,
    },
    /// The interface is another user's.
    #[error(
        "interface {name} is not this user's, and without CAP_NET_ADMIN that of nobody else can be had \
         (ip tuntap add dev {name} mode tap user NAME)"
    )]
    NotYours {
        /// The interface.
        name: String,
    },
    /// Another program or device holds the interface.
    #[error(
        "interface {name} is held by another program, or another device of this one; a TAP has one owner"
    )]
    InUse {
        /// The interface.
        name: String,
    },
    /// The interface is no TAP.
    #[error(
        "interface {name} is no TAP with one queue, such as ip tuntap add dev {name} mode tap makes"
    )]
    NotATap {
        /// The interface.
        name: String,
    },
    /// There is no bridge to put the interface into.
    #[error("the TAP cannot be put into bridge {bridge}: {source}")]
    NoBridge {
        /// Its name.
        bridge: String,
        /// What the system says.
        source: io::Error,
    },
    /// No address was given.
    #[error(
        "the TAP port on {name} has no address: give it one and its network, as in tap:{name},ip=10.0.0.5/24"
    )]
    NoAddress {
        /// The interface.
        name: String,
    },
    /// The address is of no one host.
    #[error("{ip} is not the address of one host; give the one that peers send to")]
    NotOneHost {
        /// The address.
        ip: IpAddr,
    },
    /// The device has an address that is in no network which was given.
    #[error("{ip} is in no network of the TAP port on {name}: say how long its prefix is, as in tap:{name},ip={ip}/{}", if ip.is_ipv4() { 24 } else { 64 })]
    NoNetwork {
        /// The interface.
        name: String,
        /// The address.
        ip: IpAddr,
    },
    /// A gateway cannot be reached.
    #[error("gateway {gateway} is in no network of the TAP port on {name}")]
    FarGateway {
        /// The interface.
        name: String,
        /// The gateway.
        gateway: IpAddr,
    },
    /// The kernel here has the address.
    #[error(
        "{ip} is an address of this machine; a TAP port is a host of its own, and has one that nobody else has"
    )]
    OfThisHost {
        /// The address.
        ip: IpAddr,
    },
    /// There are more than a TAP port has room for.
    #[error("{found} addresses are given: a TAP port has {} at most", host::MAX_ADDRESSES)]
    TooManyAddresses {
        /// How many.
        found: usize,
    },
    /// The system refuses something that the port cannot do without.
    #[error("{what} of interface {name}: {source}")]
    Os {
        /// The interface.
        name: String,
        /// The call.
        what: &'static str,
        /// What the system says.
        source: io::Error,
    },
}

impl OpenError {
    /// Returns the error for an interface that cannot be attached to; `was_there` if it existed before.
    pub(super) fn attach(config: &TapConfig, was_there: bool, source: io::Error) -> Self {
        let name = config.name.clone();
        match source.raw_os_error() {
            Some(libc::EPERM) if was_there => Self::NotYours { name },
            Some(libc::EPERM) => Self::MayNotMake { name },
            Some(libc::EBUSY) => Self::InUse { name },
            Some(libc::EINVAL) if was_there => Self::NotATap { name },
            _ => Self::Os { name, what: "TUNSETIFF", source },
        }
    }
}

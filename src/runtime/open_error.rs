//! Error for a device that cannot be opened.

use std::fmt;
use std::io;
use std::net::IpAddr;
use std::path::PathBuf;

use thiserror::Error;

use crate::ids::PKey;
#[cfg(feature = "packet")]
use crate::port::packet;
#[cfg(feature = "tap")]
use crate::port::tap;
use crate::port::udp;
use crate::runtime::env::EnvError;

/// Error for a device that cannot be opened.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum OpenError {
    /// The port cannot be opened.
    #[error(transparent)]
    Port(#[from] udp::OpenError),
    /// The packet port cannot be opened.
    #[cfg(feature = "packet")]
    #[error(transparent)]
    PacketPort(packet::OpenError),
    /// The TAP port cannot be opened.
    #[cfg(feature = "tap")]
    #[error(transparent)]
    TapPort(tap::OpenError),
    /// A port of another kind cannot be opened, such as a [`CustomPort`](crate::port::CustomPort).
    #[error(transparent)]
    OtherPort(Box<dyn std::error::Error + Send + Sync>),
    /// An environment variable is invalid.
    #[error(transparent)]
    Environment(#[from] EnvError),
    /// Every loopback address is taken.
    #[error("no address of 127.0.0.1 to 127.0.0.254 is free{}", ReasonSuffix(last.as_ref()))]
    NoneFree {
        /// Reason for the last one, unless it is a device of this process.
        last: Option<udp::OpenError>,
    },
    /// The device is open already, and cannot apply options.
    #[error("the device at {ip} is open already; options must be given when it is opened first")]
    AlreadyOpen {
        /// Its address.
        ip: IpAddr,
    },
    /// Another device of this process has the address.
    #[error("{ip} belongs to the device at {device}, which is open already")]
    Belongs {
        /// The address.
        ip: IpAddr,
        /// The first address of that device.
        device: IpAddr,
    },
    /// An address is given twice.
    #[error("{ip} is given twice: the addresses of a device differ")]
    SameAddress {
        /// The address.
        ip: IpAddr,
    },
    /// There are more addresses than the GID table has entries.
    #[error("{found} addresses are given: a device takes {max} at most")]
    TooManyAddresses {
        /// The number given.
        found: usize,
        /// The maximum.
        max: usize,
    },
    /// The MTU of the interface is too small for any packet.
    #[error("the interface of {ip} has an MTU of {mtu}, which carries no packet of 256 bytes")]
    LinkMtu {
        /// The address.
        ip: IpAddr,
        /// The MTU for IP packets.
        mtu: usize,
    },
    /// The number of shards is no power of two up to 64.
    #[error("a device has 1, 2, 4, 8, 16, 32 or 64 shards, not {found}")]
    Shards {
        /// The number requested.
        found: u8,
    },
    /// Ports of this kind have one shard.
    #[error(
        "{shards} shards are asked for by {via}, and only a device by udp has more than one; \
         several processes share an address by packet"
    )]
    ShardsVia {
        /// The number requested.
        shards: u8,
        /// Name of the kind of port.
        via: &'static str,
    },
    /// The P_Key table has no entry.
    #[error("the P_Key table is empty: a port belongs to one partition at least")]
    NoPKey,
    /// The P_Key is invalid.
    #[error("P_Key {0} names no partition: its lower 15 bits are 0")]
    InvalidPKey(PKey),
    /// Two P_Keys name the same partition, so that its kind of membership is ambiguous.
    #[error("P_Keys {first} and {second} name the same partition")]
    SamePartition {
        /// One entry.
        first: PKey,
        /// The other.
        second: PKey,
    },
    /// The counters file cannot be written.
    #[error("counters cannot be written to directory {}: {source}", directory.display())]
    Counters {
        /// The directory.
        directory: PathBuf,
        /// The error of the system.
        source: io::Error,
    },
    /// The system refuses a call.
    #[error("{what}: {source}")]
    Os {
        /// The call.
        what: &'static str,
        /// The error of the system.
        source: io::Error,
    },
}

struct ReasonSuffix<'a>(Option<&'a udp::OpenError>);

impl fmt::Display for ReasonSuffix<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.map_or(Ok(()), |error| write!(f, ": {error}"))
    }
}

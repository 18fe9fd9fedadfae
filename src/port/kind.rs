//! The table of port kinds: their names, and how a device opens ports of each.
//!
//! A new kind has a folder beside `udp`, with a port and a [`Kind`], and three lines here: a variant of [`PortKind`],
//! its [`Kind`], and its name in [`PortKind::from_str`]. A program can implement a port of its own without that: see
//! [`CustomPort`].

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

use thiserror::Error;

use super::custom::CustomPort;
use super::opener::{Kind, OpenPortError, PortOpener};
#[cfg(feature = "packet")]
use super::packet::PacketKind;
use super::shm::ShmKind;
#[cfg(feature = "tap")]
use super::tap::{TapConfig, TapConfigError};
use super::udp::UdpKind;

/// Kind of the ports of a device. Its text form is `udp`, `shm`, `packet`, or `tap:` and a `TapConfig`.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
#[non_exhaustive]
pub enum PortKind {
    /// UDP sockets, without privileges: [`UdpPort`](super::udp::UdpPort).
    #[default]
    Udp,
    /// Shared memory between programs of this machine, and UDP sockets: [`ShmPort`](super::shm::ShmPort).
    Shm,
    /// Packet sockets, with CAP_NET_RAW: [`PacketPort`](super::packet::PacketPort).
    #[cfg(feature = "packet")]
    Packet,
    /// A TAP interface, on which the port is a host of its own: [`TapPort`](super::tap::TapPort).
    #[cfg(feature = "tap")]
    Tap(TapConfig),
    /// A port that the program implements. Its text form cannot be parsed.
    Custom(CustomPort),
}

impl PortKind {
    fn kind(&self) -> &dyn Kind {
        match self {
            Self::Udp => &UdpKind,
            Self::Shm => &ShmKind(UdpKind),
            #[cfg(feature = "packet")]
            Self::Packet => &PacketKind(UdpKind),
            #[cfg(feature = "tap")]
            Self::Tap(config) => config,
            Self::Custom(port) => port,
        }
    }

    /// Returns the name: `udp`, `shm`, `packet`, `tap`, or that of a custom port.
    pub fn name(&self) -> &'static str {
        self.kind().name()
    }

    /// Returns whether the addresses of such a port belong to the kernel of this machine.
    pub fn is_of_host(&self) -> bool {
        self.kind().is_of_host()
    }

    /// Returns the addresses that the kind itself names, in order. A device opens at these by default.
    pub fn addresses(&self) -> Vec<IpAddr> {
        self.kind().addresses()
    }

    /// Returns whether a device of several shards has a port for each.
    pub(crate) fn has_shards(&self) -> bool {
        self.kind().has_shards()
    }

    /// Begins to open a device at these addresses.
    pub(crate) fn opener(&self, ips: &[IpAddr]) -> Result<Box<dyn PortOpener>, OpenPortError> {
        self.kind().opener(ips)
    }
}

impl fmt::Display for PortKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())?;
        match self {
            #[cfg(feature = "tap")]
            Self::Tap(config) => write!(f, ":{config}"),
            _ => Ok(()),
        }
    }
}

/// Error for a string that names no [`PortKind`].
#[derive(Clone, PartialEq, Eq, Debug, Error)]
#[non_exhaustive]
pub enum PortKindError {
    /// No port has this name, or this build lacks it.
    #[error("`{found}` is no port: expected {PORT_KINDS}")]
    Unknown {
        /// The text.
        found: String,
    },
    /// The configuration of a TAP is invalid.
    #[cfg(feature = "tap")]
    #[error("tap: {0}")]
    Tap(#[from] TapConfigError),
}

/// The text forms of all kinds.
const PORT_KINDS: &str = match (cfg!(feature = "packet"), cfg!(feature = "tap")) {
    (true, true) => "udp, shm, packet or tap:NAME,ip=ADDRESS/PREFIX",
    (true, false) => "udp, shm or packet",
    (false, true) => "udp, shm or tap:NAME,ip=ADDRESS/PREFIX",
    (false, false) => "udp or shm",
};

impl FromStr for PortKind {
    type Err = PortKindError;

    fn from_str(text: &str) -> Result<Self, PortKindError> {
        match text.split_once(':') {
            None if text == "udp" => Ok(Self::Udp),
            None if text == "shm" => Ok(Self::Shm),
            #[cfg(feature = "packet")]
            None if text == "packet" => Ok(Self::Packet),
            #[cfg(feature = "tap")]
            Some(("tap", config)) => Ok(Self::Tap(config.parse()?)),
            _ => Err(PortKindError::Unknown { found: text.into() }),
        }
    }
}

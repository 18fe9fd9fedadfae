//! How the ports of a device are opened, one at each of its addresses.

use std::net::IpAddr;
#[cfg(feature = "packet")]
use std::sync::Arc;

#[cfg(feature = "packet")]
use crate::io::packet::{self, PacketPort, Place};
use crate::io::udp::{UdpConfig, UdpPort};
use crate::io::{Port, PortKind};
use crate::runtime::device::OpenError;

/// What opens the ports of one device.
pub(crate) enum Opener {
    Udp,
    /// With its place at all of its addresses.
    #[cfg(feature = "packet")]
    Packet(Arc<Place>),
}

impl Opener {
    /// That of ports of this kind at these addresses.
    pub(crate) fn new(via: PortKind, ips: &[IpAddr]) -> Result<Self, OpenError> {
        match via {
            PortKind::Udp => {
                let _ = ips;
                Ok(Self::Udp)
            }
            #[cfg(feature = "packet")]
            PortKind::Packet => {
                let place = Place::take(ips).map_err(OpenError::PacketPort)?;
                Ok(Self::Packet(Arc::new(place)))
            }
        }
    }

    pub(crate) fn open(&self, config: &UdpConfig) -> Result<Box<dyn Port>, OpenError> {
        match self {
            Self::Udp => Ok(Box::new(UdpPort::open(config)?)),
            #[cfg(feature = "packet")]
            Self::Packet(place) => match PacketPort::open(config, place) {
                Ok(port) => Ok(Box::new(port)),
                Err(packet::OpenError::Udp(error)) => Err(OpenError::Port(error)),
                Err(error) => Err(OpenError::PacketPort(error)),
            },
        }
    }

    /// Of which queue pairs it receives packets: see [`Qpn::shard`](crate::ids::Qpn::shard). Where nobody
    /// else has the address, of the first.
    pub(crate) fn shard(&self) -> u8 {
        match self {
            Self::Udp => 0,
            #[cfg(feature = "packet")]
            Self::Packet(place) => place.shard(),
        }
    }
}

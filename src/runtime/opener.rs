//! How the ports of a device are opened, one at each of its addresses.

use std::net::IpAddr;
#[cfg(feature = "packet")]
use std::sync::Arc;

#[cfg(feature = "packet")]
use crate::io::packet::{self, PacketPort, Place};
use crate::io::several::Several;
use crate::io::shm::ShmPort;
#[cfg(feature = "tap")]
use crate::io::tap::{TapConfig, TapPort};
use crate::io::udp::{UdpConfig, UdpPort};
use crate::io::{Port, PortKind};
use crate::runtime::device::OpenError;
use crate::runtime::{LogLevel, log};

/// What opens the ports of one device.
pub(crate) enum Opener {
    /// So many at each address.
    Udp { shards: u8 },
    /// One at each address.
    Shm,
    /// With its place at all of its addresses.
    #[cfg(feature = "packet")]
    Packet(Arc<Place>),
    /// One port with all of its addresses.
    #[cfg(feature = "tap")]
    Tap(TapConfig),
}

impl Opener {
    /// That of ports of this kind at these addresses, for so many shards.
    pub(crate) fn new(via: &PortKind, ips: &[IpAddr], shards: u8) -> Result<Self, OpenError> {
        if shards > 1 && *via != PortKind::Udp {
            return Err(OpenError::ShardsVia { shards, via: via.name() });
        }
        match via {
            PortKind::Udp => {
                let _ = ips;
                Ok(Self::Udp { shards })
            }
            PortKind::Shm => Ok(Self::Shm),
            #[cfg(feature = "packet")]
            PortKind::Packet => {
                let place = Place::take(ips).map_err(of_packets)?;
                Ok(Self::Packet(Arc::new(place)))
            }
            #[cfg(feature = "tap")]
            PortKind::Tap(config) => Ok(Self::Tap(config.clone())),
        }
    }

    /// Opens the ports of a device with these addresses, one a shard, each as `configured`, and shows `seen`
    /// each port of which they are made.
    pub(crate) fn open(
        &self,
        ips: &[IpAddr],
        configured: &dyn Fn(IpAddr) -> UdpConfig,
        seen: &mut dyn FnMut(&dyn Port) -> Result<(), OpenError>,
    ) -> Result<Vec<Box<dyn Port>>, OpenError> {
        let mut open = |config: &UdpConfig| {
            let ports = self.open_at(config, ips)?;
            ports.iter().try_for_each(|port| seen(&**port))?;
            Ok::<_, OpenError>(ports)
        };
        let (first, others) = match (self, ips) {
            #[cfg(feature = "tap")]
            (Self::Tap(_), [first, ..]) => (*first, &[][..]),
            (_, [first, others @ ..]) => (*first, others),
            // A device has an address.
            (_, []) => (IpAddr::from([0; 4]), &[][..]),
        };
        let first = open(&configured(first))?;
        let others =
            others.iter().map(|ip| open(&configured(*ip))).collect::<Result<Vec<_>, _>>()?;
        let mut others: Vec<_> = others.into_iter().map(Vec::into_iter).collect();
        let of_shard = |port: Box<dyn Port>| -> Box<dyn Port> {
            let at_others: Vec<_> = others.iter_mut().filter_map(Iterator::next).collect();
            match at_others.is_empty() {
                true => port,
                false => Box::new(Several::new(port, at_others)),
            }
        };
        Ok(first.into_iter().map(of_shard).collect())
    }

    /// Opens the ports at one address, one a shard.
    fn open_at(&self, config: &UdpConfig, ips: &[IpAddr]) -> Result<Vec<Box<dyn Port>>, OpenError> {
        let _ = ips;
        match self {
            Self::Udp { shards: 1 } => Ok(vec![Box::new(UdpPort::open(config)?)]),
            Self::Udp { shards } => {
                let ports = UdpPort::open_shards(config, *shards)?;
                Ok(ports.into_iter().map(|port| Box::new(port) as Box<dyn Port>).collect())
            }
            Self::Shm => {
                let port = ShmPort::open(config)?;
                if let Some(taken) = port.name_taken() {
                    log(LogLevel::Warn, &taken);
                }
                Ok(vec![Box::new(port)])
            }
            #[cfg(feature = "packet")]
            Self::Packet(place) => {
                Ok(vec![Box::new(PacketPort::open(config, place).map_err(of_packets)?)])
            }
            #[cfg(feature = "tap")]
            Self::Tap(tap) => {
                let port = TapPort::open(tap, ips, config).map_err(OpenError::TapPort)?;
                Ok(vec![Box::new(port)])
            }
        }
    }

    /// Of which queue pairs it receives packets: see [`Qpn::shard`](crate::ids::Qpn::shard). Where nobody
    /// else has the address, of the first.
    pub(crate) fn shard(&self) -> u8 {
        match self {
            Self::Udp { .. } | Self::Shm => 0,
            #[cfg(feature = "packet")]
            Self::Packet(place) => place.shard(),
            #[cfg(feature = "tap")]
            Self::Tap(_) => 0,
        }
    }
}

#[cfg(feature = "packet")]
fn of_packets(error: packet::OpenError) -> OpenError {
    match error {
        packet::OpenError::Udp(error) => OpenError::Port(error),
        error => OpenError::PacketPort(error),
    }
}

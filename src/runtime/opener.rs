//! Opening of the ports of a device, at each of its addresses.

use std::net::IpAddr;

use crate::port::MultiHomedPort;
use crate::port::{OpenPortError, Port, PortConfig, PortKind, PortOpener};
use crate::runtime::open_error::OpenError;
use crate::runtime::{LogLevel, log};

/// Returns the opener of a device with ports of a kind, at these addresses, with this many shards.
pub(crate) fn opener(
    via: &PortKind,
    ips: &[IpAddr],
    shards: u8,
) -> Result<Box<dyn PortOpener>, OpenError> {
    if shards > 1 && !via.has_shards() {
        return Err(OpenError::ShardsVia { shards, via: via.name() });
    }
    Ok(via.opener(ips)?)
}

/// Opens the ports of a device, one for each shard, with the configuration of `config_of`. Passes every single port to
/// `check`.
pub(crate) fn open(
    opener: &dyn PortOpener,
    ips: &[IpAddr],
    shards: u8,
    config_of: &dyn Fn(IpAddr) -> PortConfig,
    check: &mut dyn FnMut(&dyn Port) -> Result<(), OpenError>,
) -> Result<Vec<Box<dyn Port>>, OpenError> {
    let mut open_at = |ip: &IpAddr| {
        let warn = &mut |warning: &dyn std::fmt::Display| log(LogLevel::Warn, warning);
        let ports = opener.open(&config_of(*ip), shards, warn)?;
        ports.iter().try_for_each(|port| check(&**port))?;
        Ok::<_, OpenError>(ports)
    };
    let own_ports = if opener.has_all_addresses() { &ips[..ips.len().min(1)] } else { ips };
    let mut at_addresses =
        own_ports.iter().map(&mut open_at).collect::<Result<Vec<_>, _>>()?.into_iter();
    let first = at_addresses.next().unwrap_or_default();
    let mut others: Vec<_> = at_addresses.map(Vec::into_iter).collect();
    let of_shard = |port: Box<dyn Port>| -> Box<dyn Port> {
        let at_others: Vec<_> = others.iter_mut().filter_map(Iterator::next).collect();
        match at_others.is_empty() {
            true => port,
            false => Box::new(MultiHomedPort::new(port, at_others)),
        }
    };
    Ok(first.into_iter().map(of_shard).collect())
}

impl From<OpenPortError> for OpenError {
    fn from(error: OpenPortError) -> Self {
        let error = match error.downcast() {
            Ok(error) => return Self::Port(*error),
            Err(error) => error,
        };
        #[cfg(feature = "packet")]
        let error = match error.downcast() {
            Ok(error) => return Self::PacketPort(*error),
            Err(error) => error,
        };
        #[cfg(feature = "tap")]
        let error = match error.downcast() {
            Ok(error) => return Self::TapPort(*error),
            Err(error) => error,
        };
        Self::OtherPort(error)
    }
}

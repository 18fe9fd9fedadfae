//! How a device opens ports of a kind.

use std::error::Error;
use std::fmt;
use std::net::IpAddr;

use super::config::PortConfig;
use super::traits::Port;

/// Error for a port that cannot be opened: the error type of its kind.
pub(crate) type OpenPortError = Box<dyn Error + Send + Sync>;

/// Properties of a kind of port.
pub(super) trait Kind {
    /// See [`PortKind::name`].
    fn name(&self) -> &'static str;

    /// See [`PortKind::is_of_host`].
    fn is_of_host(&self) -> bool {
        true
    }

    /// See [`PortKind::addresses`].
    fn addresses(&self) -> Vec<IpAddr> {
        Vec::new()
    }

    /// See [`PortKind::has_shards`].
    fn has_shards(&self) -> bool {
        false
    }

    /// Begins to open a device at these addresses.
    ///
    /// # Errors
    ///
    /// The addresses are not available.
    fn opener(&self, ips: &[IpAddr]) -> Result<Box<dyn PortOpener>, OpenPortError>;
}

/// Opens the ports of one device.
pub(crate) trait PortOpener {
    /// Opens the ports at one address, one for each of `shards` shards. Passes conditions that the user should know of,
    /// but that do not keep the port from working, to `warn`.
    ///
    /// # Errors
    ///
    /// The address or the sockets are not available.
    fn open(
        &self,
        config: &PortConfig,
        shards: u8,
        warn: &mut dyn FnMut(&dyn fmt::Display),
    ) -> Result<Vec<Box<dyn Port>>, OpenPortError>;

    /// Returns whether one port has all addresses of a device. Otherwise each address has a port.
    fn has_all_addresses(&self) -> bool {
        false
    }

    /// Returns the [shard](crate::ids::Qpn::shard) of the queue pairs that the device may have. Processes that share
    /// an address have different ones.
    fn first_shard(&self) -> u8 {
        0
    }
}

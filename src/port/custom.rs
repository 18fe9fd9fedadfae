//! Ports that a program implements.

use std::fmt;
use std::hash::{Hash, Hasher};
use std::io;
use std::net::IpAddr;
use std::sync::Arc;

use thiserror::Error;

use super::config::PortConfig;
use super::opener::{Kind, OpenPortError, PortOpener};
use super::traits::Port;

/// A kind of port that a program implements: its own link between devices, a recorder, a bridge to a simulator.
///
/// ```no_run
/// # use std::io;
/// # use softroce::port::udp::UdpPort;
/// use softroce::port::{CustomPort, PortConfig, PortKind};
/// use softroce::verbs::{Context, OpenOptions};
///
/// let open = |config: &PortConfig| UdpPort::open(config).map_err(io::Error::other);
/// let kind = PortKind::Custom(CustomPort::new("mine", open));
/// let context = Context::open(OpenOptions::default().via(kind))?;
/// # Ok::<(), softroce::verbs::Error>(())
/// ```
#[derive(Clone)]
pub struct CustomPort {
    name: &'static str,
    open: Arc<OpenCustomPort>,
}

type OpenCustomPort = dyn Fn(&PortConfig) -> io::Result<Box<dyn Port>> + Send + Sync;

impl CustomPort {
    /// Returns a kind of port. The device calls `open` for each of its addresses, and takes
    /// [`PortInfo::ip`](super::PortInfo::ip) as the address of the port.
    pub fn new<P: Port + 'static>(
        name: &'static str,
        open: impl Fn(&PortConfig) -> io::Result<P> + Send + Sync + 'static,
    ) -> Self {
        let open =
            move |config: &PortConfig| open(config).map(|port| Box::new(port) as Box<dyn Port>);
        Self { name, open: Arc::new(open) }
    }
}

impl fmt::Debug for CustomPort {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("CustomPort").field(&self.name).finish()
    }
}

/// Two kinds are equal if they are clones of one.
impl PartialEq for CustomPort {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.open, &other.open)
    }
}

impl Eq for CustomPort {}

impl Hash for CustomPort {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.name.hash(state);
    }
}

impl Kind for CustomPort {
    fn name(&self) -> &'static str {
        self.name
    }

    fn is_of_host(&self) -> bool {
        false
    }

    fn opener(&self, _ips: &[IpAddr]) -> Result<Box<dyn PortOpener>, OpenPortError> {
        Ok(Box::new(self.clone()))
    }
}

impl PortOpener for CustomPort {
    fn open(
        &self,
        config: &PortConfig,
        _shards: u8,
        _warn: &mut dyn FnMut(&dyn fmt::Display),
    ) -> Result<Vec<Box<dyn Port>>, OpenPortError> {
        match (self.open)(config) {
            Ok(port) => Ok(vec![port]),
            Err(source) => Err(CustomPortError { name: self.name, ip: config.ip, source }.into()),
        }
    }
}

/// Error for a [`CustomPort`] that cannot be opened.
#[derive(Debug, Error)]
#[error("{name} port at {ip}: {source}")]
#[non_exhaustive]
pub struct CustomPortError {
    /// Name of the kind.
    pub name: &'static str,
    /// Address of the port.
    pub ip: IpAddr,
    /// Error of the function `open`.
    pub source: io::Error,
}

//! Sending sockets that the ports of several shards share.

use std::io;
use std::net::IpAddr;
use std::sync::{Arc, PoisonError};

use socket2::Socket;

use super::socket;
use crate::sync::Mutex;
use crate::sys::OwnDescriptor;

/// Maximum number of source ports with a socket; more queue pairs share them.
pub(super) const MAX_SOCKETS: usize = 64;

/// Sending sockets of the ports at one address, by UDP source port.
#[derive(Clone, Debug, Default)]
pub(super) struct Sources(Arc<Mutex<Vec<Source>>>);

/// A UDP source port and its socket.
type Source = (u16, OwnDescriptor<Socket>);

impl Sources {
    /// Returns the socket that sends from `port`, and opens it if necessary.
    pub(super) fn get(
        &self,
        ip: IpAddr,
        scope: u32,
        port: u16,
    ) -> io::Result<OwnDescriptor<Socket>> {
        let mut sources = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, socket)) = sources.iter().find(|(of, _)| *of == port) {
            return Ok(socket.clone());
        }
        if sources.len() >= MAX_SOCKETS {
            return Err(io::ErrorKind::QuotaExceeded.into());
        }
        let socket = OwnDescriptor::new(socket::sender(ip, scope, port)?);
        sources.push((port, socket.clone()));
        Ok(socket)
    }
}

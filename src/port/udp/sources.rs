//! The sending sockets that the ports of several shards share.

use std::io;
use std::net::IpAddr;
use std::sync::{Arc, PoisonError};

use socket2::Socket;

use super::socket;
use crate::sync::Mutex;

/// Source ports that sockets are opened for at most; more queue pairs share them.
pub(super) const MAX_SOCKETS: usize = 64;

/// The sockets that the ports of a group send from, by UDP source port: a port has one socket.
#[derive(Clone, Debug, Default)]
pub(super) struct Sources(Arc<Mutex<Vec<Source>>>);

/// A UDP source port, and the socket that has it.
type Source = (u16, Arc<Socket>);

impl Sources {
    /// The socket that sends from `port`, which is opened if need be.
    pub(super) fn get(&self, ip: IpAddr, scope: u32, port: u16) -> io::Result<Arc<Socket>> {
        let mut sources = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, socket)) = sources.iter().find(|(of, _)| *of == port) {
            return Ok(Arc::clone(socket));
        }
        if sources.len() >= MAX_SOCKETS {
            return Err(io::ErrorKind::QuotaExceeded.into());
        }
        let socket = Arc::new(socket::sender(ip, scope, port)?);
        sources.push((port, Arc::clone(&socket)));
        Ok(socket)
    }
}

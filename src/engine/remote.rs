//! The peer of a queue pair, and packets received from it.

use crate::net::RxMeta;
use crate::transport::connection::Connection;
use crate::transport::fault::TransportError;
use crate::transport::outputs::DropReason;
use crate::transport::ud::Endpoint;
use crate::transport::window::WindowId;
use crate::wire::Datagram;

/// Peer of a queue pair, from RTR on.
#[derive(Debug)]
pub(crate) enum RemoteInfo {
    /// RC, UC and XRC: one peer.
    Connection(Connection),
    /// UD: any number of peers.
    Endpoint(Box<Endpoint>),
}

/// A received packet with its metadata.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Arrival<'a> {
    pub(crate) packet: &'a Datagram<'a>,
    /// Its datagram.
    pub(crate) bytes: &'a [u8],
    pub(crate) meta: &'a RxMeta,
    /// Its IPv4 identification.
    pub(crate) id: u16,
    /// The receiver has predicted the identification.
    pub(crate) is_predicted: bool,
    /// XRC: whether it is for the receive queue that is lent to the responder.
    pub(crate) addressed: Result<(), TransportError>,
}

impl RemoteInfo {
    /// Returns the connection, of RC, UC and XRC.
    #[inline]
    pub(crate) fn connection(&self) -> Option<&Connection> {
        match self {
            Self::Connection(connection) => Some(connection),
            Self::Endpoint(_) => None,
        }
    }

    /// Returns the window of the path, of a connection.
    pub(crate) fn window(&self) -> Option<WindowId> {
        self.connection().map(|connection| connection.window)
    }

    /// Returns the UDP source ports of its packets: the one of a connection, or of datagrams by source GID.
    pub(crate) fn source_ports(&self) -> &[u16] {
        match self {
            Self::Connection(connection) => std::slice::from_ref(&connection.path.source_port),
            Self::Endpoint(endpoint) => &endpoint.source_ports,
        }
    }

    /// Returns the number of READs and atomics that this side may have outstanding.
    pub(crate) fn max_rd_atomic(&self) -> u8 {
        self.connection().map_or(0, |connection| connection.max_rd_atomic)
    }

    /// Checks the addresses and the P_Key of a packet.
    pub(crate) fn admits(&self, packet: &Datagram<'_>, meta: &RxMeta) -> Result<(), DropReason> {
        let pkey = match self {
            Self::Connection(connection) => {
                let path = &connection.path;
                if path.destination != meta.source.ip() || path.source != meta.destination {
                    return Err(DropReason::WrongAddress);
                }
                connection.pkey
            }
            Self::Endpoint(endpoint) => endpoint.pkey,
        };
        if !pkey.matches(packet.bth.pkey) {
            return Err(DropReason::PKeyMismatch);
        }
        Ok(())
    }
}

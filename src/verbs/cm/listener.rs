//! Listeners.

use std::net::SocketAddr;
use std::os::fd::BorrowedFd;
use std::time::Duration;

use crate::cm::{PortSpace, RejectReason, Request};
use crate::engine::QpType;
use crate::verbs::Context;
use crate::verbs::cm::channel::Events;
use crate::verbs::cm::{Error, Event, EventKind, Id};

/// Maximum number of requests that a listener has neither accepted nor rejected.
const BACKLOG: usize = 128;

/// Listens for requests of connections, from [`connect`](super::connect) or any program that uses rdma_cm.
#[derive(Debug)]
pub struct Listener {
    id: Id,
    channel: Events,
}

/// A request for a connection. Dropping it rejects it.
#[derive(Debug)]
#[must_use = "dropping it rejects the connection"]
pub struct Incoming {
    pub(super) id: Id,
    pub(super) request: Box<Request>,
}

impl Listener {
    /// Listens for reliable connections at an address of the device. Port 0 requests a free one, and an unspecified
    /// address stands for every address of the device.
    ///
    /// # Errors
    ///
    /// [`Error::NotLocal`], [`Error::NotOfDevice`], [`Error::Bind`], [`Error::NoGsi`], [`Error::Agent`],
    /// [`Error::Verbs`].
    pub fn bind(context: &Context, address: SocketAddr) -> Result<Self, Error> {
        Self::bind_as(context, address, PortSpace::Tcp, QpType::Rc)
    }

    /// Listens for connections in a port space, with this type of queue pairs.
    ///
    /// # Errors
    ///
    /// As [`bind`](Self::bind), and [`Error::QpType`].
    pub fn bind_as(
        context: &Context,
        address: SocketAddr,
        port_space: PortSpace,
        qp_type: QpType,
    ) -> Result<Self, Error> {
        let channel = Events::new();
        let id = Id::on(context, &channel, port_space, qp_type)?;
        id.bind(address)?;
        id.listen(BACKLOG)?;
        Ok(Self { id, channel })
    }

    /// Returns the address and the port.
    pub fn local_addr(&self) -> SocketAddr {
        // A listener is bound.
        self.id.local_addr().unwrap_or_else(|| SocketAddr::from(([0, 0, 0, 0], 0)))
    }

    /// Waits for the next request. `None` waits without limit.
    ///
    /// # Errors
    ///
    /// [`Error::Timeout`], [`Error::Verbs`] when the device fails.
    pub fn accept(&self, timeout: impl Into<Option<Duration>>) -> Result<Incoming, Error> {
        self.channel.wait_for(timeout.into(), |event| Ok(incoming(event)))
    }

    /// Returns the next request, or `None` when there is none.
    pub fn poll(&self) -> Option<Incoming> {
        std::iter::from_fn(|| self.channel.poll()).find_map(incoming)
    }

    /// Waits as a task for the next request.
    ///
    /// # Errors
    ///
    /// [`Error::Verbs`] when the device fails.
    pub async fn next(&self) -> Result<Incoming, Error> {
        self.channel.next_for(|event| Ok(incoming(event))).await
    }
}

fn incoming(event: Event) -> Option<Incoming> {
    match event.kind {
        EventKind::ConnectRequest(request) => Some(Incoming { id: event.id, request }),
        _ => None,
    }
}

impl Listener {
    /// Returns a descriptor that is readable while [`poll`](Self::poll) has something to return.
    ///
    /// # Errors
    ///
    /// [`Error::Os`] when there are no more descriptors.
    pub fn event_fd(&self) -> Result<BorrowedFd<'_>, Error> {
        self.channel.event_fd()
    }
}

impl Incoming {
    /// Returns the address of the peer.
    pub fn peer(&self) -> SocketAddr {
        // A request has both addresses.
        self.id.peer_addr().unwrap_or_else(|| SocketAddr::from(([0, 0, 0, 0], 0)))
    }

    /// Returns the private data of the peer, with trailing zeros.
    pub fn private_data(&self) -> &[u8] {
        &self.request.private_data
    }

    /// Returns all parameters of the request.
    pub fn request(&self) -> &Request {
        &self.request
    }

    /// Rejects the connection, with up to 148 bytes of private data.
    ///
    /// # Errors
    ///
    /// [`Error::Agent`] for private data that is too long; the request is rejected without it then.
    pub fn reject(self, private_data: &[u8]) -> Result<(), Error> {
        self.id.reject(RejectReason::CONSUMER, private_data)
    }
}

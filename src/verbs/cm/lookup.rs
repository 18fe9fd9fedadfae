//! UD services: from an address and a port to a queue pair.

use std::net::SocketAddr;
use std::os::fd::BorrowedFd;
use std::time::Duration;

use crate::cm::{PortSpace, RejectReason, ServiceRequest, SidrStatus};
use crate::engine::QpType;
use crate::ids::{QKey, Qpn};
use crate::net::AddressVector;
use crate::transport::work::UdTarget;
use crate::verbs::cm::channel::Events;
use crate::verbs::cm::{ConnectParam, Error, Event, EventKind, Id};
use crate::verbs::{Context, QueuePair};

/// Maximum number of requests that a service has not answered.
const BACKLOG: usize = 128;

/// Time limit of the steps before a request, which never wait here.
const RESOLVE_TIMEOUT: Duration = Duration::from_secs(1);

/// A UD queue pair of a peer, found by [`look_up`].
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Service {
    /// Address of the peer.
    pub address: AddressVector,
    /// Queue pair.
    pub qpn: Qpn,
    /// Queue key of the queue pair.
    pub qkey: QKey,
    /// Private data of the peer, 136 bytes.
    pub private_data: Vec<u8>,
}

impl Service {
    /// Returns the target for [`SendRequest::to`](crate::verbs::SendRequest::to).
    pub fn target(&self) -> UdTarget {
        UdTarget { av: self.address, qpn: self.qpn, qkey: self.qkey }
    }
}

/// Asks a [`ServiceListener`], or any program that listens with rdma_cm, for the UD queue pair of its service. `None`
/// waits without limit.
///
/// ```
/// use softroce::verbs::*;
///
/// let (near, far) =
///     (Context::open(OpenOptions::loopback())?, Context::open(OpenOptions::loopback())?);
/// # let cq = far.create_cq(16, None)?;
/// # let qp = far.alloc_pd().create_qp(&QpConfig::ud(&cq))?;
/// let service = cm::ServiceListener::bind(&far, "0.0.0.0:0".parse()?)?;
/// let peer = std::net::SocketAddr::new(far.ip(), service.local_addr().port());
/// let look_up = cm::LookUp::start(&near, peer, b"which one?")?;
/// service.accept(None)?.answer(&qp, QKey(0x1234), b"this one")?;
/// let found = look_up.wait(None)?;
/// assert_eq!((found.qpn, found.qkey), (qp.qpn(), QKey(0x1234)));
/// assert!(found.private_data.starts_with(b"this one"));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
///
/// [`Error::NotResolved`], [`Error::Unreachable`], [`Error::Timeout`]; those of [`LookUp::start`].
pub fn look_up(
    context: &Context,
    peer: SocketAddr,
    private_data: &[u8],
    timeout: impl Into<Option<Duration>>,
) -> Result<Service, Error> {
    LookUp::start(context, peer, private_data)?.wait(timeout)
}

/// A request for a UD service that the peer has not answered. Dropping it gives up.
#[derive(Debug)]
#[must_use = "dropping it gives up"]
pub struct LookUp {
    channel: Events,
    peer: SocketAddr,
    _id: Id,
}

impl LookUp {
    /// Sends a request with up to 180 bytes of private data, and does not wait for the answer.
    ///
    /// # Errors
    ///
    /// [`Error::Agent`] for private data that is too long, [`Error::NoRoute`], [`Error::NoSource`], [`Error::Bind`],
    /// [`Error::Verbs`].
    pub fn start(context: &Context, peer: SocketAddr, private_data: &[u8]) -> Result<Self, Error> {
        let channel = Events::new();
        let id = Id::on(context, &channel, PortSpace::Udp, QpType::Ud)?;
        id.resolve_addr(None, peer, RESOLVE_TIMEOUT)?;
        id.resolve_route(RESOLVE_TIMEOUT)?;
        id.connect(&ConnectParam { private_data, ..ConnectParam::default() })?;
        Ok(Self { channel, peer, _id: id })
    }

    /// Waits for the answer. `None` waits without limit.
    ///
    /// # Errors
    ///
    /// Those of [`look_up`].
    pub fn wait(&self, timeout: impl Into<Option<Duration>>) -> Result<Service, Error> {
        self.channel.wait_for(timeout.into(), |event| self.handle(event))
    }

    /// Returns the answer, or `None` if the peer has not answered.
    ///
    /// # Errors
    ///
    /// Those of [`look_up`].
    pub fn poll(&self) -> Result<Option<Service>, Error> {
        while let Some(event) = self.channel.poll() {
            if let Some(service) = self.handle(event)? {
                return Ok(Some(service));
            }
        }
        Ok(None)
    }

    /// Waits as a task for the answer.
    ///
    /// # Errors
    ///
    /// Those of [`look_up`].
    pub async fn finish(&self) -> Result<Service, Error> {
        self.channel.next_for(|event| self.handle(event)).await
    }

    fn handle(&self, event: Event) -> Result<Option<Service>, Error> {
        let peer = self.peer;
        match event.kind {
            EventKind::ServiceReply { reply, address } => {
                let (status, private_data) = (reply.status, reply.private_data);
                if status != SidrStatus::SUCCESS {
                    return Err(Error::NotResolved { peer, status, private_data });
                }
                Ok(Some(Service { address, qpn: reply.qpn, qkey: reply.qkey, private_data }))
            }
            EventKind::Unreachable => Err(Error::Unreachable { peer }),
            // The steps before.
            _ => Ok(None),
        }
    }
}

impl LookUp {
    /// Returns a descriptor that is readable while [`poll`](Self::poll) has something to return.
    ///
    /// # Errors
    ///
    /// [`Error::Os`] when there are no more descriptors.
    pub fn event_fd(&self) -> Result<BorrowedFd<'_>, Error> {
        self.channel.event_fd()
    }
}

/// Listens for requests for a UD service, from [`look_up`] or any program that uses rdma_cm.
#[derive(Debug)]
pub struct ServiceListener {
    id: Id,
    channel: Events,
}

/// A request for a UD service. Dropping it rejects it.
#[derive(Debug)]
#[must_use = "dropping it rejects the request"]
pub struct Query {
    id: Id,
    request: Box<ServiceRequest>,
}

impl ServiceListener {
    /// Listens at an address of the device. Port 0 requests a free one, and an unspecified address stands for every
    /// address of the device.
    ///
    /// # Errors
    ///
    /// Those of [`Listener::bind`](super::Listener::bind).
    pub fn bind(context: &Context, address: SocketAddr) -> Result<Self, Error> {
        let channel = Events::new();
        let id = Id::on(context, &channel, PortSpace::Udp, QpType::Ud)?;
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
    pub fn accept(&self, timeout: impl Into<Option<Duration>>) -> Result<Query, Error> {
        self.channel.wait_for(timeout.into(), |event| Ok(query(event)))
    }

    /// Returns the next request, or `None` when there is none.
    pub fn poll(&self) -> Option<Query> {
        std::iter::from_fn(|| self.channel.poll()).find_map(query)
    }

    /// Waits as a task for the next request.
    ///
    /// # Errors
    ///
    /// [`Error::Verbs`] when the device fails.
    pub async fn next(&self) -> Result<Query, Error> {
        self.channel.next_for(|event| Ok(query(event))).await
    }
}

fn query(event: Event) -> Option<Query> {
    match event.kind {
        EventKind::ServiceRequest(request) => Some(Query { id: event.id, request }),
        _ => None,
    }
}

impl ServiceListener {
    /// Returns a descriptor that is readable while [`poll`](Self::poll) has something to return.
    ///
    /// # Errors
    ///
    /// [`Error::Os`] when there are no more descriptors.
    pub fn event_fd(&self) -> Result<BorrowedFd<'_>, Error> {
        self.channel.event_fd()
    }
}

impl Query {
    /// Returns the address of the peer.
    pub fn peer(&self) -> SocketAddr {
        // A request has both addresses.
        self.id.peer_addr().unwrap_or_else(|| SocketAddr::from(([0, 0, 0, 0], 0)))
    }

    /// Returns the private data of the peer, with trailing zeros.
    pub fn private_data(&self) -> &[u8] {
        &self.request.private_data
    }

    /// Answers with a queue pair and its queue key, and up to 136 bytes of private data.
    ///
    /// # Errors
    ///
    /// [`Error::Agent`] for private data that is too long; the request is rejected then.
    pub fn answer(self, qp: &QueuePair, qkey: QKey, private_data: &[u8]) -> Result<(), Error> {
        let (qpn, qkey) = (qp.qpn(), Some(qkey));
        self.id.accept(&ConnectParam { private_data, qpn, qkey, ..ConnectParam::default() })
    }

    /// Rejects the request, with up to 136 bytes of private data.
    ///
    /// # Errors
    ///
    /// [`Error::Agent`] for private data that is too long; the request is rejected without it then.
    pub fn reject(self, private_data: &[u8]) -> Result<(), Error> {
        self.id.reject(RejectReason::CONSUMER, private_data)
    }
}

//! Connections, which move their queue pairs themselves.

use std::net::SocketAddr;
use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::cm::RejectReason;
use crate::engine::{QpAttr, QpState};
use crate::mem::Access;
use crate::time::RnrTimer;
use crate::verbs::cm::channel::Events;
use crate::verbs::cm::{Accept, Connect, ConnectParam, Error, Event, EventKind, Id, Incoming};
use crate::verbs::{Context, QueuePair};

/// Time limit of the steps before a connection, which never wait here.
const RESOLVE_TIMEOUT: Duration = Duration::from_secs(1);

/// Connects a queue pair to a [`Listener`](super::Listener), or any program that listens with rdma_cm. Takes the queue
/// pair from RESET or INIT to RTS.
///
/// # Errors
///
/// [`Error::Rejected`], [`Error::Unreachable`], [`Error::Timeout`]; those of [`Connecting::start`].
///
/// # Examples
///
/// ```
/// use softroce::verbs::*;
///
/// let (near, far) =
///     (Context::open(OpenOptions::loopback())?, Context::open(OpenOptions::loopback())?);
/// # let (near_cq, far_cq) = (near.create_cq(16, None)?, far.create_cq(16, None)?);
/// # let near_qp = near.alloc_pd().create_qp(&QpConfig::rc(&near_cq))?;
/// # let far_qp = far.alloc_pd().create_qp(&QpConfig::rc(&far_cq))?;
/// let listener = cm::Listener::bind(&far, "0.0.0.0:0".parse()?)?;
/// let peer = std::net::SocketAddr::new(far.ip(), listener.local_addr().port());
///
/// let options = cm::Connect { private_data: b"hello", ..cm::Connect::default() };
/// let connecting = cm::Connecting::start(&near, peer, &near_qp, &options)?;
/// let incoming = listener.accept(None)?;
/// assert!(incoming.private_data().starts_with(b"hello"));
/// let far_end = incoming.accept(&far_qp, &cm::Accept::default())?;
/// let near_end = connecting.wait(None)?;
///
/// assert_eq!(far_end.wait(None)?, cm::ConnectionEvent::Established);
/// near_end.disconnect()?;
/// assert_eq!(far_end.wait(None)?, cm::ConnectionEvent::Disconnected { answered: true });
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn connect(
    context: &Context,
    peer: SocketAddr,
    qp: &QueuePair,
    options: &Connect<'_>,
) -> Result<Connection, Error> {
    Connecting::start(context, peer, qp, options)?.wait(options.timeout)
}

/// A request for a connection that the peer has not answered. Dropping it gives up.
#[derive(Debug)]
#[must_use = "dropping it gives up"]
pub struct Connecting {
    end: End,
    timer: RnrTimer,
}

/// A connection of a queue pair.
///
/// When the peer has disconnected, the queue pair goes to ERR, which flushes its requests, and the event says so.
/// Dropping the connection disconnects.
#[derive(Debug)]
pub struct Connection {
    end: End,
    private_data: Vec<u8>,
    has_ended: AtomicBool,
}

/// Event of a connection.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum ConnectionEvent {
    /// The peer has confirmed an accepted request. The active side has no such event: [`connect`] has returned.
    Established,
    /// The peer has given up after the request was accepted.
    Rejected {
        /// Reason.
        reason: RejectReason,
        /// Private data, 148 bytes.
        private_data: Vec<u8>,
    },
    /// The peer has not confirmed an accepted request.
    Unreachable,
    /// The connection has ended.
    Disconnected {
        /// Whether the peer requested or confirmed it.
        answered: bool,
    },
    /// The time after a disconnection is over in which packets of the connection may arrive.
    TimewaitExit,
}

/// One side of a connection.
#[derive(Debug)]
struct End {
    id: Id,
    channel: Events,
    qp: QueuePair,
    peer: SocketAddr,
}

impl Connecting {
    /// Sends a request, and does not wait for the answer.
    ///
    /// # Errors
    ///
    /// [`Error::Agent`] for private data that is too long, [`Error::NoRoute`], [`Error::NoSource`], [`Error::Bind`],
    /// [`Error::QpType`], [`Error::Verbs`] when the queue pair cannot change its state.
    pub fn start(
        context: &Context,
        peer: SocketAddr,
        qp: &QueuePair,
        options: &Connect<'_>,
    ) -> Result<Self, Error> {
        let channel = Events::new();
        let info = qp.query()?;
        let id = Id::on(context, &channel, options.port_space, info.init.qp_type)?;
        id.set_traffic_class(options.traffic_class);
        id.resolve_addr(options.source, peer, RESOLVE_TIMEOUT)?;
        id.resolve_route(RESOLVE_TIMEOUT)?;
        let end = End { id, channel, qp: qp.clone(), peer };
        end.to_init(options.access)?;
        end.id.connect(&ConnectParam {
            private_data: options.private_data,
            qpn: qp.qpn(),
            srq: info.init.srq.is_some(),
            responder_resources: options.responder_resources,
            initiator_depth: options.initiator_depth,
            retry_count: options.retry_count,
            rnr_retry_count: options.rnr_retry_count,
            ..ConnectParam::default()
        })?;
        Ok(Self { end, timer: options.min_rnr_timer })
    }

    /// Waits until the connection is established. `None` waits without limit.
    ///
    /// # Errors
    ///
    /// Those of [`connect`].
    pub fn wait(self, timeout: impl Into<Option<Duration>>) -> Result<Connection, Error> {
        let private_data = self.end.channel.wait_for(timeout.into(), |event| self.handle(event))?;
        Ok(Connection::new(self.end, private_data))
    }

    /// Returns the connection if it is established, or itself if the peer has not answered. For loops that poll the
    /// descriptor.
    ///
    /// # Errors
    ///
    /// Those of [`connect`].
    pub fn poll(self) -> Result<Result<Connection, Self>, Error> {
        while let Some(event) = self.end.channel.poll() {
            if let Some(private_data) = self.handle(event)? {
                return Ok(Ok(Connection::new(self.end, private_data)));
            }
        }
        Ok(Err(self))
    }

    /// Waits as a task until the connection is established.
    ///
    /// # Errors
    ///
    /// Those of [`connect`].
    pub async fn finish(self) -> Result<Connection, Error> {
        let private_data = self.end.channel.next_for(|event| self.handle(event)).await?;
        Ok(Connection::new(self.end, private_data))
    }

    /// Handles an event. Returns the peer's private data once the connection is established.
    fn handle(&self, event: Event) -> Result<Option<Vec<u8>>, Error> {
        let peer = self.end.peer;
        match event.kind {
            EventKind::ConnectResponse(reply) => {
                let established = self.end.to_rts(self.timer, None);
                if let Err(error) = established.and_then(|()| self.end.id.establish()) {
                    // The first error is the one to report.
                    let _ = self.end.id.reject(RejectReason::CONSUMER, &[]);
                    return Err(error);
                }
                Ok(Some(reply.private_data))
            }
            EventKind::Rejected { reason, private_data } => {
                Err(Error::Rejected { peer, reason, private_data })
            }
            EventKind::Unreachable => Err(Error::Unreachable { peer }),
            EventKind::Disconnected { .. } => Err(Error::Disconnected { peer }),
            // The steps before.
            _ => Ok(None),
        }
    }
}

impl Connecting {
    /// Returns a descriptor that is readable while [`poll`](Self::poll) has something to return.
    ///
    /// # Errors
    ///
    /// [`Error::Os`] when there are no more descriptors.
    pub fn event_fd(&self) -> Result<BorrowedFd<'_>, Error> {
        self.end.channel.event_fd()
    }
}

impl Incoming {
    /// Accepts the connection: takes the queue pair from RESET or INIT to RTS, and answers the peer. The queue pair can be
    /// used at once; [`ConnectionEvent::Established`] follows when the peer has confirmed.
    ///
    /// # Errors
    ///
    /// [`Error::Verbs`] when the queue pair cannot change its state; [`Error::Agent`] for private data that is too long,
    /// or when the peer has given up. The request is rejected then.
    pub fn accept(self, qp: &QueuePair, options: &Accept<'_>) -> Result<Connection, Error> {
        let channel = Events::new();
        self.id.move_to(&channel);
        let request = &self.request;
        let responder_resources =
            options.responder_resources.min(request.offer.responder_resources);
        let initiator_depth = options.initiator_depth.min(request.offer.initiator_depth);
        let srq = qp.query()?.init.srq.is_some();
        let end = End { id: self.id.clone(), channel, qp: qp.clone(), peer: self.peer() };
        end.to_init(options.access)?;
        end.to_rts(options.min_rnr_timer, Some((responder_resources, initiator_depth)))?;
        end.id.accept(&ConnectParam {
            private_data: options.private_data,
            qpn: qp.qpn(),
            srq,
            responder_resources,
            initiator_depth,
            rnr_retry_count: options.rnr_retry_count,
            ..ConnectParam::default()
        })?;
        Ok(Connection::new(end, self.request.private_data.clone()))
    }
}

impl Connection {
    fn new(end: End, private_data: Vec<u8>) -> Self {
        Self { end, private_data, has_ended: AtomicBool::new(false) }
    }

    /// Returns the address of the peer.
    pub fn peer(&self) -> SocketAddr {
        self.end.peer
    }

    /// Returns the own address.
    pub fn local_addr(&self) -> Option<SocketAddr> {
        self.end.id.local_addr()
    }

    /// Returns the private data of the peer's request or reply, with trailing zeros.
    pub fn private_data(&self) -> &[u8] {
        &self.private_data
    }

    /// Returns the queue pair.
    pub fn qp(&self) -> &QueuePair {
        &self.end.qp
    }

    /// Disconnects: takes the queue pair to ERR, which flushes its requests, and asks the peer to disconnect too.
    /// [`ConnectionEvent::Disconnected`] follows. Does nothing if the connection has ended.
    ///
    /// # Errors
    ///
    /// [`Error::Verbs`].
    pub fn disconnect(&self) -> Result<(), Error> {
        if !self.has_ended.swap(true, Ordering::Relaxed) {
            self.end.qp.modify(QpAttr::to(QpState::Err))?;
        }
        self.end.id.disconnect()
    }

    /// Waits for the next event. `None` waits without limit.
    ///
    /// # Errors
    ///
    /// [`Error::Timeout`], [`Error::Verbs`] when the device fails.
    pub fn wait(&self, timeout: impl Into<Option<Duration>>) -> Result<ConnectionEvent, Error> {
        self.end.channel.wait_for(timeout.into(), |event| Ok(self.handle(event)))
    }

    /// Returns the next event, or `None` when there is none.
    pub fn poll(&self) -> Option<ConnectionEvent> {
        std::iter::from_fn(|| self.end.channel.poll()).find_map(|event| self.handle(event))
    }

    /// Waits as a task for the next event.
    ///
    /// # Errors
    ///
    /// [`Error::Verbs`] when the device fails.
    pub async fn next(&self) -> Result<ConnectionEvent, Error> {
        self.end.channel.next_for(|event| Ok(self.handle(event))).await
    }

    fn handle(&self, event: Event) -> Option<ConnectionEvent> {
        Some(match event.kind {
            EventKind::Established => ConnectionEvent::Established,
            EventKind::Rejected { reason, private_data } => {
                self.fail();
                ConnectionEvent::Rejected { reason, private_data }
            }
            EventKind::Unreachable => {
                self.fail();
                ConnectionEvent::Unreachable
            }
            EventKind::Disconnected { answered } => {
                self.fail();
                // Confirms it, so that the peer does not wait.
                let _ = self.end.id.disconnect();
                ConnectionEvent::Disconnected { answered }
            }
            EventKind::TimewaitExit => ConnectionEvent::TimewaitExit,
            _ => return None,
        })
    }

    /// Takes the queue pair to ERR: no peer acknowledges its requests any more.
    fn fail(&self) {
        if !self.has_ended.swap(true, Ordering::Relaxed) {
            // A failed device has flushed it.
            let _ = self.end.qp.modify(QpAttr::to(QpState::Err));
        }
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.fail();
    }
}

impl Connection {
    /// Returns a descriptor that is readable while [`poll`](Self::poll) has something to return.
    ///
    /// # Errors
    ///
    /// [`Error::Os`] when there are no more descriptors.
    pub fn event_fd(&self) -> Result<BorrowedFd<'_>, Error> {
        self.end.channel.event_fd()
    }
}

impl End {
    /// Takes a queue pair in RESET to INIT.
    fn to_init(&self, access: Access) -> Result<(), Error> {
        if self.qp.state()? == QpState::Reset {
            let attr = self.id.qp_attr(QpState::Init)?;
            self.qp.modify(QpAttr { access: attr.access.and(Some(access)), ..attr })?;
        }
        Ok(())
    }

    /// Takes the queue pair to RTS. `limits` are the READs and atomics outstanding here and at the peer, instead of those
    /// of the messages.
    fn to_rts(&self, timer: RnrTimer, limits: Option<(u8, u8)>) -> Result<(), Error> {
        let limit = |attr: Option<u8>, limit: Option<u8>| attr.map(|attr| limit.unwrap_or(attr));
        let attr = self.id.qp_attr(QpState::Rtr)?;
        self.qp.modify(QpAttr {
            min_rnr_timer: attr.min_rnr_timer.and(Some(timer)),
            max_dest_rd_atomic: limit(attr.max_dest_rd_atomic, limits.map(|limits| limits.0)),
            ..attr
        })?;
        let attr = self.id.qp_attr(QpState::Rts)?;
        let max_rd_atomic = limit(attr.max_rd_atomic, limits.map(|limits| limits.1));
        Ok(self.qp.modify(QpAttr { max_rd_atomic, ..attr })?)
    }
}

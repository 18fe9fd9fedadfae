//! Shared receive queues.

use std::sync::Arc;
use std::time::Duration;

use crate::engine::{SrqAttr, SrqError, SrqInit, SrqModify, XrcSrq};
use crate::ids::Srqn;
use crate::runtime::Shard;
use crate::transport::work::RecvRequest;
use crate::verbs::limits::{MAX_SGE, MAX_WR, check_max};
use crate::verbs::list::{Piece, post_in_pieces};
use crate::verbs::pd::PdInner;
use crate::verbs::subject::Subject;
use crate::verbs::usage::{Unacknowledged, User, Users};
use crate::verbs::{CompletionQueue, Error, ProtectionDomain, XrcDomain};

/// Attributes of a shared receive queue at creation (`ibv_srq_init_attr`).
#[doc(alias = "ibv_srq_init_attr")]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SrqConfig {
    /// Maximum number of unfinished requests.
    pub max_wr: u32,
    /// Maximum number of scatter/gather elements of a request.
    pub max_sge: u32,
}

impl Default for SrqConfig {
    /// Returns the defaults of a queue pair's own receive queue.
    fn default() -> Self {
        Self { max_wr: 128, max_sge: 4 }
    }
}

/// A receive queue that several RC, UC and UD queue pairs share. Each message takes the oldest request. Its
/// completion goes to the completion queue of the queue pair that received the message.
///
/// Messages take requests in the order in which their first packets arrive. A queue pair holds at most one request,
/// for the message in progress, so a slow queue pair cannot exhaust the queue. Requests are not reserved: after an
/// RNR NAK, the retransmitted message takes a request if there is one, or causes another RNR NAK.
///
/// A queue pair that enters the error state flushes the request of the message in progress, and leaves the other
/// requests in the shared queue. [`AsyncEvent::QpLastWqeReached`](super::AsyncEvent::QpLastWqeReached) reports that
/// no further completion of the queue pair will use the queue. The request of an incomplete or too long message over
/// UC or UD ends with an error.
///
/// Dropping the last handle destroys it. Each queue pair that uses it holds a handle.
///
/// ```
/// use softroce::verbs::*;
///
/// let ctx = Context::open(OpenOptions::loopback())?;
/// let (pd, cq) = (ctx.alloc_pd(), ctx.create_cq(16, None)?);
/// let mr = pd.alloc_mr(4096, Access::LOCAL_WRITE)?;
/// let srq = pd.create_srq(&SrqConfig { max_wr: 16, max_sge: 1 })?;
/// let sharing = QpConfig { srq: Some(&srq), ..QpConfig::rc(&cq) };
/// let (a, b) = (pd.create_qp(&sharing)?, pd.create_qp(&sharing)?);
/// # a.connect(&b.endpoint(), &ConnectOptions::default())?;
/// # b.connect(&a.endpoint(), &ConnectOptions::default())?;
///
/// srq.post_recv(RecvRequest::new(1, mr.sge(..64)))?;
/// srq.post_recv(RecvRequest::new(2, mr.sge(64..128)))?;
/// a.post_send(SendRequest::send(7, SendData::inline(b"to b")))?;
/// let first = cq.wait_one(None)?;
/// assert_eq!((first.wr_id, first.qpn, first.byte_len), (1, b.qpn(), 4));
/// b.post_send(SendRequest::send(8, SendData::inline(b"to a")))?;
/// let second = cq.wait_one(None)?;
/// assert_eq!((second.wr_id, second.qpn), (2, a.qpn()));
/// # Ok::<(), Error>(())
/// ```
#[doc(alias = "ibv_srq")]
#[derive(Clone, Debug)]
pub struct SharedReceiveQueue {
    pub(super) inner: Arc<SrqInner>,
}

#[derive(Debug)]
pub(super) struct SrqInner {
    /// The shard of all queue pairs that use it.
    pub(super) shard: Arc<Shard>,
    pub(super) srqn: Srqn,
    pub(super) pd: Arc<PdInner>,
    pub(super) users: Users,
    async_events: Arc<Unacknowledged>,
    /// For XRC: its domain, and the completion queue of its requests.
    xrc: Option<(XrcDomain, CompletionQueue, User)>,
}

impl SharedReceiveQueue {
    fn create(
        pd: &Arc<PdInner>,
        config: &SrqConfig,
        xrc: Option<(&XrcDomain, &CompletionQueue)>,
    ) -> Result<Self, Error> {
        check_max("max_wr", config.max_wr, MAX_WR)?;
        check_max("max_sge", config.max_sge, MAX_SGE)?;
        let context = &pd.context;
        for (what, device) in xrc.iter().flat_map(|(domain, cq)| {
            let of_cq = &cq.inner.context.device;
            [("XRC domain", &domain.context.device), ("completion queue", of_cq)]
        }) {
            if !context.is_of(device) {
                return Err(Error::OtherDevice { what });
            }
        }
        let init = SrqInit {
            pd: pd.id,
            max_wr: config.max_wr,
            max_sge: config.max_sge,
            xrc: xrc.map(|(domain, cq)| XrcSrq { domain: domain.domain.id, cq: cq.id() }),
        };
        let of_domain = xrc.map(|(domain, _)| domain.shard());
        let shard = Arc::clone(of_domain.unwrap_or_else(|| pd.next_shard()));
        let srqn = shard.with(|core, _| core.create_srq(init, &context.events))??;
        if let Some((_, cq)) = xrc {
            cq.inner.ring.add_feeders(shard.set());
        }
        let (users, async_events) = (Users::default(), context.subjects.enter(Subject::Srq(srqn)));
        let xrc = xrc.map(|(domain, cq)| (domain.clone(), cq.clone(), cq.inner.users.join()));
        let pd = Arc::clone(pd);
        Ok(Self { inner: Arc::new(SrqInner { shard, srqn, pd, users, async_events, xrc }) })
    }

    /// Returns the completion queue of an XRC shared receive queue. Other shared receive queues have none: the queue
    /// pairs determine the completion queue.
    pub fn cq(&self) -> Option<&CompletionQueue> {
        self.inner.xrc.as_ref().map(|(_, cq, _)| cq)
    }

    /// Returns the XRC domain of an XRC shared receive queue, or `None`.
    pub fn xrc_domain(&self) -> Option<&XrcDomain> {
        self.inner.xrc.as_ref().map(|(domain, ..)| domain)
    }

    /// Returns the number of the queue.
    #[doc(alias = "ibv_get_srq_num")]
    pub fn srqn(&self) -> Srqn {
        self.inner.srqn
    }

    /// Posts a receive request.
    ///
    /// # Errors
    ///
    /// [`Error::PostSrq`], for example when the queue is full; [`Error::Device`].
    #[doc(alias = "ibv_post_srq_recv")]
    pub fn post_recv(&self, request: RecvRequest) -> Result<(), Error> {
        self.post_recvs([request]).1
    }

    /// Posts a list of receive requests. This is cheaper than posting them one by one. Returns the number of posted
    /// requests; an error belongs to the next request.
    pub fn post_recvs(
        &self,
        requests: impl IntoIterator<Item = RecvRequest>,
    ) -> (usize, Result<(), Error>) {
        post_in_pieces(requests, |piece| self.post_recv_piece(piece))
    }

    fn post_recv_piece(&self, piece: &mut Piece<RecvRequest>) -> (usize, Result<(), Error>) {
        let srqn = self.inner.srqn;
        let shard = &self.inner.shard;
        match shard.with_old_time(|core, _| core.post_srq_recvs(srqn, piece.drain(..))) {
            Ok((taken, result)) => {
                (taken, result.map_err(|source| Error::PostSrq { srqn, source }))
            }
            Err(down) => (0, Err(down.into())),
        }
    }

    /// Sets the limit or the size of the queue. A limit arms an event: when a message takes a request and fewer
    /// requests than the limit remain, [the context](super::Context::poll_event) reports
    /// [`AsyncEvent::SrqLimitReached`](super::AsyncEvent::SrqLimitReached) and the limit returns to 0
    /// (`ibv_modify_srq(3)`).
    ///
    /// # Errors
    ///
    /// [`Error::Srq`] for a limit above the size, or a size below the number of requests in the queue;
    /// [`Error::Limit`] for a size above the device's maximum; [`Error::Device`]. The queue does not change.
    ///
    /// ```
    /// # use softroce::verbs::*;
    /// # let ctx = Context::open(OpenOptions::loopback())?;
    /// # let (pd, cq) = (ctx.alloc_pd(), ctx.create_cq(16, None)?);
    /// let srq = pd.create_srq(&SrqConfig::default())?;
    /// # let sharing = QpConfig { srq: Some(&srq), ..QpConfig::rc(&cq) };
    /// # let qp = pd.create_qp(&sharing)?;
    /// # let me = qp.endpoint();
    /// # qp.connect(&me, &ConnectOptions::default())?; // with itself
    /// srq.post_recv(RecvRequest::default())?;
    /// srq.modify(SrqModify { limit: Some(1), ..SrqModify::default() })?;
    /// qp.post_send(SendRequest::send(1, SendData::inline(b"")))?;
    /// assert_eq!(ctx.wait_event(None)?, AsyncEvent::SrqLimitReached(srq.srqn()));
    /// assert_eq!(srq.query()?.limit, 0);
    /// # Ok::<(), Error>(())
    /// ```
    #[doc(alias = "ibv_modify_srq")]
    pub fn modify(&self, modify: SrqModify) -> Result<(), Error> {
        if let Some(max_wr) = modify.max_wr {
            check_max("max_wr", max_wr, MAX_WR)?;
        }
        let srqn = self.inner.srqn;
        let shard = &self.inner.shard;
        Ok(shard.with(|core, _| core.engine.modify_srq(srqn, modify))??)
    }

    /// Acknowledges this many asynchronous events that were [kept](super::PendingEvent::keep).
    #[doc(alias = "ibv_ack_async_event")]
    pub fn ack_async_events(&self, events: u32) {
        self.inner.async_events.acknowledge(events.into());
    }

    /// Waits until all events of the queue are acknowledged. `None` waits without limit.
    ///
    /// # Errors
    ///
    /// [`Error::Timeout`].
    pub fn wait_acknowledged(&self, timeout: impl Into<Option<Duration>>) -> Result<(), Error> {
        self.inner.async_events.wait(timeout.into())
    }

    /// Drops this handle. The last handle destroys the queue.
    ///
    /// # Errors
    ///
    /// The queue, and [`Error::InUse`] when queue pairs use it or events of it are unacknowledged.
    #[doc(alias = "ibv_destroy_srq")]
    pub fn destroy(self) -> Result<(), (Self, Error)> {
        let what = "shared receive queue";
        let checked = self.inner.users.check(what, "queue pairs");
        let checked = checked.and_then(|()| self.inner.async_events.check(what));
        checked.map_err(|error| (self, error))
    }

    /// Returns the size and the limit of the queue.
    ///
    /// # Errors
    ///
    /// [`Error::Device`].
    #[doc(alias = "ibv_query_srq")]
    pub fn query(&self) -> Result<SrqAttr, Error> {
        let srqn = self.inner.srqn;
        let shard = &self.inner.shard;
        // The queue exists as long as a handle.
        Ok(shard.with(|core, _| core.engine.query_srq(srqn).ok_or(SrqError::NoSuchSrq(srqn)))??)
    }
}

/// Compares the identity of queues.
impl PartialEq for SharedReceiveQueue {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.inner, &other.inner)
    }
}

impl Eq for SharedReceiveQueue {}

impl Drop for SrqInner {
    #[doc(alias = "ibv_destroy_srq")]
    fn drop(&mut self) {
        let context = &self.pd.context;
        // No queue pair uses it, because each holds a handle. A failed device needs no destruction.
        let _ = self.shard.with(|core, _| {
            let _ = core.destroy_srq(self.srqn);
            // Before another queue gets the number.
            context.remove_subject(Subject::Srq(self.srqn));
        });
    }
}

impl ProtectionDomain {
    /// Creates a receive queue that queue pairs of all protection domains may share.
    ///
    /// # Errors
    ///
    /// [`Error::Limit`], [`Error::Srq`], [`Error::Device`].
    #[doc(alias = "ibv_create_srq")]
    pub fn create_srq(&self, config: &SrqConfig) -> Result<SharedReceiveQueue, Error> {
        SharedReceiveQueue::create(&self.inner, config, None)
    }

    /// Creates a receive queue for XRC, which requests name by its number. Its requests complete in `cq`. This
    /// protection domain checks the keys of requests that name the queue.
    ///
    /// # Errors
    ///
    /// [`Error::Limit`], [`Error::OtherDevice`], [`Error::Srq`], [`Error::Device`].
    #[doc(alias = "ibv_create_srq_ex")]
    pub fn create_xrc_srq(
        &self,
        config: &SrqConfig,
        domain: &XrcDomain,
        cq: &CompletionQueue,
    ) -> Result<SharedReceiveQueue, Error> {
        SharedReceiveQueue::create(&self.inner, config, Some((domain, cq)))
    }
}

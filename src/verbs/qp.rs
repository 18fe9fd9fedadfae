//! Queue pairs.

mod mcast;

use std::sync::Arc;
use std::time::Duration;

use smallvec::SmallVec;

use crate::engine::{
    CreateError, FlatAttr, InitAttr, PostError, QpAttr, QpCap, QpInfo, QpInit, QpState, QpType,
    RateLimit, RtrAttr, RtsAttr, SendOps,
};
use crate::ids::{QKey, Qpn, Rkey};
use crate::mem::{Access, BindInfo};
use crate::psn::Psn;
use crate::runtime::{DeviceError, random_word};
use crate::transport::work::{RecvRequest, SendFlags, SendRequest};
use crate::verbs::context::ContextInner;
use crate::verbs::limits::{MAX_INLINE, MAX_SGE, MAX_WR, check_max};
use crate::verbs::list::{Piece, post_in_pieces};
use crate::verbs::pd::PdInner;
use crate::verbs::qp_handle::QpHandle;
use crate::verbs::subject::Subject;
use crate::verbs::usage::{Unacknowledged, User};
use crate::verbs::{
    CompletionQueue, ConnectOptions, Counters, Endpoint, Error, MemoryWindow, ProtectionDomain,
    SharedReceiveQueue,
};

/// Attributes of a queue pair at creation (`ibv_qp_init_attr`).
#[doc(alias = "ibv_qp_init_attr")]
#[derive(Clone, Debug)]
pub struct QpConfig<'a> {
    /// The transport service.
    pub qp_type: QpType,
    /// Completion queue of send requests.
    pub send_cq: &'a CompletionQueue,
    /// Completion queue of receive requests.
    pub recv_cq: &'a CompletionQueue,
    /// Shared receive queue. With one, the queue pair has no receive queue of its own, and ignores the limits of
    /// receive requests in `cap`.
    pub srq: Option<&'a SharedReceiveQueue>,
    /// Numbers and sizes of requests.
    pub cap: QpCap,
    /// Whether every send request generates a completion, signaled or not.
    pub sq_sig_all: bool,
    /// Operations that the program will post to the send queue; `None` for all operations of the transport service.
    #[doc(alias = "send_ops_flags")]
    pub send_ops: Option<SendOps>,
}

impl<'a> QpConfig<'a> {
    /// Returns the attributes of an RC queue pair with one completion queue for both directions and default limits.
    pub fn rc(cq: &'a CompletionQueue) -> Self {
        Self::of(QpType::Rc, cq)
    }

    /// Returns the attributes of a UC queue pair with one completion queue and default limits.
    pub fn uc(cq: &'a CompletionQueue) -> Self {
        Self::of(QpType::Uc, cq)
    }

    /// Returns the attributes of a UD queue pair with one completion queue and default limits.
    pub fn ud(cq: &'a CompletionQueue) -> Self {
        Self::of(QpType::Ud, cq)
    }

    /// Returns the attributes of an XRC initiator with one completion queue and default limits. Each of its requests
    /// names a [shared receive queue](super::XrcDomain) of the peer: [`SendRequest::to`].
    pub fn xrc(cq: &'a CompletionQueue) -> Self {
        Self::of(QpType::XrcIni, cq)
    }

    fn of(qp_type: QpType, cq: &'a CompletionQueue) -> Self {
        Self {
            qp_type,
            send_cq: cq,
            recv_cq: cq,
            srq: None,
            cap: QpCap::default(),
            sq_sig_all: false,
            send_ops: None,
        }
    }

    fn check(&self) -> Result<(), Error> {
        let QpCap { max_send_wr, max_recv_wr, max_send_sge, max_recv_sge, max_inline_data } =
            self.cap;
        for (what, found, max) in [
            ("max_send_wr", max_send_wr, MAX_WR),
            ("max_recv_wr", max_recv_wr, MAX_WR),
            ("max_send_sge", max_send_sge, MAX_SGE),
            ("max_recv_sge", max_recv_sge, MAX_SGE),
            ("max_inline_data", max_inline_data, MAX_INLINE),
        ] {
            check_max(what, found, max)?;
        }
        Ok(())
    }
}

/// A queue pair: a send queue and a receive queue.
///
/// Dropping the last handle destroys it. Unfinished requests then end without completions.
///
/// ```
/// use softroce::verbs::*;
///
/// let ctx = Context::open(OpenOptions::loopback())?;
/// let (pd, cq) = (ctx.alloc_pd(), ctx.create_cq(16, None)?);
/// let qp = pd.create_qp(&QpConfig::rc(&cq))?;
///
/// // The peers exchange these lines; here the queue pair is its own peer.
/// let peer: Endpoint = qp.endpoint().to_string().parse()?;
/// qp.connect(&peer, &ConnectOptions::default())?;
/// assert_eq!(qp.state()?, QpState::Rts);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[doc(alias = "ibv_qp")]
#[derive(Clone, Debug)]
pub struct QueuePair {
    inner: Arc<QpInner>,
}

#[derive(Debug)]
struct QpInner {
    handle: QpHandle,
    pd: Arc<PdInner>,
    send_cq: CompletionQueue,
    recv_cq: CompletionQueue,
    srq: Option<SharedReceiveQueue>,
    /// Registrations with its completion queues and its shared receive queue.
    _users: (User, Option<User>, Option<User>),
    async_events: Arc<Unacknowledged>,
}

impl QueuePair {
    fn create(pd: &Arc<PdInner>, config: &QpConfig<'_>) -> Result<Self, Error> {
        config.check()?;
        if config.qp_type == QpType::XrcTgt {
            return Err(Error::Create(CreateError::NoXrcd));
        }
        let context = &pd.context;
        for cq in [config.send_cq, config.recv_cq] {
            if !context.is_of(&cq.inner.context.device) {
                return Err(Error::OtherDevice { what: "completion queue" });
            }
        }
        if config.srq.is_some_and(|srq| !context.is_of(&srq.inner.pd.context.device)) {
            return Err(Error::OtherDevice { what: "shared receive queue" });
        }
        let init = QpInit {
            qp_type: config.qp_type,
            pd: pd.id,
            send_cq: Some(config.send_cq.id()),
            recv_cq: Some(config.recv_cq.id()),
            cap: config.cap,
            sq_sig_all: config.sq_sig_all,
            srq: config.srq.map(SharedReceiveQueue::srqn),
            send_ops: config.send_ops,
            xrcd: None,
        };
        let os = |source| Error::Os { what: "random numbers", source };
        let psn = Psn::new(random_word().map_err(os)?);
        let shard = config.srq.map(|srq| &srq.inner.shard).unwrap_or_else(|| pd.next_shard());
        let qpn = shard.with(|core, now| core.create_qp(now, init, &context.events))??;
        for cq in [config.send_cq, config.recv_cq] {
            cq.inner.ring.add_feeders(shard.set());
        }
        let (send_cq, recv_cq) = (config.send_cq.clone(), config.recv_cq.clone());
        let srq_user = config.srq.map(|srq| srq.inner.users.join());
        let other = (recv_cq != send_cq).then(|| recv_cq.inner.users.join());
        let users = (send_cq.inner.users.join(), other, srq_user);
        Ok(Self {
            inner: Arc::new(QpInner {
                handle: QpHandle { shard: Arc::clone(shard), qpn, qp_type: config.qp_type, psn },
                pd: Arc::clone(pd),
                send_cq,
                recv_cq,
                srq: config.srq.cloned(),
                _users: users,
                async_events: context.subjects.enter(Subject::Qp(qpn)),
            }),
        })
    }

    /// Returns the endpoint of the queue pair, which the peer needs to connect. The address is that of the queue
    /// pair's path, or the first address of the device before it has a path.
    pub fn endpoint(&self) -> Endpoint {
        self.inner.handle.endpoint(self.context())
    }

    /// Returns the endpoint at the address with this index in the GID table. Use the same index as
    /// [`ConnectOptions::sgid_index`].
    ///
    /// # Errors
    ///
    /// [`Error::TableIndex`].
    pub fn endpoint_at(&self, sgid_index: u8) -> Result<Endpoint, Error> {
        self.inner.handle.endpoint_at(self.context(), sgid_index)
    }

    /// Returns the queue pair number.
    pub fn qpn(&self) -> Qpn {
        self.inner.handle.qpn
    }

    /// Connects an RC or UC queue pair, or an XRC initiator, to `peer`: takes it from RESET or INIT to RTS. No packet
    /// is sent; the peer connects its queue pair in the same way, before or after this call. RC retransmits requests
    /// that arrive before the peer is connected; UC loses them.
    ///
    /// # Errors
    ///
    /// [`Error::Modify`], after which the queue pair is in the last state that it reached; [`Error::Device`].
    pub fn connect(&self, peer: &Endpoint, options: &ConnectOptions) -> Result<(), Error> {
        self.inner.handle.connect(self.context(), peer, options)
    }

    /// Takes a UD queue pair from RESET to RTS. It receives messages with this queue key from all senders, and sends
    /// to the [target](SendRequest::to) of each request.
    ///
    /// # Errors
    ///
    /// [`Error::Modify`]: a queue key with bit 31 set requires `CAP_NET_RAW`; [`Error::Device`].
    pub fn activate(&self, qkey: QKey) -> Result<(), Error> {
        self.modify(InitAttr::Datagram { qkey })?;
        self.modify(RtrAttr::Ud)?;
        self.modify(RtsAttr::Unreliable { sq_psn: self.inner.handle.psn })
    }

    /// Modifies the state or attributes of the queue pair. The argument is a [`QpAttr`], or the attributes of one
    /// transition: [`InitAttr`](crate::engine::InitAttr), [`RtrAttr`](crate::engine::RtrAttr),
    /// [`RtsAttr`](crate::engine::RtsAttr). The transition to RESET removes the queue pair's completions from its
    /// completion queues.
    ///
    /// # Errors
    ///
    /// [`Error::Modify`], which names the missing, superfluous or invalid attributes.
    #[doc(alias = "ibv_modify_qp")]
    pub fn modify(&self, attr: impl Into<QpAttr>) -> Result<(), Error> {
        self.inner.handle.modify(self.context(), &attr.into())
    }

    /// Modifies the queue pair by a structure with all attributes, of which `mask` selects some, as
    /// `ibv_modify_qp(3)` (see [`FlatAttr`]).
    ///
    /// # Errors
    ///
    /// [`Error::Modify`] as [`modify`](Self::modify), and for values out of an attribute's range.
    pub fn modify_masked(&self, attr: &FlatAttr, mask: u32) -> Result<(), Error> {
        let qpn = self.inner.handle.qpn;
        self.modify(attr.select(mask).map_err(|source| Error::Modify { qpn, source })?)
    }

    /// Limits the rate at which the queue pair sends.
    ///
    /// ```
    /// use softroce::verbs::*;
    ///
    /// let ctx = Context::open(OpenOptions::loopback())?;
    /// let (pd, cq) = (ctx.alloc_pd(), ctx.create_cq(16, None)?);
    /// let qp = pd.create_qp(&QpConfig::rc(&cq))?;
    /// qp.connect(&qp.endpoint(), &ConnectOptions::default())?;
    /// // One gigabit per second, in bursts of up to 64 KiB.
    /// qp.modify_rate_limit(RateLimit { kbps: 1_000_000, max_burst: 1 << 16 })?;
    /// assert_eq!(qp.query()?.attr.rate_limit.map(|limit| limit.kbps), Some(1_000_000));
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::Modify`] before RTS; [`Error::Device`].
    #[doc(alias = "ibv_modify_qp_rate_limit")]
    pub fn modify_rate_limit(&self, limit: RateLimit) -> Result<(), Error> {
        self.modify(QpAttr { rate_limit: Some(limit), ..QpAttr::default() })
    }

    /// Returns the state and attributes of the queue pair, and its creation attributes as granted.
    ///
    /// ```
    /// use softroce::verbs::*;
    ///
    /// let ctx = Context::open(OpenOptions::loopback())?;
    /// let (pd, cq) = (ctx.alloc_pd(), ctx.create_cq(16, None)?);
    /// let cap = QpCap { max_inline_data: 1, ..QpCap::default() };
    /// let send_ops = Some(SendOps::SEND | SendOps::RDMA_READ);
    /// let qp = pd.create_qp(&QpConfig { cap, send_ops, ..QpConfig::rc(&cq) })?;
    /// let info = qp.query()?;
    /// assert_eq!((info.state, info.init.cap.max_inline_data), (QpState::Reset, 64));
    /// assert_eq!(info.init.send_ops, send_ops);
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::Device`].
    #[doc(alias = "ibv_query_qp")]
    pub fn query(&self) -> Result<QpInfo, Error> {
        self.inner.handle.query()
    }

    /// Returns the counters of the queue pair since its creation.
    ///
    /// ```
    /// # use softroce::verbs::*;
    /// # let (near, far) =
    /// #     (Context::open(OpenOptions::loopback())?, Context::open(OpenOptions::loopback())?);
    /// # let (near_cq, far_cq) = (near.create_cq(16, None)?, far.create_cq(16, None)?);
    /// # let (near_pd, far_pd) = (near.alloc_pd(), far.alloc_pd());
    /// # let qp = near_pd.create_qp(&QpConfig::rc(&near_cq))?;
    /// # let far_qp = far_pd.create_qp(&QpConfig::rc(&far_cq))?;
    /// # qp.connect(&far_qp.endpoint(), &ConnectOptions::default())?;
    /// # far_qp.connect(&qp.endpoint(), &ConnectOptions::default())?;
    /// # let target = far_pd.alloc_mr(64, Access::LOCAL_WRITE | Access::REMOTE_WRITE)?;
    /// # let source = near_pd.alloc_mr(64, Access::empty())?;
    /// qp.post_send(SendRequest::write(1, source.sge(..), target.remote(0)).signaled())?;
    /// near_cq.wait_one(None)?;
    /// let Counters { writes_completed, retransmitted, timeouts, .. } = qp.counters()?;
    /// assert_eq!(writes_completed, 1);
    /// println!("{retransmitted} packets sent again, {timeouts} timeouts");
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::Device`].
    pub fn counters(&self) -> Result<Counters, Error> {
        self.inner.handle.counters()
    }

    /// Returns the state of the queue pair.
    ///
    /// # Errors
    ///
    /// [`Error::Device`].
    pub fn state(&self) -> Result<QpState, Error> {
        Ok(self.query()?.state)
    }

    /// Posts a send request and transmits it.
    ///
    /// # Errors
    ///
    /// [`Error::Post`], [`Error::Device`].
    ///
    /// # Examples
    ///
    /// Write a log entry to the peer, and then, when the entry is visible to every reader there, the word that
    /// announces it:
    ///
    /// ```
    /// # use softroce::verbs::*;
    /// # let ctx = Context::open(OpenOptions::loopback())?;
    /// # let (pd, cq) = (ctx.alloc_pd(), ctx.create_cq(16, None)?);
    /// # let qp = pd.create_qp(&QpConfig::rc(&cq))?;
    /// # qp.connect(&qp.endpoint(), &ConnectOptions::default())?;
    /// let access = Access::LOCAL_WRITE | Access::REMOTE_WRITE | Access::FLUSH_GLOBAL;
    /// let log = pd.alloc_mr(4096, access)?;
    ///
    /// let entry = SendData::inline(b"first entry");
    /// let length = SendData::inline(&11_u64.to_ne_bytes());
    /// let global = FlushPlacement::GLOBAL_VISIBILITY;
    /// qp.post_send(SendRequest::write(1, entry, log.remote(64)))?;
    /// qp.post_send(SendRequest::flush(2, log.remote(64), 11, global))?;
    /// qp.post_send(SendRequest::atomic_write(3, length, log.remote(0)).signaled())?;
    /// assert_eq!(cq.wait_one(None)?.status, WcStatus::Success);
    /// assert_eq!(log.load_u64(0)?, 11);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[doc(alias = "ibv_post_send")]
    pub fn post_send(&self, request: SendRequest) -> Result<(), Error> {
        let QpHandle { shard, qpn, .. } = &self.inner.handle;
        self.check_posted(
            shard.post(|core, now, doorbell| core.post_send(now, *qpn, request, doorbell)),
        )
    }

    /// Posts a list of send requests, and transmits them together in groups of up to 64. This is cheaper than posting
    /// them one by one. Returns the number of posted requests; an error belongs to the next request, and the rest of
    /// the list is not consumed.
    pub fn post_sends(
        &self,
        requests: impl IntoIterator<Item = SendRequest>,
    ) -> (usize, Result<(), Error>) {
        post_in_pieces(requests, |piece| self.post_send_piece(piece))
    }

    fn post_send_piece(&self, piece: &mut [SendRequest]) -> (usize, Result<(), Error>) {
        let QpHandle { shard, qpn, .. } = &self.inner.handle;
        match shard.post(|core, now, doorbell| core.post_sends(now, *qpn, piece, doorbell)) {
            Ok((taken, result)) => (taken, self.check_posted(Ok(result))),
            Err(down) => (0, Err(down.into())),
        }
    }

    /// Posts a list of send requests and transmits them, if all are valid and fit the send queue; otherwise posts
    /// none.
    ///
    /// ```
    /// use softroce::verbs::*;
    ///
    /// let ctx = Context::open(OpenOptions::loopback())?;
    /// let (pd, cq) = (ctx.alloc_pd(), ctx.create_cq(16, None)?);
    /// let mr = pd.alloc_mr(64, Access::LOCAL_WRITE | Access::REMOTE_WRITE)?;
    /// let qp = pd.create_qp(&QpConfig::rc(&cq))?;
    /// qp.connect(&qp.endpoint(), &ConnectOptions::default())?;
    ///
    /// let write = |wr_id| SendRequest::write(wr_id, mr.sge(..8), mr.remote(8)).signaled();
    /// let long = SendRequest::write(2, SendData::inline(&[0; 1000]), mr.remote(0));
    /// assert!(qp.post_all([write(1), long]).is_err());
    /// qp.post_all([write(3), write(4)])?;
    /// assert_eq!([cq.wait_one(None)?.wr_id, cq.wait_one(None)?.wr_id], [3, 4]);
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::Post`] for the first request that is not valid; [`Error::Device`].
    #[doc(alias = "ibv_wr_start")]
    #[doc(alias = "ibv_wr_complete")]
    pub fn post_all(&self, requests: impl IntoIterator<Item = SendRequest>) -> Result<(), Error> {
        self.post_whole(&mut requests.into_iter().collect::<SmallVec<[_; 8]>>())
    }

    fn post_whole(&self, requests: &mut [SendRequest]) -> Result<(), Error> {
        let QpHandle { shard, qpn, .. } = &self.inner.handle;
        self.check_posted(
            shard.post(|core, now, doorbell| core.post_all_sends(now, *qpn, requests, doorbell)),
        )
    }

    /// Binds a memory window of type 1, and returns its new key, which a request posted after this one may send to
    /// the peer. [`BindInfo::NOTHING`] unbinds the window. The previous key becomes invalid when the request
    /// completes.
    ///
    /// The bind is a send request, with the flags SIGNALED and FENCE. It ends with `MW_BIND_ERR` when the region does
    /// not permit it. [`SendRequest::bind_mw`] binds windows of type 2.
    ///
    /// # Errors
    ///
    /// [`Error::WindowType`], [`Error::OtherDevice`] for the window, [`Error::Post`], [`Error::Device`].
    ///
    /// # Examples
    ///
    /// ```
    /// use softroce::verbs::*;
    ///
    /// let ctx = Context::open(OpenOptions::loopback())?;
    /// let (pd, cq) = (ctx.alloc_pd(), ctx.create_cq(16, None)?);
    /// let (near, far) = (pd.create_qp(&QpConfig::rc(&cq))?, pd.create_qp(&QpConfig::rc(&cq))?);
    /// near.connect(&far.endpoint(), &ConnectOptions::default())?;
    /// far.connect(&near.endpoint(), &ConnectOptions::default())?;
    ///
    /// // Peers have no access to the region itself, and may write to 64 bytes of it through the window.
    /// let mr = pd.alloc_mr(4096, Access::LOCAL_WRITE | Access::MW_BIND)?;
    /// let mw = pd.alloc_mw(MwType::Type1)?;
    /// let info = mr.bind_info(1024..1088, Access::REMOTE_WRITE);
    /// let rkey = far.bind_mw(1, SendFlags::SIGNALED, &mw, info)?;
    /// assert_eq!(cq.wait_one(None)?.opcode, WcOpcode::BindMw);
    ///
    /// let window = RemoteAddr { addr: info.addr, rkey };
    /// near.post_send(SendRequest::write(2, SendData::inline(b"hi"), window).signaled())?;
    /// assert_eq!(cq.wait_one(None)?.status, WcStatus::Success);
    ///
    /// let outside = RemoteAddr { addr: info.addr + 63, rkey };
    /// near.post_send(SendRequest::write(3, SendData::inline(b"hi"), outside))?;
    /// assert_eq!(cq.wait_one(None)?.status, WcStatus::RemAccessErr);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[doc(alias = "ibv_bind_mw")]
    pub fn bind_mw(
        &self,
        wr_id: u64,
        flags: SendFlags,
        mw: &MemoryWindow,
        to: BindInfo,
    ) -> Result<Rkey, Error> {
        if !mw.is_of(&self.context().device) {
            return Err(Error::OtherDevice { what: "memory window" });
        }
        if to.access.contains(Access::ZERO_BASED) {
            let source = PostError::WindowAccess { access: Access::ZERO_BASED };
            return Err(Error::Post { qpn: self.inner.handle.qpn, source });
        }
        mw.with_next_key(|id, rkey| {
            let request = SendRequest::bind_mw(wr_id, id, rkey, to);
            self.post_send(SendRequest { flags, ..request })
        })
    }

    /// Posts a receive request.
    ///
    /// # Errors
    ///
    /// [`Error::Post`], [`Error::Device`].
    #[doc(alias = "ibv_post_recv")]
    pub fn post_recv(&self, request: RecvRequest) -> Result<(), Error> {
        self.post_recvs([request]).1
    }

    /// Posts a list of receive requests. This is cheaper than posting them one by one. Returns the number of posted
    /// requests; an error belongs to the next request.
    ///
    /// ```
    /// # use softroce::verbs::*;
    /// # let ctx = Context::open(OpenOptions::loopback())?;
    /// # let (pd, cq) = (ctx.alloc_pd(), ctx.create_cq(16, None)?);
    /// # let mr = pd.alloc_mr(256, Access::LOCAL_WRITE)?;
    /// let cap = QpCap { max_recv_wr: 3, ..QpCap::default() };
    /// let qp = pd.create_qp(&QpConfig { cap, ..QpConfig::rc(&cq) })?;
    /// qp.connect(&qp.endpoint(), &ConnectOptions::default())?; // with itself
    /// let requests = (0..4).map(|wr_id| RecvRequest::new(wr_id, mr.sge(..64)));
    /// let (taken, result) = qp.post_recvs(requests);
    /// assert_eq!((taken, result.is_err()), (3, true));
    /// # Ok::<(), Error>(())
    /// ```
    pub fn post_recvs(
        &self,
        requests: impl IntoIterator<Item = RecvRequest>,
    ) -> (usize, Result<(), Error>) {
        post_in_pieces(requests, |piece| self.post_recv_piece(piece))
    }

    fn post_recv_piece(&self, piece: &mut Piece<RecvRequest>) -> (usize, Result<(), Error>) {
        let QpHandle { shard, qpn, .. } = &self.inner.handle;
        match shard.with_old_time(|core, now| core.post_recvs(now, *qpn, piece.drain(..))) {
            Ok((taken, result)) => (taken, self.check_posted(Ok(result))),
            Err(down) => (0, Err(down.into())),
        }
    }

    /// Acknowledges this many asynchronous events that were [kept](super::PendingEvent::keep).
    #[doc(alias = "ibv_ack_async_event")]
    pub fn ack_async_events(&self, events: u32) {
        self.inner.async_events.acknowledge(events.into());
    }

    /// Waits until all events of the queue pair are acknowledged. `None` waits without limit.
    ///
    /// # Errors
    ///
    /// [`Error::Timeout`].
    pub fn wait_acknowledged(&self, timeout: impl Into<Option<Duration>>) -> Result<(), Error> {
        self.inner.async_events.wait(timeout.into())
    }

    /// Drops this handle. The last handle destroys the queue pair: unfinished requests end without completions, and
    /// its completions remain in their queues.
    ///
    /// # Errors
    ///
    /// The queue pair, and [`Error::InUse`] when events of it are unacknowledged or it is attached to multicast
    /// groups.
    #[doc(alias = "ibv_destroy_qp")]
    pub fn destroy(self) -> Result<(), (Self, Error)> {
        let checked =
            self.check_groups().and_then(|()| self.inner.async_events.check("queue pair"));
        checked.map_err(|error| (self, error))
    }

    /// Returns the completion queue of send requests.
    pub fn send_cq(&self) -> &CompletionQueue {
        &self.inner.send_cq
    }

    /// Returns the completion queue of receive requests.
    pub fn recv_cq(&self) -> &CompletionQueue {
        &self.inner.recv_cq
    }

    /// Returns the shared receive queue.
    pub fn srq(&self) -> Option<&SharedReceiveQueue> {
        self.inner.srq.as_ref()
    }

    fn check_posted(
        &self,
        posted: Result<Result<(), PostError>, DeviceError>,
    ) -> Result<(), Error> {
        posted?.map_err(|source| Error::Post { qpn: self.inner.handle.qpn, source })
    }

    fn context(&self) -> &ContextInner {
        &self.inner.pd.context
    }
}

impl Drop for QpInner {
    #[doc(alias = "ibv_destroy_qp")]
    fn drop(&mut self) {
        let context = &self.pd.context;
        // A queue pair of a failed device needs no destruction.
        let qpn = self.handle.qpn;
        let _ = self.handle.shard.with(|core, now| {
            core.destroy_qp(now, qpn);
            context.remove_subject(Subject::Qp(qpn));
        });
    }
}

impl ProtectionDomain {
    /// Creates a queue pair in state RESET.
    ///
    /// # Errors
    ///
    /// [`Error::Limit`], [`Error::OtherDevice`] for a completion queue or a shared receive queue, [`Error::Create`],
    /// [`Error::Device`].
    #[doc(alias = "ibv_create_qp")]
    pub fn create_qp(&self, config: &QpConfig<'_>) -> Result<QueuePair, Error> {
        QueuePair::create(&self.inner, config)
    }
}

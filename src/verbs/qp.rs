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
use crate::runtime::{Down, random};
use crate::transport::work::{RecvRequest, SendFlags, SendRequest};
use crate::verbs::context::ContextInner;
use crate::verbs::end::End;
use crate::verbs::limits::{MAX_INLINE, MAX_SGE, MAX_WR, check_max};
use crate::verbs::list::post_in_pieces;
use crate::verbs::pd::PdInner;
use crate::verbs::subject::Subject;
use crate::verbs::usage::{Unacknowledged, User};
use crate::verbs::{
    CompletionQueue, ConnectOptions, Counters, Endpoint, Error, MemoryWindow, ProtectionDomain,
    SharedReceiveQueue,
};

/// What a queue pair is created with.
#[doc(alias = "ibv_qp_init_attr")]
#[derive(Clone, Debug)]
pub struct QpConfig<'a> {
    /// The transport service.
    pub qp_type: QpType,
    /// Where send requests end.
    pub send_cq: &'a CompletionQueue,
    /// Where receive requests end.
    pub recv_cq: &'a CompletionQueue,
    /// The queue that it takes receive requests from, together with others. It then has none of its
    /// own, and `cap` does not matter there.
    pub srq: Option<&'a SharedReceiveQueue>,
    /// How many requests it takes, and of which size.
    pub cap: QpCap,
    /// Every success of a send request is announced, signaled or not.
    pub sq_sig_all: bool,
    /// The operations that will be posted to its send queue, and no others; `None` for all that the
    /// service has.
    #[doc(alias = "send_ops_flags")]
    pub send_ops: Option<SendOps>,
}

impl<'a> QpConfig<'a> {
    /// A reliable connection with one completion queue for both directions and the usual limits.
    pub fn rc(cq: &'a CompletionQueue) -> Self {
        Self::of(QpType::Rc, cq)
    }

    /// An unreliable connection, likewise.
    pub fn uc(cq: &'a CompletionQueue) -> Self {
        Self::of(QpType::Uc, cq)
    }

    /// An unreliable datagram queue pair, likewise.
    pub fn ud(cq: &'a CompletionQueue) -> Self {
        Self::of(QpType::Ud, cq)
    }

    /// The sending end of an extended reliable connection, likewise. Each of its requests names a
    /// [shared receive queue](super::XrcDomain) of the peer: [`SendRequest::to`].
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

/// One end of a connection: a send queue and a receive queue.
///
/// The last handle that is dropped destroys it; requests that are not finished end without
/// completions.
///
/// ```
/// use softroce::verbs::*;
///
/// let ctx = Context::open(OpenOptions::loopback())?;
/// let (pd, cq) = (ctx.alloc_pd(), ctx.create_cq(16, None)?);
/// let qp = pd.create_qp(&QpConfig::rc(&cq))?;
///
/// // The peer must be told this, and we its line; here one end is its own peer.
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
    end: End,
    pd: Arc<PdInner>,
    send_cq: CompletionQueue,
    recv_cq: CompletionQueue,
    srq: Option<SharedReceiveQueue>,
    /// Of the completion queues and the shared receive queue.
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
        let psn = Psn::new(u32::from_ne_bytes(random().map_err(os)?));
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
                end: End { shard: Arc::clone(shard), qpn, qp_type: config.qp_type, psn },
                pd: Arc::clone(pd),
                send_cq,
                recv_cq,
                srq: config.srq.cloned(),
                _users: users,
                async_events: context.subjects.enter(Subject::Qp(qpn)),
            }),
        })
    }

    /// What the peer must know to connect to it: at the address that its path leads from, or at the
    /// device's first before it has one.
    pub fn endpoint(&self) -> Endpoint {
        self.inner.end.endpoint(self.context())
    }

    /// What the peer must know to connect to it at the address with this index in the GID table, which is
    /// the [`ConnectOptions::sgid_index`] to connect it with.
    ///
    /// # Errors
    ///
    /// [`Error::TableIndex`].
    pub fn endpoint_at(&self, sgid_index: u8) -> Result<Endpoint, Error> {
        self.inner.end.endpoint_at(self.context(), sgid_index)
    }

    /// Its number.
    pub fn qpn(&self) -> Qpn {
        self.inner.end.qpn
    }

    /// Connects an RC or UC queue pair, or the sending end of XRC, to `peer`: from RESET or INIT to RTS. It sends nothing; the peer connects itself
    /// likewise, before or after. RC requests that find it not yet connected are sent again; what UC
    /// sends by then is lost.
    ///
    /// # Errors
    ///
    /// [`Error::Modify`], and it stays in the last state that it came to; [`Error::Down`].
    pub fn connect(&self, peer: &Endpoint, options: &ConnectOptions) -> Result<(), Error> {
        self.inner.end.connect(self.context(), peer, options)
    }

    /// Takes a UD queue pair from RESET to RTS. It then receives what carries `qkey`, from anybody,
    /// and sends to the [target](SendRequest::to) of each request.
    ///
    /// # Errors
    ///
    /// [`Error::Modify`]: a key with bit 31 set needs `CAP_NET_RAW`; [`Error::Down`].
    pub fn activate(&self, qkey: QKey) -> Result<(), Error> {
        self.modify(InitAttr::Datagram { qkey })?;
        self.modify(RtrAttr::Ud)?;
        self.modify(RtsAttr::Unreliable { sq_psn: self.inner.end.psn })
    }

    /// Changes its state or attributes. Takes a [`QpAttr`], or what leads from one state to the next:
    /// [`InitAttr`](crate::engine::InitAttr), [`RtrAttr`](crate::engine::RtrAttr),
    /// [`RtsAttr`](crate::engine::RtsAttr). In RESET what it has left in its completion queues is gone.
    ///
    /// # Errors
    ///
    /// [`Error::Modify`] says which attributes are missing, superfluous or out of range.
    #[doc(alias = "ibv_modify_qp")]
    pub fn modify(&self, attr: impl Into<QpAttr>) -> Result<(), Error> {
        self.inner.end.modify(self.context(), &attr.into())
    }

    /// The same in the form that C has: every attribute has a place, and `mask` says which count
    /// (see [`FlatAttr`]).
    ///
    /// # Errors
    ///
    /// [`Error::Modify`]: as [`modify`](Self::modify), and for values that no attribute can have.
    pub fn modify_masked(&self, attr: &FlatAttr, mask: u32) -> Result<(), Error> {
        let qpn = self.inner.end.qpn;
        self.modify(attr.select(mask).map_err(|source| Error::Modify { qpn, source })?)
    }

    /// Sends requests no faster than this from now on.
    ///
    /// ```
    /// use softroce::verbs::*;
    ///
    /// let ctx = Context::open(OpenOptions::loopback())?;
    /// let (pd, cq) = (ctx.alloc_pd(), ctx.create_cq(16, None)?);
    /// let qp = pd.create_qp(&QpConfig::rc(&cq))?;
    /// qp.connect(&qp.endpoint(), &ConnectOptions::default())?;
    /// // A gigabit a second, 64 KiB at once.
    /// qp.modify_rate_limit(RateLimit { kbps: 1_000_000, max_burst: 1 << 16 })?;
    /// assert_eq!(qp.query()?.attr.rate_limit.map(|limit| limit.kbps), Some(1_000_000));
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::Modify`] before RTS; [`Error::Down`].
    #[doc(alias = "ibv_modify_qp_rate_limit")]
    pub fn modify_rate_limit(&self, limit: RateLimit) -> Result<(), Error> {
        self.modify(QpAttr { rate_limit: Some(limit), ..QpAttr::default() })
    }

    /// Its state, its attributes, and what it was created with, as granted.
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
    /// [`Error::Down`].
    #[doc(alias = "ibv_query_qp")]
    pub fn query(&self) -> Result<QpInfo, Error> {
        self.inner.end.query()
    }

    /// What it has counted since it was created.
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
    /// [`Error::Down`].
    pub fn counters(&self) -> Result<Counters, Error> {
        self.inner.end.counters()
    }

    /// Its state.
    ///
    /// # Errors
    ///
    /// [`Error::Down`].
    pub fn state(&self) -> Result<QpState, Error> {
        Ok(self.query()?.state)
    }

    /// Posts a send request, and sends it.
    ///
    /// # Errors
    ///
    /// [`Error::Post`], [`Error::Down`].
    ///
    /// # Examples
    ///
    /// An entry of a log at the peer, and behind it, when every reader there can see the entry, the
    /// word that announces it:
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
        let End { shard, qpn, .. } = &self.inner.end;
        self.told(shard.with(|core, now| core.post_send(now, *qpn, request)))
    }

    /// Posts a list of send requests, which takes less than to post them one by one: they are sent
    /// together, up to 64 at a time. Returns how many were taken; with an error, the next is the one
    /// that was refused, and those behind it are not asked for.
    pub fn post_sends(
        &self,
        requests: impl IntoIterator<Item = SendRequest>,
    ) -> (usize, Result<(), Error>) {
        let qpn = self.inner.end.qpn;
        let shard = &self.inner.end.shard;
        post_in_pieces(requests, |piece| {
            match shard.with(|core, now| core.post_sends(now, qpn, piece.iter_mut())) {
                Ok((taken, result)) => (taken, self.told(Ok(result))),
                Err(down) => (0, Err(down.into())),
            }
        })
    }

    /// Posts a list of send requests and sends them, if all of them are taken; otherwise none.
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
    /// [`Error::Post`] for the first that would not be taken; [`Error::Down`].
    #[doc(alias = "ibv_wr_start")]
    #[doc(alias = "ibv_wr_complete")]
    pub fn post_all(&self, requests: impl IntoIterator<Item = SendRequest>) -> Result<(), Error> {
        let mut requests: SmallVec<[_; 8]> = requests.into_iter().collect();
        let qpn = self.inner.end.qpn;
        let shard = &self.inner.end.shard;
        self.told(shard.with(|core, now| core.post_all_sends(now, qpn, &mut requests)))
    }

    /// Binds a memory window of type 1, and returns its new key: what is posted behind may tell the
    /// peer. With [`BindInfo::NOTHING`] it is unbound. The key that it had before is no good any more
    /// when the request has completed.
    ///
    /// It is a send request like others: of the flags it has SIGNALED and FENCE, and ends with
    /// `MW_BIND_ERR` when the region does not allow it. Windows of type 2 are bound by
    /// [`SendRequest::bind_mw`].
    ///
    /// # Errors
    ///
    /// [`Error::WindowType`], [`Error::OtherDevice`] for the window, [`Error::Post`], [`Error::Down`].
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
    /// // Peers may do nothing to the region itself, and write 64 bytes of it through the window.
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
            return Err(Error::Post { qpn: self.inner.end.qpn, source });
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
    /// [`Error::Post`], [`Error::Down`].
    #[doc(alias = "ibv_post_recv")]
    pub fn post_recv(&self, request: RecvRequest) -> Result<(), Error> {
        self.post_recvs([request]).1
    }

    /// Posts a list of receive requests, which takes less than to post them one by one. Returns how
    /// many were taken; with an error, the next is the one that was refused.
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
        let qpn = self.inner.end.qpn;
        let shard = &self.inner.end.shard;
        post_in_pieces(requests, |piece| {
            match shard.with_old_time(|core, now| core.post_recvs(now, qpn, piece.drain(..))) {
                Ok((taken, result)) => (taken, self.told(Ok(result))),
                Err(down) => (0, Err(down.into())),
            }
        })
    }

    /// Acknowledges so many asynchronous events that were [kept](super::PendingEvent::keep).
    #[doc(alias = "ibv_ack_async_event")]
    pub fn ack_async_events(&self, events: u32) {
        self.inner.async_events.acknowledge(events.into());
    }

    /// Waits until every event that tells of it is acknowledged. No timeout is for ever.
    ///
    /// # Errors
    ///
    /// [`Error::Timeout`].
    pub fn wait_acknowledged(&self, timeout: impl Into<Option<Duration>>) -> Result<(), Error> {
        self.inner.async_events.wait(timeout.into())
    }

    /// Lets go of it. It is destroyed with its last handle: requests that are not finished end
    /// without completions, and completions that are in their queues stay there.
    ///
    /// # Errors
    ///
    /// The queue pair, and [`Error::InUse`] when events that tell of it are not acknowledged, or it is
    /// attached to multicast groups.
    #[doc(alias = "ibv_destroy_qp")]
    pub fn destroy(self) -> Result<(), (Self, Error)> {
        let checked =
            self.check_groups().and_then(|()| self.inner.async_events.check("queue pair"));
        checked.map_err(|error| (self, error))
    }

    /// Where its send requests end.
    pub fn send_cq(&self) -> &CompletionQueue {
        &self.inner.send_cq
    }

    /// Where its receive requests end.
    pub fn recv_cq(&self) -> &CompletionQueue {
        &self.inner.recv_cq
    }

    /// The shared queue that it takes receive requests from.
    pub fn srq(&self) -> Option<&SharedReceiveQueue> {
        self.inner.srq.as_ref()
    }

    fn told(&self, posted: Result<Result<(), PostError>, Down>) -> Result<(), Error> {
        posted?.map_err(|source| Error::Post { qpn: self.inner.end.qpn, source })
    }

    fn context(&self) -> &ContextInner {
        &self.inner.pd.context
    }
}

impl Drop for QpInner {
    #[doc(alias = "ibv_destroy_qp")]
    fn drop(&mut self) {
        let context = &self.pd.context;
        // In a device that has failed it is as good as destroyed.
        let qpn = self.end.qpn;
        let _ = self.end.shard.with(|core, now| {
            core.destroy_qp(now, qpn);
            context.forget(Subject::Qp(qpn));
        });
    }
}

impl ProtectionDomain {
    /// Creates a queue pair, in RESET.
    ///
    /// # Errors
    ///
    /// [`Error::Limit`], [`Error::OtherDevice`] for a completion queue or a shared receive queue, [`Error::Create`],
    /// [`Error::Down`].
    #[doc(alias = "ibv_create_qp")]
    pub fn create_qp(&self, config: &QpConfig<'_>) -> Result<QueuePair, Error> {
        QueuePair::create(&self.inner, config)
    }
}

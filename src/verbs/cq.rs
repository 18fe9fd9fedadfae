//! Completion queues.

pub(super) mod inner;

use std::sync::Arc;
use std::time::Duration;

use crate::ids::CqId;
use crate::runtime::{Armed, Moderation, OnSignal, Ring, Stamped};
use crate::transport::work::Completion;
use crate::verbs::context::ContextInner;
use crate::verbs::cq::inner::CqInner;
use crate::verbs::{CompletionChannel, Context, Error, ProtectionDomain, WcFlags};

/// Where work requests end.
///
/// To look for a completion drives the device: what has arrived is taken from the socket, and what
/// is owed is sent. Nothing need be looked for in order that peers are answered; a thread of the
/// device sees to that.
///
/// ```
/// # use softroce::verbs::*;
/// # let ctx = Context::open(OpenOptions::loopback())?;
/// # let pd = ctx.alloc_pd();
/// let cq = ctx.create_cq(16, None)?;
/// let qp = pd.create_qp(&QpConfig::rc(&cq))?;
/// # let me = qp.endpoint();
/// # qp.connect(&me, &ConnectOptions::default())?; // with itself
/// qp.post_send(SendRequest::send(7, SendData::inline(b"")).signaled())?;
/// # qp.post_recv(RecvRequest::default())?;
/// let completion = loop {
///     if let Some(completion) = cq.poll_one() {
///         break completion;
///     }
/// };
/// # let completion = if completion.opcode == WcOpcode::Recv { cq.wait_one(None)? } else { completion };
/// assert_eq!((completion.wr_id, completion.status), (7, WcStatus::Success));
/// # Ok::<(), Error>(())
/// ```
#[doc(alias = "ibv_cq")]
#[derive(Clone, Debug)]
pub struct CompletionQueue {
    pub(super) inner: Arc<CqInner>,
    channel: Option<CompletionChannel>,
}

/// What a completion queue is created with.
///
/// ```
/// use softroce::verbs::*;
///
/// let ctx = Context::open(OpenOptions::loopback())?;
/// let wc_flags = WcFlags::BYTE_LEN | WcFlags::COMPLETION_TIMESTAMP;
/// let cq = ctx.create_cq_ex(&CqConfig { wc_flags, ..CqConfig::new(64) })?;
/// assert!(cq.start_poll().is_none());
///
/// let none = CqConfig { wc_flags: WcFlags::FLOW_TAG, ..CqConfig::new(64) };
/// let said = ctx.create_cq_ex(&none).unwrap_err().to_string();
/// assert_eq!(said, "completions have no FLOW_TAG");
/// # Ok::<(), Error>(())
/// ```
#[doc(alias = "ibv_cq_init_attr_ex")]
#[derive(Clone, Debug)]
pub struct CqConfig<'a> {
    /// Completions that it holds.
    #[doc(alias = "cqe")]
    pub depth: usize,
    /// What announces it.
    pub channel: Option<&'a CompletionChannel>,
    /// Which interrupt announces it: there is one, number 0.
    pub comp_vector: u32,
    /// What will be asked of its completions. All that the device has can be asked of any.
    pub wc_flags: WcFlags,
    /// The program sees to it that there is room: when there is none after all, the oldest
    /// completion is lost, and nobody is told.
    #[doc(alias = "IBV_CREATE_CQ_ATTR_IGNORE_OVERRUN")]
    pub ignore_overrun: bool,
    /// One thread at a time uses it. Nothing follows from that here.
    #[doc(alias = "IBV_CREATE_CQ_ATTR_SINGLE_THREADED")]
    pub single_threaded: bool,
    /// The parent domain whose thread domain it belongs to. Nothing follows from that here.
    #[doc(alias = "IBV_CQ_INIT_ATTR_MASK_PD")]
    pub parent_domain: Option<&'a ProtectionDomain>,
}

impl CqConfig<'_> {
    /// A completion queue that holds `depth` completions, without a channel.
    pub fn new(depth: usize) -> Self {
        Self {
            depth,
            channel: None,
            comp_vector: 0,
            wc_flags: WcFlags::empty(),
            ignore_overrun: false,
            single_threaded: false,
            parent_domain: None,
        }
    }

    fn check(&self) -> Result<(), Error> {
        check_depth(self.depth)?;
        if self.comp_vector != 0 {
            let (what, found) = ("comp_vector", self.comp_vector.into());
            return Err(Error::Limit { what, found, min: 0, max: 0 });
        }
        let unsupported = self.wc_flags.difference(WcFlags::SUPPORTED);
        if !unsupported.is_empty() {
            return Err(Error::CompletionFields { unsupported });
        }
        Ok(())
    }
}

fn check_depth(depth: usize) -> Result<(), Error> {
    if !(1..=CompletionQueue::MAX_DEPTH).contains(&depth) {
        let (found, max) = (depth as u64, CompletionQueue::MAX_DEPTH as u64);
        return Err(Error::Limit { what: "the depth of a completion queue", found, min: 1, max });
    }
    Ok(())
}

impl CompletionQueue {
    /// Completions that one holds at most (`max_cqe`).
    pub const MAX_DEPTH: usize = 1 << 22;

    /// How many a device has at most (`max_cq`).
    pub const MAX_COUNT: usize = 1 << 16;

    fn create(context: &Arc<ContextInner>, config: &CqConfig<'_>) -> Result<Self, Error> {
        config.check()?;
        let &CqConfig { depth, channel, ignore_overrun, parent_domain, .. } = config;
        if channel.is_some_and(|channel| !channel.is_of(&context.device)) {
            return Err(Error::OtherDevice { what: "completion channel" });
        }
        if let Some(pd) = parent_domain {
            if !context.is_of(&pd.inner.context.device) {
                return Err(Error::OtherDevice { what: "parent domain" });
            }
            if !pd.inner.is_parent() {
                return Err(Error::NoParentDomain);
            }
        }
        context.device.shards.check()?;
        let max = Self::MAX_COUNT;
        let id = context.device.cqs.take(max);
        let id = id.ok_or(Error::Full { what: "completion queues", max })?;
        let inner = Arc::new_cyclic(|cq| {
            let announcer = channel.map(|channel| channel.announcer(cq.clone()));
            let ring = Ring::new(depth, ignore_overrun, announcer, Arc::clone(&context.events));
            let channel_user = channel.map(CompletionChannel::user);
            let parent_domain = parent_domain.map(|pd| Arc::clone(&pd.inner));
            CqInner::new(id, ring, Arc::clone(context), channel_user, parent_domain)
        });
        for shard in context.device.shards.iter() {
            shard.with(|core, _| core.rings.enter(id, Arc::clone(&inner.ring)))?;
        }
        Ok(Self { inner, channel: channel.cloned() })
    }

    /// Returns a handle on a completion queue that `channel` has announced.
    pub(super) fn announced(inner: Arc<CqInner>, channel: CompletionChannel) -> Self {
        Self { inner, channel: Some(channel) }
    }

    /// Takes up to `max` completions, appends them to `out`, and returns how many there were.
    #[doc(alias = "ibv_poll_cq")]
    pub fn poll(&self, out: &mut Vec<Completion>, max: usize) -> usize {
        let completions = &self.inner.ring.completions;
        match completions.pop_into(out, max) {
            0 => {
                self.turn();
                completions.pop_into(out, max)
            }
            count => count,
        }
    }

    /// Takes the next completion, if there is one.
    pub fn poll_one(&self) -> Option<Completion> {
        self.take().map(|stamped| stamped.completion)
    }

    /// Waits for the next completion. No timeout is for ever.
    ///
    /// # Errors
    ///
    /// [`Error::Timeout`]; [`Error::Overrun`] when completions have been lost and those before them
    /// are taken; [`Error::Down`].
    pub fn wait_one(&self, timeout: impl Into<Option<Duration>>) -> Result<Completion, Error> {
        let ring = &self.inner.ring;
        if ring.is_overrun() && ring.completions.is_empty() {
            return Err(self.overrun());
        }
        let found = self.inner.context.wait(
            ring.feeders(),
            &ring.completions,
            timeout.into(),
            OnSignal::Wait,
            "completion",
        )?;
        Ok(found.completion)
    }

    pub(super) fn overrun(&self) -> Error {
        Error::Overrun { cq: self.inner.id, depth: self.depth() }
    }

    /// The next completion, if there is one, and when it was put in.
    pub(super) fn take(&self) -> Option<Stamped> {
        let completions = &self.inner.ring.completions;
        completions.pop().or_else(|| {
            self.turn();
            completions.pop()
        })
    }

    /// Lets it hold `depth` completions from now on, more or fewer. What is in it stays, in its
    /// order.
    ///
    /// ```
    /// # use softroce::verbs::*;
    /// # let ctx = Context::open(OpenOptions::loopback())?;
    /// let cq = ctx.create_cq(16, None)?;
    /// cq.resize(1024)?;
    /// assert_eq!(cq.depth(), 1024);
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::Limit`]; [`Error::CqTooSmall`] when there is more in it. It stays as it was.
    #[doc(alias = "ibv_resize_cq")]
    pub fn resize(&self, depth: usize) -> Result<(), Error> {
        check_depth(depth)?;
        let resized = self.inner.ring.completions.resize(depth);
        resized.map_err(|held| Error::CqTooSmall { cq: self.inner.id, depth, held })
    }

    /// Lets several completions be announced together, see [`Moderation`]. It changes nothing for
    /// whoever polls or [waits](Self::wait_one) for a completion.
    ///
    /// ```
    /// # use softroce::verbs::*;
    /// # let ctx = Context::open(OpenOptions::loopback())?;
    /// # let channel = ctx.create_channel()?;
    /// let cq = ctx.create_cq(256, Some(&channel))?;
    /// // With the 16th completion after it is armed, or 50 µs after the first.
    /// cq.modify(Moderation { count: 16, period: 50 })?;
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::Down`].
    #[doc(alias = "ibv_modify_cq")]
    pub fn modify(&self, moderation: Moderation) -> Result<(), Error> {
        let id = self.inner.id;
        // What it waits for it waits for in common, so any shard will do.
        Ok(self.inner.context.device.shards.first().with(|core, now| {
            core.rings.moderate(now, id, moderation);
            core.deliver(now);
        })?)
    }

    /// Arms it: the next completion that comes is announced through its channel, or with
    /// `solicited_only` the next that is an error or for which the peer has asked for notice. What
    /// came before is not announced, so look once more after this.
    #[doc(alias = "ibv_req_notify_cq")]
    pub fn req_notify(&self, solicited_only: bool) {
        let armed = if solicited_only { Armed::Solicited } else { Armed::Any };
        let waiting = self.inner.ring.arm(armed);
        if !waiting.is_empty() {
            self.inner.context.device.shards.register_waiter(waiting);
        }
    }

    /// Acknowledges so many announcements that were [kept](super::CqEvent::keep).
    #[doc(alias = "ibv_ack_cq_events")]
    pub fn ack_events(&self, events: u32) {
        self.inner.announcements.acknowledge(events.into());
    }

    /// Announcements that a channel has handed out and that are not acknowledged.
    pub fn unacknowledged_events(&self) -> u64 {
        self.inner.announcements.count()
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
        let timeout = timeout.into();
        self.inner.announcements.wait(timeout)?;
        self.inner.async_events.wait(timeout)
    }

    /// Lets go of it. It is destroyed with its last handle.
    ///
    /// ```
    /// # use softroce::verbs::*;
    /// # let ctx = Context::open(OpenOptions::loopback())?;
    /// let (pd, cq) = (ctx.alloc_pd(), ctx.create_cq(16, None)?);
    /// let qp = pd.create_qp(&QpConfig { send_cq: &ctx.create_cq(16, None)?, ..QpConfig::rc(&cq) })?;
    /// let (cq, refused) = cq.destroy().unwrap_err();
    /// assert_eq!(refused.to_string(), "the completion queue is in use by queue pairs: 1");
    /// drop(qp);
    /// assert!(cq.destroy().is_ok());
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// The completion queue, and [`Error::InUse`] when queue pairs complete there, or events that
    /// tell of it are not acknowledged.
    #[doc(alias = "ibv_destroy_cq")]
    pub fn destroy(self) -> Result<(), (Self, Error)> {
        let what = "completion queue";
        let checked = self
            .inner
            .users
            .check(what, "queue pairs")
            .and_then(|()| self.inner.announcements.check(what))
            .and_then(|()| self.inner.async_events.check(what));
        checked.map_err(|error| (self, error))
    }

    /// The channel that announces it.
    pub fn channel(&self) -> Option<&CompletionChannel> {
        self.channel.as_ref()
    }

    /// Its number, as [`AsyncEvent::CqErr`](super::AsyncEvent) names it.
    pub fn id(&self) -> CqId {
        self.inner.id
    }

    /// How many completions it holds.
    pub fn depth(&self) -> usize {
        self.inner.ring.completions.capacity()
    }

    fn turn(&self) {
        // From a device that has failed nothing comes any more; to wait tells so.
        let CqInner { ring, context, .. } = &*self.inner;
        let _ = context.device.shards.turn_for(ring.feeders(), &ring.completions);
    }
}

/// Whether they are the same queue.
impl PartialEq for CompletionQueue {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.inner, &other.inner)
    }
}

impl Eq for CompletionQueue {}

impl Context {
    /// Creates a completion queue that holds `depth` completions, and is announced through `channel` if
    /// there is one.
    ///
    /// # Errors
    ///
    /// [`Error::Limit`] for `depth`; [`Error::Full`]; [`Error::OtherDevice`] for the channel;
    /// [`Error::Down`].
    #[doc(alias = "ibv_create_cq")]
    pub fn create_cq(
        &self,
        depth: usize,
        channel: Option<&CompletionChannel>,
    ) -> Result<CompletionQueue, Error> {
        self.create_cq_ex(&CqConfig { channel, ..CqConfig::new(depth) })
    }

    /// Creates a completion queue with all attributes that one can have.
    ///
    /// # Errors
    ///
    /// [`Error::Limit`] for depth and vector; [`Error::CompletionFields`]; [`Error::Full`];
    /// [`Error::OtherDevice`] for channel and domain; [`Error::Down`].
    #[doc(alias = "ibv_create_cq_ex")]
    pub fn create_cq_ex(&self, config: &CqConfig<'_>) -> Result<CompletionQueue, Error> {
        CompletionQueue::create(&self.inner, config)
    }
}

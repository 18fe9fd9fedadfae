//! Completion queues.

pub(super) mod inner;

use std::sync::Arc;
use std::time::Duration;

use crate::ids::CqId;
use crate::runtime::{Armed, Moderation, OnSignal, Ring, TimestampedCompletion};
use crate::transport::work::Completion;
use crate::verbs::context::ContextInner;
use crate::verbs::cq::inner::CqInner;
use crate::verbs::{CompletionChannel, Context, Error, ProtectionDomain, WcFlags};

/// A queue of completions of work requests.
///
/// Polling drives the device: it receives packets from the socket, and sends pending responses and acknowledgements.
/// A program need not poll for its peers to make progress; a thread of the device also does this work.
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

/// Attributes of a completion queue at creation.
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
    /// Maximum number of completions in the queue.
    #[doc(alias = "cqe")]
    pub depth: usize,
    /// Channel that announces the queue.
    pub channel: Option<&'a CompletionChannel>,
    /// Completion vector. The device has one, number 0.
    pub comp_vector: u32,
    /// Fields of completions that the program will read. Every completion has all supported fields.
    pub wc_flags: WcFlags,
    /// On overrun, the queue discards the oldest completion without an error. The program then provides enough room
    /// itself.
    #[doc(alias = "IBV_CREATE_CQ_ATTR_IGNORE_OVERRUN")]
    pub ignore_overrun: bool,
    /// The program polls the queue from one thread at a time. This device does not use the hint.
    #[doc(alias = "IBV_CREATE_CQ_ATTR_SINGLE_THREADED")]
    pub single_threaded: bool,
    /// Parent domain of the queue. This device does not use the hint.
    #[doc(alias = "IBV_CQ_INIT_ATTR_MASK_PD")]
    pub parent_domain: Option<&'a ProtectionDomain>,
}

impl CqConfig<'_> {
    /// Returns the attributes of a queue of `depth` completions without a channel.
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
    /// Maximum depth of one queue (`max_cqe`).
    pub const MAX_DEPTH: usize = 1 << 22;

    /// Maximum number of queues of a device (`max_cq`).
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

    /// Takes up to `max` completions, appends them to `out`, and returns their number.
    #[doc(alias = "ibv_poll_cq")]
    #[inline]
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

    /// Takes the next completion, or returns `None`.
    pub fn poll_one(&self) -> Option<Completion> {
        self.take().map(|stamped| stamped.completion)
    }

    /// Waits for the next completion. `None` waits without limit.
    ///
    /// # Errors
    ///
    /// [`Error::Timeout`]; [`Error::Overrun`] after the last completion before an overrun; [`Error::Device`].
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

    /// Takes the next completion with the time at which it entered the queue.
    pub(super) fn take(&self) -> Option<TimestampedCompletion> {
        let completions = &self.inner.ring.completions;
        completions.pop().or_else(|| {
            self.turn();
            completions.pop()
        })
    }

    /// Changes the depth of the queue. The completions in it remain, in order.
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
    /// [`Error::Limit`]; [`Error::CqTooSmall`] when the queue holds more completions than `depth`. The queue then
    /// keeps its depth.
    #[doc(alias = "ibv_resize_cq")]
    pub fn resize(&self, depth: usize) -> Result<(), Error> {
        check_depth(depth)?;
        let resized = self.inner.ring.completions.resize(depth);
        resized.map_err(|held| Error::CqTooSmall { cq: self.inner.id, depth, held })
    }

    /// Sets the moderation of the queue, so one announcement covers several completions; see [`Moderation`]. It does
    /// not affect polling and [waiting](Self::wait_one).
    ///
    /// ```
    /// # use softroce::verbs::*;
    /// # let ctx = Context::open(OpenOptions::loopback())?;
    /// # let channel = ctx.create_channel()?;
    /// let cq = ctx.create_cq(256, Some(&channel))?;
    /// // One announcement after 16 completions, or 50 µs after the first.
    /// cq.modify(Moderation { count: 16, period: 50 })?;
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::Device`].
    #[doc(alias = "ibv_modify_cq")]
    pub fn modify(&self, moderation: Moderation) -> Result<(), Error> {
        let id = self.inner.id;
        // Every shard can set it, because moderation is a property of the shared ring.
        Ok(self.inner.context.device.shards.first().with(|core, now| {
            core.rings.moderate(now, id, moderation);
            core.deliver(now);
        })?)
    }

    /// Arms the queue: its channel announces the next completion, or with `solicited_only` the next that is an error
    /// or solicited by the peer.
    ///
    /// Completions that were added just before this call are announced too if the program has polled since the last
    /// announcement, so that a program which polls, arms and sleeps misses none. ConnectX adapters do the same; `rdma_rxe`
    /// and other adapters need not (IBTA 11.4.2.2), so a portable program polls again after this call.
    #[doc(alias = "ibv_req_notify_cq")]
    pub fn req_notify(&self, solicited_only: bool) {
        let armed = if solicited_only { Armed::Solicited } else { Armed::Any };
        let waiting = self.inner.ring.arm(armed);
        if !waiting.is_empty() {
            self.inner.context.device.shards.register_waiter(waiting);
        }
        if self.inner.ring.missed() > 0 {
            // A failed device announces nothing more.
            let _ = self.inner.context.device.shards.first().with(|core, now| {
                core.rings.announce_missed(now, self.inner.id);
                core.deliver(now);
            });
        }
    }

    /// Acknowledges this many announcements that were [kept](super::CqEvent::keep).
    #[doc(alias = "ibv_ack_cq_events")]
    pub fn ack_events(&self, events: u32) {
        self.inner.announcements.acknowledge(events.into());
    }

    /// Returns the number of unacknowledged announcements.
    pub fn unacknowledged_events(&self) -> u64 {
        self.inner.announcements.count()
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
        let timeout = timeout.into();
        self.inner.announcements.wait(timeout)?;
        self.inner.async_events.wait(timeout)
    }

    /// Drops this handle. The last handle destroys the queue.
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
    /// The completion queue, and [`Error::InUse`] when queue pairs or shared receive queues use it, or events of it
    /// are unacknowledged.
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

    /// Returns the channel that announces the queue.
    pub fn channel(&self) -> Option<&CompletionChannel> {
        self.channel.as_ref()
    }

    /// Returns the number of the queue, as in [`AsyncEvent::CqErr`](super::AsyncEvent).
    pub fn id(&self) -> CqId {
        self.inner.id
    }

    /// Returns the maximum number of completions in the queue.
    pub fn depth(&self) -> usize {
        self.inner.ring.completions.capacity()
    }

    fn turn(&self) {
        // A failed device delivers no more completions; waiting returns the error.
        let CqInner { ring, context, .. } = &*self.inner;
        let _ = context.device.shards.turn_for(ring.feeders(), &ring.completions);
    }
}

/// Compares the identity of queues.
impl PartialEq for CompletionQueue {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.inner, &other.inner)
    }
}

impl Eq for CompletionQueue {}

impl Context {
    /// Creates a completion queue of `depth` completions, which `channel` announces if there is one.
    ///
    /// # Errors
    ///
    /// [`Error::Limit`] for `depth`; [`Error::Full`]; [`Error::OtherDevice`] for the channel;
    /// [`Error::Device`].
    #[doc(alias = "ibv_create_cq")]
    pub fn create_cq(
        &self,
        depth: usize,
        channel: Option<&CompletionChannel>,
    ) -> Result<CompletionQueue, Error> {
        self.create_cq_ex(&CqConfig { channel, ..CqConfig::new(depth) })
    }

    /// Creates a completion queue with all attributes.
    ///
    /// # Errors
    ///
    /// [`Error::Limit`] for `depth` and `comp_vector`; [`Error::CompletionFields`]; [`Error::Full`];
    /// [`Error::OtherDevice`] for the channel and the domain; [`Error::Device`].
    #[doc(alias = "ibv_create_cq_ex")]
    pub fn create_cq_ex(&self, config: &CqConfig<'_>) -> Result<CompletionQueue, Error> {
        CompletionQueue::create(&self.inner, config)
    }
}

//! Completion queues.

use std::sync::Arc;
use std::time::Duration;

use crate::ids::CqId;
use crate::runtime::{Armed, Ring};
use crate::transport::work::Completion;
use crate::verbs::context::ContextInner;
use crate::verbs::{CompletionChannel, Error};

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
}

#[derive(Debug)]
pub(super) struct CqInner {
    id: CqId,
    depth: usize,
    ring: Arc<Ring>,
    pub(super) context: Arc<ContextInner>,
    channel: Option<CompletionChannel>,
}

impl CompletionQueue {
    /// Completions that one holds at most (`max_cqe`).
    pub const MAX_DEPTH: usize = 1 << 22;

    pub(super) fn create(
        context: &Arc<ContextInner>,
        depth: usize,
        channel: Option<&CompletionChannel>,
    ) -> Result<Self, Error> {
        if !(1..=Self::MAX_DEPTH).contains(&depth) {
            let (found, max) = (depth as u64, Self::MAX_DEPTH as u64);
            return Err(Error::Limit {
                what: "the depth of a completion queue",
                found,
                min: 1,
                max,
            });
        }
        if channel.is_some_and(|channel| !context.is_of(&channel.context().device)) {
            return Err(Error::OtherDevice { what: "completion channel" });
        }
        let shard = &context.device.shard;
        let id = shard.with(|core, _| core.reserve_ring())?;
        let inner = Arc::new_cyclic(|cq| {
            let announcer = channel.map(|channel| channel.announcer(cq.clone()));
            CqInner {
                id,
                depth,
                ring: Arc::new(Ring::new(depth, announcer, Arc::clone(&context.events))),
                context: Arc::clone(context),
                channel: channel.cloned(),
            }
        });
        shard.with(|core, _| core.enter_ring(id, Arc::clone(&inner.ring)))?;
        Ok(Self { inner })
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
        let completions = &self.inner.ring.completions;
        completions.pop().or_else(|| {
            self.turn();
            completions.pop()
        })
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
            return Err(Error::Overrun { cq: self.inner.id, depth: self.inner.depth });
        }
        self.inner.context.wait(&ring.completions, timeout.into(), "completion")
    }

    /// Arms it: the next completion that comes is announced through its channel, or with
    /// `solicited_only` the next that is an error or for which the peer has asked for notice. What
    /// came before is not announced, so look once more after this.
    #[doc(alias = "ibv_req_notify_cq")]
    pub fn req_notify(&self, solicited_only: bool) {
        self.inner.ring.arm(if solicited_only { Armed::Solicited } else { Armed::Any });
    }

    /// The channel that announces it.
    pub fn channel(&self) -> Option<&CompletionChannel> {
        self.inner.channel.as_ref()
    }

    /// Its number, as [`AsyncEvent::CqErr`](super::AsyncEvent) names it.
    pub fn id(&self) -> CqId {
        self.inner.id
    }

    /// How many completions it holds.
    pub fn depth(&self) -> usize {
        self.inner.depth
    }

    fn turn(&self) {
        // From a device that has failed nothing comes any more; to wait tells so.
        let _ = self.inner.context.device.shard.turn_for(&self.inner.ring.completions);
    }
}

/// Whether they are the same queue.
impl PartialEq for CompletionQueue {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.inner, &other.inner)
    }
}

impl Eq for CompletionQueue {}

impl Drop for CqInner {
    fn drop(&mut self) {
        // A device that has failed hands out no numbers any more.
        let _ = self.context.device.shard.with(|core, _| core.remove_ring(self.id));
    }
}

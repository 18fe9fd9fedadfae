//! Completion channels.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};
use std::sync::{Arc, Weak};
use std::time::Duration;

use crate::runtime::{Announce, Bell, OnSignal, Queue, ShardSet, Waited, now};
use crate::verbs::context::ContextInner;
use crate::verbs::cq::CqInner;
use crate::verbs::usage::Users;
use crate::verbs::{CompletionQueue, Context, CqEvent, Error};

/// Announces completion queues that have something, to a thread that waits or through a descriptor.
///
/// A completion queue is announced once each time it has been
/// [armed](CompletionQueue::req_notify).
///
/// Whoever waits here drives the device meanwhile: packets reach it without the detour over another
/// thread. The descriptor ([`AsFd`]) is readable while there are announcements, for `poll`, `epoll`
/// and asynchronous runtimes; then [`wait`](Self::wait) with a timeout of zero.
///
/// ```
/// # use softroce::verbs::*;
/// # let ctx = Context::open(OpenOptions::loopback())?;
/// # let pd = ctx.alloc_pd();
/// # let mr = pd.alloc_mr(64, Access::LOCAL_WRITE)?;
/// let channel = ctx.create_channel()?;
/// let cq = ctx.create_cq(16, Some(&channel))?;
/// # let (a, b) = (pd.create_qp(&QpConfig::rc(&cq))?, pd.create_qp(&QpConfig::rc(&cq))?);
/// # a.connect(&b.endpoint(), &ConnectOptions::default())?;
/// # b.connect(&a.endpoint(), &ConnectOptions::default())?;
/// # a.post_send(SendRequest::write(1, SendData::inline(b""), RemoteAddr::default()).signaled())?;
/// let completion = loop {
///     cq.req_notify(false);
///     // What came before it was armed is not announced: look first.
///     if let Some(completion) = cq.poll_one() {
///         break completion;
///     }
///     channel.wait(None)?;
/// };
/// # assert_eq!(completion.status, WcStatus::Success);
/// # Ok::<(), Error>(())
/// ```
#[doc(alias = "ibv_comp_channel")]
#[derive(Clone, Debug)]
pub struct CompletionChannel {
    pub(super) inner: Arc<ChannelInner>,
}

#[derive(Debug)]
pub(super) struct ChannelInner {
    announced: Arc<Queue<Weak<CqInner>>>,
    bell: Arc<Bell>,
    pub(super) users: Users,
    context: Arc<ContextInner>,
}

impl CompletionChannel {
    /// Waits until a completion queue is announced, and returns it. No timeout is for ever, a
    /// timeout of zero does not wait. The announcement is acknowledged when it is dropped.
    ///
    /// # Errors
    ///
    /// [`Error::Timeout`], [`Error::Down`].
    #[doc(alias = "ibv_get_cq_event")]
    pub fn wait(&self, timeout: impl Into<Option<Duration>>) -> Result<CqEvent, Error> {
        self.wait_with(timeout.into(), OnSignal::Wait)
    }

    /// The same for a thread that signals are to interrupt as they interrupt a `read` from a pipe: a handler
    /// without `SA_RESTART` ends the wait.
    ///
    /// # Errors
    ///
    /// [`Error::Interrupted`], [`Error::Timeout`], [`Error::Down`].
    pub fn wait_interruptible(
        &self,
        timeout: impl Into<Option<Duration>>,
    ) -> Result<CqEvent, Error> {
        self.wait_with(timeout.into(), OnSignal::AsRead)
    }

    fn wait_with(&self, timeout: Option<Duration>, on_signal: OnSignal) -> Result<CqEvent, Error> {
        let ChannelInner { announced, context, .. } = &*self.inner;
        let until = timeout.map(|timeout| now() + timeout);
        let what = "announcement";
        loop {
            let shards = &context.device.shards;
            let cq = match shards.wait(ShardSet::ALL, announced, until, on_signal)? {
                Waited::Item(cq) => cq,
                Waited::Over => return Err(Error::timeout(what, timeout)),
                Waited::Interrupted => return Err(Error::Interrupted { what }),
            };
            // A completion queue may be gone by now.
            if let Some(inner) = cq.upgrade() {
                return Ok(CqEvent::new(CompletionQueue { inner }));
            }
        }
    }

    /// Lets go of it.
    ///
    /// # Errors
    ///
    /// The channel, and [`Error::InUse`] when there are completion queues that it announces.
    #[doc(alias = "ibv_destroy_comp_channel")]
    pub fn destroy(self) -> Result<(), (Self, Error)> {
        let checked = self.inner.users.check("completion channel", "completion queues");
        checked.map_err(|error| (self, error))
    }

    /// What announces a completion queue here.
    pub(super) fn announcer(&self, cq: Weak<CqInner>) -> Box<dyn Announce> {
        Box::new(Announcer { announced: Arc::clone(&self.inner.announced), cq })
    }

    pub(super) fn context(&self) -> &Arc<ContextInner> {
        &self.inner.context
    }
}

impl AsFd for CompletionChannel {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.inner.announced.export(&self.inner.bell);
        self.inner.bell.as_fd()
    }
}

/// For those who want a number, as tokio's `AsyncFd` does; it is the same descriptor.
impl AsRawFd for CompletionChannel {
    fn as_raw_fd(&self) -> RawFd {
        self.as_fd().as_raw_fd()
    }
}

struct Announcer {
    announced: Arc<Queue<Weak<CqInner>>>,
    cq: Weak<CqInner>,
}

impl Announce for Announcer {
    fn announce(&self) -> ShardSet {
        self.announced.push(Weak::clone(&self.cq)).wakes()
    }

    fn is_exported(&self) -> bool {
        self.announced.is_exported()
    }

    fn close(&self) {
        self.announced.close();
    }
}

impl Context {
    /// Creates a completion channel.
    ///
    /// # Errors
    ///
    /// [`Error::Os`] when there are no more descriptors.
    #[doc(alias = "ibv_create_comp_channel")]
    pub fn create_channel(&self) -> Result<CompletionChannel, Error> {
        let bell = Bell::new().map_err(|source| Error::Os { what: "eventfd", source })?;
        Ok(CompletionChannel {
            inner: Arc::new(ChannelInner {
                // Completion queues announce themselves once each time they are armed.
                announced: Arc::new(Queue::new(usize::MAX)),
                bell: Arc::new(bell),
                users: Users::default(),
                context: Arc::clone(&self.inner),
            }),
        })
    }
}

//! Completion channels.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use crate::runtime::{Announce, Device, EventFd, OnSignal, Queue, ShardSet, WaitOutcome, now};
use crate::verbs::context::ContextInner;
use crate::verbs::cq::inner::CqInner;
use crate::verbs::usage::{User, Users};
use crate::verbs::{Context, Error};

/// Announces completion queues with new completions, to a waiting thread or through a descriptor.
///
/// It announces a completion queue once each time a program
/// [arms](super::CompletionQueue::req_notify) the queue.
///
/// A waiting thread drives the device, so packets reach it without a switch from another thread. The
/// descriptor ([`AsFd`]) is readable while there are announcements, for `poll`, `epoll` and asynchronous
/// runtimes; then call [`wait`](Self::wait) with a timeout of zero.
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
///     // Not all completions that precede the arming are announced, so poll first.
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
    inner: Arc<ChannelInner>,
}

#[derive(Debug)]
struct ChannelInner {
    announcements: Arc<Announcements>,
    event_fd: Arc<EventFd>,
    users: Users,
    context: Arc<ContextInner>,
}

/// Announced completion queues, and how the program waits for them.
#[derive(Debug)]
struct Announcements {
    announced: Queue<Weak<CqInner>>,
    /// Number of waits in a row that did not block, up to [`WAITS_AT_DESCRIPTOR`]. That is its value in the beginning, too.
    waits_without_blocking: AtomicU8,
}

/// Number of waits in a row that do not block, after which the program is taken to wait at the descriptor. If its peer is
/// fast, a program that blocks in its waits finds an announcement now and then.
const WAITS_AT_DESCRIPTOR: u8 = 16;

impl Announcements {
    fn new() -> Self {
        Self {
            // Completion queues announce themselves once each time they are armed.
            announced: Queue::new(usize::MAX),
            waits_without_blocking: AtomicU8::new(WAITS_AT_DESCRIPTOR),
        }
    }

    /// Reports that a wait begins.
    fn wait_begins(&self, timeout: Option<Duration>) {
        let blocks = self.announced.is_empty() && timeout != Some(Duration::ZERO);
        let before = self.waits_without_blocking.load(Ordering::Relaxed);
        let waits = if blocks { 0 } else { WAITS_AT_DESCRIPTOR.min(before + 1) };
        self.waits_without_blocking.store(waits, Ordering::Relaxed);
    }

    /// Returns whether the program may wait at the descriptor. Otherwise it blocks in its waits, and so it drives the
    /// device itself.
    fn may_wait_at_descriptor(&self) -> bool {
        let waits = self.waits_without_blocking.load(Ordering::Relaxed);
        self.announced.is_exported() && waits == WAITS_AT_DESCRIPTOR
    }
}

impl CompletionChannel {
    /// Destroys the channel when it announces no completion queue.
    ///
    /// # Errors
    ///
    /// The channel, and [`Error::InUse`] when it announces completion queues.
    #[doc(alias = "ibv_destroy_comp_channel")]
    pub fn destroy(self) -> Result<(), (Self, Error)> {
        let checked = self.inner.users.check("completion channel", "completion queues");
        checked.map_err(|error| (self, error))
    }

    /// Returns the part of a completion queue that announces it on this channel.
    pub(super) fn announcer(&self, cq: Weak<CqInner>) -> Box<dyn Announce> {
        Box::new(Announcer { announcements: Arc::clone(&self.inner.announcements), cq })
    }

    /// Waits until a completion queue is announced. `None` waits without limit.
    pub(super) fn next_announced(
        &self,
        timeout: Option<Duration>,
        on_signal: OnSignal,
    ) -> Result<Arc<CqInner>, Error> {
        let ChannelInner { announcements, context, .. } = &*self.inner;
        announcements.wait_begins(timeout);
        let until = timeout.map(|timeout| now() + timeout);
        let what = "announcement";
        loop {
            let shards = &context.device.shards;
            let cq = match shards.wait(ShardSet::ALL, &announcements.announced, until, on_signal)? {
                WaitOutcome::Item(cq) => cq,
                WaitOutcome::Ended => return Err(Error::timeout(what, timeout)),
                WaitOutcome::Interrupted => return Err(Error::Interrupted { what }),
            };
            // The application may have destroyed the completion queue since.
            if let Some(cq) = cq.upgrade() {
                return Ok(cq);
            }
        }
    }

    /// Counts a completion queue that uses the channel.
    pub(super) fn user(&self) -> User {
        self.inner.users.join()
    }

    /// Returns whether the channel belongs to this device.
    pub(super) fn is_of(&self, device: &Arc<Device>) -> bool {
        self.inner.context.is_of(device)
    }
}

impl AsFd for CompletionChannel {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.inner.announcements.announced.export(&self.inner.event_fd);
        self.inner.event_fd.as_fd()
    }
}

/// The same descriptor as a number, for interfaces such as tokio's `AsyncFd`.
impl AsRawFd for CompletionChannel {
    fn as_raw_fd(&self) -> RawFd {
        self.as_fd().as_raw_fd()
    }
}

struct Announcer {
    announcements: Arc<Announcements>,
    cq: Weak<CqInner>,
}

impl Announce for Announcer {
    fn announce(&self) -> ShardSet {
        self.announcements.announced.push(Weak::clone(&self.cq)).wakes()
    }

    fn needs_waiter(&self) -> bool {
        self.announcements.may_wait_at_descriptor()
    }

    fn close(&self) {
        self.announcements.announced.close();
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
        let event_fd = EventFd::open().map_err(|source| Error::Os { what: "eventfd", source })?;
        Ok(CompletionChannel {
            inner: Arc::new(ChannelInner {
                announcements: Arc::new(Announcements::new()),
                event_fd: Arc::new(event_fd),
                users: Users::default(),
                context: Arc::clone(&self.inner),
            }),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn program_may_wait_at_the_descriptor_until_it_blocks_here() {
        let announcements = Announcements::new();
        assert!(!announcements.may_wait_at_descriptor(), "it has no descriptor");
        announcements.announced.export(&Arc::new(EventFd::open().unwrap()));
        assert!(announcements.may_wait_at_descriptor());
        let wait = |is_announced, timeout| {
            if is_announced {
                announcements.announced.push(Weak::new());
            }
            announcements.wait_begins(timeout);
            announcements.announced.pop();
            announcements.may_wait_at_descriptor()
        };
        let without_limit = None;
        assert!(
            wait(true, without_limit) && wait(false, Some(Duration::ZERO)),
            "these do not block"
        );
        assert!(!wait(false, without_limit) && !wait(false, Some(Duration::from_secs(1))));
        for _ in 1..WAITS_AT_DESCRIPTOR {
            assert!(!wait(true, without_limit), "its peer may be fast");
        }
        assert!(wait(true, without_limit));
    }
}

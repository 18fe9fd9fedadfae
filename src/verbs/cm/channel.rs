//! Event channels.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use crate::runtime::{DeviceError, EventFd, OnSignal, Queue, WaitOutcome, ends_call, now};
use crate::sync::Mutex;
use crate::sync::wakers::Wakers;
use crate::sys::{Woken, sleep_on};
use crate::time::Instant;
use crate::verbs::Context;
use crate::verbs::cm::Error;
use crate::verbs::cm::device::{Opener, OwnDevice};
use crate::verbs::cm::event::EventKind;
use crate::verbs::cm::inner::{ChannelInner, Id, Owner, Queued};

/// Receives the events of ids.
///
/// A thread waits for them, or a loop polls the descriptor ([`AsFd`]), which is readable while there are events. A task
/// awaits [`next`](Self::next).
#[derive(Clone, Debug)]
#[doc(alias = "rdma_event_channel")]
pub struct EventChannel {
    pub(super) events: Events,
    event_fd: Arc<EventFd>,
}

/// A channel that opens its descriptor at its first use.
#[derive(Clone, Debug)]
pub(super) struct Events {
    pub(super) inner: Arc<ChannelInner>,
}

/// An event of an id.
#[derive(Clone, Debug)]
#[doc(alias = "rdma_cm_event")]
pub struct Event {
    /// The id. For a request it is new.
    pub id: Id,
    /// The listener, for a request.
    pub listener: Option<Id>,
    /// Type and parameters.
    pub kind: EventKind,
}

impl EventChannel {
    /// Creates a channel.
    ///
    /// # Errors
    ///
    /// [`Error::Os`] when there are no more descriptors.
    #[doc(alias = "rdma_create_event_channel")]
    pub fn new() -> Result<Self, Error> {
        Ok(Self { events: Events::new(), event_fd: open()? })
    }

    /// Creates a channel for ids. `opener` opens their device, when they need one.
    ///
    /// # Errors
    ///
    /// [`Error::Os`] when there are no more descriptors.
    pub fn with_opener(opener: Opener) -> Result<Self, Error> {
        Ok(Self { events: Events::with_opener(opener), event_fd: open()? })
    }

    /// Returns the next event, or `None` when there is none.
    pub fn poll(&self) -> Option<Event> {
        self.events.poll()
    }

    /// Waits for the next event. `None` waits without limit.
    ///
    /// # Errors
    ///
    /// [`Error::Timeout`].
    #[doc(alias = "rdma_get_cm_event")]
    pub fn wait(&self, timeout: impl Into<Option<Duration>>) -> Result<Event, Error> {
        self.events.wait(timeout.into(), OnSignal::Wait)
    }

    /// Waits like [`wait`](Self::wait), and returns early after a signal handler without `SA_RESTART`, as a `read` from a
    /// pipe does.
    ///
    /// # Errors
    ///
    /// [`Error::Interrupted`], [`Error::Timeout`].
    pub fn wait_interruptible(&self, timeout: impl Into<Option<Duration>>) -> Result<Event, Error> {
        self.events.wait(timeout.into(), OnSignal::AsRead)
    }

    /// Waits until there is an event, and leaves it in the channel: another thread may take it, or the program may
    /// withdraw it. Returns early after a signal handler without `SA_RESTART`.
    ///
    /// # Errors
    ///
    /// [`Error::Interrupted`], [`Error::Timeout`], [`Error::Os`].
    pub fn wait_ready_interruptible(
        &self,
        timeout: impl Into<Option<Duration>>,
    ) -> Result<(), Error> {
        let timeout = timeout.into();
        let fd = self.as_raw_fd();
        let _receiving = Receiving::of(&self.events.inner);
        let until = timeout.map(|timeout| now() + timeout);
        loop {
            let rest = until.map(|until| until - now());
            let woken = sleep_on(&[fd], rest);
            match woken.map_err(|source| Error::Os { what: "the wait for events", source })? {
                Woken::Ready | Woken::Closed => return Ok(()),
                // The kernel never restarts this sleep.
                Woken::Interrupted if ends_call() => return Err(Error::Interrupted),
                Woken::Interrupted => {}
                Woken::TimedOut => {
                    let after = timeout.unwrap_or(Duration::MAX);
                    return Err(Error::Timeout { what: "event", after });
                }
            }
        }
    }
}

fn open() -> Result<Arc<EventFd>, Error> {
    let event_fd = EventFd::open().map_err(|source| Error::Os { what: "eventfd", source })?;
    Ok(Arc::new(event_fd))
}

impl Events {
    pub(super) fn new() -> Self {
        Self::with_opener(|options| Context::open(options()))
    }

    fn with_opener(opener: Opener) -> Self {
        Self {
            inner: Arc::new(ChannelInner {
                // The number of ids limits their events.
                events: Queue::new(usize::MAX),
                event_fd: OnceLock::new(),
                wakers: Wakers::new(),
                own: Arc::new(OwnDevice::new(opener)),
                receivers: Mutex::default(),
            }),
        }
    }

    /// Returns the next event, or `None` when there is none.
    pub(super) fn poll(&self) -> Option<Event> {
        loop {
            let queued = self.inner.events.pop()?;
            if let Some(event) = event(queued) {
                return Some(event);
            }
        }
    }

    fn wait(&self, timeout: Option<Duration>, on_signal: OnSignal) -> Result<Event, Error> {
        if let Some(event) = self.poll() {
            return Ok(event);
        }
        let _receiving = Receiving::of(&self.inner);
        self.block(timeout, timeout.map(|timeout| now() + timeout), on_signal)
    }

    /// Waits for the first event for which `handle` returns a value.
    pub(super) fn wait_for<T>(
        &self,
        timeout: Option<Duration>,
        mut handle: impl FnMut(Event) -> Result<Option<T>, Error>,
    ) -> Result<T, Error> {
        let until = timeout.map(|timeout| now() + timeout);
        let _receiving = Receiving::of(&self.inner);
        loop {
            let event = self.block(timeout, until, OnSignal::Wait)?;
            check_device(&event)?;
            if let Some(value) = handle(event)? {
                return Ok(value);
            }
        }
    }

    /// Blocks until there is an event, until `until`, or until a signal.
    fn block(
        &self,
        timeout: Option<Duration>,
        until: Option<Instant>,
        on_signal: OnSignal,
    ) -> Result<Event, Error> {
        loop {
            match self.inner.events.block(until, on_signal) {
                WaitOutcome::Item(queued) => {
                    if let Some(event) = event(queued) {
                        return Ok(event);
                    }
                }
                WaitOutcome::Ended => {
                    let after = timeout.unwrap_or(Duration::MAX);
                    return Err(Error::Timeout { what: "event", after });
                }
                WaitOutcome::Interrupted => return Err(Error::Interrupted),
            }
        }
    }

    /// Returns the descriptor, which is readable while there are events.
    pub(super) fn event_fd(&self) -> Result<BorrowedFd<'_>, Error> {
        let event_fd = match self.inner.event_fd.get() {
            Some(event_fd) => event_fd,
            None => {
                let event_fd = open()?;
                self.inner.event_fd.get_or_init(|| event_fd)
            }
        };
        self.inner.events.export(event_fd);
        Ok(event_fd.as_fd())
    }
}

/// Returns an error for the event of a failed device.
pub(super) fn check_device(event: &Event) -> Result<(), Error> {
    match event.kind {
        EventKind::DeviceRemoval => Err(DeviceError::Failed.into()),
        _ => Ok(()),
    }
}

/// Returns the event for the program, and counts it. `None` if the id has been dropped.
fn event(Queued { of, kind, .. }: Queued) -> Option<Event> {
    let (id, listener) = match of {
        Owner::Id(id) => (id.upgrade()?.id()?, None),
        // The listener may have been dropped since; then the request is dropped too, which rejects it.
        Owner::Request(id, listener) => (id, Some(listener.upgrade()?.id()?)),
    };
    listener.as_ref().unwrap_or(&id).inner.count_reported(&kind);
    Some(Event { id, listener, kind })
}

impl AsFd for EventChannel {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.events.inner.events.export(&self.event_fd);
        self.event_fd.as_fd()
    }
}

/// The same descriptor as a number, for interfaces such as tokio's `AsyncFd`.
impl AsRawFd for EventChannel {
    fn as_raw_fd(&self) -> RawFd {
        self.as_fd().as_raw_fd()
    }
}

/// Registration of a waiting thread or task at the devices of a channel, so that their threads receive.
#[derive(Debug)]
pub(super) struct Receiving(Arc<ChannelInner>);

impl Receiving {
    pub(super) fn of(channel: &Arc<ChannelInner>) -> Self {
        channel.register_waiter();
        Self(Arc::clone(channel))
    }
}

impl Drop for Receiving {
    fn drop(&mut self) {
        self.0.unregister_waiter();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cm::PortSpace;
    use crate::engine::QpType;
    use crate::verbs::OpenOptions;

    #[test]
    fn device_that_a_waited_for_channel_gets_receives_too() {
        let context = Context::open(OpenOptions::loopback()).unwrap();
        let device = || &context.inner.device.shards;
        let channel = EventChannel::new().unwrap();
        let create = || Id::create_on(&context, &channel, PortSpace::Tcp, QpType::Rc).unwrap();
        let waiting = Receiving::of(&channel.events.inner);
        assert!(!device().first().has_waiters());
        // The second id adds no device.
        let _ids = [create(), create()];
        assert!(device().first().has_waiters());
        let further = Receiving::of(&channel.events.inner);
        drop(waiting);
        assert!(device().first().has_waiters());
        drop(further);
        assert!(!device().first().has_waiters());
    }
}

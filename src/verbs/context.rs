//! Contexts: handles on devices.

use std::net::IpAddr;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use crate::runtime::{Device, EventFd, OnSignal, OpenError, Queue, ShardSet, WaitOutcome, now};
use crate::transport::outputs::AsyncEvent;
use crate::verbs::subject::{Subject, Subjects};
use crate::verbs::{DeviceCounters, Error, OpenOptions};

/// A handle on an open device, from which programs create all other objects.
///
/// Dropping the last handle on the device or one of its objects closes the device. It sends the acknowledgements and
/// responses that are pending by then.
#[doc(alias = "ibv_context")]
#[derive(Clone, Debug)]
pub struct Context {
    pub(super) inner: Arc<ContextInner>,
}

#[derive(Debug)]
pub(super) struct ContextInner {
    pub(super) device: Arc<Device>,
    pub(super) events: Arc<Queue<AsyncEvent>>,
    event_fd: OnceLock<Arc<EventFd>>,
    /// Objects with asynchronous events.
    pub(super) subjects: Subjects,
}

/// Maximum number of asynchronous events that wait for the application; the context discards later ones.
const MAX_EVENTS: usize = 4096;

impl Context {
    /// Opens a device, or returns another handle on a device that this process has open.
    ///
    /// # Errors
    ///
    /// [`Error::Open`], most often because another process or the kernel's `rdma_rxe` has bound the RoCEv2 port of
    /// the address. The text names the process.
    #[doc(alias = "ibv_open_device")]
    pub fn open(options: OpenOptions) -> Result<Self, Error> {
        Self::of(Device::open(options.config().map_err(OpenError::from)?)?)
    }

    /// Returns a handle on an open device.
    pub(super) fn of(device: Arc<Device>) -> Result<Self, Error> {
        let events = Arc::new(Queue::new(MAX_EVENTS));
        device.shards.first().with(|core, _| core.add_context(&events))?;
        let (event_fd, subjects) = (OnceLock::new(), Subjects::default());
        Ok(Self { inner: Arc::new(ContextInner { device, events, event_fd, subjects }) })
    }

    /// Returns the next asynchronous event of the objects created from this context, or `None` when none is pending.
    pub fn poll_event(&self) -> Option<AsyncEvent> {
        let events = &self.inner.events;
        events.pop().or_else(|| {
            // A device that has failed has no more events.
            let _ = self.inner.device.shards.turn_for(ShardSet::ALL, events);
            events.pop()
        })
    }

    /// Waits for the next asynchronous event. `None` waits without limit.
    ///
    /// # Errors
    ///
    /// [`Error::Timeout`], [`Error::Device`].
    #[doc(alias = "ibv_get_async_event")]
    pub fn wait_event(&self, timeout: impl Into<Option<Duration>>) -> Result<AsyncEvent, Error> {
        self.wait_event_with(timeout.into(), OnSignal::Wait)
    }

    pub(super) fn wait_event_with(
        &self,
        timeout: Option<Duration>,
        on_signal: OnSignal,
    ) -> Result<AsyncEvent, Error> {
        let (events, what) = (&self.inner.events, "asynchronous event");
        self.inner.wait(ShardSet::ALL, events, timeout, on_signal, what)
    }

    /// Returns a descriptor that is readable while asynchronous events are pending.
    ///
    /// # Errors
    ///
    /// [`Error::Os`] when there are no more descriptors.
    pub fn event_fd(&self) -> Result<BorrowedFd<'_>, Error> {
        let event_fd = match self.inner.event_fd.get() {
            Some(event_fd) => event_fd,
            None => {
                let event_fd =
                    EventFd::open().map_err(|source| Error::Os { what: "eventfd", source })?;
                self.inner.event_fd.get_or_init(|| Arc::new(event_fd))
            }
        };
        self.inner.events.export(event_fd);
        Ok(event_fd.as_fd())
    }

    /// Returns the address of the device, the first if it has several.
    pub fn ip(&self) -> IpAddr {
        self.inner.device.ip
    }

    /// Returns the counters of the device and of each of its queue pairs.
    ///
    /// ```
    /// # use softroce::verbs::*;
    /// let ctx = Context::open(OpenOptions::loopback())?;
    /// let counters = ctx.counters()?;
    /// for counter in counters.iter().filter(|counter| counter.value > 0) {
    ///     println!("{}: {} ({})", counter.name, counter.value, counter.help);
    /// }
    /// assert_eq!((counters.protocol.retransmitted, counters.port.kernel_drops), (0, 0));
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::Device`].
    pub fn counters(&self) -> Result<DeviceCounters, Error> {
        Ok(self.inner.device.counters()?)
    }
}

impl Drop for Context {
    fn drop(&mut self) {
        // The program may not call the device again for a long time.
        self.inner.device.shards.flush();
    }
}

impl ContextInner {
    /// Removes an object that no longer exists: the context delivers no further events of it.
    pub(super) fn remove_subject(&self, subject: Subject) {
        self.subjects.remove(subject);
        self.events.retain(|event| Subject::of(*event) != Some(subject));
    }

    /// Returns whether this context is one of `device`.
    pub(super) fn is_of(&self, device: &Arc<Device>) -> bool {
        Arc::ptr_eq(&self.device, device)
    }

    /// Waits for an item in a queue that these shards of the device fill.
    pub(super) fn wait<T>(
        &self,
        feeders: ShardSet,
        queue: &Queue<T>,
        timeout: Option<Duration>,
        on_signal: OnSignal,
        what: &'static str,
    ) -> Result<T, Error> {
        let until = timeout.map(|timeout| now() + timeout);
        match self.device.shards.wait(feeders, queue, until, on_signal)? {
            WaitOutcome::Item(item) => Ok(item),
            WaitOutcome::Ended => Err(Error::timeout(what, timeout)),
            WaitOutcome::Interrupted => Err(Error::Interrupted { what }),
        }
    }
}

//! Contexts: handles on devices.

use std::net::IpAddr;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use crate::runtime::{Device, EventFd, OnSignal, OpenError, Queue, ShardSet, Waited, now};
use crate::transport::outputs::AsyncEvent;
use crate::verbs::subject::{Subject, Subjects};
use crate::verbs::{DeviceCounters, Error, OpenOptions};

/// A handle on a device, from which everything else is made.
///
/// The device is closed when the last of all handles that came from it is gone. What it owes its
/// peers by then is sent.
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
    /// Of what events can tell.
    pub(super) subjects: Subjects,
}

/// Events that wait for an application which does not ask for them; later ones are lost.
const MAX_EVENTS: usize = 4096;

impl Context {
    /// Opens a device, or gets another handle on one that this process has open.
    ///
    /// # Errors
    ///
    /// [`Error::Open`]: above all when another process, or the kernel's `rdma_rxe`, holds the
    /// RoCEv2 port of the address; the text says who.
    #[doc(alias = "ibv_open_device")]
    pub fn open(options: OpenOptions) -> Result<Self, Error> {
        let device = Device::open(options.config().map_err(OpenError::from)?)?;
        let events = Arc::new(Queue::new(MAX_EVENTS));
        device.shards.first().with(|core, _| core.add_context(&events))?;
        let (event_fd, subjects) = (OnceLock::new(), Subjects::default());
        Ok(Self { inner: Arc::new(ContextInner { device, events, event_fd, subjects }) })
    }

    /// The next asynchronous event of the objects that were made from this context, if there is
    /// one.
    pub fn poll_event(&self) -> Option<AsyncEvent> {
        let events = &self.inner.events;
        events.pop().or_else(|| {
            // A device that has failed has no more events.
            let _ = self.inner.device.shards.turn_for(ShardSet::ALL, events);
            events.pop()
        })
    }

    /// Waits for an asynchronous event.
    ///
    /// # Errors
    ///
    /// [`Error::Timeout`], [`Error::Down`].
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

    /// A descriptor that is readable while there are asynchronous events.
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

    /// The device's address; of several the first.
    pub fn ip(&self) -> IpAddr {
        self.inner.device.ip
    }

    /// What the device has counted, and each of its queue pairs.
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
    /// [`Error::Down`].
    pub fn counters(&self) -> Result<DeviceCounters, Error> {
        Ok(self.inner.device.counters()?)
    }
}

impl Drop for Context {
    fn drop(&mut self) {
        // Whoever drops it may have nothing more to do with the network for long.
        self.inner.device.shards.flush();
    }
}

impl ContextInner {
    /// An object is gone: nobody is told of it any more.
    pub(super) fn forget(&self, subject: Subject) {
        self.subjects.remove(subject);
        self.events.retain(|event| Subject::of(*event) != Some(subject));
    }

    /// Whether this is its device.
    pub(super) fn is_of(&self, device: &Arc<Device>) -> bool {
        Arc::ptr_eq(&self.device, device)
    }

    /// Waits for something in a queue that these shards of the device fill.
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
            Waited::Item(item) => Ok(item),
            Waited::Over => Err(Error::timeout(what, timeout)),
            Waited::Interrupted => Err(Error::Interrupted { what }),
        }
    }
}

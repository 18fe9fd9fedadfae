//! Events that an application acknowledges: announcements of completion queues, and asynchronous events.

use std::ops::Deref;
use std::sync::Arc;
use std::time::Duration;

use crate::runtime::OnSignal;
use crate::transport::outputs::AsyncEvent;
use crate::verbs::usage::Unacknowledged;
use crate::verbs::{CompletionChannel, CompletionQueue, Context, Error};

/// An announcement of a completion queue, to which it dereferences.
///
/// Dropping the announcement acknowledges it; until then the queue cannot be
/// [destroyed](CompletionQueue::destroy).
#[derive(Debug)]
pub struct CqEvent {
    cq: CompletionQueue,
    owed: bool,
}

impl CqEvent {
    fn new(cq: CompletionQueue) -> Self {
        cq.inner.announcements.take();
        Self { cq, owed: true }
    }

    /// Returns the completion queue without acknowledging the announcement: the program calls
    /// [`CompletionQueue::ack_events`] later.
    pub fn keep(mut self) -> CompletionQueue {
        self.owed = false;
        self.cq.clone()
    }
}

impl Deref for CqEvent {
    type Target = CompletionQueue;

    fn deref(&self) -> &CompletionQueue {
        &self.cq
    }
}

impl PartialEq<CompletionQueue> for CqEvent {
    fn eq(&self, other: &CompletionQueue) -> bool {
        self.cq == *other
    }
}

impl Drop for CqEvent {
    #[doc(alias = "ibv_ack_cq_events")]
    fn drop(&mut self) {
        self.cq.ack_events(self.owed.into());
    }
}

/// An asynchronous event that is not acknowledged yet.
///
/// Dropping it acknowledges the event; until then the object of the event cannot be destroyed.
#[derive(Debug)]
pub struct PendingEvent {
    event: AsyncEvent,
    owed: Option<Arc<Unacknowledged>>,
}

impl PendingEvent {
    /// Returns the event without acknowledging it: the program calls `ack_async_events` of the event's object
    /// later.
    pub fn keep(mut self) -> AsyncEvent {
        self.owed = None;
        self.event
    }
}

impl Deref for PendingEvent {
    type Target = AsyncEvent;

    fn deref(&self) -> &AsyncEvent {
        &self.event
    }
}

impl Drop for PendingEvent {
    #[doc(alias = "ibv_ack_async_event")]
    fn drop(&mut self) {
        if let Some(owed) = &self.owed {
            owed.acknowledge(1);
        }
    }
}

impl CompletionChannel {
    /// Waits until a completion queue is announced, and returns it. `None` waits without limit, and a
    /// timeout of zero does not wait. Dropping the announcement acknowledges it.
    ///
    /// # Errors
    ///
    /// [`Error::Timeout`], [`Error::Device`].
    #[doc(alias = "ibv_get_cq_event")]
    pub fn wait(&self, timeout: impl Into<Option<Duration>>) -> Result<CqEvent, Error> {
        self.wait_with(timeout.into(), OnSignal::Wait)
    }

    /// Waits like [`wait`](Self::wait), and returns early after a signal handler without `SA_RESTART`, as a
    /// `read` from a pipe does.
    ///
    /// # Errors
    ///
    /// [`Error::Interrupted`], [`Error::Timeout`], [`Error::Device`].
    pub fn wait_interruptible(
        &self,
        timeout: impl Into<Option<Duration>>,
    ) -> Result<CqEvent, Error> {
        self.wait_with(timeout.into(), OnSignal::AsRead)
    }

    fn wait_with(&self, timeout: Option<Duration>, on_signal: OnSignal) -> Result<CqEvent, Error> {
        let inner = self.next_announced(timeout, on_signal)?;
        Ok(CqEvent::new(CompletionQueue::announced(inner, self.clone())))
    }
}

impl Context {
    /// Waits for an asynchronous event, which is unacknowledged until it is dropped.
    /// [`wait_event`](Self::wait_event) also acknowledges it. `None` waits without limit, and a timeout of zero
    /// does not wait.
    ///
    /// ```
    /// use softroce::engine::QpAttr;
    /// use softroce::verbs::*;
    ///
    /// let ctx = Context::open(OpenOptions::loopback())?;
    /// let (pd, cq) = (ctx.alloc_pd(), ctx.create_cq(16, None)?);
    /// let qp = pd.create_qp(&QpConfig::rc(&cq))?;
    /// qp.connect(&qp.endpoint(), &ConnectOptions::default())?;
    /// qp.modify(QpAttr::to(QpState::Sqd))?;
    ///
    /// let event = ctx.get_async_event(None)?;
    /// assert_eq!(*event, AsyncEvent::SqDrained(qp.qpn()));
    /// let (qp, refused) = qp.destroy().unwrap_err();
    /// assert_eq!(refused.to_string(), "the queue pair is in use by unacknowledged events: 1");
    /// drop(event);
    /// assert!(qp.destroy().is_ok());
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::Timeout`], [`Error::Device`].
    #[doc(alias = "ibv_get_async_event")]
    pub fn get_async_event(
        &self,
        timeout: impl Into<Option<Duration>>,
    ) -> Result<PendingEvent, Error> {
        self.pending(timeout.into(), OnSignal::Wait)
    }

    /// Waits like [`get_async_event`](Self::get_async_event), and returns early after a signal handler without
    /// `SA_RESTART`, as a `read` from a pipe does.
    ///
    /// # Errors
    ///
    /// [`Error::Interrupted`], [`Error::Timeout`], [`Error::Device`].
    pub fn get_async_event_interruptible(
        &self,
        timeout: impl Into<Option<Duration>>,
    ) -> Result<PendingEvent, Error> {
        self.pending(timeout.into(), OnSignal::AsRead)
    }

    fn pending(
        &self,
        timeout: Option<Duration>,
        on_signal: OnSignal,
    ) -> Result<PendingEvent, Error> {
        let event = self.wait_event_with(timeout, on_signal)?;
        Ok(PendingEvent { event, owed: self.inner.subjects.take(event) })
    }
}

//! Events that are in somebody's hands: announcements of completion queues, and asynchronous ones.

use std::collections::HashMap;
use std::ops::Deref;
use std::sync::{Arc, MutexGuard, PoisonError};
use std::time::Duration;

use crate::ids::{CqId, Qpn, Srqn};
use crate::runtime::OnSignal;
use crate::sync::Mutex;
use crate::transport::outputs::AsyncEvent;
use crate::verbs::usage::Unacknowledged;
use crate::verbs::{CompletionQueue, Context, Error};

/// An announcement of a completion queue, for which it stands.
///
/// To drop it acknowledges it; until then the queue cannot be
/// [destroyed](CompletionQueue::destroy).
#[derive(Debug)]
pub struct CqEvent {
    cq: CompletionQueue,
    owed: bool,
}

impl CqEvent {
    pub(super) fn new(cq: CompletionQueue) -> Self {
        cq.inner.announcements.take();
        Self { cq, owed: true }
    }

    /// The completion queue, for which [`CompletionQueue::ack_events`] is to be called later.
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
/// To drop it acknowledges it; until then what it tells of cannot be destroyed.
#[derive(Debug)]
pub struct PendingEvent {
    event: AsyncEvent,
    owed: Option<Arc<Unacknowledged>>,
}

impl PendingEvent {
    /// The event, for which `ack_async_events` is to be called later on what it tells of.
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

impl Context {
    /// Waits for an asynchronous event, which is to be acknowledged: it counts until it is dropped.
    /// [`wait_event`](Self::wait_event) does both at once. No timeout is for ever, a timeout of zero
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
    /// [`Error::Timeout`], [`Error::Down`].
    #[doc(alias = "ibv_get_async_event")]
    pub fn get_async_event(
        &self,
        timeout: impl Into<Option<Duration>>,
    ) -> Result<PendingEvent, Error> {
        self.pending(timeout.into(), OnSignal::Wait)
    }

    /// The same for a thread that signals are to interrupt as they interrupt a `read` from a pipe: a handler
    /// without `SA_RESTART` ends the wait.
    ///
    /// # Errors
    ///
    /// [`Error::Interrupted`], [`Error::Timeout`], [`Error::Down`].
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

/// What an asynchronous event tells of.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) enum Subject {
    Qp(Qpn),
    Cq(CqId),
    Srq(Srqn),
}

impl Subject {
    /// `None` of the device itself, which is closed only when nobody has anything of it.
    pub(super) fn of(event: AsyncEvent) -> Option<Self> {
        Some(match event {
            AsyncEvent::CqErr(cq) => Self::Cq(cq),
            AsyncEvent::QpFatal(qpn)
            | AsyncEvent::QpReqErr(qpn)
            | AsyncEvent::QpAccessErr(qpn)
            | AsyncEvent::CommEst(qpn)
            | AsyncEvent::SqDrained(qpn)
            | AsyncEvent::QpLastWqeReached(qpn) => Self::Qp(qpn),
            AsyncEvent::SrqErr(srqn) | AsyncEvent::SrqLimitReached(srqn) => Self::Srq(srqn),
            AsyncEvent::GidChange
            | AsyncEvent::PortActive
            | AsyncEvent::PortErr
            | AsyncEvent::DeviceFatal => return None,
        })
    }
}

/// The objects of a context of which events can tell.
#[derive(Debug, Default)]
pub(super) struct Subjects(Mutex<HashMap<Subject, Arc<Unacknowledged>>>);

impl Subjects {
    /// Enters an object, and returns what counts its events.
    pub(super) fn enter(&self, subject: Subject) -> Arc<Unacknowledged> {
        Arc::clone(self.lock().entry(subject).or_default())
    }

    /// The object is gone.
    pub(super) fn remove(&self, subject: Subject) {
        self.lock().remove(&subject);
    }

    /// An event is handed out: it counts for what it tells of, if that still exists.
    fn take(&self, event: AsyncEvent) -> Option<Arc<Unacknowledged>> {
        let subjects = self.lock();
        let owed = subjects.get(&Subject::of(event)?)?;
        owed.take();
        Some(Arc::clone(owed))
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Subject, Arc<Unacknowledged>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

//! Objects that asynchronous events are about.

use std::collections::HashMap;
use std::sync::{Arc, MutexGuard, PoisonError};

use crate::ids::{CqId, Qpn, Srqn};
use crate::sync::Mutex;
use crate::transport::outputs::AsyncEvent;
use crate::verbs::usage::Unacknowledged;

/// Object that an asynchronous event is about.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) enum Subject {
    Qp(Qpn),
    Cq(CqId),
    Srq(Srqn),
}

impl Subject {
    /// Returns `None` for an event of the device, which outlives its objects.
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

/// The objects of a context that have asynchronous events, each with its count of unacknowledged ones.
#[derive(Debug, Default)]
pub(super) struct Subjects(Mutex<HashMap<Subject, Arc<Unacknowledged>>>);

impl Subjects {
    /// Enters an object, and returns the counter of its events.
    pub(super) fn enter(&self, subject: Subject) -> Arc<Unacknowledged> {
        Arc::clone(self.lock().entry(subject).or_default())
    }

    /// Removes an object that no longer exists.
    pub(super) fn remove(&self, subject: Subject) {
        self.lock().remove(&subject);
    }

    /// Counts an event as handed out, and returns the counter of its object; `None` when the object no
    /// longer exists.
    pub(super) fn take(&self, event: AsyncEvent) -> Option<Arc<Unacknowledged>> {
        let subjects = self.lock();
        let owed = subjects.get(&Subject::of(event)?)?;
        owed.take();
        Some(Arc::clone(owed))
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Subject, Arc<Unacknowledged>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

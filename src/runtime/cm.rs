//! Events of the connection manager, on their way from the agent to the objects that wait for them.
//!
//! ```text
//! under the shard's lock                     without it
//! Agent ── poll_event ──▶ CmEvents::push ──▶ CmEvents::deliver ──▶ CmSink::handle
//! ```
//!
//! Events reach their sinks in the order of the agent: one thread at a time delivers, and a thread that finds another one
//! delivering leaves its events to that thread. A sink may call the device.

use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, MutexGuard, PoisonError, TryLockError, Weak};
use std::thread::{self, ThreadId};

use smallvec::SmallVec;

use crate::cm::{ConnId, Event};
use crate::sync::Mutex;

/// An object with events of the connection manager.
pub(crate) trait CmSink: fmt::Debug + Send + Sync {
    /// Handles an event of a connection. For a request, `conn` is new, and the sink is the listener's.
    fn handle(self: Arc<Self>, conn: ConnId, event: Event);

    /// Handles the failure of the device. An attached id with a connection gets this twice.
    fn fail(self: Arc<Self>);
}

/// Undelivered events of an agent, the sinks of its connections, and the ids that are attached to the device.
#[derive(Debug, Default)]
pub(crate) struct CmEvents {
    sinks: Mutex<HashMap<ConnId, Weak<dyn CmSink>>>,
    /// Number of sinks.
    count: AtomicUsize,
    /// Ids of the device, by number.
    attached: Mutex<HashMap<u64, Weak<dyn CmSink>>>,
    pending: Mutex<VecDeque<(ConnId, Event)>>,
    /// Held by the thread that delivers.
    delivery: Mutex<()>,
    /// The thread that delivers.
    deliverer: Mutex<Option<ThreadId>>,
}

/// Registration of an id at its device. Dropping it ends the registration.
#[derive(Debug)]
pub(crate) struct Attachment {
    events: Arc<CmEvents>,
    id: u64,
}

impl Drop for Attachment {
    fn drop(&mut self) {
        lock(&self.events.attached).remove(&self.id);
    }
}

/// Connections of requests that have lost their listener.
pub(crate) type Orphans = SmallVec<[ConnId; 2]>;

impl CmEvents {
    /// Sets the sink of a connection. Under the shard's lock, so that no event of the connection is older.
    pub(crate) fn register(&self, conn: ConnId, sink: Weak<dyn CmSink>) {
        let mut sinks = lock(&self.sinks);
        sinks.insert(conn, sink);
        self.count.store(sinks.len(), Ordering::Relaxed);
    }

    /// Returns the connections with a sink.
    pub(crate) fn connections(&self) -> Vec<ConnId> {
        lock(&self.sinks).keys().copied().collect()
    }

    /// Returns whether a connection has a sink.
    pub(crate) fn has_connections(&self) -> bool {
        self.count.load(Ordering::Relaxed) > 0
    }

    /// Attaches an id without a connection, by its number: it learns of the failure of the device. Under the shard's lock,
    /// so that no failure comes before.
    pub(crate) fn attach(self: &Arc<Self>, id: u64, sink: Weak<dyn CmSink>) -> Attachment {
        lock(&self.attached).insert(id, sink);
        Attachment { events: Arc::clone(self), id }
    }

    /// Reports the failure of the device to every sink and every attached id, and removes them. Without the shard's lock.
    pub(crate) fn fail(&self) {
        let sinks = std::mem::take(&mut *lock(&self.sinks));
        self.count.store(0, Ordering::Relaxed);
        let attached = std::mem::take(&mut *lock(&self.attached));
        let all = sinks.into_values().chain(attached.into_values());
        all.filter_map(|sink| sink.upgrade()).for_each(CmSink::fail);
    }

    /// Removes the sink of a connection.
    pub(crate) fn remove(&self, conn: ConnId) {
        let mut sinks = lock(&self.sinks);
        sinks.remove(&conn);
        self.count.store(sinks.len(), Ordering::Relaxed);
    }

    /// Appends an event, under the shard's lock.
    pub(crate) fn push(&self, conn: ConnId, event: Event) {
        lock(&self.pending).push_back((conn, event));
    }

    /// Delivers all events, unless another thread does. Returns the requests that have no listener any more. Without the
    /// shard's lock.
    pub(crate) fn deliver(&self) -> Orphans {
        let mut orphans = Orphans::new();
        while !lock(&self.pending).is_empty() {
            let _delivery = match self.delivery.try_lock() {
                Ok(guard) => guard,
                Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
                // That thread looks for further events after it has unlocked.
                Err(TryLockError::WouldBlock) => break,
            };
            *lock(&self.deliverer) = Some(thread::current().id());
            loop {
                let Some((conn, event)) = lock(&self.pending).pop_front() else { break };
                let listener = match &event {
                    Event::Request(request) => Some(request.listener),
                    Event::ServiceRequest(request) => Some(request.listener),
                    _ => None,
                };
                let sink = lock(&self.sinks).get(&listener.unwrap_or(conn)).cloned();
                match sink.and_then(|sink| sink.upgrade()) {
                    Some(sink) => sink.handle(conn, event),
                    None if listener.is_some() => orphans.push(conn),
                    None => {}
                }
            }
            *lock(&self.deliverer) = None;
        }
        orphans
    }

    /// Waits until no thread is delivering, unless the calling thread is. Without a lock.
    pub(crate) fn wait_for_delivery(&self) {
        if *lock(&self.deliverer) != Some(thread::current().id()) {
            drop(lock(&self.delivery));
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use std::sync::OnceLock;

    use super::*;
    use crate::cm::CommId;

    /// Records events. During the first it pushes and delivers another one.
    #[derive(Debug, Default)]
    struct Recorder {
        events: OnceLock<Arc<CmEvents>>,
        seen: Mutex<Vec<(ConnId, Event)>>,
    }

    impl CmSink for Recorder {
        fn handle(self: Arc<Self>, conn: ConnId, event: Event) {
            let is_first = lock(&self.seen).is_empty();
            if is_first && let Some(events) = self.events.get() {
                events.push(conn, Event::TimewaitExit);
                assert!(events.deliver().is_empty());
            }
            lock(&self.seen).push((conn, event));
        }

        fn fail(self: Arc<Self>) {}
    }

    #[test]
    fn event_during_delivery_follows_the_current_one() {
        let (events, sink) = (Arc::new(CmEvents::default()), Arc::new(Recorder::default()));
        sink.events.set(Arc::clone(&events)).unwrap();
        let conn = ConnId(CommId(7));
        let weak: Weak<Recorder> = Arc::downgrade(&sink);
        events.register(conn, weak);
        events.push(conn, Event::Established);
        assert!(events.deliver().is_empty());
        assert_eq!(*lock(&sink.seen), [(conn, Event::Established), (conn, Event::TimewaitExit)]);
        events.remove(conn);
        events.push(conn, Event::Established);
        assert!(events.deliver().is_empty(), "only requests have orphans");
        assert_eq!(lock(&sink.seen).len(), 2);
    }
}

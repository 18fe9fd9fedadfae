//! Counts the users and the unacknowledged events of an object. Both prevent its destruction.

use std::sync::{Arc, Condvar, MutexGuard, PoisonError};
use std::time::Duration;

use crate::runtime::now;
use crate::sync::Mutex;
use crate::verbs::Error;

/// Number of users of an object.
#[derive(Debug, Default)]
pub(super) struct Users(Arc<()>);

/// Registration as a user of an object, until it is dropped.
#[derive(Debug)]
pub(super) struct User {
    _counted: Arc<()>,
}

impl Users {
    pub(super) fn join(&self) -> User {
        User { _counted: Arc::clone(&self.0) }
    }

    /// Returns an error when the object has users.
    pub(super) fn check(&self, what: &'static str, by: &'static str) -> Result<(), Error> {
        match Arc::strong_count(&self.0) - 1 {
            0 => Ok(()),
            count => Err(Error::InUse { what, by, count: count as u64 }),
        }
    }
}

/// Name of unacknowledged events in [`Error::InUse`].
pub(super) const UNACKNOWLEDGED_EVENTS: &str = "unacknowledged events";

/// Number of delivered, unacknowledged events of one object.
#[derive(Debug, Default)]
pub(super) struct Unacknowledged {
    events: Mutex<Events>,
    none: Condvar,
}

#[derive(Debug, Default)]
struct Events {
    count: u64,
    /// Threads that wait for the number to become 0.
    waiting: usize,
}

impl Unacknowledged {
    /// Counts an event as delivered.
    pub(super) fn take(&self) {
        self.lock().count += 1;
    }

    /// Acknowledges this many events. The number saturates at 0.
    pub(super) fn acknowledge(&self, count: u64) {
        let mut events = self.lock();
        events.count = events.count.saturating_sub(count);
        // A wake-up is a system call, even without waiting threads.
        if events.count == 0 && events.waiting > 0 {
            self.none.notify_all();
        }
    }

    pub(super) fn count(&self) -> u64 {
        self.lock().count
    }

    /// Waits until no event is unacknowledged. `None` waits without limit.
    pub(super) fn wait(&self, timeout: Option<Duration>) -> Result<(), Error> {
        let until = timeout.map(|timeout| now() + timeout);
        let mut events = self.lock();
        while events.count > 0 {
            let left = until.map(|until| until - now());
            if left.is_some_and(|left| left.is_zero()) {
                let after = timeout.unwrap_or(Duration::MAX);
                return Err(Error::Timeout { what: "acknowledgement of events", after });
            }
            events.waiting += 1;
            events = match left {
                Some(left) => {
                    let waited = self.none.wait_timeout(events, left);
                    waited.unwrap_or_else(PoisonError::into_inner).0
                }
                None => self.none.wait(events).unwrap_or_else(PoisonError::into_inner),
            };
            events.waiting -= 1;
        }
        Ok(())
    }

    /// Returns an error when events are unacknowledged.
    pub(super) fn check(&self, what: &'static str) -> Result<(), Error> {
        match self.count() {
            0 => Ok(()),
            count => Err(Error::InUse { what, by: UNACKNOWLEDGED_EVENTS, count }),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Events> {
        self.events.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;

    #[test]
    fn users_are_counted_while_they_live() {
        let users = Users::default();
        let (first, second) = (users.join(), users.join());
        let said = users.check("queue", "programs").unwrap_err().to_string();
        assert_eq!(said, "the queue is in use by programs: 2");
        drop((first, second));
        assert!(users.check("queue", "programs").is_ok());
    }

    #[test]
    fn last_acknowledgement_wakes_the_waiter() {
        let events = Unacknowledged::default();
        for _ in 0..3 {
            events.take();
        }
        thread::scope(|scope| {
            let waiter = scope.spawn(|| events.wait(None).is_ok());
            events.acknowledge(1);
            let error = events.wait(Some(Duration::ZERO)).unwrap_err().to_string();
            assert_eq!(error, "no acknowledgement of events within 0ns");
            assert_eq!(
                events.check("queue").unwrap_err().to_string(),
                "the queue is in use by unacknowledged events: 2"
            );
            events.acknowledge(9);
            assert!(waiter.join().unwrap());
        });
        assert_eq!((events.count(), events.check("queue").is_ok()), (0, true));
    }
}

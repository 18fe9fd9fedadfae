//! An event that a thread waits for. A wake-up that is lost is a deadlock, which loom reports.

use std::task::{Wake, Waker};

use loom::sync::{Arc, Condvar, Mutex};

/// Set by one thread, and waited for by others.
#[derive(Clone)]
pub(crate) struct Event(Arc<(Mutex<bool>, Condvar)>);

impl Event {
    pub(crate) fn new() -> Self {
        Self(Arc::new((Mutex::new(false), Condvar::new())))
    }

    pub(crate) fn set(&self) {
        let (is_set, changed) = &*self.0;
        *is_set.lock().unwrap() = true;
        changed.notify_all();
    }

    pub(crate) fn reset(&self) {
        *self.0.0.lock().unwrap() = false;
    }

    pub(crate) fn is_set(&self) -> bool {
        *self.0.0.lock().unwrap()
    }

    /// Waits until it is set.
    pub(crate) fn wait(&self) {
        let (is_set, changed) = &*self.0;
        let mut is_set = is_set.lock().unwrap();
        while !*is_set {
            is_set = changed.wait(is_set).unwrap();
        }
    }

    /// A waker that sets it.
    pub(crate) fn waker(&self) -> Waker {
        std::sync::Arc::new(SetBy(self.clone())).into()
    }
}

struct SetBy(Event);

impl Wake for SetBy {
    fn wake(self: std::sync::Arc<Self>) {
        self.0.set();
    }
}

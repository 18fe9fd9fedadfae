//! Locks: of a moment, and from one call to another.

use std::sync::{Condvar, Mutex, PoisonError};

/// A lock that one call closes and another opens. Between `ibv_wr_start` and `ibv_wr_complete`, or
/// `ibv_start_poll` and `ibv_end_poll`, other threads wait.
#[derive(Default)]
pub(crate) struct Gate {
    is_closed: Mutex<bool>,
    opened: Condvar,
}

impl Gate {
    /// Waits until the gate is open, and closes it.
    pub(crate) fn close(&self) {
        let closed = self.is_closed.lock().unwrap_or_else(PoisonError::into_inner);
        let waited = self.opened.wait_while(closed, |closed| *closed);
        *waited.unwrap_or_else(PoisonError::into_inner) = true;
    }

    /// Opens the gate for one waiting thread.
    pub(crate) fn open(&self) {
        *self.is_closed.lock().unwrap_or_else(PoisonError::into_inner) = false;
        self.opened.notify_one();
    }
}

/// Locks a mutex, also after a panic: each holder leaves the value complete.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

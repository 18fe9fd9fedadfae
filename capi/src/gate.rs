//! A lock that one call takes and another lets go: between `ibv_wr_start` and `ibv_wr_complete`, or
//! `ibv_start_poll` and `ibv_end_poll`, whoever else begins the same has to wait.

use std::sync::{Condvar, Mutex, PoisonError};

#[derive(Default)]
pub(crate) struct Gate {
    is_closed: Mutex<bool>,
    opened: Condvar,
}

impl Gate {
    /// Waits until it is open, and closes it.
    pub(crate) fn close(&self) {
        let closed = self.is_closed.lock().unwrap_or_else(PoisonError::into_inner);
        let waited = self.opened.wait_while(closed, |closed| *closed);
        *waited.unwrap_or_else(PoisonError::into_inner) = true;
    }

    /// Opens it.
    pub(crate) fn open(&self) {
        *self.is_closed.lock().unwrap_or_else(PoisonError::into_inner) = false;
        self.opened.notify_one();
    }
}

/// The lock of what a call found or left. It is held for a moment, and nothing that is behind it can be
/// found half done.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

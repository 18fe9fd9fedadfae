//! A signal that wakes a sleeping thread, with a flag that saves the system call to clear it.
//!
//! ```text
//! ringer                          sleeper
//! the reason                      sleep until the signal
//! raise the signal                rung?               (relaxed)
//! rung = true       (release)       yes: rung = false (acquire), clear the signal
//!                                 look for the reason
//! ```
//!
//! The flag is set after the signal is raised. A sleeper that sees the flag too late leaves the signal raised, and
//! checks once more. If the flag were set first, the sleeper might clear the signal before it is raised, and the signal
//! would stay raised for ever.
//!
//! The kernel orders the reason before the end of a sleep. The flag orders it before a clear as well, so that no
//! promise of the kernel about clears is needed.

use std::sync::atomic::Ordering;

use super::primitives::AtomicBool;

/// A signal between threads: raised until it is cleared, no matter how often it was raised.
pub(crate) trait Signal {
    fn raise(&self);

    fn clear(&self);
}

/// A signal that the sleeper clears after each sleep, and mostly finds clear.
#[derive(Debug)]
pub(crate) struct Doorbell<S> {
    signal: S,
    rung: AtomicBool,
}

impl<S: Signal> Doorbell<S> {
    pub(crate) fn new(signal: S) -> Self {
        Self { signal, rung: AtomicBool::new(false) }
    }

    /// Returns the signal to sleep on.
    pub(crate) fn signal(&self) -> &S {
        &self.signal
    }

    /// Wakes the sleeper, now or at its next sleep.
    pub(crate) fn ring(&self) {
        self.signal.raise();
        self.rung.store(true, Ordering::Release);
    }

    /// Clears the signal. The caller then checks the reason of each ring before it sleeps again.
    #[inline]
    pub(crate) fn silence(&self) {
        if self.rung.load(Ordering::Relaxed) && self.rung.swap(false, Ordering::Acquire) {
            self.signal.clear();
        }
    }
}

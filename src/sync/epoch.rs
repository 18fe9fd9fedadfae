//! Epochs: a thread that revokes memory waits for the engines that may still access it.
//!
//! Each engine has an [`Epoch`], whose number is odd while the engine accesses memory. A thread that revokes memory
//! clears the [`LiveFlag`] of the memory, and then waits for each epoch that is odd. Both sides write one word and then
//! read the word of the other:
//!
//! ```text
//! engine                            thread that revokes
//! epoch = odd          (SeqCst)     live = false         (SeqCst)
//! live?                (SeqCst)     list of epochs, under its lock
//!   yes: access the memory          epoch?               (SeqCst)
//! epoch = even         (release)      odd: wait until it changes
//!                                   free the memory
//! ```
//!
//! - The four accesses marked `SeqCst` are in one total order. So the engine finds the memory revoked, or the other
//!   thread finds the epoch odd and waits. With acquire and release alone both may read the old value.
//! - The epoch becomes even by a release store behind the accesses. The load that sees the change acquires it, so the
//!   accesses happen before the memory is freed.
//! - An engine that registers its epoch after the list was read begins its accesses after `live = false`: the lock of
//!   the list orders it behind the thread that revokes.
//! - The waiting thread compares the number with the one that it has read. An engine that ends one epoch and begins the
//!   next does not delay it.
//!
//! Application threads do not have epochs. A [`UserCount`] counts them for each memory:
//!
//! ```text
//! application thread                thread that revokes
//! users += 1           (SeqCst)     live = false         (SeqCst)
//! live?                (SeqCst)     users?               (SeqCst)
//!   yes: access the memory            not 0: wait
//! users -= 1           (release)    free the memory
//! ```

use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};

use super::primitives::{
    AtomicBool, AtomicU64, AtomicUsize, Mutex, MutexGuard, spin_loop, yield_now,
};

/// The epoch of one engine, alone in its cache lines.
#[derive(Debug)]
#[repr(align(128))]
pub(crate) struct Epoch(AtomicU64);

impl Epoch {
    /// Makes the epoch odd, and returns its number. One thread at a time calls this.
    #[inline]
    pub(crate) fn begin(&self) -> u64 {
        // The new number is odd and differs from the old one, which is odd when an epoch was not ended. A thread that
        // waits for the old epoch need not wait for the new one: the caller has lost access to what it had then.
        let number = (self.0.load(Ordering::Relaxed) + 1) | 1;
        self.0.swap(number, Ordering::SeqCst);
        number
    }

    /// Ends the epoch that [`begin`](Self::begin) returned.
    #[inline]
    pub(crate) fn end(&self, number: u64) {
        self.0.store(number + 1, Ordering::Release);
    }

    /// Returns the number, which is odd during an epoch.
    #[cfg(test)]
    pub(crate) fn number(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }

    fn wait(&self) {
        let number = self.0.load(Ordering::SeqCst);
        if number % 2 == 1 {
            wait_until(|| self.0.load(Ordering::SeqCst) != number);
        }
    }
}

/// The epochs of all engines that access the same memory.
#[derive(Debug)]
pub(crate) struct Epochs(Mutex<Vec<Arc<Epoch>>>);

impl Epochs {
    pub(crate) fn new() -> Self {
        Self(Mutex::new(Vec::new()))
    }

    /// Adds the epoch of an engine.
    pub(crate) fn register(&self) -> Arc<Epoch> {
        let epoch = Arc::new(Epoch(AtomicU64::new(0)));
        self.lock().push(Arc::clone(&epoch));
        epoch
    }

    /// Removes the epoch of an engine, which has ended.
    pub(crate) fn unregister(&self, epoch: &Arc<Epoch>) {
        self.lock().retain(|registered| !Arc::ptr_eq(registered, epoch));
    }

    /// Waits until each epoch that has begun by now has ended. The caller has revoked something before.
    pub(crate) fn wait(&self) {
        // Engines are added and removed while this thread waits.
        let epochs = self.lock().clone();
        epochs.iter().for_each(|epoch| epoch.wait());
    }

    /// Returns the number of engines.
    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.lock().len()
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Arc<Epoch>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Flag of memory that may still be accessed.
#[derive(Debug)]
pub(crate) struct LiveFlag(AtomicBool);

impl LiveFlag {
    pub(crate) fn new() -> Self {
        Self(AtomicBool::new(true))
    }

    /// Returns whether the memory may be accessed: by an engine until the end of the epoch that has begun before, by an
    /// application thread until it leaves the [`UserCount`] that it has joined before.
    #[inline]
    pub(crate) fn is_live(&self) -> bool {
        self.0.load(Ordering::SeqCst)
    }

    /// Revokes the memory. The caller then waits for the epochs and for the users.
    pub(crate) fn revoke(&self) {
        self.0.store(false, Ordering::SeqCst);
    }
}

/// Number of application threads that access memory, alone in its cache lines.
#[derive(Debug)]
#[repr(align(128))]
pub(crate) struct UserCount(AtomicUsize);

impl UserCount {
    pub(crate) fn new() -> Self {
        Self(AtomicUsize::new(0))
    }

    /// Counts a thread, which then checks whether the memory is live.
    #[inline]
    pub(crate) fn join(&self) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }

    /// Removes a thread that has joined.
    #[inline]
    pub(crate) fn leave(&self) {
        self.0.fetch_sub(1, Ordering::Release);
    }

    /// Waits until all threads that have joined by now have left. The caller has revoked the memory before.
    pub(crate) fn wait(&self) {
        wait_until(|| self.0.load(Ordering::SeqCst) == 0);
    }
}

/// Spins a little, then lets other threads run: the condition becomes true within microseconds unless the thread that
/// makes it true waits for a CPU.
pub(crate) fn wait_until(mut is_done: impl FnMut() -> bool) {
    const MAX_SPINS: usize = 100;
    let mut spins = 0;
    while !is_done() {
        if spins < MAX_SPINS {
            spins += 1;
            spin_loop();
        } else {
            yield_now();
        }
    }
}

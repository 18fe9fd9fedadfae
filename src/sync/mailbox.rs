//! A bounded mailbox: several threads add items; its owner sleeps on a signal and takes all of them.
//!
//! ```text
//! sender, under the lock          owner
//! push                            sleep on the signal
//! count = n         (release)     count?              (acquire)
//! n = 1: ring                       0: nothing to take
//!                                 under the lock: count = 0, silence the signal, take all
//! ```
//!
//! The signal is raised whenever the lock is free and the mailbox has items: both change under the lock. So an owner
//! that finds a count of 0 may sleep, however old that value is. The count only saves an owner that polls the lock.

use std::collections::VecDeque;
use std::sync::PoisonError;
use std::sync::atomic::Ordering;

use super::primitives::{AtomicUsize, Mutex, MutexGuard};
use super::signal::Signal;

/// Items for one thread.
#[derive(Debug)]
pub(crate) struct Mailbox<T, S> {
    items: Mutex<Items<T>>,
    /// Number of items, readable without the lock.
    count: AtomicUsize,
    signal: S,
    /// Maximum bytes of all items.
    max_bytes: usize,
}

#[derive(Debug)]
struct Items<T> {
    waiting: VecDeque<T>,
    bytes: usize,
}

impl<T> Items<T> {
    const fn new() -> Self {
        Self { waiting: VecDeque::new(), bytes: 0 }
    }
}

impl<T, S: Signal> Mailbox<T, S> {
    /// Returns an empty mailbox for items of `max_bytes` in total, which rings `signal`.
    pub(crate) fn new(signal: S, max_bytes: usize) -> Self {
        let items = Mutex::new(Items::new());
        Self { items, count: AtomicUsize::new(0), signal, max_bytes }
    }

    /// Returns the signal that the owner sleeps on.
    pub(crate) fn signal(&self) -> &S {
        &self.signal
    }

    /// Adds an item of `bytes`. Returns false if there is no room.
    pub(crate) fn put(&self, item: T, bytes: usize) -> bool {
        let mut items = self.lock();
        if items.bytes + bytes > self.max_bytes {
            return false;
        }
        items.bytes += bytes;
        items.waiting.push_back(item);
        self.count.store(items.waiting.len(), Ordering::Release);
        if items.waiting.len() == 1 {
            self.signal.ring();
        }
        true
    }

    /// Takes all items, in order.
    pub(crate) fn take(&self) -> VecDeque<T> {
        if self.count.load(Ordering::Acquire) == 0 {
            return VecDeque::new();
        }
        let mut items = self.lock();
        self.count.store(0, Ordering::Release);
        self.signal.silence();
        std::mem::replace(&mut *items, Items::new()).waiting
    }

    fn lock(&self) -> MutexGuard<'_, Items<T>> {
        self.items.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

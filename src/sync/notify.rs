//! Notification requests: an armed queue that gets an item is announced, or the thread that armed it finds the item.
//!
//! The producer and the consumer each write one word and then read the word of the other:
//!
//! ```text
//! producer                        consumer
//! put items in, under the lock    request = Any        (SeqCst)
//! count = n          (SeqCst)     count?               (SeqCst)
//! request?           (SeqCst)       0: sleep until the announcement
//!   not No: announce              take items, under the lock
//! ```
//!
//! All four accesses have a place in the one total order of `SeqCst` operations. A producer that reads `No` precedes
//! the request in that order, so its count precedes the consumer's look, which finds it. With acquire and release
//! alone both may read the old value, and the item stays in the queue unannounced.

use std::sync::atomic::Ordering;

use super::primitives::{AtomicU8, AtomicUsize};

/// The number of items in a queue, for a look without the queue's lock. Only a thread that holds the lock writes it.
#[derive(Debug)]
pub(crate) struct ItemCount(AtomicUsize);

impl ItemCount {
    pub(crate) fn new() -> Self {
        Self(AtomicUsize::new(0))
    }

    /// Publishes the number after items were added. The caller then reads the notification request.
    #[inline]
    pub(crate) fn publish(&self, count: usize) {
        self.0.store(count, Ordering::SeqCst);
    }

    /// Lowers the number after items were removed. No thread waits for that.
    #[inline]
    pub(crate) fn lower(&self, count: usize) {
        self.0.store(count, Ordering::Relaxed);
    }

    /// Returns whether the queue has no items. A consumer that has armed the queue can rely on the result.
    #[inline]
    pub(crate) fn is_zero(&self) -> bool {
        self.0.load(Ordering::SeqCst) == 0
    }
}

/// Item that a queue announces.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub(crate) enum Armed {
    /// None.
    No = 0,
    /// The next completion that is solicited or an error.
    Solicited = 1,
    /// The next one.
    Any = 2,
}

/// A consumer's notification request.
#[derive(Debug)]
pub(crate) struct NotifyRequest(AtomicU8);

impl NotifyRequest {
    pub(crate) fn new() -> Self {
        Self(AtomicU8::new(Armed::No as u8))
    }

    /// Requests a notification of this kind, or of the wider one requested before. The consumer then checks the queue
    /// once more.
    #[inline]
    pub(crate) fn arm(&self, armed: Armed) {
        self.0.fetch_max(armed as u8, Ordering::SeqCst);
    }

    /// Returns the current request. The producer reads it after [`ItemCount::publish`].
    #[inline]
    pub(crate) fn get(&self) -> Armed {
        match self.0.load(Ordering::SeqCst) {
            0 => Armed::No,
            1 => Armed::Solicited,
            _ => Armed::Any,
        }
    }

    /// Ends the request. Of several producers that end it at once, one gets true and announces.
    #[inline]
    pub(crate) fn disarm(&self) -> bool {
        self.0.swap(Armed::No as u8, Ordering::SeqCst) != Armed::No as u8
    }
}

//! When the threads of a shard last did what others ask about.

use std::sync::atomic::AtomicU64;

/// Times of the last events, in nanoseconds.
#[derive(Debug, Default)]
pub(super) struct LastTimes {
    /// The owner of the lock has read the clock.
    pub(super) read: AtomicU64,
    /// A thread other than the device's has begun a turn.
    pub(super) turn: AtomicU64,
    /// A thread has posted send requests.
    pub(super) post: AtomicU64,
}

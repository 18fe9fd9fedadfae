//! The shards of a device, and the selection of one for a call.
//!
//! No thread ever holds the locks of two shards: a call that affects several takes one lock after the other.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::runtime::device_error::DeviceError;
use crate::runtime::queue::{OnSignal, Queue, WaitOutcome};
use crate::runtime::shard::Shard;
use crate::runtime::shard_set::ShardSet;
use crate::runtime::signals;
use crate::time::Instant;

/// The shards of a device, at least one.
#[derive(Debug)]
pub(crate) struct Shards {
    all: Box<[Arc<Shard>]>,
    /// Number of objects assigned to shards in round-robin order.
    next: AtomicUsize,
}

impl Shards {
    /// Joins shards; they get the indices 0, 1, 2, …
    pub(super) fn new(all: impl IntoIterator<Item = Shard>) -> Arc<Self> {
        let all = all.into_iter().map(Arc::new).collect();
        let shards = Arc::new(Self { all, next: AtomicUsize::new(0) });
        debug_assert!(!shards.all.is_empty(), "a device without a shard");
        if !shards.is_one() {
            shards.iter().for_each(|shard| shard.join(&shards.all));
        }
        shards
    }

    /// Returns whether there is only one.
    pub(crate) fn is_one(&self) -> bool {
        self.all.len() == 1
    }

    /// Returns the first shard, which has the state that a device has once: event queues of contexts, interfaces.
    pub(crate) fn first(&self) -> &Arc<Shard> {
        &self.all[0]
    }

    pub(crate) fn iter(&self) -> std::slice::Iter<'_, Arc<Shard>> {
        self.all.iter()
    }

    /// Returns the shard with this index, modulo their number.
    pub(crate) fn at(&self, index: usize) -> &Arc<Shard> {
        &self.all[index % self.all.len()]
    }

    /// Returns the shard for a new object, in round-robin order.
    pub(crate) fn next(&self) -> &Arc<Shard> {
        self.at(self.next.fetch_add(1, Ordering::Relaxed))
    }

    /// Returns the shards of a set.
    pub(super) fn among(&self, set: ShardSet) -> impl Iterator<Item = &Arc<Shard>> {
        self.iter().filter(move |shard| set.contains(shard.index()))
    }

    /// Takes a turn of each shard that fills `queue`, for a caller that found it empty.
    pub(crate) fn turn_for<T>(
        &self,
        feeders: ShardSet,
        queue: &Queue<T>,
    ) -> Result<(), DeviceError> {
        if self.is_one() {
            return self.first().turn_for(queue);
        }
        self.among(feeders).try_for_each(|shard| shard.turn_for(queue))
    }

    /// Waits for an item in `queue`, until `until`. The caller drives one of the shards that fill it, if possible one
    /// without a driver. The others are driven by other threads.
    pub(crate) fn wait<T>(
        &self,
        feeders: ShardSet,
        queue: &Queue<T>,
        until: Option<Instant>,
        on_signal: OnSignal,
    ) -> Result<WaitOutcome<T>, DeviceError> {
        // In most cases there is an item already.
        if self.check().is_ok()
            && let Some(item) = queue.pop()
        {
            return Ok(WaitOutcome::Item(item));
        }
        if on_signal == OnSignal::AsRead && until.is_none() && signals::are_mixed() {
            return self.wait_without_driving(feeders, queue);
        }
        if self.is_one() || self.check().is_err() {
            return self.first().wait(queue, until, on_signal);
        }
        let free = self.among(feeders).find(|shard| !shard.is_driven());
        let driven = free.or_else(|| self.among(feeders).next()).unwrap_or(self.first());
        let these = feeders.without(ShardSet::of(driven.index()));
        self.register_waiter(these);
        let _waiter = WaiterGuard { shards: self, these };
        driven.wait(queue, until, on_signal)
    }

    /// Waits for an item in `queue` without driving, in a call that the kernel restarts or not, as the handler of the
    /// signal requires.
    fn wait_without_driving<T>(
        &self,
        feeders: ShardSet,
        queue: &Queue<T>,
    ) -> Result<WaitOutcome<T>, DeviceError> {
        self.check()?;
        self.register_waiter(feeders);
        let _waiter = WaiterGuard { shards: self, these: feeders };
        self.first().block(queue, None, OnSignal::AsRead)
    }

    /// Registers a waiter at these shards, which it does not drive, until
    /// [`unregister_waiter`](Self::unregister_waiter).
    pub(crate) fn register_waiter(&self, these: ShardSet) {
        self.among(these).for_each(|shard| shard.register_waiter());
    }

    /// Ends [`register_waiter`](Self::register_waiter).
    pub(crate) fn unregister_waiter(&self, these: ShardSet) {
        self.among(these).for_each(|shard| shard.unregister_waiter());
    }

    /// Returns an error if the device cannot be used. If one shard has failed, all have.
    pub(crate) fn check(&self) -> Result<(), DeviceError> {
        self.first().check()
    }

    /// Sends pending packets.
    pub(crate) fn flush(&self) {
        for shard in self.iter() {
            // A failed device sends nothing.
            let _ = shard.with(|core, now| core.flush(now));
        }
    }
}

/// Registration of a waiter at shards that it does not drive.
struct WaiterGuard<'a> {
    shards: &'a Shards,
    these: ShardSet,
}

impl Drop for WaiterGuard<'_> {
    fn drop(&mut self) {
        self.shards.unregister_waiter(self.these);
    }
}

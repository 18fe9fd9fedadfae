//! Epochs of engines, each with the staging buffer of its engine. [`crate::sync::epoch`] documents the protocol.

use std::sync::Arc;

use super::stage::StagingBuffer;
use crate::sync::epoch::{self, Epochs};

/// The epoch of one engine.
#[derive(Debug)]
pub(super) struct Epoch {
    own: Arc<epoch::Epoch>,
    all: Arc<Epochs>,
}

impl Epoch {
    pub(super) fn new(epochs: &Arc<Epochs>) -> Self {
        Self { own: epochs.register(), all: Arc::clone(epochs) }
    }

    /// Begins an epoch, which lasts until the guard is dropped. `stage` belongs to the same engine.
    #[inline]
    pub(super) fn enter<'a>(&'a mut self, stage: &'a mut StagingBuffer) -> StagedEpoch<'a> {
        let number = self.own.begin();
        stage.begin();
        StagedEpoch { own: &self.own, all: &self.all, number, stage }
    }
}

impl Drop for Epoch {
    fn drop(&mut self) {
        self.all.unregister(&self.own);
    }
}

/// An epoch during which one engine copies. Dropping the guard writes the staging buffer to memory and ends the
/// epoch.
#[derive(Debug)]
pub(super) struct StagedEpoch<'a> {
    own: &'a epoch::Epoch,
    all: &'a Epochs,
    number: u64,
    /// Staging buffer for memory that the system copies.
    pub(super) stage: &'a StagingBuffer,
}

impl StagedEpoch<'_> {
    /// Returns whether threads that revoke memory of `epochs` wait for this guard.
    #[inline]
    pub(super) fn is_of(&self, epochs: &Epochs) -> bool {
        std::ptr::eq(self.all, epochs)
    }
}

impl Drop for StagedEpoch<'_> {
    #[inline]
    fn drop(&mut self) {
        // A caller that needs the result has called `EpochGuard::write_out`.
        let _ = self.stage.write_out();
        self.own.end(self.number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ended_epochs_are_not_waited_for() {
        let epochs = Arc::new(Epochs::new());
        let (mut epoch, mut stage) = (Epoch::new(&epochs), StagingBuffer::default());
        epochs.wait();
        drop(epoch.enter(&mut stage));
        epochs.wait();
    }

    #[test]
    fn epoch_after_a_forgotten_guard_is_another() {
        let epochs = Arc::new(Epochs::new());
        let (mut epoch, mut stage) = (Epoch::new(&epochs), StagingBuffer::default());
        std::mem::forget(epoch.enter(&mut stage));
        let before = epoch.own.number();
        let guard = epoch.enter(&mut stage);
        assert_eq!((guard.number % 2, guard.number - before), (1, 2));
        drop(guard);
        epochs.wait();
    }

    #[test]
    fn dropped_epoch_is_unregistered() {
        let epochs = Arc::new(Epochs::new());
        let (first, second) = (Epoch::new(&epochs), Epoch::new(&epochs));
        drop(first);
        assert_eq!(epochs.len(), 1);
        drop(second);
        assert_eq!(epochs.len(), 0);
    }
}

//! Epoch guards: permission of an engine to access registered memory. Deregistration waits for them
//! ([`crate::sync::epoch`]).

use std::cell::OnceCell;
use std::fmt;
use std::sync::Arc;

use super::epoch::{Epoch, StagedEpoch};
use super::error::Revoked;
use super::region::Region;
use super::stage::StagingBuffer;
use crate::ids::PdId;
use crate::sync::epoch::Epochs;

/// Handle of an engine for its epochs. Each engine has one, from
/// [`Memory::epoch_handle`](super::Memory::epoch_handle).
pub struct EpochHandle {
    epoch: Epoch,
    stage: StagingBuffer,
}

impl EpochHandle {
    pub(super) fn new(epochs: &Arc<Epochs>) -> Self {
        Self { epoch: Epoch::new(epochs), stage: StagingBuffer::default() }
    }

    /// Begins an epoch: until the guard is dropped, live memory stays in place. Entering costs one atomic exchange,
    /// leaving one store.
    ///
    /// An epoch covers one received buffer or one burst, so deregistration does not wait long. A thread must not
    /// deregister memory while it holds a guard: it would wait for itself.
    pub fn enter(&mut self) -> EpochGuard<'_> {
        EpochGuard { epoch: self.epoch.enter(&mut self.stage), region: OnceCell::new() }
    }
}

/// Omits the number of the epoch, so engines in the same state have the same output.
impl fmt::Debug for EpochHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EpochHandle").finish_non_exhaustive()
    }
}

/// An epoch of one engine, which every access takes as an argument. Dropping the guard ends the epoch.
#[derive(Debug)]
pub struct EpochGuard<'a> {
    pub(super) epoch: StagedEpoch<'a>,
    /// First region of the epoch, which later lookups of [`EpochSpan`](super::EpochSpan) reuse.
    pub(super) region: OnceCell<Arc<Region>>,
}

impl EpochGuard<'_> {
    /// Writes the staged bytes of received packets to memory. Later packets and the end of the epoch do so too, but
    /// without a result.
    ///
    /// # Errors
    /// [`Revoked`] when the memory is no longer accessible.
    #[inline]
    pub(crate) fn write_out(&self) -> Result<(), Revoked> {
        self.epoch.stage.write_out().ok_or(Revoked)
    }

    /// Returns the cached region of this epoch if it has this key and domain, and threads that revoke memory of
    /// `epochs` wait for this epoch.
    #[inline]
    pub(super) fn cached_region(&self, epochs: &Epochs, pd: PdId, key: u32) -> Option<&Region> {
        let region = self.region.get()?;
        let is_it = region.key() == key && region.pd() == pd && region.is_live();
        (is_it && self.epoch.is_of(epochs)).then_some(region)
    }
}

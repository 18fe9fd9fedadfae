//! Epoch guards: permission of an engine to access registered memory. Deregistration waits for them
//! ([`crate::sync::epoch`]).

use std::cell::{OnceCell, RefCell};
use std::fmt;
use std::sync::{Arc, Weak};

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
    /// Region that an epoch has looked up last. It is not kept registered or allocated.
    recent: RefCell<Weak<Region>>,
}

impl EpochHandle {
    pub(super) fn new(epochs: &Arc<Epochs>) -> Self {
        Self {
            epoch: Epoch::new(epochs),
            stage: StagingBuffer::default(),
            recent: RefCell::default(),
        }
    }

    /// Begins an epoch: until the guard is dropped, live memory stays in place. Entering costs one atomic exchange,
    /// leaving one store.
    ///
    /// An epoch covers one received buffer or one burst, so deregistration does not wait long. A thread must not
    /// deregister memory while it holds a guard: it would wait for itself.
    pub fn enter(&mut self) -> EpochGuard<'_> {
        let epoch = self.epoch.enter(&mut self.stage);
        EpochGuard { epoch, region: OnceCell::new(), recent: &self.recent }
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
    /// First region of an earlier epoch.
    recent: &'a RefCell<Weak<Region>>,
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

    /// Returns the region with this key and domain if this epoch or the last one has looked it up. It is live, and
    /// threads that revoke memory of `epochs` wait for this epoch.
    #[inline]
    pub(super) fn cached_region(&self, epochs: &Epochs, pd: PdId, key: u32) -> Option<&Region> {
        if !self.epoch.is_of(epochs) {
            return None;
        }
        match self.region.get() {
            Some(region) => is_live_region(region, pd, key).then_some(region),
            None => self.recent_region(pd, key),
        }
    }

    /// Returns the region with this key and domain that an earlier epoch has looked up, and caches it for this epoch.
    #[inline(never)]
    fn recent_region(&self, pd: PdId, key: u32) -> Option<&Region> {
        let recent = self.recent.borrow().upgrade()?;
        is_live_region(&recent, pd, key).then(|| &**self.region.get_or_init(|| recent))
    }

    /// Caches a region that was looked up, unless the epoch has one. Returns the cached one, or the argument.
    pub(super) fn cache(&self, region: Arc<Region>) -> Result<&Region, Arc<Region>> {
        if self.region.get().is_some() {
            return Err(region);
        }
        *self.recent.borrow_mut() = Arc::downgrade(&region);
        Ok(self.region.get_or_init(|| region))
    }
}

/// Returns whether a region has this key and domain and is live.
#[inline]
fn is_live_region(region: &Region, pd: PdId, key: u32) -> bool {
    region.key() == key && region.pd() == pd && region.is_live()
}

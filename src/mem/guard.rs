//! Epoch guards: an engine accesses registered memory while it has one. Deregistration waits for it
//! ([`crate::sync::epoch`]).

use std::cell::OnceCell;
use std::fmt;
use std::sync::Arc;

use super::epoch::{Epoch, StagedEpoch};
use super::error::Revoked;
use super::region::Region;
use super::stage::Stage;
use crate::ids::PdId;
use crate::sync::epoch::Epochs;

/// The epoch of an engine, by which it gets access to memory. Each engine has one, from
/// [`Memory::epoch_handle`](super::Memory::epoch_handle).
pub struct EpochHandle {
    epoch: Epoch,
    stage: Stage,
}

impl EpochHandle {
    pub(super) fn new(epochs: &Arc<Epochs>) -> Self {
        Self { epoch: Epoch::new(epochs), stage: Stage::default() }
    }

    /// Begins an epoch: until the guard is dropped, memory that is live stays in place. Costs one exchange; the end costs
    /// a store.
    ///
    /// An epoch is short, a received buffer or a burst, because deregistration waits for its end. The thread that has the
    /// guard must not deregister memory: it would wait for itself.
    pub fn enter(&mut self) -> EpochGuard<'_> {
        EpochGuard { epoch: self.epoch.enter(&mut self.stage), region: OnceCell::new() }
    }
}

/// Without the number of the epoch, which counts accesses and changes nothing: engines in the same state print the same.
impl fmt::Debug for EpochHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EpochHandle").finish_non_exhaustive()
    }
}

/// An epoch of one engine, which every access takes as an argument. Dropping the guard ends it.
#[derive(Debug)]
pub struct EpochGuard<'a> {
    pub(super) epoch: StagedEpoch<'a>,
    /// The first region that was looked up for a [`Reach`](super::Reach) in this epoch.
    pub(super) region: OnceCell<Arc<Region>>,
}

impl EpochGuard<'_> {
    /// Writes what packets have brought and is not in memory yet. What comes behind them would do that, and
    /// so would the end of the epoch; this says whether it went well.
    ///
    /// # Errors
    /// [`Revoked`] when the bytes are not there any more.
    #[inline]
    pub(crate) fn write_out(&self) -> Result<(), Revoked> {
        self.epoch.stage.write_out().ok_or(Revoked)
    }

    /// The region that was looked up before in this epoch, if the key finds it and a thread that
    /// revokes memory of `epochs` waits for this epoch.
    #[inline]
    pub(super) fn held(&self, epochs: &Epochs, pd: PdId, key: u32) -> Option<&Region> {
        let region = self.region.get()?;
        let is_it = region.key() == key && region.pd() == pd && region.is_live();
        (is_it && self.epoch.is_of(epochs)).then_some(region)
    }
}

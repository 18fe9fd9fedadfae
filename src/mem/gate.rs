//! Turns: the spans of time in which one engine copies. Deregistration waits for them by their
//! [epochs](super::epoch).

use std::cell::OnceCell;
use std::fmt;
use std::sync::Arc;

use super::epoch::{Epoch, EpochGuard};
use super::error::Revoked;
use super::region::Region;
use super::stage::Stage;
use crate::ids::PdId;
use crate::sync::epoch::Epochs;

/// An engine's way into turns. Made by [`Memory::gate`](super::Memory::gate), one an engine.
pub struct Gate {
    epoch: Epoch,
    stage: Stage,
}

impl Gate {
    pub(super) fn new(epochs: &Arc<Epochs>) -> Self {
        Self { epoch: Epoch::new(epochs), stage: Stage::default() }
    }

    /// Opens a turn: while it lasts, what is live stays in place. Costs one exchange; closing it is
    /// a store.
    ///
    /// Keep it short, a received buffer or a burst: deregistration waits for it. The thread that
    /// holds it must not deregister, it would wait for itself.
    pub fn enter(&mut self) -> Turn<'_> {
        Turn { epoch: self.epoch.enter(&mut self.stage), region: OnceCell::new() }
    }
}

impl fmt::Debug for Gate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Gate").field("epoch", &self.epoch).finish_non_exhaustive()
    }
}

/// An open turn of one engine. Copies ask for it; dropping it closes it.
#[derive(Debug)]
pub struct Turn<'a> {
    pub(super) epoch: EpochGuard<'a>,
    /// The first that was looked up for a [`Reach`](super::Reach).
    pub(super) region: OnceCell<Arc<Region>>,
}

impl Turn<'_> {
    /// Writes what packets have brought and is not in memory yet. What comes behind them would do that, and
    /// so would the end of the turn; this says whether it went well.
    ///
    /// # Errors
    /// [`Revoked`] when the bytes are not there any more.
    #[inline]
    pub(crate) fn write_out(&self) -> Result<(), Revoked> {
        self.epoch.stage.write_out().ok_or(Revoked)
    }

    /// The region that was looked up before in this turn, if the key finds it and a thread that
    /// revokes memory of `epochs` waits for this turn.
    #[inline]
    pub(super) fn held(&self, epochs: &Epochs, pd: PdId, key: u32) -> Option<&Region> {
        let region = self.region.get()?;
        let is_it = region.key() == key && region.pd() == pd && region.is_live();
        (is_it && self.epoch.is_of(epochs)).then_some(region)
    }
}

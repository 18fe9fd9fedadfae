//! Turns: how deregistration knows that no engine is still copying.
//!
//! Each engine has a slot with an epoch, odd while a turn is open. Deregistration and a turn that
//! opens at the same moment must not miss each other:
//!
//! ```text
//! engine                          deregistration
//! epoch = odd      (SeqCst)       live = false     (SeqCst)
//! live?            (SeqCst)       epoch odd?       (SeqCst)
//! ```
//!
//! All four are in the one total order of `SeqCst` operations, so either the engine finds the region
//! dead, or deregistration finds the turn open and waits until the epoch moves. The epoch moves by
//! release stores that come after the turn's copies, so whoever sees it move has the copies behind
//! it.

use std::cell::OnceCell;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError};
use std::{fmt, hint, thread};

use super::error::Revoked;
use super::region::Region;
use super::stage::Stage;
use crate::ids::PdId;
use crate::sync::Mutex;

/// An engine's way into turns. Made by [`Memory::gate`](super::Memory::gate), one an engine.
pub struct Gate {
    slot: Arc<Slot>,
    gates: Arc<Gates>,
    stage: Stage,
}

impl Gate {
    pub(super) fn new(gates: &Arc<Gates>) -> Self {
        let slot = Arc::new(Slot { epoch: AtomicU64::new(0) });
        gates.slots().push(Arc::clone(&slot));
        Self { slot, gates: Arc::clone(gates), stage: Stage::default() }
    }

    /// Opens a turn: while it lasts, what is live stays in place. Costs one exchange; closing it is
    /// a store.
    ///
    /// Keep it short, a received buffer or a burst: deregistration waits for it. The thread that
    /// holds it must not deregister, it would wait for itself.
    pub fn enter(&mut self) -> Turn<'_> {
        // One further on and odd, also when a turn was forgotten and left the epoch odd: nobody may
        // take the new turn for the old one, and nobody need wait for the old one, which the
        // exclusive borrow shows to be out of reach.
        let epoch = (self.slot.epoch.load(Ordering::Relaxed) + 1) | 1;
        self.slot.epoch.swap(epoch, Ordering::SeqCst);
        self.stage.begin();
        let (slot, gates, stage) = (&*self.slot, &*self.gates, &self.stage);
        Turn { slot, gates, epoch, region: OnceCell::new(), stage }
    }
}

impl Drop for Gate {
    fn drop(&mut self) {
        self.gates.slots().retain(|slot| !Arc::ptr_eq(slot, &self.slot));
    }
}

impl fmt::Debug for Gate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Gate").field("epoch", &self.slot.epoch).finish_non_exhaustive()
    }
}

/// An open turn of one engine. Copies ask for it; dropping it closes it.
#[derive(Debug)]
pub struct Turn<'a> {
    slot: &'a Slot,
    gates: &'a Gates,
    epoch: u64,
    /// The first that was looked up for a [`Reach`](super::Reach).
    pub(super) region: OnceCell<Arc<Region>>,
    /// Memory that the system copies passes through it.
    pub(super) stage: &'a Stage,
}

impl Turn<'_> {
    /// Writes what packets have brought and is not in memory yet. What comes behind them would do that, and
    /// so would the end of the turn; this says whether it went well.
    ///
    /// # Errors
    /// [`Revoked`] when the bytes are not there any more.
    #[inline]
    pub(crate) fn write_out(&self) -> Result<(), Revoked> {
        self.stage.write_out().ok_or(Revoked)
    }

    /// The region that was looked up before in this turn, if the key finds it and memory revoked through
    /// `gates` waits for this turn.
    #[inline]
    pub(super) fn held(&self, gates: &Gates, pd: PdId, key: u32) -> Option<&Region> {
        let region = self.region.get()?;
        let is_it = region.key() == key && region.pd() == pd && region.is_live();
        (is_it && self.holds_up(gates)).then_some(region)
    }

    /// Whether memory revoked through `gates` waits for this turn.
    #[inline]
    pub(super) fn holds_up(&self, gates: &Gates) -> bool {
        std::ptr::eq(self.gates, gates)
    }
}

impl Drop for Turn<'_> {
    #[inline]
    fn drop(&mut self) {
        // Who wants to know has asked.
        let _ = self.write_out();
        self.slot.epoch.store(self.epoch + 1, Ordering::Release);
    }
}

/// The slots of all engines that share a key table.
#[derive(Default, Debug)]
pub(super) struct Gates {
    slots: Mutex<Vec<Arc<Slot>>>,
}

impl Gates {
    /// Waits until every turn that is open now has been closed.
    ///
    /// A gate made later opens turns later; the lock orders it after the caller's mark.
    pub(super) fn wait_for_turns(&self) {
        let slots = self.slots().clone();
        for slot in &slots {
            let epoch = slot.epoch.load(Ordering::SeqCst);
            if epoch % 2 == 1 {
                wait_until(|| slot.epoch.load(Ordering::SeqCst) != epoch);
            }
        }
    }

    fn slots(&self) -> std::sync::MutexGuard<'_, Vec<Arc<Slot>>> {
        self.slots.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// One engine's epoch, alone in its cache lines.
#[derive(Debug)]
#[repr(align(128))]
struct Slot {
    epoch: AtomicU64,
}

/// Spins a little, then lets others run: what is waited for takes microseconds unless its thread
/// has lost the CPU.
pub(super) fn wait_until(mut done: impl FnMut() -> bool) {
    let mut spins = 0;
    while !done() {
        if spins < 100 {
            spins += 1;
            hint::spin_loop();
        } else {
            thread::yield_now();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn closed_turns_are_not_waited_for() {
        let gates = Arc::new(Gates::default());
        let mut gate = Gate::new(&gates);
        gates.wait_for_turns();
        drop(gate.enter());
        gates.wait_for_turns();
    }

    #[test]
    fn a_forgotten_turn_does_not_make_the_next_one_look_closed() {
        let gates = Arc::new(Gates::default());
        let mut gate = Gate::new(&gates);
        std::mem::forget(gate.enter());
        let before = gate.slot.epoch.load(Ordering::Relaxed);
        let turn = gate.enter();
        assert_eq!((turn.epoch % 2, turn.epoch - before), (1, 2));
        drop(turn);
        gates.wait_for_turns();
    }

    #[test]
    fn a_dropped_gate_is_forgotten() {
        let gates = Arc::new(Gates::default());
        let (first, second) = (Gate::new(&gates), Gate::new(&gates));
        drop(first);
        assert_eq!(gates.slots().len(), 1);
        drop(second);
        assert_eq!(gates.slots().len(), 0);
    }
}

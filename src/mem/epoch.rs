//! Epochs: how deregistration knows that no engine is still copying.
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

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError};
use std::{hint, thread};

use super::stage::Stage;
use crate::sync::Mutex;

/// The epoch of one engine.
pub(super) struct Epoch {
    slot: Arc<Slot>,
    gates: Arc<Gates>,
}

impl Epoch {
    pub(super) fn new(gates: &Arc<Gates>) -> Self {
        let slot = Arc::new(Slot { epoch: AtomicU64::new(0) });
        gates.slots().push(Arc::clone(&slot));
        Self { slot, gates: Arc::clone(gates) }
    }

    /// Makes the epoch odd until the guard is dropped. `stage` belongs to the same engine.
    #[inline]
    pub(super) fn enter<'a>(&'a mut self, stage: &'a mut Stage) -> EpochGuard<'a> {
        // The new epoch is odd and differs from the old one, which is odd when a guard was forgotten. A waiter
        // for the forgotten guard need not wait for the new one: the exclusive borrow shows that the
        // old guard is out of reach.
        let epoch = (self.slot.epoch.load(Ordering::Relaxed) + 1) | 1;
        self.slot.epoch.swap(epoch, Ordering::SeqCst);
        stage.begin();
        EpochGuard { slot: &self.slot, gates: &self.gates, epoch, stage }
    }

    /// The number, which is odd while a guard exists.
    pub(super) fn number(&self) -> &AtomicU64 {
        &self.slot.epoch
    }
}

impl Drop for Epoch {
    fn drop(&mut self) {
        self.gates.slots().retain(|slot| !Arc::ptr_eq(slot, &self.slot));
    }
}

/// An epoch during which one engine copies. Dropping the guard writes what the stage holds, and ends the epoch.
#[derive(Debug)]
pub(super) struct EpochGuard<'a> {
    slot: &'a Slot,
    gates: &'a Gates,
    epoch: u64,
    /// Memory that the system copies passes through it.
    pub(super) stage: &'a Stage,
}

impl EpochGuard<'_> {
    /// Whether memory revoked through `gates` waits for this guard.
    #[inline]
    pub(super) fn holds_up(&self, gates: &Gates) -> bool {
        std::ptr::eq(self.gates, gates)
    }
}

impl Drop for EpochGuard<'_> {
    #[inline]
    fn drop(&mut self) {
        // A caller that needs the result has called `Turn::write_out`.
        let _ = self.stage.write_out();
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
        let (mut epoch, mut stage) = (Epoch::new(&gates), Stage::default());
        gates.wait_for_turns();
        drop(epoch.enter(&mut stage));
        gates.wait_for_turns();
    }

    #[test]
    fn a_forgotten_turn_does_not_make_the_next_one_look_closed() {
        let gates = Arc::new(Gates::default());
        let (mut epoch, mut stage) = (Epoch::new(&gates), Stage::default());
        std::mem::forget(epoch.enter(&mut stage));
        let before = epoch.number().load(Ordering::Relaxed);
        let turn = epoch.enter(&mut stage);
        assert_eq!((turn.epoch % 2, turn.epoch - before), (1, 2));
        drop(turn);
        gates.wait_for_turns();
    }

    #[test]
    fn a_dropped_gate_is_forgotten() {
        let gates = Arc::new(Gates::default());
        let (first, second) = (Epoch::new(&gates), Epoch::new(&gates));
        drop(first);
        assert_eq!(gates.slots().len(), 1);
        drop(second);
        assert_eq!(gates.slots().len(), 0);
    }
}

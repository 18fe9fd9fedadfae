//! List of items that need a last action when the process ends, perhaps in a signal handler.
//!
//! A walk through the list is async-signal-safe: it allocates nothing and waits for no lock. The signal may have
//! interrupted a thread that changes the list, so each item has a lock of its own, and the walk omits items with a held
//! lock:
//!
//! ```text
//! insert                            remove                           walk
//! take a free place                 lock the place: take the item    each place: try to lock it
//! lock the place: put the item in   free the place                     locked: act on the item
//! ```
//!
//! - The lock of a place is held only to insert or remove its own item, or by another walk. So a walk finds each item
//!   whose insertion has returned and whose removal has not begun, whatever happens to other items.
//! - A place is free only when it is empty: it is freed after its item was taken, and taken before an item is put in. So
//!   no insertion replaces an item, and no removal takes the item of another.
//! - All memory is allocated with the list, which a static keeps reachable.

use std::sync::PoisonError;

use super::primitives::{Mutex, MutexGuard};

/// Items that need an action when the process ends.
#[derive(Debug)]
pub(crate) struct ExitList<T> {
    places: Box<[Mutex<Option<T>>]>,
    /// Indices of empty slots.
    free: Mutex<Vec<usize>>,
}

/// Index of an item in an [`ExitList`].
#[derive(Debug)]
pub(crate) struct ExitListIndex(usize);

impl<T> ExitList<T> {
    /// Returns an empty list for `capacity` items.
    pub(crate) fn new(capacity: usize) -> Self {
        let places = (0..capacity).map(|_| Mutex::new(None)).collect();
        Self { places, free: Mutex::new((0..capacity).rev().collect()) }
    }

    /// Adds an item. Returns `None` if the list is full: no walk will find the item.
    pub(crate) fn insert(&self, item: T) -> Option<ExitListIndex> {
        let index = self.free().pop()?;
        *self.slot(index) = Some(item);
        Some(ExitListIndex(index))
    }

    /// Removes an item. Waits for a walk that acts on it.
    pub(crate) fn remove(&self, slot: ExitListIndex) {
        let item = self.slot(slot.0).take();
        self.free().push(slot.0);
        drop(item);
    }

    /// Calls `act` for each item that no other thread inserts, removes or acts on at the moment.
    pub(crate) fn walk(&self, mut act: impl FnMut(&T)) {
        for slot in &self.places {
            if let Ok(item) = slot.try_lock()
                && let Some(item) = &*item
            {
                act(item);
            }
        }
    }

    fn slot(&self, index: usize) -> MutexGuard<'_, Option<T>> {
        self.places[index].lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn free(&self) -> MutexGuard<'_, Vec<usize>> {
        self.free.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

//! Claims: each key has one owner at a time. Devices claim their addresses so.
//!
//! ```text
//!           claim            enter           last handle dropped           release
//! no entry ───────▶ pending ───────▶ owner ─────────────────────▶ closing ─────────▶ no entry
//! ```
//!
//! The caller that claims keys is the only one that opens their owner. Other threads wait while the owner is being
//! opened or closed, and get a handle of it in between. All keys of an owner are claimed at once or none, so two threads
//! that want several keys in different order do not wait for each other.
//!
//! - A thread looks at the entries and begins to wait under one lock, under which all entries change. So a change is seen
//!   by the look, or its notification comes after the wait began.
//! - `enter` and `release` notify all threads, because each of these may wait for another key.
//! - The owner closes what it has opened before it calls `release`. The lock orders that before the next claim.
//! - A handle is never dropped under the lock: if it is the last one, its drop ends with `release`.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::{Arc, PoisonError, Weak};

use super::primitives::{Condvar, Mutex, MutexGuard};

/// Something that lives as long as it has handles.
pub(crate) trait Owner: Clone {
    type Handle;

    /// Returns a handle, unless the last one has been dropped.
    fn upgrade(&self) -> Option<Self::Handle>;
}

impl<T> Owner for Weak<T> {
    type Handle = Arc<T>;

    fn upgrade(&self) -> Option<Arc<T>> {
        self.upgrade()
    }
}

/// Keys with their owners.
#[derive(Debug)]
pub(crate) struct Claims<K, O> {
    /// A key without an owner is pending.
    entries: Mutex<HashMap<K, Option<O>>>,
    changed: Condvar,
}

/// The owner of some keys.
#[derive(Debug)]
pub(crate) enum Claimed<K, H> {
    /// The owner of the first of them that has one.
    Owner(K, H),
    /// The caller, from now on. It calls [`Claims::release`] in the end.
    Caller,
}

impl<K: Copy + Eq + Hash, O: Owner> Claims<K, O> {
    pub(crate) fn new() -> Self {
        Self { entries: Mutex::new(HashMap::new()), changed: Condvar::new() }
    }

    /// Finds the owner of the first of these keys that has one, or claims all of them. Waits while that owner is being
    /// opened or closed.
    pub(crate) fn find_or_claim(&self, keys: &[K]) -> Claimed<K, O::Handle> {
        let mut entries = self.lock();
        loop {
            let Some((key, owner)) = first_of(&entries, keys) else {
                claim(&mut entries, keys);
                return Claimed::Caller;
            };
            if let Some(handle) = owner.as_ref().and_then(Owner::upgrade) {
                return Claimed::Owner(key, handle);
            }
            entries = self.changed.wait(entries).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Claims all of these keys if none of them has an entry. Returns whether it has.
    pub(crate) fn claim_free(&self, keys: &[K]) -> bool {
        let mut entries = self.lock();
        let is_free = first_of(&entries, keys).is_none();
        if is_free {
            claim(&mut entries, keys);
        }
        is_free
    }

    /// Makes `owner` the owner of keys that the caller has claimed.
    pub(crate) fn enter(&self, keys: &[K], owner: &O) {
        let mut entries = self.lock();
        entries.extend(keys.iter().map(|key| (*key, Some(owner.clone()))));
        drop(entries);
        self.changed.notify_all();
    }

    /// Ends a claim. The owner has closed what it had opened.
    pub(crate) fn release(&self, keys: &[K]) {
        let mut entries = self.lock();
        for key in keys {
            entries.remove(key);
        }
        drop(entries);
        self.changed.notify_all();
    }

    /// Returns the owner of a key, unless it is being opened or closed.
    pub(crate) fn owner(&self, key: K) -> Option<O::Handle> {
        self.lock().get(&key)?.as_ref()?.upgrade()
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<K, Option<O>>> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Returns the entry of the first of these keys that has one.
fn first_of<'a, K: Copy + Eq + Hash, O>(
    entries: &'a HashMap<K, Option<O>>,
    keys: &[K],
) -> Option<(K, &'a Option<O>)> {
    keys.iter().find_map(|key| entries.get(key).map(|owner| (*key, owner)))
}

fn claim<K: Copy + Eq + Hash, O>(entries: &mut HashMap<K, Option<O>>, keys: &[K]) {
    entries.extend(keys.iter().map(|key| (*key, None)));
}

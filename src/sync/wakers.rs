//! Tasks that wait for an item: each item wakes all of them, and a cancelled future leaves nothing behind.
//!
//! The producer looks at a flag only, unless a task waits. The flag and the producer's [`ItemCount`] are written and
//! read crosswise as in [`notify`]:
//!
//! ```text
//! producer                        task
//! count = n          (SeqCst)     enter the waker, under the lock
//! waiting?           (SeqCst)     waiting = true       (SeqCst)
//!   yes: take all wakers          count?               (SeqCst)
//!   under the lock, wake them       0: pending
//! ```
//!
//! So the producer sees the flag, or the task sees the count. The flag changes under the lock only, and is true
//! whenever a waker is entered: a producer that takes the wakers and a future that is dropped cannot leave another
//! task's waker with the flag down.
//!
//! Each item wakes all tasks. If one of them is cancelled before it looks, the others have been woken too, and none
//! needs to pass the wake-up on.
//!
//! [`ItemCount`]: super::notify::ItemCount
//! [`notify`]: super::notify

use std::collections::BTreeMap;
use std::sync::PoisonError;
use std::sync::atomic::Ordering;
use std::task::Waker;

use super::primitives::{AtomicBool, Mutex, MutexGuard};

/// The wakers of tasks that wait for an item of one queue.
#[derive(Debug)]
pub(crate) struct Wakers {
    registered: Mutex<Registered>,
    /// Whether any waker is registered.
    waiting: AtomicBool,
}

/// The key of a future, under which its waker is registered.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub(crate) struct WakerKey(u64);

#[derive(Debug, Default)]
struct Registered {
    wakers: BTreeMap<WakerKey, Waker>,
    /// The key that was given out last.
    last: WakerKey,
}

impl Wakers {
    pub(crate) fn new() -> Self {
        Self { registered: Mutex::new(Registered::default()), waiting: AtomicBool::new(false) }
    }

    /// Registers the waker of the future with this key, or gives the future a key first. The next item wakes it.
    /// Items that came before wake no task, so the future looks once more.
    pub(crate) fn register(&self, key: &mut Option<WakerKey>, waker: &Waker) {
        let mut registered = self.lock();
        let Registered { wakers, last } = &mut *registered;
        let key = *key.get_or_insert_with(|| {
            last.0 += 1;
            *last
        });
        let known = wakers.get(&key).is_some_and(|known| known.will_wake(waker));
        let replaced = if known { None } else { wakers.insert(key, waker.clone()) };
        self.waiting.store(true, Ordering::SeqCst);
        drop(registered);
        // It may be the last reference to a task, whose futures are dropped with it and come here.
        drop(replaced);
    }

    /// Removes the waker of a future that waits no more.
    pub(crate) fn remove(&self, key: WakerKey) {
        // False since the registration of this key: a producer has taken its waker.
        if !self.is_waiting() {
            return;
        }
        let mut registered = self.lock();
        let removed = registered.wakers.remove(&key);
        if registered.wakers.is_empty() {
            self.waiting.store(false, Ordering::SeqCst);
        }
        drop(registered);
        drop(removed);
    }

    /// Whether any task waits. The producer looks after it has published its items.
    #[inline]
    pub(crate) fn is_waiting(&self) -> bool {
        self.waiting.load(Ordering::SeqCst)
    }

    /// Moves all wakers to `to`. The caller wakes them when it holds no lock: a task may use the queue at once.
    pub(crate) fn take(&self, to: &mut Vec<Waker>) {
        let mut registered = self.lock();
        self.waiting.store(false, Ordering::SeqCst);
        to.extend(std::mem::take(&mut registered.wakers).into_values());
    }

    fn lock(&self) -> MutexGuard<'_, Registered> {
        self.registered.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

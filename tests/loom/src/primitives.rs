//! The `primitives` of `softroce::sync` in this crate: the atomics and locks of loom.
//!
//! loom gives `SeqCst` accesses the meaning of acquire and release, and only `SeqCst` fences their own. So these
//! atomics add the fences that a compiler adds on a machine without `SeqCst` accesses. There are two such mappings:
//! a fence after each `SeqCst` store, or one before each `SeqCst` load. The first finds stores with
//! too weak an ordering, and the second such loads, so each model runs with both.

use std::sync::atomic::{AtomicBool as Flag, Ordering};

pub(crate) use loom::hint::spin_loop;
pub(crate) use loom::sync::atomic::fence;
pub(crate) use loom::sync::{Condvar, Mutex, MutexGuard};
pub(crate) use loom::thread::yield_now;

/// A mapping of `SeqCst` accesses to fences.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum SeqCst {
    FenceAfterStores,
    FenceBeforeLoads,
}

/// Whether the fences stand after stores. Set between models, so loom need not know it.
static AFTER_STORES: Flag = Flag::new(false);

impl SeqCst {
    /// Selects the mapping of the models that run from now on.
    pub(crate) fn select(self) {
        AFTER_STORES.store(self == Self::FenceAfterStores, Ordering::Relaxed);
    }

    /// Stands before an access that reads.
    fn before_load(order: Ordering) {
        if order == Ordering::SeqCst && !AFTER_STORES.load(Ordering::Relaxed) {
            fence(Ordering::SeqCst);
        }
    }

    /// Stands after an access that writes.
    fn after_store(order: Ordering) {
        if order == Ordering::SeqCst && AFTER_STORES.load(Ordering::Relaxed) {
            fence(Ordering::SeqCst);
        }
    }
}

/// An atomic of loom with fences for `SeqCst` accesses.
macro_rules! atomic {
    ($name:ident, $value:ty, $($rmw:ident)*) => {
        #[derive(Debug)]
        pub(crate) struct $name(loom::sync::atomic::$name);

        #[allow(dead_code, reason = "the set of methods is that of the library, whichever are used")]
        impl $name {
            pub(crate) fn new(value: $value) -> Self {
                Self(loom::sync::atomic::$name::new(value))
            }

            pub(crate) fn load(&self, order: Ordering) -> $value {
                SeqCst::before_load(order);
                self.0.load(order)
            }

            pub(crate) fn store(&self, value: $value, order: Ordering) {
                self.0.store(value, order);
                SeqCst::after_store(order);
            }

            $(pub(crate) fn $rmw(&self, value: $value, order: Ordering) -> $value {
                SeqCst::before_load(order);
                let before = self.0.$rmw(value, order);
                SeqCst::after_store(order);
                before
            })*
        }
    };
}

atomic!(AtomicBool, bool, swap);
atomic!(AtomicU8, u8, swap fetch_max);
atomic!(AtomicU64, u64, swap);
atomic!(AtomicUsize, usize, swap fetch_add fetch_sub);

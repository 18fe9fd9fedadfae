//! Forks: the forking thread holds all locks of this library during a fork. Otherwise a lock that another
//! thread holds would stay locked in the child.

use std::cell::RefCell;
use std::sync::Once;

use super::{capture, device};
use crate::border::{EmptySlotsGuard, at_fork, lock_empty_slots};

/// Guards of the locks, in the order of locking.
type Guards = (capture::Guard, device::IpGuard, EmptySlotsGuard);

thread_local! {
    static GUARDS: RefCell<Option<Guards>> = const { RefCell::new(None) };
}

extern "C" fn lock_all() {
    replace_guards(|| Some((capture::lock_file(), device::lock_ip(), lock_empty_slots())));
}

extern "C" fn unlock_all() {
    replace_guards(|| None);
}

/// Drops the guards, and keeps new ones. A thread that ends has no thread-local storage and forks without
/// the locks.
fn replace_guards(new: impl FnOnce() -> Option<Guards>) {
    let _ = GUARDS.try_with(|guards| {
        let Ok(mut guards) = guards.try_borrow_mut() else { return };
        *guards = None;
        *guards = new();
    });
}

/// Installs the hooks, once. Programs get their first handle after that.
pub(crate) fn install_hooks() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| at_fork(lock_all, unlock_all));
}

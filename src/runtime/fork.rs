//! Whether this process is a child that inherited the parent's sockets.

use std::cell::RefCell;
use std::sync::Once;
use std::sync::atomic::{AtomicU32, Ordering};

use crate::runtime::{device, registry};
use crate::sys::at_fork;

static GENERATION: AtomicU32 = AtomicU32::new(0);

/// The generation of this process: how many forks lie between it and the one that loaded the library, counted from
/// the first device on. A device made in another is not this process's: it must not touch its sockets,
/// and its thread does not exist here.
#[inline]
pub fn generation() -> u32 {
    GENERATION.load(Ordering::Relaxed)
}

/// What another thread may have locked when the process forks. In the child it would be so for ever.
type Held = (device::Held, registry::Held);

thread_local! {
    static HELD: RefCell<Option<Held>> = const { RefCell::new(None) };
}

/// Keeps others out, or lets them in again. A thread that is about to end has no place to keep that any more,
/// and forks without.
fn hold(begins: bool) {
    let _ = HELD.try_with(|held| {
        let Ok(mut held) = held.try_borrow_mut() else { return };
        *held = None;
        if begins {
            *held = Some((device::hold(), registry::hold()));
        }
    });
}

/// Has generations counted from now on.
pub(crate) fn watch() {
    extern "C" fn before() {
        hold(true);
    }
    extern "C" fn in_parent() {
        hold(false);
    }
    extern "C" fn in_child() {
        GENERATION.fetch_add(1, Ordering::Relaxed);
        hold(false);
    }
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        // The only failure is a lack of memory.
        let _ = at_fork(Some(before), Some(in_parent), Some(in_child));
    });
}

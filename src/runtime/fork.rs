//! Whether this process is a child that inherited the parent's sockets.

use std::cell::RefCell;
use std::sync::Once;

use crate::runtime::{claim, generation, own};
use crate::sys::at_fork;

/// What another thread may have locked when the process forks. In the child it would be so for ever.
type Held = (own::Held, claim::Held);

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
            *held = Some((own::hold(), claim::hold()));
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
        generation::begin_next();
        hold(false);
    }
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        // The only failure is a lack of memory.
        let _ = at_fork(Some(before), Some(in_parent), Some(in_child));
    });
}

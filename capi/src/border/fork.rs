//! Forks of the process: while one is made, nobody else has our locks. In the child there would be nobody to
//! let them go.

use std::cell::RefCell;
use std::sync::Once;

use nix::libc;

use super::handle;
use crate::{entry::device, open};

/// All that any context may lock, whatever device it is on.
type Held = (open::Held, device::Held, handle::Held);

thread_local! {
    static HELD: RefCell<Option<Held>> = const { RefCell::new(None) };
}

extern "C" fn before() {
    hold(true);
}

extern "C" fn after() {
    hold(false);
}

/// A thread that is about to end has no place to keep them any more, and forks without.
fn hold(begins: bool) {
    let _ = HELD.try_with(|held| {
        let Ok(mut held) = held.try_borrow_mut() else { return };
        *held = None;
        if begins {
            *held = Some((open::hold(), device::hold(), handle::hold()));
        }
    });
}

/// Has it done from now on.
pub(super) fn watch() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        // SAFETY: functions of the type that is asked for, which stay. The only error is out of memory.
        let _ = unsafe { libc::pthread_atfork(Some(before), Some(after), Some(after)) };
    });
}

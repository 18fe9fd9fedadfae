//! Whether this process is a child that inherited the parent's sockets.

use std::sync::Once;
use std::sync::atomic::{AtomicU32, Ordering};

use crate::io::in_child;

/// How many forks lie between this process and the one that loaded the library.
static GENERATION: AtomicU32 = AtomicU32::new(0);

/// The generation of this process. A device made in another is not this process's: it must not
/// touch its sockets, and its thread does not exist here.
pub(crate) fn generation() -> u32 {
    GENERATION.load(Ordering::Relaxed)
}

/// Has generations counted from now on.
pub(crate) fn watch() {
    extern "C" fn count() {
        GENERATION.fetch_add(1, Ordering::Relaxed);
    }
    static ONCE: Once = Once::new();
    ONCE.call_once(|| in_child(count));
}

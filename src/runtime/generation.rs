//! Generations of a process: a forked child is the next.

use std::sync::atomic::{AtomicU32, Ordering};

static GENERATION: AtomicU32 = AtomicU32::new(0);

/// The generation of this process: how many forks lie between it and the one that loaded the library, counted from
/// the first device on. A device made in another is not this process's: it must not touch its sockets,
/// and its thread does not exist here.
#[inline]
pub fn generation() -> u32 {
    GENERATION.load(Ordering::Relaxed)
}

/// Begins the next generation, in a forked child.
pub(super) fn begin_next() {
    GENERATION.fetch_add(1, Ordering::Relaxed);
}

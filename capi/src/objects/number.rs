//! Numbers that tell objects apart.

use std::sync::atomic::{AtomicU32, Ordering};

/// Returns a new number for the field `handle` of an object. Some programs compare these numbers.
pub(crate) fn next_handle() -> u32 {
    static NEXT: AtomicU32 = AtomicU32::new(1);
    NEXT.fetch_add(1, Ordering::Relaxed)
}

//! An allocator that counts what the whole process holds.

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicI64, Ordering};

static BLOCKS: AtomicI64 = AtomicI64::new(0);
static BYTES: AtomicI64 = AtomicI64::new(0);

struct Counting;

fn count(blocks: i64, layout: Layout) {
    BLOCKS.fetch_add(blocks, Ordering::Relaxed);
    BYTES.fetch_add(blocks * layout.size().cast_signed() as i64, Ordering::Relaxed);
}

// SAFETY: every call is handed on to the system's allocator as it came.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(1, layout);
        // SAFETY: the caller's duties are the same.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        count(-1, layout);
        // SAFETY: the caller's duties are the same.
        unsafe { System.dealloc(at, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Blocks and bytes that the process has allocated and not freed.
pub(crate) fn held() -> [i64; 2] {
    [&BLOCKS, &BYTES].map(|counter| counter.load(Ordering::Relaxed))
}

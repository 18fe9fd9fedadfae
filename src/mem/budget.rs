//! The limit of a device's memory.

use std::sync::atomic::{AtomicUsize, Ordering};

/// Bytes of a device's memory that are not allocated.
#[derive(Debug)]
pub(super) struct Budget {
    left: AtomicUsize,
}

impl Budget {
    pub(super) fn new(bytes: usize) -> Self {
        Self { left: AtomicUsize::new(bytes) }
    }

    /// Allocates `len` bytes.
    ///
    /// # Errors
    /// The bytes that are left, when they are fewer.
    pub(super) fn take(&self, len: usize) -> Result<(), usize> {
        let less = |left: usize| left.checked_sub(len);
        self.left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less).map(drop)
    }

    /// Frees `len` bytes, and returns how many were left before.
    pub(super) fn give_back(&self, len: usize) -> usize {
        self.left.fetch_add(len, Ordering::Relaxed)
    }
}

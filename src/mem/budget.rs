//! Limit on the device memory of a device.

use std::sync::atomic::{AtomicUsize, Ordering};

/// Number of free bytes of device memory.
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
    /// The number of free bytes, when it is less than `len`.
    pub(super) fn take(&self, len: usize) -> Result<(), usize> {
        let less = |left: usize| left.checked_sub(len);
        self.left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less).map(drop)
    }

    /// Frees `len` bytes, and returns the number of free bytes before.
    pub(super) fn give_back(&self, len: usize) -> usize {
        self.left.fetch_add(len, Ordering::Relaxed)
    }
}

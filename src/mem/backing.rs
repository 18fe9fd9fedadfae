//! Memory that is not simply there: what stands behind a region whose bytes cannot be loaded and
//! stored directly.

use std::fmt::Debug;
use std::io;
use std::sync::atomic::AtomicU64;

/// A word operation that may be handed on without knowing its result.
pub(super) type WordOp<'a> = &'a mut dyn FnMut(&AtomicU64);

/// What stands behind a region. Bounds have been checked; `None` means that bytes could not be had.
pub(super) trait Backing: Debug + Send + Sync {
    /// Copies up to `to.len()` bytes from offset `at`, and says how many could be had.
    fn read_some(&self, at: usize, to: &mut [u8]) -> usize;

    /// Copies `to.len()` bytes from offset `at`; when it cannot, `to` holds a mixture.
    fn read(&self, at: usize, to: &mut [u8]) -> Option<()> {
        (self.read_some(at, to) == to.len()).then_some(())
    }

    /// Copies `from` to offset `at`; when it cannot, some may have been placed.
    fn write(&self, at: usize, from: &[u8]) -> Option<()>;

    /// The same for the last bytes of a message, which come after all others: in ascending order, where that
    /// can be.
    fn write_last(&self, at: usize, tail: &[u8]) -> Option<()> {
        self.write(at, tail)
    }

    /// Whether the system copies, so that one copy of many bytes takes less than many of few.
    fn takes_calls(&self) -> bool;

    /// Runs `op` on the 8 bytes at offset `at`, in one step towards all that do so through regions.
    fn word(&self, at: usize, op: WordOp<'_>) -> Option<Result<(), Misaligned>>;

    /// Whether the one step of [`word`](Self::word) is one towards everybody: no reader of the
    /// memory sees a half of it.
    fn has_whole_words(&self) -> bool;

    /// Whether its `len` bytes survive a loss of power once they [have been
    /// persisted](Self::persist).
    fn is_persistent(&self, _len: usize) -> bool {
        false
    }

    /// Returns when `len` bytes from offset `at` on will survive a loss of power.
    fn persist(&self, _at: usize, _len: usize) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }

    /// Whether the caller may take the memory away after deregistration.
    fn is_callers(&self) -> bool;

    /// Prepares `len` bytes from offset `at` on for being used soon.
    fn prefetch(&self, _at: usize, _len: usize, _write: bool) -> io::Result<()> {
        Ok(())
    }
}

/// The host address of an 8-byte word is not a multiple of 8.
pub(super) struct Misaligned;

/// No memory: zeros to read, and what is written is gone.
#[derive(Debug)]
pub(super) struct Null;

impl Backing for Null {
    fn read_some(&self, _at: usize, to: &mut [u8]) -> usize {
        to.fill(0);
        to.len()
    }

    fn takes_calls(&self) -> bool {
        false
    }

    fn write(&self, _at: usize, _from: &[u8]) -> Option<()> {
        Some(())
    }

    fn word(&self, _at: usize, op: WordOp<'_>) -> Option<Result<(), Misaligned>> {
        op(&AtomicU64::new(0));
        Some(Ok(()))
    }

    fn has_whole_words(&self) -> bool {
        true
    }

    fn is_callers(&self) -> bool {
        false
    }
}

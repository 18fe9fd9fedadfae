//! Memory without direct access: regions with bytes that the CPU cannot load and store through a pointer.

use std::fmt::Debug;
use std::io;
use std::sync::atomic::AtomicU64;

/// An operation on a word, passed without its result type.
pub(super) type WordOp<'a> = &'a mut dyn FnMut(&AtomicU64);

/// Provider of the bytes of a region. Callers have checked the bounds; `None` means that some bytes are not
/// accessible.
pub(super) trait Backing: Debug + Send + Sync {
    /// Copies up to `to.len()` bytes from offset `at`, and returns the number of copied bytes.
    fn read_some(&self, at: usize, to: &mut [u8]) -> usize;

    /// Copies `to.len()` bytes from offset `at`. After a failure the contents of `to` are undefined.
    fn read(&self, at: usize, to: &mut [u8]) -> Option<()> {
        (self.read_some(at, to) == to.len()).then_some(())
    }

    /// Copies `from` to offset `at`. After a failure some bytes may be written.
    fn write(&self, at: usize, from: &[u8]) -> Option<()>;

    /// Copies the last bytes of a message to offset `at`, after all others, in ascending order where possible.
    fn write_last(&self, at: usize, tail: &[u8]) -> Option<()> {
        self.write(at, tail)
    }

    /// Returns whether a copy is a system call, so that one long copy is cheaper than several short ones.
    fn uses_syscalls(&self) -> bool;

    /// Runs `op` on the 8 bytes at offset `at`, atomically with regard to other operations through regions.
    fn word(&self, at: usize, op: WordOp<'_>) -> Option<Result<(), Misaligned>>;

    /// Returns whether [`word`](Self::word) is atomic for all readers of the memory.
    fn has_atomic_words(&self) -> bool;

    /// Returns whether `len` bytes survive a power loss after [`persist`](Self::persist).
    fn is_persistent(&self, _len: usize) -> bool {
        false
    }

    /// Returns when `len` bytes from offset `at` on are persistent.
    fn persist(&self, _at: usize, _len: usize) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }

    /// Returns whether the memory belongs to the caller, which may unmap it after deregistration.
    fn belongs_to_caller(&self) -> bool;

    /// Prepares `len` bytes from offset `at` on for access.
    fn prefetch(&self, _at: usize, _len: usize, _write: bool) -> io::Result<()> {
        Ok(())
    }
}

/// Error for a host address of an 8-byte word that is not a multiple of 8.
pub(super) struct Misaligned;

/// Memory without bytes: reads return zeros, and writes are discarded.
#[derive(Debug)]
pub(super) struct Null;

impl Backing for Null {
    fn read_some(&self, _at: usize, to: &mut [u8]) -> usize {
        to.fill(0);
        to.len()
    }

    fn uses_syscalls(&self) -> bool {
        false
    }

    fn write(&self, _at: usize, _from: &[u8]) -> Option<()> {
        Some(())
    }

    fn word(&self, _at: usize, op: WordOp<'_>) -> Option<Result<(), Misaligned>> {
        op(&AtomicU64::new(0));
        Some(Ok(()))
    }

    fn has_atomic_words(&self) -> bool {
        true
    }

    fn belongs_to_caller(&self) -> bool {
        false
    }
}

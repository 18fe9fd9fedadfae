//! Registered memory with pages that may not be present.
//!
//! [Copies](memory) report a missing page instead of raising a signal. As system calls, they take four times as long
//! per packet, so a [staging buffer](super::stage) combines several.
//!
//! Operations on 8 bytes have no such copy. On memory of the caller ([`OnDemand`]) the operation is a copy out and a
//! copy in under a lock: atomic among such operations of this process, not for instructions of the CPU. In a file
//! that the library has mapped ([`FileMapping`]) the operation is an atomic instruction, after a check that the page
//! is present. If the file is truncated between the check and the operation, SIGBUS ends the process.

use std::io;
use std::sync::PoisonError;
use std::sync::atomic::AtomicU64;

use super::backing::{Backing, Misaligned, WordOp};
use crate::sync::Mutex;
use crate::sys::memory::{self, FileMapping, ProcessMemory};

/// Memory of the caller, mapped or unmapped.
#[derive(Debug)]
pub(super) struct OnDemand(pub(super) ProcessMemory);

/// Lock of operations on words of [`OnDemand`] memory.
static WORDS: Mutex<()> = Mutex::new(());

impl Backing for OnDemand {
    fn read_some(&self, at: usize, to: &mut [u8]) -> usize {
        self.0.read_some(at, to)
    }

    fn write(&self, at: usize, from: &[u8]) -> Option<()> {
        self.0.write(at, from)
    }

    fn write_last(&self, at: usize, tail: &[u8]) -> Option<()> {
        self.0.write_last(at, tail)
    }

    fn uses_syscalls(&self) -> bool {
        memory::takes_calls()
    }

    fn word(&self, at: usize, op: WordOp<'_>) -> Option<Result<(), Misaligned>> {
        if !self.0.address(at)?.is_multiple_of(align_of::<AtomicU64>()) {
            return Some(Err(Misaligned));
        }
        let _held = WORDS.lock().unwrap_or_else(PoisonError::into_inner);
        let mut before = [0; 8];
        self.read(at, &mut before)?;
        let word = AtomicU64::new(u64::from_ne_bytes(before));
        op(&word);
        let after = word.into_inner().to_ne_bytes();
        if after != before {
            self.write(at, &after)?;
        }
        Some(Ok(()))
    }

    fn has_atomic_words(&self) -> bool {
        false
    }

    fn is_persistent(&self, len: usize) -> bool {
        self.0.address(0).is_some_and(|start| memory::are_files(start, len))
    }

    fn persist(&self, at: usize, len: usize) -> io::Result<()> {
        let start = self.0.address(at).ok_or(io::ErrorKind::InvalidInput)?;
        memory::persist(start, len)
    }

    fn belongs_to_caller(&self) -> bool {
        true
    }

    fn prefetch(&self, at: usize, len: usize, write: bool) -> io::Result<()> {
        let start = self.0.address(at).ok_or(io::ErrorKind::InvalidInput)?;
        memory::populate(start, len, write)
    }
}

impl Backing for FileMapping {
    fn read_some(&self, at: usize, to: &mut [u8]) -> usize {
        Self::read_some(self, at, to)
    }

    fn write(&self, at: usize, from: &[u8]) -> Option<()> {
        Self::write(self, at, from)
    }

    fn write_last(&self, at: usize, tail: &[u8]) -> Option<()> {
        Self::write_last(self, at, tail)
    }

    fn uses_syscalls(&self) -> bool {
        memory::takes_calls()
    }

    fn word(&self, at: usize, op: WordOp<'_>) -> Option<Result<(), Misaligned>> {
        let Some(word) = Self::word(self, at) else { return Some(Err(Misaligned)) };
        // The read makes the page present, or fails because the file was truncated.
        self.read(at, &mut [0; 8])?;
        op(word);
        Some(Ok(()))
    }

    fn has_atomic_words(&self) -> bool {
        true
    }

    fn is_persistent(&self, _len: usize) -> bool {
        true
    }

    fn persist(&self, at: usize, len: usize) -> io::Result<()> {
        let start = self.bytes(at, len).ok_or(io::ErrorKind::InvalidInput)?;
        memory::persist(start.addr(), len)
    }

    fn belongs_to_caller(&self) -> bool {
        false
    }

    fn prefetch(&self, at: usize, len: usize, write: bool) -> io::Result<()> {
        let start = self.bytes(at, len).ok_or(io::ErrorKind::InvalidInput)?;
        memory::populate(start.addr(), len, write)
    }
}

#[cfg(test)]
mod tests {
    use std::fs::{self, File};
    use std::{ptr, thread};

    use tempfile::NamedTempFile;

    use super::super::raw::of_tests::{from_raw, on_demand};
    use super::super::{
        Access, AtomicError, FlushError, HostMemory, LocalAccess, Memory, Placement, RangeError,
        Region, Revoked, Span,
    };
    use super::*;
    use crate::ids::PdId;
    use crate::sys::memory::{TestPages, page_size};

    const PD: PdId = PdId(1);
    const ACCESS: Access = Access::LOCAL_WRITE
        .union(Access::REMOTE_WRITE)
        .union(Access::REMOTE_ATOMIC)
        .union(Access::ON_DEMAND);

    fn span(memory: &Memory, region: &Region, at: u64, len: u32) -> Span {
        memory.local(PD, region.lkey(), region.addr() + at, len, LocalAccess::Write).unwrap()
    }

    /// Returns a file of this length.
    fn file(len: u64) -> NamedTempFile {
        let file = NamedTempFile::new().unwrap();
        file.as_file().set_len(len).unwrap();
        file
    }

    #[test]
    fn on_demand_memory_is_used_in_place() {
        let pages = TestPages::new(2 * page_size());
        let memory = Memory::new([0; 32]);
        let region =
            memory.register(PD, on_demand(pages.as_ptr(), pages.len()), None, ACCESS).unwrap();
        let mut handle = memory.epoch_handle();
        let message: Vec<u8> = (0..=255).cycle().take(5000).collect();
        for placement in [Placement::Plain, Placement::Final] {
            let span = span(&memory, &region, 7, 5000);
            span.place(&handle.enter(), 0, &vec![0; 5000], Placement::Plain).unwrap();
            span.place(&handle.enter(), 0, &message, placement).unwrap();
            let mut seen = vec![0; 5000];
            span.copy_out(&handle.enter(), 0, &mut seen).unwrap();
            assert!(seen == message, "{placement:?}");
        }
        region.write_at(0, &[9]).unwrap();
        assert_eq!(pages.byte(0), 9);
        let word = span(&memory, &region, 4096, 8);
        region.store_u64(4096, 5).unwrap();
        assert_eq!(word.fetch_add(&handle.enter(), 3), Ok(5));
        assert_eq!(word.compare_swap(&handle.enter(), 8, 1), Ok(8));
        assert_eq!(region.load_u64(4096), Ok(1));
        assert_eq!(region.load_u64(4097), Err(RangeError::Misaligned { offset: 4097 }));
    }

    #[test]
    fn missing_pages_are_an_error_without_a_signal() {
        memory::assert_ready();
        let pages = TestPages::new(page_size());
        let memory = Memory::new([0; 32]);
        let region =
            memory.register(PD, on_demand(pages.as_ptr(), pages.len()), None, ACCESS).unwrap();
        let mut handle = memory.epoch_handle();
        let (span, word) = (span(&memory, &region, 0, 64), span(&memory, &region, 64, 8));
        pages.forbid(0);
        let guard = handle.enter();
        assert_eq!(span.place(&guard, 0, &[1; 64], Placement::Plain), Err(Revoked));
        assert_eq!(span.place(&guard, 0, &[1; 64], Placement::Final), Err(Revoked));
        assert_eq!(span.copy_out(&guard, 0, &mut [0; 64]), Err(Revoked));
        assert_eq!(word.fetch_add(&guard, 1), Err(AtomicError::Revoked));
        drop(guard);
        let gone = RangeError::NotMapped { offset: 0, len: 8 };
        assert_eq!(region.read_at(0, &mut [0; 8]), Err(gone));
        assert_eq!(region.write_at(0, &[0; 8]), Err(gone));
        assert_eq!(region.load_u64(0), Err(gone));
        let outside = RangeError::Outside { offset: 1, len: page_size(), region_len: page_size() };
        assert_eq!(region.read_at(1, &mut vec![0; page_size()]), Err(outside));
    }

    #[test]
    fn implicit_region_covers_the_address_space() {
        let pages = TestPages::new(page_size());
        let memory = Memory::new([0; 32]);
        let everything = on_demand(ptr::null_mut(), usize::MAX);
        let region = memory.register(PD, everything, None, ACCESS).unwrap();
        assert_eq!((region.addr(), region.len()), (0, usize::MAX));
        let mut handle = memory.epoch_handle();
        let at = span(&memory, &region, pages.as_ptr().addr() as u64, 8);
        at.place(&handle.enter(), 0, b"anywhere", Placement::Final).unwrap();
        let mut seen = [0; 8];
        at.copy_out(&handle.enter(), 0, &mut seen).unwrap();
        assert_eq!(&seen, b"anywhere");
        for nowhere in [0, u64::MAX - 8] {
            let span = span(&memory, &region, nowhere, 8);
            assert_eq!(span.copy_out(&handle.enter(), 0, &mut seen), Err(Revoked));
        }
    }

    #[test]
    fn on_demand_atomics_are_atomic_among_each_other() {
        const EACH: u64 = 2000;
        let pages = TestPages::new(page_size());
        let memory = Memory::new([0; 32]);
        let region =
            memory.register(PD, on_demand(pages.as_ptr(), pages.len()), None, ACCESS).unwrap();
        thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    let (mut handle, word) = (memory.epoch_handle(), span(&memory, &region, 0, 8));
                    for _ in 0..EACH {
                        word.fetch_add(&handle.enter(), 1).unwrap();
                    }
                });
            }
        });
        assert_eq!(region.load_u64(0), Ok(2 * EACH));
        let word = span(&memory, &region, 0, 8);
        assert_eq!(word.store(&memory.epoch_handle().enter(), 1), Err(AtomicError::Torn));
    }

    #[test]
    fn on_demand_memory_is_not_touched_after_deregistration() {
        let pages = TestPages::new(page_size());
        let memory = Memory::new([0; 32]);
        let region =
            memory.register(PD, on_demand(pages.as_ptr(), pages.len()), None, ACCESS).unwrap();
        memory.deregister(&region);
        assert_eq!(region.write_at(0, &[1]), Err(RangeError::Deregistered));
        assert_eq!(region.read_at(0, &mut [1]), Err(RangeError::Deregistered));
    }

    #[test]
    fn mapped_file_contains_placed_bytes() {
        let file = file(3 * page_size() as u64);
        let offset = page_size() as u64 + 100;
        let mapped = HostMemory::map_file(file.as_file(), offset, 5000).unwrap();
        let memory = Memory::new([0; 32]);
        let access = ACCESS | Access::FLUSH_PERSISTENT;
        let region = memory.register(PD, mapped, Some(0), access).unwrap();
        let mut handle = memory.epoch_handle();
        let span = span(&memory, &region, 0, 5000);
        span.place(&handle.enter(), 4990, b"the end.", Placement::Final).unwrap();
        assert_eq!(span.flush(&handle.enter(), true), Ok(()));
        let found = fs::read(file.path()).unwrap();
        let at = page_size() + 100 + 4990;
        assert_eq!(&found[at..at + 8], b"the end.");
        // 100 is no multiple of 8, 104 is.
        let word = |at| self::span(&memory, &region, at, 8);
        assert_eq!(word(0).store(&handle.enter(), 1), Err(AtomicError::Misaligned));
        assert_eq!(word(4).store(&handle.enter(), 7), Ok(()));
        assert_eq!(word(4).fetch_add(&handle.enter(), 1), Ok(7));
        let at = page_size() + 104;
        assert_eq!(fs::read(file.path()).unwrap()[at..at + 8], 8_u64.to_ne_bytes());
    }

    #[test]
    fn truncated_file_is_an_error_without_a_signal() {
        let page = page_size() as u64;
        let file = file(2 * page);
        let mapped = HostMemory::map_file(file.as_file(), 0, 2 * page_size()).unwrap();
        let memory = Memory::new([0; 32]);
        let region = memory.register(PD, mapped, Some(0), ACCESS).unwrap();
        let mut handle = memory.epoch_handle();
        let (there, gone) = (span(&memory, &region, 0, 8), span(&memory, &region, page, 8));
        file.as_file().set_len(page).unwrap();
        let guard = handle.enter();
        assert_eq!(there.place(&guard, 0, b"is there", Placement::Final), Ok(()));
        assert_eq!(gone.place(&guard, 0, b"is not  ", Placement::Final), Err(Revoked));
        assert_eq!(gone.copy_out(&guard, 0, &mut [0; 8]), Err(Revoked));
        assert_eq!(gone.store(&guard, 1), Err(AtomicError::Revoked));
        assert_eq!(gone.fetch_add(&guard, 1), Err(AtomicError::Revoked));
    }

    #[test]
    fn map_file_requires_the_range_and_write_access() {
        let file = file(4096);
        let refused = |file: &File, offset, len| {
            HostMemory::map_file(file, offset, len).unwrap_err().to_string()
        };
        assert_eq!(refused(file.as_file(), 1, 4096), "the file has 4096 bytes, not 4096 from 1 on");
        assert_eq!(refused(file.as_file(), 0, 0), "the file has 4096 bytes, not 0 from 0 on");
        assert!(refused(file.as_file(), u64::MAX, 1).starts_with("the file has 4096 bytes"));
        let read_only = File::open(file.path()).unwrap();
        assert!(refused(&read_only, 0, 4096).contains("ermission denied"));
    }

    #[test]
    fn mapped_file_of_the_caller_is_persistent_and_other_memory_is_not() {
        let file = file(4096);
        let mapping = FileMapping::new(file.as_file(), 0, 4096).unwrap();
        let pages = TestPages::new(page_size());
        assert!(from_raw(mapping.as_ptr(), 4096).is_persistent());
        assert!(!from_raw(pages.as_ptr(), page_size()).is_persistent());
        assert!(!HostMemory::alloc(4096).unwrap().is_persistent());
        assert!(
            !HostMemory::null().is_persistent()
                && !on_demand(pages.as_ptr(), pages.len()).is_persistent()
        );

        let memory = Memory::new([0; 32]);
        let access = ACCESS | Access::FLUSH_PERSISTENT;
        let region =
            memory.register(PD, from_raw(mapping.as_ptr(), 4096), Some(0), access).unwrap();
        let mut handle = memory.epoch_handle();
        assert_eq!(span(&memory, &region, 10, 20).flush(&handle.enter(), true), Ok(()));
        // The first page is never mapped.
        let nothing = on_demand(ptr::null_mut(), 4096);
        let nothing = memory.register(PD, nothing, None, ACCESS).unwrap();
        let lost = span(&memory, &nothing, 8, 8).flush(&handle.enter(), true);
        assert_eq!(lost, Err(FlushError::Storage));
        memory.deregister(&region);
    }

    #[test]
    fn prefetch_makes_pages_present_or_fails() {
        let pages = TestPages::new(page_size());
        let memory = on_demand(pages.as_ptr(), pages.len());
        assert!(memory.prefetch(10, 20, true).is_ok() && memory.prefetch(0, 1, false).is_ok());
        pages.forbid(0);
        assert!(memory.prefetch(0, 1, false).is_err());
        assert!(HostMemory::alloc(8).unwrap().prefetch(0, 8, true).is_ok());
    }
}

//! Memory whose pages may not be there, and the system calls for it: everything `unsafe` of that.
//!
//! A load from a page that was unmapped, or that a file has lost, is a signal that ends the process.
//! Where the program leaves these signals alone, [copies survive it](fault).
//! Elsewhere the system copies between processes, from this process to itself, for which a page that is
//! not there is an error. That takes four times as long for a packet, so several are [put
//! together](super::stage).
//!
//! An 8-byte operation cannot be done so. On memory of the caller ([`OnDemand`]) it is a copy out
//! and a copy in under a lock: one step towards all other such operations of this process, not
//! towards the processor's own. In a file that we have mapped ([`FileMapping`]) it is the
//! processor's, after a look whether the page is there. Only who cuts the file off between the look
//! and the operation ends the process.

use std::fs::{self, File};
use std::io;
use std::os::fd::AsRawFd;
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicI32, AtomicU64, Ordering};
use std::sync::{OnceLock, PoisonError};

use super::backing::{Backing, WordOp};
use super::raw::Misaligned;

use crate::sync::Mutex;
#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
use crate::sys::fault;

/// Where no copy survives a fault, the system makes all of them.
#[cfg(not(all(target_os = "linux", target_arch = "x86_64")))]
mod fault {
    pub(super) fn install() {}

    pub(super) fn is_ready() -> bool {
        false
    }

    pub(super) unsafe fn copy(_to: *mut u8, _from: *const u8, _len: usize) -> usize {
        0
    }

    pub(super) unsafe fn store_ascending(_to: *mut u8, _bytes: &[u8]) -> bool {
        false
    }
}

/// Bytes of this process at an address that the caller promises to be fit for it, mapped or not.
#[derive(Debug)]
pub(super) struct OnDemand {
    start: usize,
}

/// Held by whoever operates on a word of [`OnDemand`] memory.
static WORDS: Mutex<()> = Mutex::new(());

impl OnDemand {
    /// # Errors
    /// When the system does not copy from this process to itself.
    ///
    /// # Safety
    /// As long as it exists, whatever is mapped from `start` on may be read, and overwritten by who
    /// [writes](Backing::write), as memory that is shared with another process.
    pub(super) unsafe fn new(start: usize) -> io::Result<Self> {
        can_copy()?;
        fault::install();
        Ok(Self { start })
    }
}

impl Backing for OnDemand {
    fn read_some(&self, at: usize, to: &mut [u8]) -> usize {
        self.start.checked_add(at).map_or(0, |from| read_some(from, to))
    }

    fn write(&self, at: usize, from: &[u8]) -> Option<()> {
        // SAFETY: who made this promises that the bytes may be overwritten.
        unsafe { write(self.start.checked_add(at)?, from) }.ok()
    }

    fn write_last(&self, at: usize, tail: &[u8]) -> Option<()> {
        // SAFETY: who made this promises that the bytes may be overwritten.
        unsafe { write_last(self.start.checked_add(at)?, tail) }
    }

    fn takes_calls(&self) -> bool {
        !fault::is_ready()
    }

    fn word(&self, at: usize, op: WordOp<'_>) -> Option<Result<(), Misaligned>> {
        if !self.start.checked_add(at)?.is_multiple_of(align_of::<AtomicU64>()) {
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

    fn has_whole_words(&self) -> bool {
        false
    }

    fn is_persistent(&self, len: usize) -> bool {
        are_files(self.start, len)
    }

    fn persist(&self, at: usize, len: usize) -> io::Result<()> {
        persist(self.start.saturating_add(at), len)
    }

    fn is_callers(&self) -> bool {
        true
    }

    fn prefetch(&self, at: usize, len: usize, write: bool) -> io::Result<()> {
        let start = self.start.checked_add(at).ok_or(io::ErrorKind::InvalidInput)?;
        populate(start, len, write)
    }
}

/// A part of a file, mapped here and nowhere else.
#[derive(Debug)]
pub(super) struct FileMapping {
    /// Of the page in which the part begins.
    base: NonNull<u8>,
    mapped: usize,
    /// Where in that page it begins.
    skip: usize,
}

// SAFETY: it is a start and a length of shared memory that has no thread it belongs to.
unsafe impl Send for FileMapping {}
// SAFETY: as above; through a shared reference there are only system calls and atomics.
unsafe impl Sync for FileMapping {}

impl FileMapping {
    /// # Errors
    /// When the file has no such part, or the system does not map it for reading and writing.
    pub(super) fn new(file: &File, offset: u64, len: usize) -> io::Result<Self> {
        can_copy()?;
        fault::install();
        let has = file.metadata()?.len();
        if len == 0 || offset.checked_add(len as u64).is_none_or(|end| end > has) {
            let why = format!("the file has {has} bytes, not {len} from {offset} on");
            return Err(io::Error::new(io::ErrorKind::InvalidInput, why));
        }
        let too_long = |_| io::Error::from(io::ErrorKind::InvalidInput);
        let skip = usize::try_from(offset % page_size() as u64).map_err(too_long)?;
        let start = libc::off_t::try_from(offset - skip as u64).map_err(too_long)?;
        let mapped = len.checked_add(skip).ok_or(io::ErrorKind::InvalidInput)?;
        Self::map(file, start, mapped, skip)
    }

    /// Maps a part of a file from the page at `start` on, whatever it is.
    pub(super) fn map(
        file: &File,
        start: libc::off_t,
        mapped: usize,
        skip: usize,
    ) -> io::Result<Self> {
        let access = libc::PROT_READ | libc::PROT_WRITE;
        let fd = file.as_raw_fd();
        // SAFETY: a new mapping at an address of the system's choice touches nothing that exists.
        let base =
            unsafe { libc::mmap(ptr::null_mut(), mapped, access, libc::MAP_SHARED, fd, start) };
        match NonNull::new(base.cast::<u8>()).filter(|_| base != libc::MAP_FAILED) {
            Some(base) => Ok(Self { base, mapped, skip }),
            None => Err(io::Error::last_os_error()),
        }
    }

    /// The first byte of the part.
    pub(super) fn as_ptr(&self) -> *mut u8 {
        self.base.as_ptr().wrapping_add(self.skip)
    }

    fn address(&self, at: usize) -> usize {
        self.as_ptr().addr() + at
    }
}

impl Drop for FileMapping {
    fn drop(&mut self) {
        // SAFETY: it was mapped with this length, nobody else knows of it, and it is dropped once.
        unsafe { libc::munmap(self.base.as_ptr().cast(), self.mapped) };
    }
}

impl Backing for FileMapping {
    fn read_some(&self, at: usize, to: &mut [u8]) -> usize {
        read_some(self.address(at), to)
    }

    fn write(&self, at: usize, from: &[u8]) -> Option<()> {
        // SAFETY: the caller has checked the bounds, and the bytes of the mapping are nobody's else.
        unsafe { write(self.address(at), from) }.ok()
    }

    fn write_last(&self, at: usize, tail: &[u8]) -> Option<()> {
        // SAFETY: the caller has checked the bounds, and the bytes of the mapping are nobody's else.
        unsafe { write_last(self.address(at), tail) }
    }

    fn takes_calls(&self) -> bool {
        !fault::is_ready()
    }

    fn word(&self, at: usize, op: WordOp<'_>) -> Option<Result<(), Misaligned>> {
        let word = self.as_ptr().wrapping_add(at).cast::<u64>();
        if !word.is_aligned() {
            return Some(Err(Misaligned));
        }
        // Whether the page is there, which also brings it in.
        self.read(at, &mut [0; 8])?;
        // SAFETY: within the mapping, as the caller has checked, and aligned; others access these
        // bytes atomically or through the kernel.
        op(unsafe { AtomicU64::from_ptr(word) });
        Some(Ok(()))
    }

    fn has_whole_words(&self) -> bool {
        true
    }

    fn is_persistent(&self, _len: usize) -> bool {
        true
    }

    fn persist(&self, at: usize, len: usize) -> io::Result<()> {
        persist(self.address(at), len)
    }

    fn is_callers(&self) -> bool {
        false
    }

    fn prefetch(&self, at: usize, len: usize, write: bool) -> io::Result<()> {
        populate(self.address(at), len, write)
    }
}

/// Returns when what the `len` bytes at `start` map is in its file, and that on the medium.
pub(super) fn persist(start: usize, len: usize) -> io::Result<()> {
    let skip = start % page_size();
    let pages = ptr::without_provenance_mut(start - skip);
    // SAFETY: `msync` changes no memory, and refuses what is not mapped.
    match unsafe { libc::msync(pages, len.saturating_add(skip), libc::MS_SYNC) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Whether all `len` bytes at `start` are shared mappings of files.
pub(super) fn are_files(start: usize, len: usize) -> bool {
    let Ok(maps) = fs::read_to_string("/proc/self/maps") else { return false };
    covered(&maps, start, start.saturating_add(len))
}

/// Whether the lines of `/proc/self/maps`, which ascend, have shared mappings of files from `start`
/// to `end` without a hole.
fn covered(maps: &str, start: usize, end: usize) -> bool {
    let mut reached = start;
    for line in maps.lines() {
        // 7f0c8a000000-7f0c8a001000 rw-s 00000000 fe:00 1234    /file
        let mut words = line.split_whitespace();
        let range = words.next().and_then(|range| range.split_once('-'));
        let (Some((from, to)), Some(rights), Some(inode)) = (range, words.next(), words.nth(2))
        else {
            continue;
        };
        let address = |hex| usize::from_str_radix(hex, 16).ok();
        let (Some(from), Some(to)) = (address(from), address(to)) else { continue };
        if (from..to).contains(&reached) {
            if !rights.ends_with('s') || inode == "0" {
                return false;
            }
            reached = to;
        }
        if reached >= end {
            return true;
        }
    }
    false
}

/// Brings the pages in, for writing too if so wished.
fn populate(start: usize, len: usize, write: bool) -> io::Result<()> {
    let skip = start % page_size();
    let pages = ptr::without_provenance_mut(start - skip);
    let advice = if write { libc::MADV_POPULATE_WRITE } else { libc::MADV_POPULATE_READ };
    // SAFETY: it faults pages in as a load or store would, and changes nothing that is in them.
    match unsafe { libc::madvise(pages, len.saturating_add(skip), advice) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Whether the system copies from this process to itself. Sandboxes may forbid it.
pub(super) fn can_copy() -> io::Result<()> {
    let probe = [7_u8];
    let mut seen = [0];
    read(probe.as_ptr().addr(), &mut seen)
        .map(drop)
        .map_err(|error| io::Error::new(error.kind(), format!("process_vm_readv: {error}")))
}

/// Copies from `from` on, whatever is there, as far as there is something.
fn read_some(from: usize, to: &mut [u8]) -> usize {
    if fault::is_ready() {
        let start = ptr::without_provenance(from);
        // SAFETY: the slice is borrowed; what is at `from` is memory that a region may read.
        return unsafe { fault::copy(to.as_mut_ptr(), start, to.len()) };
    }
    let mut done = 0;
    while let Some(rest) = to.get_mut(done..).filter(|rest| !rest.is_empty())
        && let Ok(start) = from.checked_add(done).ok_or(())
        && let Ok(n) = read(start, rest)
    {
        done += n;
    }
    done
}

/// Copies bytes from `from` on, as many as the system has at once: one at least.
fn read(from: usize, to: &mut [u8]) -> io::Result<usize> {
    let local = piece(to.as_mut_ptr(), to.len());
    let remote = piece(ptr::without_provenance_mut(from), to.len());
    // SAFETY: the kernel writes to the slice, which is borrowed, and checks `from`.
    let n = unsafe { libc::process_vm_readv(process(), &local, 1, &remote, 1, 0) };
    progress(n)
}

/// Copies to `to`, whatever is there.
///
/// # Safety
/// Whatever is mapped there may be overwritten, as memory shared with another process.
unsafe fn write(to: usize, from: &[u8]) -> io::Result<()> {
    if fault::is_ready() {
        let start = ptr::without_provenance_mut(to);
        // SAFETY: as the caller promises; the slice is borrowed.
        let copied = unsafe { fault::copy(start, from.as_ptr(), from.len()) };
        return if copied == from.len() { Ok(()) } else { Err(fault()) };
    }
    let mut done = 0;
    while let Some(rest) = from.get(done..).filter(|rest| !rest.is_empty()) {
        let local = piece(rest.as_ptr().cast_mut(), rest.len());
        let remote = other(to, done, from.len())?;
        // SAFETY: the kernel reads the rest of the slice, which is borrowed; what it overwrites may
        // be, as the caller promises, and where nothing is mapped it says so.
        let n = unsafe { libc::process_vm_writev(process(), &local, 1, &remote, 1, 0) };
        done += progress(n)?;
    }
    Ok(())
}

/// Stores what comes after all others, as far as that can be said of what the system copies.
///
/// # Safety
/// As [`write`].
unsafe fn write_last(to: usize, tail: &[u8]) -> Option<()> {
    if fault::is_ready() {
        // SAFETY: as the caller promises.
        let stored = unsafe { fault::store_ascending(ptr::without_provenance_mut(to), tail) };
        return stored.then_some(());
    }
    // SAFETY: likewise.
    unsafe { write(to, tail) }.ok()
}

fn piece(start: *mut u8, len: usize) -> libc::iovec {
    libc::iovec { iov_base: start.cast(), iov_len: len }
}

/// The rest of `len` bytes at an address, of which so many are done.
fn other(start: usize, done: usize, len: usize) -> io::Result<libc::iovec> {
    let at = start.checked_add(done).ok_or(io::ErrorKind::InvalidInput)?;
    Ok(piece(ptr::without_provenance_mut(at), len - done))
}

/// The bytes that a copy has moved; none is a fault.
fn progress(n: isize) -> io::Result<usize> {
    match usize::try_from(n) {
        Ok(0) => Err(fault()),
        Ok(n) => Ok(n),
        Err(_) => Err(io::Error::last_os_error()),
    }
}

fn fault() -> io::Error {
    io::Error::from_raw_os_error(libc::EFAULT)
}

/// This process. It is asked for once: to ask the system each time would make short copies a fifth longer.
fn process() -> libc::pid_t {
    static PROCESS: AtomicI32 = AtomicI32::new(0);
    /// Whether a child that is forked asks for itself.
    static IN_CHILDREN: OnceLock<bool> = OnceLock::new();
    extern "C" fn forget() {
        PROCESS.store(0, Ordering::Relaxed);
    }
    let known = PROCESS.load(Ordering::Relaxed);
    if known != 0 {
        return known;
    }
    // SAFETY: `forget` stores to an atomic, which may be done in the child of a fork.
    let watch = || unsafe { libc::pthread_atfork(None, None, Some(forget)) } == 0;
    let is_forgotten = *IN_CHILDREN.get_or_init(watch);
    // SAFETY: it has no arguments and cannot fail.
    let own = unsafe { libc::getpid() };
    if is_forgotten {
        PROCESS.store(own, Ordering::Relaxed);
    }
    own
}

fn page_size() -> usize {
    // SAFETY: it has no pointers to go wrong with.
    let size = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
    usize::try_from(size).unwrap_or(super::raw::PAGE)
}

#[cfg(test)]
mod tests {
    use std::thread;

    use tempfile::NamedTempFile;

    use super::super::{
        Access, AtomicError, FlushError, HostMemory, Memory, Need, Placement, RangeError, Region,
        Revoked, Span,
    };
    use super::*;
    use crate::ids::PdId;

    const PD: PdId = PdId(1);
    const ACCESS: Access = Access::LOCAL_WRITE
        .union(Access::REMOTE_WRITE)
        .union(Access::REMOTE_ATOMIC)
        .union(Access::ON_DEMAND);

    /// Pages of the test's own, which it can take away.
    struct Pages(*mut libc::c_void, usize);

    impl Pages {
        fn new(len: usize) -> Self {
            let (access, kind) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE);
            // SAFETY: a new mapping touches nothing that exists.
            let at = unsafe {
                libc::mmap(ptr::null_mut(), len, access, kind | libc::MAP_ANONYMOUS, -1, 0)
            };
            assert_ne!(at, libc::MAP_FAILED);
            Self(at, len)
        }

        /// They can neither be read nor written, and nothing else comes to be there.
        fn forbid(&self) {
            // SAFETY: they are the test's, which has no reference to them.
            assert_eq!(unsafe { libc::mprotect(self.0, self.1, libc::PROT_NONE) }, 0);
        }

        fn on_demand(&self) -> HostMemory {
            // SAFETY: nothing else uses these pages.
            unsafe { HostMemory::on_demand(self.0.cast(), self.1) }.unwrap()
        }
    }

    impl Drop for Pages {
        fn drop(&mut self) {
            // SAFETY: they were mapped so, and are the test's.
            unsafe { libc::munmap(self.0, self.1) };
        }
    }

    fn span(memory: &Memory, region: &Region, at: u64, len: u32) -> Span {
        memory.local(PD, region.lkey(), region.addr() + at, len, Need::Write).unwrap()
    }

    /// A file of this length.
    fn file(len: u64) -> NamedTempFile {
        let file = NamedTempFile::new().unwrap();
        file.as_file().set_len(len).unwrap();
        file
    }

    #[test]
    fn on_demand_memory_is_used_in_place() {
        let pages = Pages::new(2 * page_size());
        let memory = Memory::new([0; 32]);
        let region = memory.register(PD, pages.on_demand(), None, ACCESS).unwrap();
        let mut gate = memory.gate();
        let message: Vec<u8> = (0..=255).cycle().take(5000).collect();
        for placement in [Placement::Plain, Placement::Final] {
            let span = span(&memory, &region, 7, 5000);
            span.place(&gate.enter(), 0, &vec![0; 5000], Placement::Plain).unwrap();
            span.place(&gate.enter(), 0, &message, placement).unwrap();
            let mut seen = vec![0; 5000];
            span.copy_out(&gate.enter(), 0, &mut seen).unwrap();
            assert!(seen == message, "{placement:?}");
        }
        region.write_at(0, &[9]).unwrap();
        // SAFETY: the page is mapped, and nobody writes to it now.
        assert_eq!(unsafe { pages.0.cast::<u8>().read_volatile() }, 9);
        let word = span(&memory, &region, 4096, 8);
        region.store_u64(4096, 5).unwrap();
        assert_eq!(word.fetch_add(&gate.enter(), 3), Ok(5));
        assert_eq!(word.compare_swap(&gate.enter(), 8, 1), Ok(8));
        assert_eq!(region.load_u64(4096), Ok(1));
        assert_eq!(region.load_u64(4097), Err(RangeError::Misaligned { offset: 4097 }));
    }

    #[test]
    fn pages_that_are_not_there_are_an_error_and_no_signal() {
        let pages = Pages::new(page_size());
        let memory = Memory::new([0; 32]);
        let region = memory.register(PD, pages.on_demand(), None, ACCESS).unwrap();
        let mut gate = memory.gate();
        let (span, word) = (span(&memory, &region, 0, 64), span(&memory, &region, 64, 8));
        pages.forbid();
        let turn = gate.enter();
        assert_eq!(span.place(&turn, 0, &[1; 64], Placement::Plain), Err(Revoked));
        assert_eq!(span.place(&turn, 0, &[1; 64], Placement::Final), Err(Revoked));
        assert_eq!(span.copy_out(&turn, 0, &mut [0; 64]), Err(Revoked));
        assert_eq!(word.fetch_add(&turn, 1), Err(AtomicError::Revoked));
        drop(turn);
        let gone = RangeError::NotMapped { offset: 0, len: 8 };
        assert_eq!(region.read_at(0, &mut [0; 8]), Err(gone));
        assert_eq!(region.write_at(0, &[0; 8]), Err(gone));
        assert_eq!(region.load_u64(0), Err(gone));
        let outside = RangeError::Outside { offset: 1, len: page_size(), region_len: page_size() };
        assert_eq!(region.read_at(1, &mut vec![0; page_size()]), Err(outside));
    }

    #[test]
    fn the_implicit_region_is_all_there_can_be() {
        let pages = Pages::new(page_size());
        let memory = Memory::new([0; 32]);
        // SAFETY: the test asks for its own pages alone.
        let everything = unsafe { HostMemory::on_demand(ptr::null_mut(), usize::MAX) }.unwrap();
        let region = memory.register(PD, everything, None, ACCESS).unwrap();
        assert_eq!((region.addr(), region.len()), (0, usize::MAX));
        let mut gate = memory.gate();
        let at = span(&memory, &region, pages.0.addr() as u64, 8);
        at.place(&gate.enter(), 0, b"anywhere", Placement::Final).unwrap();
        let mut seen = [0; 8];
        at.copy_out(&gate.enter(), 0, &mut seen).unwrap();
        assert_eq!(&seen, b"anywhere");
        for nowhere in [0, u64::MAX - 8] {
            let span = span(&memory, &region, nowhere, 8);
            assert_eq!(span.copy_out(&gate.enter(), 0, &mut seen), Err(Revoked));
        }
    }

    #[test]
    fn atomics_on_demand_are_one_step_towards_each_other() {
        const EACH: u64 = 2000;
        let pages = Pages::new(page_size());
        let memory = Memory::new([0; 32]);
        let region = memory.register(PD, pages.on_demand(), None, ACCESS).unwrap();
        thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    let (mut gate, word) = (memory.gate(), span(&memory, &region, 0, 8));
                    for _ in 0..EACH {
                        word.fetch_add(&gate.enter(), 1).unwrap();
                    }
                });
            }
        });
        assert_eq!(region.load_u64(0), Ok(2 * EACH));
        let word = span(&memory, &region, 0, 8);
        assert_eq!(word.store(&memory.gate().enter(), 1), Err(AtomicError::Torn));
    }

    #[test]
    fn on_demand_memory_is_not_touched_after_deregistration() {
        let pages = Pages::new(page_size());
        let memory = Memory::new([0; 32]);
        let region = memory.register(PD, pages.on_demand(), None, ACCESS).unwrap();
        memory.deregister(&region);
        assert_eq!(region.write_at(0, &[1]), Err(RangeError::Deregistered));
        assert_eq!(region.read_at(0, &mut [1]), Err(RangeError::Deregistered));
    }

    #[test]
    fn what_is_placed_in_a_mapped_file_is_in_the_file() {
        let file = file(3 * page_size() as u64);
        let offset = page_size() as u64 + 100;
        let mapped = HostMemory::map_file(file.as_file(), offset, 5000).unwrap();
        let memory = Memory::new([0; 32]);
        let access = ACCESS | Access::FLUSH_PERSISTENT;
        let region = memory.register(PD, mapped, Some(0), access).unwrap();
        let mut gate = memory.gate();
        let span = span(&memory, &region, 0, 5000);
        span.place(&gate.enter(), 4990, b"the end.", Placement::Final).unwrap();
        assert_eq!(span.flush(&gate.enter(), true), Ok(()));
        let found = fs::read(file.path()).unwrap();
        let at = page_size() + 100 + 4990;
        assert_eq!(&found[at..at + 8], b"the end.");
        // 100 is no multiple of 8, 104 is.
        let word = |at| self::span(&memory, &region, at, 8);
        assert_eq!(word(0).store(&gate.enter(), 1), Err(AtomicError::Misaligned));
        assert_eq!(word(4).store(&gate.enter(), 7), Ok(()));
        assert_eq!(word(4).fetch_add(&gate.enter(), 1), Ok(7));
        let at = page_size() + 104;
        assert_eq!(fs::read(file.path()).unwrap()[at..at + 8], 8_u64.to_ne_bytes());
    }

    #[test]
    fn a_file_that_was_cut_off_is_an_error_and_no_signal() {
        let page = page_size() as u64;
        let file = file(2 * page);
        let mapped = HostMemory::map_file(file.as_file(), 0, 2 * page_size()).unwrap();
        let memory = Memory::new([0; 32]);
        let region = memory.register(PD, mapped, Some(0), ACCESS).unwrap();
        let mut gate = memory.gate();
        let (there, gone) = (span(&memory, &region, 0, 8), span(&memory, &region, page, 8));
        file.as_file().set_len(page).unwrap();
        let turn = gate.enter();
        assert_eq!(there.place(&turn, 0, b"is there", Placement::Final), Ok(()));
        assert_eq!(gone.place(&turn, 0, b"is not  ", Placement::Final), Err(Revoked));
        assert_eq!(gone.copy_out(&turn, 0, &mut [0; 8]), Err(Revoked));
        assert_eq!(gone.store(&turn, 1), Err(AtomicError::Revoked));
        assert_eq!(gone.fetch_add(&turn, 1), Err(AtomicError::Revoked));
    }

    #[test]
    fn a_file_must_have_the_part_and_be_open_for_writing() {
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
    fn a_file_that_the_caller_has_mapped_is_persistent_and_other_memory_is_not() {
        let file = file(4096);
        let mapping = FileMapping::new(file.as_file(), 0, 4096).unwrap();
        let pages = Pages::new(page_size());
        // SAFETY: the mapping outlives the memory made of it, and nobody else uses it.
        let host = |at, len| unsafe { HostMemory::from_raw(at, len) };
        assert!(host(mapping.as_ptr(), 4096).is_persistent());
        assert!(!host(pages.0.cast(), page_size()).is_persistent());
        assert!(!HostMemory::alloc(4096).unwrap().is_persistent());
        assert!(!HostMemory::null().is_persistent() && !pages.on_demand().is_persistent());

        let memory = Memory::new([0; 32]);
        let access = ACCESS | Access::FLUSH_PERSISTENT;
        let region = memory.register(PD, host(mapping.as_ptr(), 4096), Some(0), access).unwrap();
        let mut gate = memory.gate();
        assert_eq!(span(&memory, &region, 10, 20).flush(&gate.enter(), true), Ok(()));
        // SAFETY: nothing is ever mapped in the first page.
        let nothing = unsafe { HostMemory::on_demand(ptr::null_mut(), 4096) }.unwrap();
        let nothing = memory.register(PD, nothing, None, ACCESS).unwrap();
        let lost = span(&memory, &nothing, 8, 8).flush(&gate.enter(), true);
        assert_eq!(lost, Err(FlushError::Storage));
        memory.deregister(&region);
    }

    #[test]
    fn a_range_is_of_files_when_all_of_it_is() {
        let maps = "\
1000-3000 rw-s 00000000 fe:00 12 /a
3000-4000 rw-s 00002000 fe:00 12 /a
4000-5000 rw-p 00000000 fe:00 12 /a
7000-8000 rw-s 00000000 00:00 0
9000-a000 rw-s 00000000 fe:00 13 /b
";
        let covered = |start, end| covered(maps, start, end);
        assert!(covered(0x1000, 0x4000) && covered(0x2fff, 0x3001) && covered(0x9fff, 0xa000));
        assert!(!covered(0x3000, 0x4001), "private");
        assert!(!covered(0x7000, 0x7001), "no file");
        assert!(!covered(0x9000, 0xa001) && !covered(0x0, 0x1001), "a hole");
    }

    #[test]
    fn prefetching_brings_pages_in_and_says_when_there_are_none() {
        let pages = Pages::new(page_size());
        let memory = pages.on_demand();
        assert!(memory.prefetch(10, 20, true).is_ok() && memory.prefetch(0, 1, false).is_ok());
        pages.forbid();
        assert!(memory.prefetch(0, 1, false).is_err());
        assert!(HostMemory::alloc(8).unwrap().prefetch(0, 8, true).is_ok());
    }
}

//! Memory with pages that may be missing: mappings of files, and copies that report a missing page.
//!
//! A load from a page that was unmapped, or that a file has lost, raises a signal that ends the process. Where
//! a handler of these signals is in front of the program's, copies [survive them](super::fault). Elsewhere the system
//! copies from this process to itself, and reports a missing page as an error.
//!
//! `rustix` maps, unmaps, flushes and faults pages in; it lacks the copies (`process_vm_readv`), which are of
//! the C library.

use std::fs::{self, File};
use std::io;
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicI32, AtomicU64, Ordering};

use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, fcntl_get_seals, memfd_create};
use rustix::io::Errno;
use rustix::mm::{self, Advice, MapFlags, MsyncFlags, ProtFlags};
pub(crate) use rustix::param::page_size;
use rustix::process::getpid;

#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
use super::copies;
#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
use super::fault;
use super::fork::ChildHook;

/// On other processors the system makes all copies.
#[cfg(not(all(target_os = "linux", target_arch = "x86_64")))]
mod fault {
    pub(super) fn install() {}

    #[cfg(test)]
    pub(super) fn assert_ready() {}

    pub(super) fn is_in_front() -> bool {
        false
    }

    pub(super) fn is_ready() -> bool {
        false
    }
}

#[cfg(not(all(target_os = "linux", target_arch = "x86_64")))]
mod copies {
    pub(super) unsafe fn copy(_to: *mut u8, _from: *const u8, _len: usize) -> usize {
        0
    }

    pub(super) unsafe fn store_ascending(_to: *mut u8, _bytes: &[u8]) -> bool {
        false
    }
}

/// Memory of this process from an address on, mapped or not.
#[derive(Debug)]
pub(crate) struct ProcessMemory {
    start: usize,
}

impl ProcessMemory {
    /// # Errors
    /// When the system does not copy from this process to itself.
    ///
    /// # Safety
    /// As long as the value exists, any byte mapped from `start` on may be read, and overwritten by a
    /// [write](Self::write), as memory that is shared with another process.
    pub(crate) unsafe fn new(start: usize) -> io::Result<Self> {
        can_copy()?;
        fault::install();
        Ok(Self { start })
    }

    /// Returns the address at offset `at`; `None` past the end of the address space.
    pub(crate) fn address(&self, at: usize) -> Option<usize> {
        self.start.checked_add(at)
    }

    /// Copies up to `to.len()` bytes from offset `at`, and returns how many were mapped.
    pub(crate) fn read_some(&self, at: usize, to: &mut [u8]) -> usize {
        self.address(at).map_or(0, |from| read_some(from, to))
    }

    /// Copies `from` to offset `at`. `None` at a missing page; the bytes before it may be written.
    pub(crate) fn write(&self, at: usize, from: &[u8]) -> Option<()> {
        // SAFETY: the caller of `new` promises that the bytes may be overwritten.
        unsafe { write(self.address(at)?, from) }.ok()
    }

    /// Stores `tail` after all earlier writes, in ascending order where the processor copies.
    pub(crate) fn write_last(&self, at: usize, tail: &[u8]) -> Option<()> {
        // SAFETY: the caller of `new` promises that the bytes may be overwritten.
        unsafe { write_last(self.address(at)?, tail) }
    }
}

/// A part of a file, mapped here and nowhere else.
#[derive(Debug)]
pub(crate) struct FileMapping {
    /// Of the page in which the part begins.
    base: NonNull<u8>,
    mapped: usize,
    /// Offset of the part in that page.
    skip: usize,
}

// SAFETY: it is a start and a length of shared memory that has no thread it belongs to.
unsafe impl Send for FileMapping {}
// SAFETY: as above; through a shared reference there are only system calls, atomics and copies that survive.
unsafe impl Sync for FileMapping {}

impl FileMapping {
    /// Maps `len` bytes of a file from `offset` on.
    ///
    /// # Errors
    /// When the file has no such part, or the system does not map it for reading and writing.
    pub(crate) fn new(file: &File, offset: u64, len: usize) -> io::Result<Self> {
        can_copy()?;
        fault::install();
        let has = file.metadata()?.len();
        if len == 0 || offset.checked_add(len as u64).is_none_or(|end| end > has) {
            let why = format!("the file has {has} bytes, not {len} from {offset} on");
            return Err(io::Error::new(io::ErrorKind::InvalidInput, why));
        }
        let too_long = |_| io::Error::from(io::ErrorKind::InvalidInput);
        let skip = usize::try_from(offset % page_size() as u64).map_err(too_long)?;
        let start = offset - skip as u64;
        let mapped = len.checked_add(skip).ok_or(io::ErrorKind::InvalidInput)?;
        Self::map(file, start, mapped, skip)
    }

    /// Maps the first `len` bytes of a file, which may have fewer.
    pub(crate) fn of_whole(file: &File, len: usize) -> io::Result<Self> {
        Self::map(file, 0, len, 0)
    }

    /// Maps a part of a file from the page at `start` on.
    fn map(file: &File, start: u64, mapped: usize, skip: usize) -> io::Result<Self> {
        let access = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a new mapping at an address of the system's choice touches nothing that exists.
        let base =
            unsafe { mm::mmap(ptr::null_mut(), mapped, access, MapFlags::SHARED, file, start) }?;
        let base = NonNull::new(base.cast()).ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(Self { base, mapped, skip })
    }

    /// The first byte of the part.
    pub(crate) fn as_ptr(&self) -> *mut u8 {
        self.base.as_ptr().wrapping_add(self.skip)
    }

    /// Returns the first of `len` bytes at offset `at`; `None` when they are not within the part.
    #[inline]
    pub(crate) fn bytes(&self, at: usize, len: usize) -> Option<*mut u8> {
        let is_within = at.checked_add(len).is_some_and(|end| end <= self.mapped - self.skip);
        is_within.then(|| self.as_ptr().wrapping_add(at))
    }

    /// Copies up to `to.len()` bytes from offset `at`, and returns how many the file still has.
    pub(crate) fn read_some(&self, at: usize, to: &mut [u8]) -> usize {
        self.bytes(at, to.len()).map_or(0, |from| read_some(from.addr(), to))
    }

    /// Copies `from` to offset `at`. `None` at a missing page; the bytes before it may be written.
    pub(crate) fn write(&self, at: usize, from: &[u8]) -> Option<()> {
        let to = self.bytes(at, from.len())?;
        // SAFETY: `bytes` has checked the bounds, and no Rust reference to the bytes of the mapping exists.
        unsafe { write(to.addr(), from) }.ok()
    }

    /// Stores `tail` after all earlier writes, in ascending order where the processor copies.
    pub(crate) fn write_last(&self, at: usize, tail: &[u8]) -> Option<()> {
        let to = self.bytes(at, tail.len())?;
        // SAFETY: `bytes` has checked the bounds, and no Rust reference to the bytes of the mapping exists.
        unsafe { write_last(to.addr(), tail) }
    }

    /// Returns the word at offset `at`; `None` when it is not within the part or not aligned.
    ///
    /// An access ends the process if the file has lost the page.
    #[inline]
    pub(crate) fn word(&self, at: usize) -> Option<&AtomicU64> {
        let word = self.bytes(at, size_of::<u64>())?.cast::<u64>();
        // SAFETY: within the mapping, which lives as long as `self`, and aligned; others access these bytes
        // atomically, by copies of single bytes, or through the kernel.
        word.is_aligned().then(|| unsafe { AtomicU64::from_ptr(word) })
    }
}

impl Drop for FileMapping {
    fn drop(&mut self) {
        // SAFETY: it was mapped with this length, no pointer into it is used later, and it is dropped once.
        let _ = unsafe { mm::munmap(self.base.as_ptr().cast(), self.mapped) };
    }
}

/// What no process can do with a shared file: change its length, or the seals.
const SEALS: SealFlags = SealFlags::SHRINK.union(SealFlags::GROW).union(SealFlags::SEAL);

/// Creates a file of `len` zeros without a name, with a fixed length.
///
/// # Errors
/// When the system has no memory, or no more descriptors.
pub(crate) fn sealed_file(len: usize) -> io::Result<File> {
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    let file = File::from(memfd_create(c"softroce", flags)?);
    file.set_len(len as u64)?;
    fcntl_add_seals(&file, SEALS)?;
    Ok(file)
}

/// Checks that a file has `len` bytes and that its length never changes.
///
/// # Errors
/// `InvalidData` when it does not; otherwise the system's error, for a file without seals.
pub(crate) fn check_sealed(file: &File, len: usize) -> io::Result<()> {
    let seals = fcntl_get_seals(file)?;
    let found = file.metadata()?.len();
    if !seals.contains(SEALS) || found != len as u64 {
        let (seals, needed) = (seals.bits(), SEALS.bits());
        let why =
            format!("a segment of {found} bytes and seals {seals:#x}, not {len} and {needed:#x}");
        return Err(io::Error::new(io::ErrorKind::InvalidData, why));
    }
    Ok(())
}

/// Writes the `len` bytes at `start` through to the medium of the file that they map.
///
/// # Errors
/// When they are not mapped, or the medium fails.
pub(crate) fn persist(start: usize, len: usize) -> io::Result<()> {
    let skip = start % page_size();
    let pages = ptr::without_provenance_mut(start - skip);
    // SAFETY: `msync` changes no memory, and refuses pages that are not mapped.
    Ok(unsafe { mm::msync(pages, len.saturating_add(skip), MsyncFlags::SYNC) }?)
}

/// Whether all `len` bytes at `start` are shared mappings of files.
pub(crate) fn are_files(start: usize, len: usize) -> bool {
    let is_shared_file = |rights: &str, inode: &str| rights.ends_with('s') && inode != "0";
    are_mapped(start, len, is_shared_file)
}

/// Whether all `len` bytes at `start` are mappings that `is_wanted` accepts by their rights and inode.
fn are_mapped(start: usize, len: usize, is_wanted: impl Fn(&str, &str) -> bool) -> bool {
    let Ok(maps) = fs::read_to_string("/proc/self/maps") else { return false };
    covered(&maps, start, start.saturating_add(len), is_wanted)
}

/// Whether the lines of `/proc/self/maps`, which ascend, have mappings that `is_wanted` accepts from `start` to `end`
/// without a hole.
fn covered(maps: &str, start: usize, end: usize, is_wanted: impl Fn(&str, &str) -> bool) -> bool {
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
            if !is_wanted(rights, inode) {
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

/// Faults in the pages of the `len` bytes at `start`, for writing too if `write` is set. Linux before 5.14 faults no pages
/// in; there it checks that they are mapped.
///
/// # Errors
/// When a page is not mapped, or the system has no memory for it.
pub(crate) fn populate(start: usize, len: usize, write: bool) -> io::Result<()> {
    let advice = if write { Advice::LinuxPopulateWrite } else { Advice::LinuxPopulateRead };
    match advise(start, len, advice) {
        Err(Errno::INVAL) if lacks_populate() => {
            let rights = if write { "rw" } else { "r" };
            let is_mapped = are_mapped(start, len, |found, _| found.starts_with(rights));
            if is_mapped { Ok(()) } else { Err(fault()) }
        }
        result => Ok(result?),
    }
}

/// Whether the system lacks the advice to fault pages in.
fn lacks_populate() -> bool {
    let byte = 0_u8;
    let at = ptr::from_ref(&byte).addr();
    advise(at, 1, Advice::LinuxPopulateRead) == Err(Errno::INVAL)
}

/// Gives advice to fault in the pages of the `len` bytes at `start`.
fn advise(start: usize, len: usize, populate: Advice) -> Result<(), Errno> {
    let skip = start % page_size();
    let pages = ptr::without_provenance_mut(start - skip);
    // SAFETY: it faults pages in as a load or store would, and changes nothing that is in them.
    unsafe { mm::madvise(pages, len.saturating_add(skip), populate) }
}

/// Whether the system makes the copies, so that one of many bytes takes less time than many of few.
pub(crate) fn takes_calls() -> bool {
    !fault::is_ready()
}

/// Checks that a copy can report a missing page: the system copies from this process to itself, or where a sandbox
/// forbids that, the handler is in front.
pub(crate) fn can_copy() -> io::Result<()> {
    let probe = [7_u8];
    let mut seen = [0];
    let Err(error) = read(probe.as_ptr().addr(), &mut seen) else { return Ok(()) };
    fault::install();
    if fault::is_in_front() {
        return Ok(());
    }
    Err(io::Error::new(error.kind(), format!("process_vm_readv: {error}")))
}

/// Puts the handler (`sys::fault`) of missing pages in front of the program's, so that [`read_program`] and
/// [`write_program`] need no system calls.
pub fn handle_faults() {
    fault::install();
}

/// Copies memory of the program from any address to `to`.
///
/// # Errors
/// `EFAULT` when a page is missing or not readable.
///
/// # Safety
/// The bytes that are mapped at `address` may be read, as memory shared with another process.
pub unsafe fn read_program(address: usize, to: &mut [u8]) -> io::Result<()> {
    if read_some(address, to) == to.len() { Ok(()) } else { Err(fault()) }
}

/// Copies `from` to memory of the program at any address.
///
/// # Errors
/// `EFAULT` when a page is missing or not writable; the bytes before it may be written.
///
/// # Safety
/// The bytes that are mapped at `address` may be overwritten, as memory shared with another process.
pub unsafe fn write_program(address: usize, from: &[u8]) -> io::Result<()> {
    // SAFETY: as the caller promises.
    unsafe { write(address, from) }
}

/// Copies from `from` on, as far as pages are mapped, and returns the number of bytes.
fn read_some(from: usize, to: &mut [u8]) -> usize {
    if fault::is_ready() {
        let start = ptr::without_provenance(from);
        // SAFETY: the slice is borrowed; what is at `from` is memory that a region may read.
        return unsafe { copies::copy(to.as_mut_ptr(), start, to.len()) };
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

/// Copies to `to`, as far as pages are mapped.
///
/// # Safety
/// Any byte mapped there may be overwritten, as memory shared with another process.
unsafe fn write(to: usize, from: &[u8]) -> io::Result<()> {
    if fault::is_ready() {
        let start = ptr::without_provenance_mut(to);
        // SAFETY: as the caller promises; the slice is borrowed.
        let copied = unsafe { copies::copy(start, from.as_ptr(), from.len()) };
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

/// Stores `tail` after all earlier writes, as far as that holds for copies by the system.
///
/// # Safety
/// As [`write`].
unsafe fn write_last(to: usize, tail: &[u8]) -> Option<()> {
    if fault::is_ready() {
        // SAFETY: as the caller promises.
        let stored = unsafe { copies::store_ascending(ptr::without_provenance_mut(to), tail) };
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

/// The number of this process, read once: a system call for each copy would make short ones a fifth longer.
fn process() -> libc::pid_t {
    static PROCESS: AtomicI32 = AtomicI32::new(0);
    extern "C" fn forget() {
        PROCESS.store(0, Ordering::Relaxed);
    }
    /// A child of a fork reads its own.
    static HOOK: ChildHook = ChildHook::new(forget);
    let known = PROCESS.load(Ordering::Relaxed);
    if known != 0 {
        return known;
    }
    let is_forgotten = HOOK.install();
    let own = getpid().as_raw_pid();
    if is_forgotten {
        PROCESS.store(own, Ordering::Relaxed);
    }
    own
}

/// Checks in a test that the processor's copies survive missing pages.
#[cfg(test)]
pub(crate) fn assert_ready() {
    fault::assert_ready();
}

/// Pages of a test, of which it can forbid some.
#[cfg(test)]
pub(crate) struct TestPages {
    start: *mut u8,
    len: usize,
}

#[cfg(test)]
impl TestPages {
    /// Maps `len` bytes of zeros.
    pub(crate) fn new(len: usize) -> Self {
        let access = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a new mapping touches nothing that exists.
        let start =
            unsafe { mm::mmap_anonymous(ptr::null_mut(), len, access, MapFlags::PRIVATE) }.unwrap();
        Self { start: start.cast(), len }
    }

    pub(crate) fn as_ptr(&self) -> *mut u8 {
        self.start
    }

    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Forbids all access from offset `at` on, and keeps the addresses.
    pub(crate) fn forbid(&self, at: usize) {
        let pages = self.start.wrapping_add(at).cast();
        // SAFETY: the test has no reference to its pages.
        unsafe { mm::mprotect(pages, self.len - at, mm::MprotectFlags::empty()) }.unwrap();
    }

    /// Reads the byte at offset `at`, which no other thread writes now.
    pub(crate) fn byte(&self, at: usize) -> u8 {
        assert!(at < self.len);
        // SAFETY: within the pages, which are mapped.
        unsafe { self.start.wrapping_add(at).read_volatile() }
    }
}

#[cfg(test)]
impl Drop for TestPages {
    fn drop(&mut self) {
        // SAFETY: they were mapped with this length, and are dropped once.
        let _ = unsafe { mm::munmap(self.start.cast(), self.len) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_is_of_files_when_all_of_it_is() {
        let maps = "\
1000-3000 rw-s 00000000 fe:00 12 /a
3000-4000 rw-s 00002000 fe:00 12 /a
4000-5000 rw-p 00000000 fe:00 12 /a
7000-8000 rw-s 00000000 00:00 0
9000-a000 rw-s 00000000 fe:00 13 /b
";
        let is_shared_file = |rights: &str, inode: &str| rights.ends_with('s') && inode != "0";
        let covered = |start, end| covered(maps, start, end, is_shared_file);
        assert!(covered(0x1000, 0x4000) && covered(0x2fff, 0x3001) && covered(0x9fff, 0xa000));
        assert!(!covered(0x3000, 0x4001), "private");
        assert!(!covered(0x7000, 0x7001), "no file");
        assert!(!covered(0x9000, 0xa001) && !covered(0x0, 0x1001), "a hole");
    }
}

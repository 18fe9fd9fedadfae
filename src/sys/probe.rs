//! Trial of copies that fault, before the library relies on them.
//!
//! Valgrind translates several functions into one block, and reports the state before the block for a fault within it.
//! Resuming there would run its calls twice, so there is no trial under valgrind.
//!
//! Another emulator of the processor may report another instruction pointer than the processor does, or other registers, or
//! ignore changes of them. So a thread lets its own copies fault once in a process, and compares the results. A fault
//! that is not recognized, or that comes again, ends the trial: the handler maps a page in its place, and the instruction
//! succeeds. Nothing ends the process.

use std::arch::asm;
use std::fs;
use std::ptr;
use std::sync::atomic::{AtomicI32, AtomicU32, AtomicUsize, Ordering};

use rustix::fs::{MemfdFlags, ftruncate, memfd_create};
use rustix::mm::{self, MapFlags, MprotectFlags, ProtFlags};
use rustix::param::page_size;

use super::actions::thread;
use super::copies::{copy, store_ascending};

/// Faults of a trial in which all copies are recognized.
const FAULTS: u32 = 3;

/// Thread that tries; 0 without a trial.
static THREAD: AtomicI32 = AtomicI32::new(0);
/// Address of the missing page.
static MISSING_PAGE: AtomicUsize = AtomicUsize::new(0);
/// Faults of the trial that may still come.
static FAULTS_LEFT: AtomicU32 = AtomicU32::new(0);

/// Whether this process runs on valgrind, by the client request `RUNNING_ON_VALGRIND` of `valgrind.h`. On a processor
/// the instructions have no effect: they rotate a register by 128 bits.
pub(super) fn is_on_valgrind() -> bool {
    const RUNNING_ON_VALGRIND: usize = 0x1001;
    let request = [RUNNING_ON_VALGRIND, 0, 0, 0, 0, 0];
    let depth: usize;
    // SAFETY: valgrind reads the request and sets `rdx`; a processor leaves all registers as they are.
    unsafe {
        asm!(
            "rol rdi, 3",
            "rol rdi, 13",
            "rol rdi, 61",
            "rol rdi, 51",
            "xchg rbx, rbx",
            inout("rdi") 0_usize => _,
            in("rax") request.as_ptr(),
            inout("rdx") 0_usize => depth,
            options(nostack),
        );
    }
    depth > 0
}

/// Whether a debugger or a tracer follows this process.
pub(super) fn is_traced() -> bool {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let tracer = status.lines().find_map(|line| line.strip_prefix("TracerPid:"));
    tracer.is_some_and(|process| process.trim() != "0")
}

/// Whether copies end at pages that are forbidden, and at pages that a file does not have.
pub(super) fn succeeds() -> bool {
    let len = 2 * page_size();
    let access = ProtFlags::READ | ProtFlags::WRITE;
    // SAFETY: a new mapping touches nothing that exists.
    let forbidden = unsafe { mm::mmap_anonymous(ptr::null_mut(), len, access, MapFlags::PRIVATE) };
    let forbidden = forbidden.is_ok_and(|start| {
        let missing = start.cast::<u8>().wrapping_add(page_size());
        // SAFETY: the second page of the new mapping.
        let rc = unsafe { mm::mprotect(missing.cast(), page_size(), MprotectFlags::empty()) };
        rc.is_ok() && ends_at(start.cast(), missing)
    });
    // A sandbox may refuse such files. The handler recognizes both signals in the same way.
    let Ok(file) = memfd_create(c"softroce", MemfdFlags::CLOEXEC) else { return forbidden };
    if !forbidden || ftruncate(&file, page_size() as u64).is_err() {
        return forbidden;
    }
    // SAFETY: as above.
    let short = unsafe { mm::mmap(ptr::null_mut(), len, access, MapFlags::SHARED, &file, 0) };
    short.is_ok_and(|start| ends_at(start.cast(), start.cast::<u8>().wrapping_add(page_size())))
}

/// Whether copies from and to the pages at `start` end where the second of them begins, which is missing. Unmaps both.
fn ends_at(start: *mut u8, missing: *mut u8) -> bool {
    const BEFORE: usize = 24;
    let mut bytes = [0; 2 * BEFORE];
    MISSING_PAGE.store(missing.addr(), Ordering::Relaxed);
    FAULTS_LEFT.store(FAULTS, Ordering::Relaxed);
    THREAD.store(thread(), Ordering::Release);
    let at = missing.wrapping_sub(BEFORE);
    let len = bytes.len();
    // SAFETY: the pages are this function's, and what is missing there ends the copy, or is mapped by `is_tried`.
    let is_read = unsafe { copy(bytes.as_mut_ptr(), at, len) } == BEFORE;
    // SAFETY: as above.
    let is_written = unsafe { copy(at, bytes.as_ptr(), len) } == BEFORE;
    // SAFETY: as above.
    let is_stored = unsafe { store_ascending(missing.wrapping_sub(8), &[1; 8]) };
    // SAFETY: as above.
    let is_missed = !unsafe { store_ascending(missing, &[1; 8]) };
    THREAD.store(0, Ordering::Release);
    let was_found =
        FAULTS_LEFT.load(Ordering::Relaxed) == 0 && MISSING_PAGE.load(Ordering::Relaxed) != 0;
    // SAFETY: mapped by the caller, or in place of that.
    let _ = unsafe { mm::munmap(start.cast(), 2 * page_size()) };
    is_read && is_written && is_stored && is_missed && was_found
}

/// Takes note of a fault of this thread in a trial, which was recognized or not. Returns whether it is one, after which the
/// handler returns. Only the handler calls it.
pub(super) fn is_tried(is_recognized: bool) -> bool {
    let trying = THREAD.load(Ordering::Acquire);
    if trying == 0 || trying != thread() {
        return false;
    }
    let left = FAULTS_LEFT.load(Ordering::Relaxed);
    if is_recognized && left > 0 {
        FAULTS_LEFT.store(left - 1, Ordering::Relaxed);
        return true;
    }
    let missing = MISSING_PAGE.swap(0, Ordering::Relaxed);
    let access = ProtFlags::READ | ProtFlags::WRITE;
    let flags = MapFlags::PRIVATE | MapFlags::FIXED;
    // SAFETY: it replaces a page of the trial.
    missing != 0
        && unsafe {
            mm::mmap_anonymous(ptr::without_provenance_mut(missing), page_size(), access, flags)
        }
        .is_ok()
}

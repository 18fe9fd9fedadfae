//! Copies by instructions with known addresses, so that a handler recognizes their faults.
//!
//! Each function in assembly has one instruction that accesses memory, its first one. The handler of
//! [`fault`](super::fault) compares the instruction pointer of a fault with the addresses of the two functions, skips the
//! instruction at a match, and the copy is a short one. No register value marks a copy, so a fault of other code with
//! the same register values is not mistaken for one.
//!
//! # Why this is sound
//!
//! The functions are naked: the compiler neither inlines nor duplicates them, and each instruction exists once. The
//! compiler knows only their signatures, so it assumes that memory changes as other users of the memory may change it.
//! The caller promises that the functions may touch the memory. [`end`] changes registers of a frame only if the frame
//! stopped at one of the two instructions.

use std::arch::naked_asm;

use libc::{REG_RCX, REG_RIP, c_int, greg_t, ucontext_t};

/// Length of `rep movsb`, in bytes.
const REP_MOVSB_LEN: greg_t = 2;

/// Length of `mov qword ptr [rdi], rsi`, in bytes.
const MOV_WORD_LEN: greg_t = 3;

/// Copies `len` bytes from one address to another, and returns how many were there.
///
/// # Safety
/// The pages that exist at `from` may be read and those at `to` overwritten, as memory shared with another
/// process; and the handler of [`fault`](super::fault) is installed, unless everything is mapped.
pub(super) unsafe fn copy(to: *mut u8, from: *const u8, len: usize) -> usize {
    // SAFETY: it reads and writes what the caller has promised, up to the first page that is not there.
    let left = unsafe { rep_movsb(to, from, 0, len) };
    len - left
}

/// Stores bytes in ascending order: a reader that sees the last byte sees all bytes, and all earlier stores.
/// Returns whether all were there.
///
/// # Safety
/// As [`copy`].
pub(super) unsafe fn store_ascending(to: *mut u8, bytes: &[u8]) -> bool {
    /// Within one of these a word is stored at once.
    const LINE: usize = 64;
    match bytes.try_into() {
        Ok(word) if to.addr() % LINE <= LINE - size_of::<u64>() => {
            // SAFETY: it writes eight bytes, as the caller has promised, or none.
            let missed = unsafe { mov_word(to, u64::from_ne_bytes(word), 0, 0) };
            missed == 0
        }
        // The processor stores in the order of its instructions.
        _ => bytes.iter().enumerate().all(|(n, byte)| {
            // SAFETY: a part of what the caller has promised.
            unsafe { copy(to.wrapping_add(n), byte, 1) == 1 }
        }),
    }
}

/// Copies `len` bytes, and returns how many are left after a fault that [`end`] has skipped. The first instruction is
/// the only one that faults; `len` is the fourth argument because it counts in `rcx`.
///
/// # Safety
/// As [`copy`].
#[unsafe(naked)]
unsafe extern "sysv64" fn rep_movsb(to: *mut u8, from: *const u8, _: usize, len: usize) -> usize {
    naked_asm!("rep movsb", "mov rax, rcx", "ret")
}

/// Stores `word`, and returns `missed`, which [`end`] makes 1 when it skips the store. The first instruction is the
/// only one that faults.
///
/// # Safety
/// As [`copy`].
#[unsafe(naked)]
unsafe extern "sysv64" fn mov_word(to: *mut u8, word: u64, _: usize, missed: usize) -> usize {
    naked_asm!("mov qword ptr [rdi], rsi", "mov rax, rcx", "ret")
}

/// Ends a copy that has faulted. Returns false, and changes nothing, when the fault is at another instruction.
pub(super) fn end(frame: &mut ucontext_t) -> bool {
    let registers = &mut frame.uc_mcontext.gregs;
    let at = |register: c_int| usize::try_from(register).unwrap_or_default();
    let Ok(instruction) = usize::try_from(registers[at(REG_RIP)]) else { return false };
    let copy: unsafe extern "sysv64" fn(*mut u8, *const u8, usize, usize) -> usize = rep_movsb;
    let store: unsafe extern "sysv64" fn(*mut u8, u64, usize, usize) -> usize = mov_word;
    if instruction == copy as usize {
        registers[at(REG_RIP)] += REP_MOVSB_LEN;
    } else if instruction == store as usize {
        registers[at(REG_RCX)] = 1;
        registers[at(REG_RIP)] += MOV_WORD_LEN;
    } else {
        return false;
    }
    true
}

#[cfg(test)]
mod tests {
    use super::super::fault::assert_ready;
    use super::super::memory::TestPages;
    use super::*;

    /// Two pages, of which the second is forbidden.
    struct Pages(TestPages);

    const PAGE: usize = 4096;

    impl Pages {
        fn new() -> Self {
            let pages = TestPages::new(2 * PAGE);
            pages.forbid(PAGE);
            Self(pages)
        }

        /// So many bytes before the one that is not there.
        fn end(&self, bytes: usize) -> *mut u8 {
            self.0.as_ptr().wrapping_add(PAGE - bytes)
        }
    }

    #[test]
    fn copy_ends_at_a_missing_page() {
        assert_ready();
        let pages = Pages::new();
        let from: Vec<u8> = (1..=100).collect();
        let mut seen = [0; 100];
        for there in [0, 1, 7, 50, 100] {
            let at = pages.end(there);
            // SAFETY: the pages are the test's, and `from` is as long.
            assert_eq!(unsafe { copy(at, from.as_ptr(), 100) }, there);
            // SAFETY: likewise, and `seen` is as long.
            assert_eq!(unsafe { copy(seen.as_mut_ptr(), at, 100) }, there);
            assert_eq!(seen[..there], from[..there]);
        }
    }

    #[test]
    fn last_bytes_are_stored_or_missed_at_every_alignment() {
        assert_ready();
        let pages = Pages::new();
        for len in 1..=8 {
            let bytes = [7, 6, 5, 4, 3, 2, 1, 9];
            let bytes = &bytes[8 - len..];
            for space in 0..=80 {
                // SAFETY: the pages are the test's.
                let stored = unsafe { store_ascending(pages.end(space), bytes) };
                assert_eq!(stored, space >= len, "{len} bytes where there are {space}");
            }
        }
    }
}

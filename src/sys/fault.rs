//! Copies by the processor that end at a missing page, instead of ending the process.
//!
//! An access without a page behind it raises SIGSEGV, or SIGBUS where a file that is mapped has become
//! shorter. Copies are made here by two instructions, each the first of a function in assembly, so both are
//! known by their addresses. A handler of both signals that finds a fault at one of these addresses skips
//! the instruction, and the copy is a short one. Any other fault takes its usual course: the handler
//! restores the default action, and the processor tries the instruction again.
//!
//! Signals belong to the program. So this is done only where a program leaves both of them alone, which is
//! [looked at](is_ready) again and again:
//! * who has handlers of his own, before or later, keeps them;
//! * a thread that blocks one of the signals would be ended by it.
//!
//! There memory is copied by calls to the system (`sys::memory`), as on other processors than x86-64.
//!
//! # Why this is sound
//!
//! The functions are naked, so the compiler neither inlines nor copies them, and each instruction exists
//! once. The compiler knows only their signatures, so it expects of them what the memory's other users may
//! do as well. The caller promises that they may touch what they touch. The handler changes registers of a
//! frame that the kernel has made for it, and only of a frame that stopped at one of the two instructions.
//! Register values of other code never matter.

use std::arch::naked_asm;
use std::cell::Cell;
use std::mem::MaybeUninit;
use std::ptr;
use std::sync::Once;

use libc::{REG_RCX, REG_RIP, SIGBUS, SIGSEGV, c_int, c_void, siginfo_t, ucontext_t};

use super::ffi::{BlockedSignals, signal_action};

/// Length of `rep movsb`, in bytes.
const REP_MOVSB_LEN: libc::greg_t = 2;

/// Length of `mov qword ptr [rdi], rsi`, in bytes.
const MOV_WORD_LEN: libc::greg_t = 3;

/// Copies between two looks at who handles the signals.
const TRUST: u32 = 64;

/// Has the signals handled, if nobody does it yet. Once in a process; a child that is forked has it too.
pub(super) fn install() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        if [SIGSEGV, SIGBUS].iter().all(|signal| handler(*signal) == Some(libc::SIG_DFL)) {
            [SIGSEGV, SIGBUS].iter().for_each(|signal| set(*signal, own()));
        }
    });
}

/// Whether a copy of this thread may meet a page that is not there.
///
/// It is true for [`TRUST`] copies behind each look. Whoever takes a signal for himself and, before it is
/// looked at again, takes memory away that is still in use, gets the signal.
pub(super) fn is_ready() -> bool {
    thread_local! {
        static LOOKED: Cell<(bool, u32)> = const { Cell::new((false, 0)) };
    }
    LOOKED.with(|looked| {
        let (mut ready, left) = looked.get();
        let left = left.checked_sub(1).unwrap_or_else(|| {
            ready = is_handled() && is_deliverable();
            TRUST
        });
        looked.set((ready, left));
        ready
    })
}

/// Copies `len` bytes from one address to another, and says how many were there.
///
/// # Safety
/// What is mapped at `from` may be read and what is mapped at `to` overwritten, as memory shared with another
/// process; and [`is_ready`] has said so, unless everything is mapped.
pub(super) unsafe fn copy(to: *mut u8, from: *const u8, len: usize) -> usize {
    // SAFETY: it reads and writes what the caller has promised, up to the first page that is not there.
    let left = unsafe { rep_movsb(to, from, 0, len) };
    len - left
}

/// Stores bytes in ascending order, so that who sees the last of them sees all, and what was stored before.
/// Says whether all were there.
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

/// Copies `len` bytes, and returns how many are left after a fault that [`on_fault`] has skipped. The first
/// instruction is the only one that faults; `len` is the fourth argument because it counts in `rcx`.
///
/// # Safety
/// As [`copy`].
#[unsafe(naked)]
unsafe extern "sysv64" fn rep_movsb(to: *mut u8, from: *const u8, _: usize, len: usize) -> usize {
    naked_asm!("rep movsb", "mov rax, rcx", "ret")
}

/// Stores `word`, and returns `missed`, which [`on_fault`] makes 1 when it skips the store. The first
/// instruction is the only one that faults.
///
/// # Safety
/// As [`copy`].
#[unsafe(naked)]
unsafe extern "sysv64" fn mov_word(to: *mut u8, word: u64, _: usize, missed: usize) -> usize {
    naked_asm!("mov qword ptr [rdi], rsi", "mov rax, rcx", "ret")
}

fn own() -> libc::sighandler_t {
    let own: extern "C" fn(c_int, *mut siginfo_t, *mut c_void) = on_fault;
    own as libc::sighandler_t
}

fn is_handled() -> bool {
    [SIGSEGV, SIGBUS].iter().all(|signal| handler(*signal) == Some(own()))
}

/// Whether this thread takes both signals.
fn is_deliverable() -> bool {
    let blocked = BlockedSignals::read();
    ![SIGSEGV, SIGBUS].iter().any(|signal| blocked.contains(*signal))
}

/// Returns the handler of a signal, `SIG_DFL` without one.
fn handler(signal: c_int) -> Option<libc::sighandler_t> {
    signal_action(signal).map(|action| action.sa_sigaction)
}

fn set(signal: c_int, handler: libc::sighandler_t) {
    let mut action = libc::sigaction {
        sa_sigaction: handler,
        // SAFETY: a set of signals is plain bytes, and none of them set is the empty set.
        sa_mask: unsafe { MaybeUninit::zeroed().assume_init() },
        sa_flags: libc::SA_SIGINFO | libc::SA_ONSTACK,
        sa_restorer: None,
    };
    if handler == libc::SIG_DFL {
        action.sa_flags = 0;
    }
    // SAFETY: the handler is a function of the type that the flags say, or the default. Without success all
    // stays as it was.
    unsafe { libc::sigaction(signal, &action, ptr::null_mut()) };
}

extern "C" fn on_fault(signal: c_int, info: *mut siginfo_t, frame: *mut c_void) {
    // SAFETY: the kernel hands both to who asked with `SA_SIGINFO`, and nobody else has them now.
    let info = unsafe { &*info };
    // SAFETY: as above.
    let frame = unsafe { &mut *frame.cast::<ucontext_t>() };
    let was_sent = info.si_code <= 0;
    let registers = &mut frame.uc_mcontext.gregs;
    if !was_sent && skip(registers) {
        return;
    }
    // Not ours. Whoever faulted does so again.
    set(signal, libc::SIG_DFL);
    if was_sent {
        // SAFETY: it has no pointers; the signal comes when this handler has returned.
        unsafe { libc::raise(signal) };
    }
}

/// Ends a copy of [`rep_movsb`] or [`mov_word`]. Returns false when the fault is at another instruction.
fn skip(registers: &mut [libc::greg_t; 23]) -> bool {
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

/// Has the signals handled in a test. The standard library's handler, which detects stack overflows, gives way.
#[cfg(test)]
pub(super) fn take_signals() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| [SIGSEGV, SIGBUS].iter().for_each(|signal| set(*signal, own())));
    assert!(is_handled() && is_deliverable());
}

#[cfg(test)]
mod tests {
    use std::arch::asm;
    use std::thread;

    use super::*;
    use crate::sys::memory::TestPages;

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
    fn a_copy_ends_where_the_pages_do() {
        take_signals();
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
    fn the_last_bytes_are_stored_or_not_at_every_alignment() {
        take_signals();
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

    #[test]
    fn foreign_copy_with_the_old_marker_dies() {
        /// Identified our copies, in `r8`, before their addresses did.
        const OLD_MARKER: u64 = 0x9d0b_61f3_57c2_e84a;
        take_signals();
        let pages = Pages::new();
        let (byte, target) = (0_u8, pages.end(0));
        let _alone = crate::sys::STARTING.write().unwrap();
        // SAFETY: the child calls `_exit` alone, which is async-signal-safe.
        let child = unsafe { libc::fork() };
        assert!(child >= 0);
        if child == 0 {
            // SAFETY: the copy faults, which ends the child.
            unsafe {
                asm!(
                    "rep movsb",
                    in("r8") OLD_MARKER,
                    inout("rdi") target => _,
                    inout("rsi") &byte => _,
                    inout("rcx") 1_usize => _,
                );
            }
            // SAFETY: it ends the child, which shares nothing with the test.
            unsafe { libc::_exit(0) };
        }
        let mut status = 0;
        // SAFETY: `status` is the test's, and so is the child.
        assert_eq!(unsafe { libc::waitpid(child, &mut status, 0) }, child);
        assert!(libc::WIFSIGNALED(status), "{status:#x}");
        assert_eq!(libc::WTERMSIG(status), SIGSEGV);
    }

    #[test]
    fn a_thread_that_blocks_a_signal_does_not_copy_so() {
        take_signals();
        let blocked = || {
            let mut set = MaybeUninit::<libc::sigset_t>::uninit();
            // SAFETY: it fills the set.
            unsafe { libc::sigfillset(set.as_mut_ptr()) };
            // SAFETY: the set is filled; it is the mask of this thread alone.
            unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, set.as_ptr(), ptr::null_mut()) };
            is_ready()
        };
        thread::scope(|scope| {
            let (blocked, free) = (scope.spawn(blocked), scope.spawn(is_ready));
            assert_eq!((blocked.join().unwrap(), free.join().unwrap()), (false, true));
        });
    }
}

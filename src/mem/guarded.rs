//! Copies by the processor that end where there is no page, instead of ending the process: everything
//! `unsafe` of that.
//!
//! An access without a page behind it raises SIGSEGV, or SIGBUS where a file that is mapped has become
//! shorter. Copies are made here by two instructions, which say by a number in a register that they are
//! ours. A handler of both signals that finds such an instruction, with the number, skips it, and the copy
//! is a short one. What anything else has raised goes the way that it would have gone: the handler gives
//! way to the default action, and the instruction is tried again.
//!
//! Signals belong to the program. So this is done only where a program leaves both of them alone, which is
//! [looked at](is_ready) again and again:
//! * who has handlers of his own, before or later, keeps them;
//! * a thread that blocks one of the signals would be ended by it.
//!
//! There memory is copied by calls to the system (`mem::sys`), as on other processors than x86-64.
//!
//! # Why this is sound
//!
//! The instructions are `asm!`, of which the compiler knows nothing but the registers, so it expects of
//! them what the memory's other users may do as well. That what they touch may be touched is for the caller
//! to promise. The handler changes registers of a frame that the kernel has made for it, and only of one
//! that stopped at one of the two instructions; whoever else has the number in that register and one of the
//! instructions right there does not exist: it is 64 random bits.

use std::arch::asm;
use std::cell::Cell;
use std::mem::MaybeUninit;
use std::ptr;
use std::sync::Once;

use libc::{REG_R8, REG_RCX, REG_RIP, SIGBUS, SIGSEGV, c_int, c_void, siginfo_t, ucontext_t};

/// What register 8 holds while an instruction is ours.
const OURS: u64 = 0x9d0b_61f3_57c2_e84a;

/// `rep movsb`: on a fault `rcx` holds how many bytes are left.
const MOVE_BYTES: [u8; 2] = [0xf3, 0xa4];

/// `mov qword ptr [rdi], rax`.
const STORE_WORD: [u8; 3] = [0x48, 0x89, 0x07];

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
    let left: usize;
    // SAFETY: it reads and writes what the caller has promised, up to the first page that is not there.
    unsafe {
        asm!(
            "rep movsb",
            in("r8") OURS,
            inout("rdi") to => _,
            inout("rsi") from => _,
            inout("rcx") len => left,
            options(nostack, preserves_flags),
        );
    }
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
            let missed: usize;
            // SAFETY: it writes eight bytes, as the caller has promised, or none.
            unsafe {
                asm!(
                    "mov qword ptr [rdi], rax",
                    in("r8") OURS,
                    in("rdi") to,
                    in("rax") u64::from_ne_bytes(word),
                    inout("rcx") 0_usize => missed,
                    options(nostack, preserves_flags),
                );
            }
            missed == 0
        }
        // The processor stores in the order of its instructions.
        _ => bytes.iter().enumerate().all(|(n, byte)| {
            // SAFETY: a part of what the caller has promised.
            unsafe { copy(to.wrapping_add(n), byte, 1) == 1 }
        }),
    }
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
    let mut blocked = MaybeUninit::<libc::sigset_t>::uninit();
    // SAFETY: without a new set nothing is changed, and the old one is put into `blocked`.
    let asked =
        unsafe { libc::pthread_sigmask(libc::SIG_BLOCK, ptr::null(), blocked.as_mut_ptr()) };
    asked == 0
        && [SIGSEGV, SIGBUS].iter().all(|signal| {
            // SAFETY: the call has succeeded, so the set is there.
            unsafe { libc::sigismember(blocked.as_ptr(), *signal) == 0 }
        })
}

/// Who handles a signal, and `SIG_DFL` if nobody does.
fn handler(signal: c_int) -> Option<libc::sighandler_t> {
    let mut action = MaybeUninit::<libc::sigaction>::uninit();
    // SAFETY: without a new action nothing is changed, and the old one is put into `action`.
    let asked = unsafe { libc::sigaction(signal, ptr::null(), action.as_mut_ptr()) };
    // SAFETY: the call has succeeded, so it is there.
    (asked == 0).then(|| unsafe { action.assume_init_ref() }.sa_sigaction)
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

/// Has a copy end that is ours. False if it is none.
fn skip(registers: &mut [libc::greg_t; 23]) -> bool {
    let at = |register: c_int| usize::try_from(register).unwrap_or_default();
    if registers[at(REG_R8)].cast_unsigned() != OURS {
        return false;
    }
    let Ok(address) = usize::try_from(registers[at(REG_RIP)]) else { return false };
    let code = ptr::with_exposed_provenance::<[u8; 3]>(address);
    // SAFETY: the processor has read an instruction there, and no function ends with it.
    let code = unsafe { code.read_unaligned() };
    let length = if code.starts_with(&MOVE_BYTES) {
        MOVE_BYTES.len()
    } else if code == STORE_WORD {
        registers[at(REG_RCX)] = 1;
        STORE_WORD.len()
    } else {
        return false;
    };
    registers[at(REG_RIP)] += length as libc::greg_t;
    true
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;

    /// Two pages, of which the second is not there.
    struct Pages(*mut c_void);

    const PAGE: usize = 4096;

    impl Pages {
        fn new() -> Self {
            let (access, kind) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE);
            let kind = kind | libc::MAP_ANONYMOUS;
            // SAFETY: a new mapping touches nothing that exists.
            let at = unsafe { libc::mmap(ptr::null_mut(), 2 * PAGE, access, kind, -1, 0) };
            assert_ne!(at, libc::MAP_FAILED);
            let second = at.wrapping_byte_add(PAGE);
            // SAFETY: it is the test's, which has no reference to it.
            assert_eq!(unsafe { libc::mprotect(second, PAGE, libc::PROT_NONE) }, 0);
            Self(at)
        }

        /// So many bytes before the one that is not there.
        fn end(&self, bytes: usize) -> *mut u8 {
            self.0.cast::<u8>().wrapping_add(PAGE - bytes)
        }
    }

    impl Drop for Pages {
        fn drop(&mut self) {
            // SAFETY: they were mapped so, and are the test's.
            unsafe { libc::munmap(self.0, 2 * PAGE) };
        }
    }

    /// The standard library's handler, which looks for overflowing stacks, gives way to ours.
    fn take_signals() {
        static ONCE: Once = Once::new();
        ONCE.call_once(|| [SIGSEGV, SIGBUS].iter().for_each(|signal| set(*signal, own())));
        assert!(is_handled() && is_deliverable());
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

//! Signals that interrupt calls: how calls end that they interrupt.

use std::ffi::c_int;
use std::mem::MaybeUninit;
use std::ptr;

use bitflags::bitflags;

bitflags! {
    /// How the handlers of a program leave calls such as `read` that they interrupt.
    #[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
    pub(crate) struct Restarts: u8 {
        /// Handlers with `SA_RESTART`: the call goes on.
        const RESTART = 1;
        /// Handlers without: the call ends with `EINTR`.
        const INTERRUPT = 2;
    }
}

/// Signals that a thread raises itself, by what it does and not while it waits.
const SYNCHRONOUS: [c_int; 6] =
    [libc::SIGSEGV, libc::SIGBUS, libc::SIGFPE, libc::SIGILL, libc::SIGTRAP, libc::SIGSYS];

/// The handlers that may interrupt this thread.
pub(crate) fn restarts() -> Restarts {
    let mut blocked = MaybeUninit::<libc::sigset_t>::zeroed();
    // SAFETY: no set is given, and `blocked` is a place for the one that the call returns.
    unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, ptr::null(), blocked.as_mut_ptr()) };
    // SAFETY: all zeros is a set too, the empty one.
    let blocked = unsafe { blocked.assume_init() };
    let mut found = Restarts::empty();
    for signal in (1..=libc::SIGRTMAX()).filter(|signal| !SYNCHRONOUS.contains(signal)) {
        let mut action = MaybeUninit::<libc::sigaction>::zeroed();
        // SAFETY: no action is given, and `action` is a place for the one that the call returns.
        if unsafe { libc::sigaction(signal, ptr::null(), action.as_mut_ptr()) } != 0 {
            // One of the C library's own.
            continue;
        }
        // SAFETY: the call has succeeded. All zeros would be an action too: the default one.
        let action = unsafe { action.assume_init() };
        // SAFETY: `blocked` is a set, and `signal` the number of a signal.
        let is_blocked = unsafe { libc::sigismember(&blocked, signal) } == 1;
        let has_handler = ![libc::SIG_DFL, libc::SIG_IGN].contains(&action.sa_sigaction);
        if has_handler && !is_blocked {
            let restarts = action.sa_flags & libc::SA_RESTART != 0;
            found |= if restarts { Restarts::RESTART } else { Restarts::INTERRUPT };
        }
    }
    found
}

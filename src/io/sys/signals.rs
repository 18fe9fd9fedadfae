//! Signals that interrupt calls, and a wait that the kernel restarts after them as it restarts `read`.

use std::ffi::c_int;
use std::io;
use std::mem::MaybeUninit;
use std::ptr;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use bitflags::bitflags;

use super::{Woken, timespec};

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

/// Threads that sleep until they are woken.
///
/// A sleep without timeout that a signal interrupts goes on or ends as `read` does: the kernel knows the
/// handler (signal(7), `FUTEX_WAIT`).
#[derive(Debug, Default)]
pub(crate) struct Sleepers(AtomicU32);

impl Sleepers {
    /// Begins to sleep: from now on a wake counts.
    pub(crate) fn ticket(&self) -> u32 {
        self.0.load(Ordering::SeqCst)
    }

    /// Sleeps until a wake that is later than the ticket, for at most `timeout`. It may return early.
    pub(crate) fn sleep(&self, ticket: u32, timeout: Option<Duration>) -> Woken {
        let timeout = timeout.map(timespec);
        let timeout = timeout.as_ref().map_or(ptr::null(), ptr::from_ref);
        let (at, operation) = (self.0.as_ptr(), libc::FUTEX_WAIT | libc::FUTEX_PRIVATE_FLAG);
        // SAFETY: `at` points to a number that lives until the call returns, and so does the timeout if it is
        // not null.
        let rc = unsafe { libc::syscall(libc::SYS_futex, at, operation, ticket, timeout) };
        match io::Error::last_os_error().raw_os_error() {
            Some(libc::ETIMEDOUT) if rc != 0 => Woken::TimedOut,
            Some(libc::EINTR) if rc != 0 => Woken::Interrupted,
            _ => Woken::Ready,
        }
    }

    /// Wakes so many of those that sleep.
    pub(crate) fn wake(&self, count: c_int) {
        self.0.fetch_add(1, Ordering::SeqCst);
        let (at, operation) = (self.0.as_ptr(), libc::FUTEX_WAKE | libc::FUTEX_PRIVATE_FLAG);
        // SAFETY: `at` is an address only: the call reads and writes nothing there.
        unsafe { libc::syscall(libc::SYS_futex, at, operation, count) };
    }
}

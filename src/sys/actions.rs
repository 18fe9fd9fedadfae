//! Actions of signals as the kernel has them, and the handler that stands before those of the program.
//!
//! These calls enter the kernel without `sigaction` of the C library: UCX, sanitizers and `softroce-paths` replace that
//! function, and UCX's refuses to change the actions of SIGSEGV and SIGBUS.

use std::ffi::{c_int, c_void};
use std::mem::MaybeUninit;
use std::{process, ptr};

use libc::{SIG_DFL, SIG_IGN, siginfo_t};

/// The kernel's `SA_RESTORER`: [`SignalAction::restorer`] is set.
pub(super) const SA_RESTORER: u64 = 0x0400_0000;

/// Length of the kernel's set of signals, in bytes.
const SET_LEN: usize = size_of::<u64>();

/// Action of a signal, as `rt_sigaction` of x86-64 has it.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct SignalAction {
    /// Address of the handler, or `SIG_DFL` or `SIG_IGN`.
    pub handler: usize,
    /// `SA_…`.
    pub flags: u64,
    /// Address of the code to which the handler returns.
    pub restorer: usize,
    /// Signals that are blocked while the handler runs, a bit each.
    pub mask: u64,
}

impl SignalAction {
    /// Returns the kernel's action of a signal.
    pub(super) fn read(signal: c_int) -> Option<Self> {
        let mut action = MaybeUninit::<Self>::zeroed();
        let (none, to) = (ptr::null::<Self>(), action.as_mut_ptr());
        // SAFETY: no action is given, and `to` is a place for the one that the call returns.
        let rc = unsafe { libc::syscall(libc::SYS_rt_sigaction, signal, none, to, SET_LEN) };
        // SAFETY: numbers, for which all zeros is a value too.
        (rc == 0).then(|| unsafe { action.assume_init() })
    }

    /// Sets the kernel's action of a signal, and returns whether the kernel has taken it.
    ///
    /// # Safety
    /// The handler is one that may be called for this signal, or `SIG_DFL` or `SIG_IGN`.
    pub(super) unsafe fn set(&self, signal: c_int) -> bool {
        let (action, none) = (ptr::from_ref(self), ptr::null_mut::<Self>());
        // SAFETY: the caller promises that the handler may be called; the kernel reads the action.
        unsafe { libc::syscall(libc::SYS_rt_sigaction, signal, action, none, SET_LEN) == 0 }
    }

    /// Whether the signal has a handler.
    pub(super) fn has_handler(&self) -> bool {
        ![SIG_DFL, SIG_IGN].contains(&self.handler)
    }
}

/// Sends the calling thread a signal with this information, which is delivered when the thread does not block it.
pub(super) fn send_to_self(signal: c_int, info: &siginfo_t) {
    let (process, info) = (process::id(), ptr::from_ref(info).cast::<c_void>());
    // SAFETY: it has no pointer but `info`, which the kernel reads.
    unsafe { libc::syscall(libc::SYS_rt_tgsigqueueinfo, process, thread(), signal, info) };
}

/// Number of the calling thread, unique on this machine as long as the thread runs.
pub(super) fn thread() -> i32 {
    // SAFETY: the call has no arguments, and always succeeds.
    let thread = unsafe { libc::syscall(libc::SYS_gettid) };
    i32::try_from(thread).unwrap_or(-1)
}

/// Set of signals, a bit each.
pub(super) const fn set_of(signals: [c_int; 2]) -> u64 {
    1 << (signals[0] - 1) | 1 << (signals[1] - 1)
}

/// Signal mask of the calling thread, put back when this is dropped.
pub(super) struct SavedMask(u64);

impl SavedMask {
    /// Blocks all signals.
    pub(super) fn block_all() -> Self {
        Self(change_mask(libc::SIG_SETMASK, u64::MAX))
    }

    /// Lets signals through.
    pub(super) fn unblock(set: u64) -> Self {
        Self(change_mask(libc::SIG_UNBLOCK, set))
    }
}

impl Drop for SavedMask {
    fn drop(&mut self) {
        change_mask(libc::SIG_SETMASK, self.0);
    }
}

/// Changes the signal mask of this thread, and returns the one from before.
fn change_mask(how: c_int, set: u64) -> u64 {
    let mut before = 0_u64;
    let (set, to) = (ptr::from_ref(&set), ptr::from_mut(&mut before));
    // SAFETY: the kernel reads one set and writes the other.
    unsafe { libc::syscall(libc::SYS_rt_sigprocmask, how, set, to, SET_LEN) };
    before
}

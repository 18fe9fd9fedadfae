//! Effect of signal handlers on the calls that they interrupt.

use std::ffi::c_int;

use bitflags::bitflags;

use super::ffi::{BlockedSignals, signal_action};

bitflags! {
    /// Effect of the handlers of a program on interrupted calls such as `read`.
    #[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
    pub(crate) struct Restarts: u8 {
        /// Handlers with `SA_RESTART`: the call continues.
        const RESTART = 1;
        /// Handlers without: the call ends with `EINTR`.
        const INTERRUPT = 2;
    }
}

/// Signals that a thread raises by its own instructions, not while it waits.
const SYNCHRONOUS: [c_int; 6] =
    [libc::SIGSEGV, libc::SIGBUS, libc::SIGFPE, libc::SIGILL, libc::SIGTRAP, libc::SIGSYS];

/// Signals that this thread takes later: all but those of its own instructions. A sleep [with them](super::sleep_on_also)
/// takes them as soon as it begins.
pub(crate) struct DeferredSignals {
    blocked_before: BlockedSignals,
}

impl DeferredSignals {
    /// Defers the signals from now on until the value is dropped.
    pub(crate) fn begin() -> Self {
        let blocked_before = BlockedSignals::read();
        blocked_before.with_all_but(&SYNCHRONOUS).set();
        Self { blocked_before }
    }

    /// Returns the signals that the thread blocks without this.
    pub(super) fn blocked_before(&self) -> &BlockedSignals {
        &self.blocked_before
    }
}

impl Drop for DeferredSignals {
    fn drop(&mut self) {
        self.blocked_before.set();
    }
}

/// Returns the handlers that may interrupt this thread.
pub(crate) fn restarts() -> Restarts {
    let blocked = BlockedSignals::read();
    let mut found = Restarts::empty();
    for signal in (1..=libc::SIGRTMAX()).filter(|signal| !SYNCHRONOUS.contains(signal)) {
        let Some(action) = signal_action(signal) else { continue };
        let has_handler = ![libc::SIG_DFL, libc::SIG_IGN].contains(&action.sa_sigaction);
        if has_handler && !blocked.contains(signal) {
            let restarts = action.sa_flags & libc::SA_RESTART != 0;
            found |= if restarts { Restarts::RESTART } else { Restarts::INTERRUPT };
        }
    }
    found
}

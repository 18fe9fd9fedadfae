//! Hooks around a fork of the process.

use nix::libc;

/// Runs `before` in the parent before each fork, and `after` in the parent and the child after it.
pub(crate) fn at_fork(before: extern "C" fn(), after: extern "C" fn()) {
    // SAFETY: functions of the type that is asked for, which are never unloaded. The only error is out of
    // memory, and then the hooks do not run.
    let _ = unsafe { libc::pthread_atfork(Some(before), Some(after), Some(after)) };
}

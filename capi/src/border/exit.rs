//! The end of the process.

use nix::libc;

/// Has `hook` run when the process exits by `exit` or by the end of `main`. What is asked for last runs
/// first.
pub(crate) fn at_exit(hook: extern "C" fn()) {
    // SAFETY: `hook` is a function of the type that is asked for, and functions stay: the library is
    // not unloaded. Without memory for the entry it is not run.
    let _ = unsafe { libc::atexit(hook) };
}

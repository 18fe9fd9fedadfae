//! Hooks at the end of the process.

use nix::libc;

/// Runs `hook` when the process ends by `exit` or by the end of `main`. Hooks run in reverse order.
pub(crate) fn at_exit(hook: extern "C" fn()) {
    // SAFETY: `hook` has the type that `atexit` asks for, and the library is never unloaded. The only error
    // is out of memory, and then the hook does not run.
    let _ = unsafe { libc::atexit(hook) };
}

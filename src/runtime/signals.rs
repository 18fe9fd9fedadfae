//! Effect of signals on a thread that waits as in `read`.
//!
//! A `read` that a handler interrupts is restarted if the handler was installed with `SA_RESTART`, and fails with
//! `EINTR` otherwise. A thread that drives a device sleeps in `ppoll`, which is never restarted, and it does not
//! learn which handler has run. So:
//!
//! * where all handlers of the program agree, they decide;
//! * where they do not ([`are_mixed`]), the thread leaves the device to the device's thread, and sleeps in a call that
//!   the kernel restarts or not.

use std::cell::Cell;

use crate::sys::{DeferredSignals, Restarts, restarts};

/// Number of waits of a thread after which it reads the handlers again, which takes as long as some system calls.
const WAITS_PER_CHECK: u32 = 256;

thread_local! {
    /// Handlers as this thread has read them last, and the number of its waits since.
    static HANDLERS: Cell<(Restarts, u32)> = const { Cell::new((Restarts::empty(), WAITS_PER_CHECK)) };
}

/// Returns the handlers, as they were a short time ago.
fn handlers() -> Restarts {
    let look = |seen: &Cell<(Restarts, u32)>| {
        let (known, waits) = seen.get();
        let (known, waits) =
            if waits < WAITS_PER_CHECK { (known, waits + 1) } else { (restarts(), 1) };
        seen.set((known, waits));
        known
    };
    // A thread that ends has no thread-local storage.
    HANDLERS.try_with(look).unwrap_or_default()
}

/// Returns whether some handlers restart calls and others do not.
pub(crate) fn are_mixed() -> bool {
    handlers().is_all()
}

/// Defers the signals of a thread that does not sleep yet, if a handler may end a call such as `read`: one that runs before
/// the thread sleeps would not end the wait.
pub(crate) fn defer() -> Option<DeferredSignals> {
    handlers().contains(Restarts::INTERRUPT).then(DeferredSignals::begin)
}

/// Returns whether the handler that has just run in this thread ends a call such as `read`.
pub(crate) fn ends_call() -> bool {
    let look = |seen: &Cell<(Restarts, u32)>| {
        let now = restarts();
        // The handler may have removed itself (`SA_RESETHAND`).
        let all = now | seen.replace((now, 1)).0;
        all.contains(Restarts::INTERRUPT)
    };
    HANDLERS.try_with(look).unwrap_or_default()
}

//! Actions of signals that the program changes while the library has a handler of its own in front.

use std::ffi::{c_int, c_void};

#[cfg(target_arch = "x86_64")]
use softroce::runtime::SignalAction;

use crate::abi::{Out, ProgramAction};

/// Calls `set` with `argument`, by which the program changes or reads the action of a signal, and stores the program's
/// action from before. A signal handler may call it, so every step is async-signal-safe.
pub(crate) extern "C" fn change_signal_action(
    signal: c_int,
    set: extern "C" fn(*mut c_void),
    argument: *mut c_void,
    before: Out<ProgramAction>,
) {
    #[cfg(target_arch = "x86_64")]
    if let Some((action, front)) =
        softroce::runtime::change_signal_action(signal, &mut || set(argument))
    {
        let flags = u32::try_from(action.flags).unwrap_or_default();
        let SignalAction { handler, restorer, mask, .. } = action;
        before.write(ProgramAction { front, handler, flags, restorer, mask });
    }
    #[cfg(not(target_arch = "x86_64"))]
    {
        // No handler is in front.
        let _ = (signal, before);
        set(argument);
    }
}

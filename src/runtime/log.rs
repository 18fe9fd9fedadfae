//! Messages on standard error, as many as `SOFTROCE_LOG` asks for.

use std::fmt::Display;
use std::io::{Write, stderr};

use crate::runtime::env::{Environment, LogLevel};
use crate::sys::PerProcess;

/// Level without `SOFTROCE_LOG`.
const DEFAULT_LEVEL: LogLevel = LogLevel::Warn;

/// Value of `SOFTROCE_LOG`. Opening a device reports errors in the environment.
static MAX_LEVEL: PerProcess<Option<LogLevel>> =
    PerProcess::new(|_| Environment::read().ok().and_then(|found| found.log));

/// Returns whether `SOFTROCE_LOG` is set. Otherwise the program may know nothing of it.
pub fn is_log_level_set() -> bool {
    MAX_LEVEL.get().is_some()
}

/// Returns whether [`log`] writes messages of this level: not if it is above that of the program (`SOFTROCE_LOG`, else
/// warnings).
pub fn is_logged(level: LogLevel) -> bool {
    level <= MAX_LEVEL.get().unwrap_or(DEFAULT_LEVEL)
}

/// Writes a line to standard error, if messages of this level [are written](is_logged).
pub fn log(level: LogLevel, message: &dyn Display) {
    if is_logged(level) {
        // A program may have closed it.
        let _ = writeln!(stderr(), "softroce: {message}");
    }
}

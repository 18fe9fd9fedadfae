//! Messages on standard error, as many as `SOFTROCE_LOG` asks for.

use std::fmt::Display;
use std::io::{Write, stderr};

use crate::runtime::env::{Environment, LogLevel};
use crate::sys::PerProcess;

/// Level without `SOFTROCE_LOG`.
const DEFAULT_LEVEL: LogLevel = LogLevel::Warn;

/// Writes a line to standard error, unless the level of the program (`SOFTROCE_LOG`, else warnings) is below its own.
pub fn log(level: LogLevel, message: &dyn Display) {
    static MAX_LEVEL: PerProcess<LogLevel> = PerProcess::new(|_| {
        // Opening a device reports errors in the environment.
        Environment::read().ok().and_then(|found| found.log).unwrap_or(DEFAULT_LEVEL)
    });
    if level <= *MAX_LEVEL.get() {
        // A program may have closed it.
        let _ = writeln!(stderr(), "softroce: {message}");
    }
}

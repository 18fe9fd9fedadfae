//! Messages on standard error, as many as `SOFTROCE_LOG` asks for.

use std::fmt::Display;
use std::io::{Write, stderr};
use std::sync::OnceLock;

use crate::runtime::env::{Environment, LogLevel};

/// Level without `SOFTROCE_LOG`.
const DEFAULT_LEVEL: LogLevel = LogLevel::Warn;

/// Writes a line to standard error, unless the level of the program (`SOFTROCE_LOG`, else warnings) is below its own.
pub fn log(level: LogLevel, message: &dyn Display) {
    static MAX_LEVEL: OnceLock<LogLevel> = OnceLock::new();
    let max_level = MAX_LEVEL.get_or_init(|| {
        // Opening a device reports errors in the environment.
        Environment::read().ok().and_then(|found| found.log).unwrap_or(DEFAULT_LEVEL)
    });
    if level <= *max_level {
        // A program may have closed it.
        let _ = writeln!(stderr(), "softroce: {message}");
    }
}

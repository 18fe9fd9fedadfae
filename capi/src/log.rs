//! What is told on standard error: C learns no more of an error than its number.

use std::fmt::Display;
use std::io::{Write, stderr};
use std::sync::OnceLock;

use softroce::runtime::{Environment, LogLevel};

/// Why the device cannot be opened. Programs say no more than that it failed.
pub(crate) fn failed(error: &dyn Display) {
    tell(LogLevel::Error, error);
}

/// Why a call was refused.
pub(crate) fn refused(error: &dyn Display) {
    tell(LogLevel::Info, error);
}

fn tell(level: LogLevel, what: &dyn Display) {
    static MOST: OnceLock<LogLevel> = OnceLock::new();
    let most = MOST.get_or_init(|| {
        // What is wrong with the environment is told when the device is opened.
        Environment::read().ok().and_then(|found| found.log).unwrap_or(LogLevel::Error)
    });
    if level <= *most {
        // A program may have closed it.
        let _ = writeln!(stderr(), "softroce: {what}");
    }
}

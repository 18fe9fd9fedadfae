//! What is told on standard error: C learns no more of an error than its number.

use std::fmt::Display;

use softroce::runtime::{LogLevel, log};

/// Why the device cannot be opened. Programs say no more than that it failed.
pub(crate) fn failed(error: &dyn Display) {
    log(LogLevel::Error, error);
}

/// Why a call was refused.
pub(crate) fn refused(error: &dyn Display) {
    log(LogLevel::Info, error);
}

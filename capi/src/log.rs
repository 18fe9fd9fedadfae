//! Messages on standard error: C gets only the number of an error.

use std::fmt::Display;

use softroce::runtime::{LogLevel, log};

/// Reports why the device cannot be opened. Programs report only that it failed.
pub(crate) fn failed(error: &dyn Display) {
    log(LogLevel::Error, error);
}

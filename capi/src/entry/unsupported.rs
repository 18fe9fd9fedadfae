//! What is exported and not there: functions that only programs of other hardware, or of the kernel's
//! drivers, would ever call. They must have names, or programs would not start.

use std::ffi::c_int;

use crate::border::{Errno, number, or};

/// The number of the error, which is in `errno` too.
pub(crate) extern "C" fn error() -> c_int {
    number(|| Err(Errno::UNSUPPORTED))
}

/// Null, and the number in `errno`.
pub(crate) extern "C" fn null() -> usize {
    or(0, || Err(Errno::UNSUPPORTED))
}

/// -1, and the number in `errno`.
pub(crate) extern "C" fn failure() -> isize {
    or(-1, || Err(Errno::UNSUPPORTED))
}

/// Nothing: what other drivers tell of themselves when they are loaded is of no use here.
pub(crate) extern "C" fn nothing() {}

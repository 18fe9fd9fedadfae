//! Functions that fail: only drivers of other hardware or of the kernel call them. They are exported because
//! programs that are linked to them would not start otherwise.

use std::ffi::c_int;

use crate::border::{Errno, value_or, zero_or_errno};

fn for_drivers() -> Errno {
    Errno::unsupported("only drivers of other hardware or of the kernel call this function")
}

/// Returns the error number, which is in `errno` too.
pub(crate) extern "C" fn error() -> c_int {
    zero_or_errno(|| Err(for_drivers()))
}

/// Returns null, with the error number in `errno`.
pub(crate) extern "C" fn null() -> usize {
    value_or(0, || Err(for_drivers()))
}

/// Returns -1, with the error number in `errno`.
pub(crate) extern "C" fn failure() -> isize {
    value_or(-1, || Err(for_drivers()))
}

/// Does nothing. Other drivers register themselves when they are loaded.
pub(crate) extern "C" fn nothing() {}

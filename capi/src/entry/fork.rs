//! Functions that prepare memory for forks. They have nothing to do.

use std::ffi::c_int;

use crate::abi::Out;

/// Forks need no preparation: no page is pinned.
pub(crate) extern "C" fn fork_init() -> c_int {
    0
}

/// `IBV_FORK_UNNEEDED`.
pub(crate) extern "C" fn is_fork_initialized() -> c_int {
    2
}

/// Nor does memory of which a child is to have no copy.
pub(crate) extern "C" fn fork_range(_start: Out<u8>, _size: usize) -> c_int {
    0
}

//! Functions that prepare memory for forks. They have nothing to do.

use std::ffi::c_int;

use crate::abi::Out;

/// Succeeds: forks need no preparation, because no page is pinned.
pub(crate) extern "C" fn fork_init() -> c_int {
    0
}

/// `IBV_FORK_UNNEEDED`.
pub(crate) extern "C" fn is_fork_initialized() -> c_int {
    2
}

/// Succeeds: pages that a child must not share need no preparation either.
pub(crate) extern "C" fn fork_range(_start: Out<u8>, _size: usize) -> c_int {
    0
}

//! The atomics and locks that this module is made of. The models of `tests/loom` compile the same files with
//! the primitives of loom in place of these.

pub(crate) use std::sync::MutexGuard;
pub(crate) use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, AtomicUsize, fence};

pub(crate) use super::lock::Mutex;

//! Atomics and locks of this module. The models of `tests/loom` compile the same files with the primitives of loom
//! instead.

pub(crate) use std::hint::spin_loop;
#[cfg(feature = "runtime")]
pub(crate) use std::sync::Condvar;
pub(crate) use std::sync::MutexGuard;
pub(crate) use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize};
#[cfg(feature = "runtime")]
pub(crate) use std::sync::atomic::{AtomicU8, fence};
pub(crate) use std::thread::yield_now;

pub(crate) use super::lock::Mutex;

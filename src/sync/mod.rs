//! Synchronization: the locks of the library, and the protocols by which threads wake each other.
//!
//! | module | protocol |
//! |---|---|
//! | `claims` | each address has one device, which threads open, find and wait for |
//! | `epoch` | a thread that revokes memory waits for the threads that access it |
//! | `exit_list` | a signal handler finds the devices that are open |
//! | `mailbox` | several threads put items in, and their owner is woken and takes them |
//! | `notify` | a completion and the request to announce it meet |
//! | `progress` | the thread, or a thread that waits, makes progress of a shard |
//! | `queue` | consumers poll a queue, block, or wait for a descriptor |
//! | `signal` | a signal wakes a sleeping thread |
//! | `spsc` | records pass from one process to another through shared memory |
//! | `wakers` | an item wakes every task that waits for it |
//!
//! Each protocol stands alone, with its argument for the orderings it uses. The crate `tests/loom` compiles the
//! same files with the atomics and locks of loom in place of `primitives`, and explores their
//! interleavings.

#[cfg(feature = "runtime")]
pub(crate) mod claims;
pub(crate) mod epoch;
#[cfg(feature = "runtime")]
pub(crate) mod exit_list;
mod lock;
#[cfg(feature = "runtime")]
pub(crate) mod mailbox;
#[cfg(feature = "runtime")]
pub(crate) mod notify;
mod primitives;
#[cfg(feature = "runtime")]
pub(crate) mod progress;
#[cfg(feature = "runtime")]
pub(crate) mod queue;
#[cfg(feature = "runtime")]
pub(crate) mod signal;
#[cfg(feature = "runtime")]
pub(crate) mod spsc;
#[cfg(feature = "runtime")]
pub(crate) mod wakers;

pub(crate) use lock::{Mutex, RwLock};

#[cfg(test)]
pub(crate) use lock::taken;

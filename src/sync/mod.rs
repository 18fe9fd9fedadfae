//! Synchronization: the locks of the library, and the protocols by which threads wake each other.

mod lock;

pub(crate) use lock::{Mutex, RwLock};

#[cfg(test)]
pub(crate) use lock::taken;

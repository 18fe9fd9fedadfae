//! A descriptor that wakes who sleeps on it.

use std::fs::File;
use std::io::{self, Write};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};
use std::sync::atomic::{AtomicBool, Ordering};

use crate::sys::{clear_event_fd, event_fd};

/// An eventfd: readable from [`ring`](Self::ring) until [`silence`](Self::silence).
#[derive(Debug)]
pub(crate) struct Bell {
    file: File,
    /// Saves a system call in [`silence`](Self::silence). Set after the descriptor is readable: seen
    /// too late it costs whoever sleeps another look; seen too early the descriptor would stay
    /// readable for ever.
    rung: AtomicBool,
}

impl Bell {
    pub(crate) fn new() -> io::Result<Self> {
        Ok(Self { file: event_fd()?.into(), rung: AtomicBool::new(false) })
    }

    /// Makes it readable.
    pub(crate) fn ring(&self) {
        // It fails when the counter is full, and then it is readable already.
        let _ = (&self.file).write(&1_u64.to_ne_bytes());
        self.rung.store(true, Ordering::Release);
    }

    /// Makes it unreadable.
    pub(crate) fn silence(&self) {
        if self.rung.load(Ordering::Relaxed) && self.rung.swap(false, Ordering::Acquire) {
            // It fails when the ring has been silenced already.
            let _ = clear_event_fd(self.file.as_fd());
        }
    }
}

impl AsFd for Bell {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

impl AsRawFd for Bell {
    fn as_raw_fd(&self) -> RawFd {
        self.file.as_raw_fd()
    }
}

//! A descriptor that wakes the thread which sleeps on it.

use std::fs::File;
use std::io::{self, Write};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};

use crate::sync::doorbell::{Doorbell, Signal};
use crate::sys::{clear_event_fd, event_fd};

/// An eventfd: readable from [`ring`](Self::ring) until [`silence`](Self::silence).
#[derive(Debug)]
pub(crate) struct Bell(Doorbell<EventFd>);

#[derive(Debug)]
struct EventFd(File);

impl Bell {
    pub(crate) fn new() -> io::Result<Self> {
        Ok(Self(Doorbell::new(EventFd(event_fd()?.into()))))
    }

    /// Makes it readable.
    pub(crate) fn ring(&self) {
        self.0.ring();
    }

    /// Makes it unreadable.
    pub(crate) fn silence(&self) {
        self.0.silence();
    }
}

impl Signal for EventFd {
    fn raise(&self) {
        // It fails when the counter is full, and then it is readable already.
        let _ = (&self.0).write(&1_u64.to_ne_bytes());
    }

    fn clear(&self) {
        // It fails when the counter is zero, and then it is unreadable already.
        let _ = clear_event_fd(self.0.as_fd());
    }
}

impl AsFd for Bell {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.signal().0.as_fd()
    }
}

impl AsRawFd for Bell {
    fn as_raw_fd(&self) -> RawFd {
        self.0.signal().0.as_raw_fd()
    }
}

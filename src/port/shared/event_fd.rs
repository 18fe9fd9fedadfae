//! Eventfds: descriptors that wake a sleeping thread.

use std::fs::File;
use std::io::{self, Write};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};

use crate::sync::doorbell::{Doorbell, Signal};
use crate::sys::{OwnDescriptor, clear_event_fd, event_fd};

/// An eventfd that wakes a thread: readable from [`ring`](Self::ring) until [`silence`](Self::silence).
pub(crate) type EventFd = Doorbell<EventFdSignal>;

/// The descriptor of an [`EventFd`].
#[derive(Debug)]
pub(crate) struct EventFdSignal(OwnDescriptor<File>);

impl EventFd {
    /// Opens an eventfd that is not readable.
    ///
    /// # Errors
    ///
    /// The process has no more descriptors.
    pub(crate) fn open() -> io::Result<Self> {
        Ok(Self::new(EventFdSignal(OwnDescriptor::new(event_fd()?.into()))))
    }

    /// Returns whether the descriptor still is that of an eventfd or another file without an inode. Otherwise other code of
    /// the process has closed it, and a ring would write to a file of the program.
    pub(crate) fn is_own(&self) -> bool {
        self.signal().0.is_own()
    }
}

impl Signal for EventFdSignal {
    fn raise(&self) {
        // A write fails only if the counter is at its maximum; the eventfd is readable then.
        let mut file: &File = &self.0;
        let _ = file.write(&1_u64.to_ne_bytes());
    }

    fn clear(&self) {
        // A read fails only if the counter is zero; the eventfd is not readable then.
        let _ = clear_event_fd(self.0.as_fd());
    }
}

impl AsFd for EventFd {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.signal().0.as_fd()
    }
}

impl AsRawFd for EventFd {
    fn as_raw_fd(&self) -> RawFd {
        self.signal().0.as_raw_fd()
    }
}

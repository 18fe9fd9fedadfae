//! Eventfds: descriptors that wake a sleeping thread.
//!
//! Other code of the process may close an eventfd, and its number may then belong to a file of the program. An eventfd is
//! checked for that at most once in [`CHECK_INTERVAL`], because a check takes as long as a wake-up. Thus a wake-up
//! writes 8 bytes to a file of the program only if the file got the number within the last interval.

use std::fs::File;
use std::io::{self, Write};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use crate::sync::signal::Signal;
use crate::sys::{OwnDescriptor, clear_event_fd, event_fd, monotonic};

/// Minimum interval between checks of a descriptor.
const CHECK_INTERVAL: Duration = Duration::from_millis(1);

/// An eventfd that wakes a thread: readable from [`ring`](Signal::ring) until [`silence`](Signal::silence).
#[derive(Debug)]
pub(crate) struct EventFd {
    descriptor: OwnDescriptor<File>,
    /// Time of the last check, in nanoseconds.
    checked: AtomicU64,
    is_lost: AtomicBool,
}

impl EventFd {
    fn new(descriptor: OwnDescriptor<File>) -> Self {
        Self { descriptor, checked: AtomicU64::new(0), is_lost: AtomicBool::new(false) }
    }

    /// Opens an eventfd that is not readable.
    ///
    /// # Errors
    ///
    /// The process has no more descriptors.
    pub(crate) fn open() -> io::Result<Self> {
        Ok(Self::new(OwnDescriptor::new(event_fd()?.into())))
    }

    /// Returns whether the descriptor still is that of an eventfd or another file without an inode.
    pub(crate) fn is_own(&self) -> bool {
        self.descriptor.is_own()
    }

    /// Returns whether a check has found that the descriptor is closed, or that of another file: other code of the process
    /// has closed it, and rings have no effect. Checks the descriptor if that is due.
    pub(crate) fn is_lost(&self) -> bool {
        if self.is_lost.load(Ordering::Relaxed) {
            return true;
        }
        let now = monotonic();
        let since = Duration::from_nanos(now.saturating_sub(self.checked.load(Ordering::Relaxed)));
        if since < CHECK_INTERVAL {
            return false;
        }
        self.checked.store(now, Ordering::Relaxed);
        let is_lost = !self.descriptor.is_own();
        self.is_lost.store(is_lost, Ordering::Relaxed);
        is_lost
    }

    /// Makes the next check due after the interval.
    #[cfg(test)]
    pub(crate) fn just_checked(self) -> Self {
        Self { checked: AtomicU64::new(u64::MAX), ..self }
    }

    /// Makes an eventfd with the descriptor of another file.
    #[cfg(test)]
    pub(crate) fn replaced_by(other: File) -> Self {
        let closed = event_fd().unwrap();
        Self::new(OwnDescriptor::replaced_by(other, closed.as_fd()))
    }
}

impl Signal for EventFd {
    fn ring(&self) {
        if self.is_lost() {
            return;
        }
        // A write fails only if the counter is at its maximum; the eventfd is readable then.
        let mut file: &File = &self.descriptor;
        let _ = file.write(&1_u64.to_ne_bytes());
    }

    fn silence(&self) {
        if self.is_lost() {
            return;
        }
        // A read fails only if the counter is zero; the eventfd is not readable then.
        let _ = clear_event_fd(self.descriptor.as_fd());
    }
}

impl AsFd for EventFd {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.descriptor.as_fd()
    }
}

impl AsRawFd for EventFd {
    fn as_raw_fd(&self) -> RawFd {
        self.descriptor.as_raw_fd()
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read;
    use std::os::fd::OwnedFd;
    use std::os::unix::net::UnixStream;

    use super::*;
    use crate::port::wait_readable;

    #[test]
    fn ring_writes_nothing_to_a_file_with_the_number_of_a_closed_eventfd() {
        let (foreign, mut program) = UnixStream::pair().unwrap();
        let event_fd = EventFd::replaced_by(File::from(OwnedFd::from(foreign)));
        event_fd.ring();
        assert!(event_fd.is_lost());
        program.write_all(b"data").unwrap();
        event_fd.silence();
        program.set_nonblocking(true).unwrap();
        let found = program.read(&mut [0; 8]).unwrap_err();
        assert_eq!(found.kind(), io::ErrorKind::WouldBlock);
        assert!(wait_readable(&[event_fd.as_fd()], Some(Duration::ZERO)).unwrap(), "unread");
    }

    #[test]
    fn open_eventfd_is_not_lost() {
        let event_fd = EventFd::open().unwrap();
        event_fd.ring();
        assert!(!event_fd.is_lost());
        assert!(wait_readable(&[event_fd.as_fd()], Some(Duration::ZERO)).unwrap());
        event_fd.silence();
        assert!(!wait_readable(&[event_fd.as_fd()], Some(Duration::ZERO)).unwrap());
    }
}

//! SIGINT and SIGTERM, which end a capture, as a descriptor.

use std::os::fd::{AsFd, BorrowedFd};

use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};

/// Receives SIGINT and SIGTERM. They have no other effect while it exists.
#[derive(Debug)]
pub(crate) struct EndSignals {
    descriptor: SignalFd,
    blocked: SigSet,
}

impl EndSignals {
    /// Blocks the signals in this thread, and receives them.
    pub(crate) fn receive() -> anyhow::Result<Self> {
        let mut blocked = SigSet::empty();
        [Signal::SIGINT, Signal::SIGTERM].into_iter().for_each(|signal| blocked.add(signal));
        blocked.thread_block()?;
        let flags = SfdFlags::SFD_NONBLOCK | SfdFlags::SFD_CLOEXEC;
        Ok(Self { descriptor: SignalFd::with_flags(&blocked, flags)?, blocked })
    }

    /// Returns whether one has come.
    pub(crate) fn has_come(&self) -> bool {
        matches!(self.descriptor.read_signal(), Ok(Some(_)))
    }
}

impl Drop for EndSignals {
    fn drop(&mut self) {
        // The signals of the set are valid.
        let _ = self.blocked.thread_unblock();
    }
}

impl AsFd for EndSignals {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.descriptor.as_fd()
    }
}

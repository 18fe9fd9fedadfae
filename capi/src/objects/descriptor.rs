//! File descriptors that announce events to the program.

use std::os::fd::BorrowedFd;
use std::time::Duration;

use nix::fcntl::{FcntlArg, OFlag, fcntl};

use crate::border::Errno;

/// Clears `O_NONBLOCK`, as programs expect of a new descriptor. A program that sets the flag asks for
/// calls that do not wait.
///
/// # Errors
///
/// The error of `fcntl`.
pub(crate) fn set_blocking(fd: BorrowedFd<'_>) -> Result<(), Errno> {
    let flags = flags(fd)?;
    fcntl(fd, FcntlArg::F_SETFL(flags.difference(OFlag::O_NONBLOCK)))?;
    Ok(())
}

/// Returns the longest time to wait for an event: zero if the program has set `O_NONBLOCK`, else `None`,
/// which is no limit.
///
/// # Errors
///
/// The error of `fcntl`.
pub(crate) fn wait_limit(fd: BorrowedFd<'_>) -> Result<Option<Duration>, Errno> {
    Ok(flags(fd)?.contains(OFlag::O_NONBLOCK).then_some(Duration::ZERO))
}

fn flags(fd: BorrowedFd<'_>) -> Result<OFlag, Errno> {
    Ok(fcntl(fd, FcntlArg::F_GETFL).map(OFlag::from_bits_retain)?)
}

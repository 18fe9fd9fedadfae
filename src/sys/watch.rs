//! Changes of interfaces and addresses, as the kernel reports them to all listeners (`rtnetlink(7)`).

use std::io::{self, Read, Write};
use std::os::fd::{AsFd, BorrowedFd};

use libc::c_int;
use socket2::Socket;

use super::ffi::set_option;
use super::{OwnDescriptor, is_closed, netlink};

/// What is told: interfaces, IPv4 addresses, IPv6 addresses (`RTNLGRP_*` of `linux/rtnetlink.h`).
const GROUPS: [c_int; 3] = [1, 5, 9];

/// Hears of changes from the time that it is made.
#[derive(Debug)]
pub(crate) struct Watch {
    /// `None` where the system has none.
    netlink: Option<OwnDescriptor<Socket>>,
}

/// Error after other code of the process has closed the descriptor of a watch. A new watch hears of later changes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct WatchLost;

impl Watch {
    pub(crate) fn new() -> Self {
        Self { netlink: listen().ok().map(OwnDescriptor::new) }
    }

    /// Whether something has changed since this was last asked.
    ///
    /// # Errors
    ///
    /// [`WatchLost`].
    pub(crate) fn has_changed(&self) -> Result<bool, WatchLost> {
        let Some(netlink) = &self.netlink else { return Ok(false) };
        if !netlink.is_own() {
            return Err(WatchLost);
        }
        let mut netlink: &Socket = netlink;
        // The caller reads the new state, so the rest of the message is dropped.
        let (mut changed, mut message) = (false, [0; 16]);
        loop {
            match netlink.read(&mut message) {
                Ok(_) => changed = true,
                // Changes have overflowed the socket. The next call reads the rest: this one would not end if the
                // kernel reported that each time.
                Err(error) if error.raw_os_error() == Some(libc::ENOBUFS) => return Ok(true),
                Err(error) if is_closed(&error) => return Err(WatchLost),
                Err(_) => return Ok(changed),
            }
        }
    }

    /// Returns a descriptor that is readable after a change.
    pub(crate) fn as_fd(&self) -> Option<BorrowedFd<'_>> {
        self.netlink.as_ref().map(OwnDescriptor::as_fd)
    }

    /// Makes a watch with a descriptor that now is that of another file.
    #[cfg(test)]
    pub(crate) fn replaced_by(other: Socket) -> Option<Self> {
        let closed = listen().ok()?;
        Some(Self { netlink: Some(OwnDescriptor::replaced_by(other, closed.as_fd())) })
    }
}

fn listen() -> io::Result<Socket> {
    let netlink = netlink::open(libc::NETLINK_ROUTE)?;
    for group in GROUPS {
        let name = libc::NETLINK_ADD_MEMBERSHIP;
        set_option(netlink.as_fd(), libc::SOL_NETLINK, name, group)?;
    }
    // A socket without an address gets no reports.
    (&netlink).write_all(&NOTHING)?;
    Ok(netlink)
}

/// A message to which there is no answer: length, `NLMSG_NOOP`, flags, number, sender.
const NOTHING: [u8; 16] = {
    let ([l0, l1, l2, l3], [t0, t1]) = (16_u32.to_ne_bytes(), 1_u16.to_ne_bytes());
    [l0, l1, l2, l3, t0, t1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]
};

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixStream;

    use super::*;

    #[test]
    fn lost_watch_leaves_the_file_that_has_its_number_alone() {
        let (foreign, mut program) = UnixStream::pair().unwrap();
        let mut same = foreign.try_clone().unwrap();
        program.write_all(b"data").unwrap();
        // A system without netlink has no watch.
        let watch = Watch::replaced_by(foreign.into());
        assert!(watch.is_none_or(|watch| watch.has_changed() == Err(WatchLost)));
        let mut data = [0; 4];
        same.read_exact(&mut data).unwrap();
        assert_eq!(&data, b"data");
    }
}

//! Changes of interfaces and addresses, as the kernel reports them to all listeners (`rtnetlink(7)`).

use std::io::{self, Read, Write};
use std::os::fd::{AsFd, BorrowedFd};

use libc::c_int;
use socket2::Socket;

use super::ffi::set_option;
use super::netlink;

/// What is told: interfaces, IPv4 addresses, IPv6 addresses (`RTNLGRP_*` of `linux/rtnetlink.h`).
const GROUPS: [c_int; 3] = [1, 5, 9];

/// Hears of changes from the time that it is made.
#[derive(Debug)]
pub(crate) struct Watch {
    /// `None` where the system has none.
    netlink: Option<Socket>,
}

impl Watch {
    pub(crate) fn new() -> Self {
        Self { netlink: listen().ok() }
    }

    /// Whether something has changed since this was last asked.
    pub(crate) fn has_changed(&self) -> bool {
        let Some(mut netlink) = self.netlink.as_ref() else { return false };
        // The caller reads the new state, so the rest of the message is dropped.
        let (mut changed, mut message) = (false, [0; 16]);
        loop {
            match netlink.read(&mut message) {
                Ok(_) => changed = true,
                // Changes have overflowed the socket. The next call reads the rest: this one would not end if the
                // kernel reported that each time.
                Err(error) if error.raw_os_error() == Some(libc::ENOBUFS) => return true,
                Err(_) => return changed,
            }
        }
    }

    /// Returns a descriptor that is readable after a change.
    pub(crate) fn as_fd(&self) -> Option<BorrowedFd<'_>> {
        self.netlink.as_ref().map(Socket::as_fd)
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

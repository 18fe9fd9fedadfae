//! A socket that is connected to a peer.
//!
//! It knows its route. The others look for theirs with each datagram, which is a tenth of what a short one
//! takes.
//!
//! Over IPv4 it also counts the identifications of what it sends, from a number that it tells nobody, and
//! the ICRC covers them. So an empty datagram goes to ourselves first, by the same count: of that the
//! kernel hands back a copy with its headers, as it does for those who want to know when a packet left.

use std::io;
use std::mem;
use std::net::SocketAddr;
use std::os::fd::AsFd;

use libc::c_int;
use socket2::Socket;

use super::socket;
use crate::net::{Path, SHORT};
use crate::sys::{self, Envelope};
use crate::wire::encap;
use crate::wire::icrc::IcrcIdPatch;

/// Bytes that a frame without payload has: more is not looked at.
const FRAME_LEN: usize = 128;

/// A socket that sends from a UDP source port to one peer alone.
#[derive(Debug)]
pub(super) struct Connected {
    socket: Socket,
    /// Where it sends from.
    own: SocketAddr,
    count: Count,
    /// For a datagram that is sealed anew.
    sealed: [u8; SHORT],
    /// How the last was.
    renumbering: IcrcIdPatch,
}

/// What a socket numbers its packets with.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Count {
    /// Nothing: over IPv6.
    Nothing,
    /// It has not been asked.
    Unknown,
    /// This is the identification of the next.
    Next(u16),
}

impl Connected {
    /// Opens one for a path, beside the socket that sends from its port to everybody. `scope` is the
    /// interface, for link-local destinations.
    pub(super) fn open(path: &Path, scope: u32, beside: &Socket) -> io::Result<Self> {
        // Two sockets have one port if both allow it while the second is bound.
        beside.set_reuse_address(true)?;
        let socket = socket::connected(path, scope);
        beside.set_reuse_address(false)?;
        let socket = socket?;
        let is_counted = path.destination.is_ipv4();
        Ok(Self {
            socket,
            own: SocketAddr::new(path.source, path.source_port),
            count: if is_counted { Count::Unknown } else { Count::Nothing },
            sealed: [0; SHORT],
            renumbering: IcrcIdPatch::for_len(0),
        })
    }

    /// Whether it numbers its packets.
    pub(super) fn counts(&self) -> bool {
        self.count != Count::Nothing
    }

    /// It may have counted something that nobody knows of.
    pub(super) fn doubt(&mut self) {
        if self.counts() {
            self.count = Count::Unknown;
        }
    }

    /// Finds out what it counts next, if that is not known.
    ///
    /// # Errors
    ///
    /// The system does not tell.
    pub(super) fn learn(&mut self) -> io::Result<()> {
        if self.count == Count::Unknown {
            // That the peer was not there is no answer to what comes now.
            self.socket.take_error()?;
            // Twice, so as to see that it counts.
            let (first, second) = (self.ask()?, self.ask()?);
            if second != first.wrapping_add(1) {
                return Err(io::ErrorKind::Unsupported.into());
            }
            self.count = Count::Next(second.wrapping_add(1));
        }
        Ok(())
    }

    /// Sends a [short](SHORT) datagram that was sealed for identification 0.
    pub(super) fn send(&mut self, datagram: &[u8]) -> io::Result<()> {
        let sent = match self.count {
            Count::Nothing => sys::send_to_peer(self.socket.as_fd(), datagram),
            Count::Unknown => Err(io::ErrorKind::InvalidInput.into()),
            Count::Next(id) => self.send_as(id, datagram),
        };
        if sent.is_err() {
            self.doubt();
        }
        sent
    }

    fn send_as(&mut self, id: u16, datagram: &[u8]) -> io::Result<()> {
        let too_long = || io::Error::from(io::ErrorKind::InvalidInput);
        let sealed = self.sealed.get_mut(..datagram.len()).ok_or_else(too_long)?;
        sealed.copy_from_slice(datagram);
        if self.renumbering.datagram_len() != sealed.len() {
            self.renumbering = IcrcIdPatch::for_len(sealed.len());
        }
        self.renumbering.apply(id, sealed);
        sys::send_to_peer(self.socket.as_fd(), sealed)?;
        self.count = Count::Next(id.wrapping_add(1));
        Ok(())
    }

    /// Sends an empty datagram to ourselves, where nobody reads it, and returns its identification.
    fn ask(&self) -> io::Result<u16> {
        let stamp = |value| {
            let (level, name) = (libc::SOL_SOCKET, libc::SO_TIMESTAMPING);
            sys::set_option(self.socket.as_fd(), level, name, value)
        };
        let mut to_ourselves = Envelope::default();
        to_ourselves.to.set(self.own.ip(), self.own.port(), 0);
        stamp(c_int::try_from(libc::SOF_TIMESTAMPING_TX_SCHED).unwrap_or(0))?;
        let sent = sys::send_one(self.socket.as_fd(), &to_ourselves, &[]);
        stamp(0)?;
        sent?;
        let mut frame = [0; FRAME_LEN];
        let len = sys::receive_error(self.socket.as_fd(), &mut frame)?;
        let unknown = || io::Error::from(io::ErrorKind::InvalidData);
        identification(frame.get(..len).unwrap_or_default(), self.own).ok_or_else(unknown)
    }

    /// Somebody else has closed the socket. By now its number may be that of a file of theirs, which is not
    /// to be closed here.
    pub(super) fn forget(self) {
        mem::forget(self.socket);
    }
}

/// The IPv4 identification of an Ethernet frame with a datagram from a socket to itself.
fn identification(frame: &[u8], own: SocketAddr) -> Option<u16> {
    let (_, packet) = encap::ethernet(frame).ok()?;
    let datagram = encap::parse_ip(packet).ok()?;
    let is_ours = datagram.source == own && datagram.destination == own;
    datagram.ipv4.filter(|_| is_ours).map(|fields| fields.id)
}

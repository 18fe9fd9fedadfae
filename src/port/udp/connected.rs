//! A socket that is connected to a peer.
//!
//! It caches its route. An unconnected socket looks up the route for each datagram, a tenth of the cost of a short one.
//!
//! Over IPv4 the kernel numbers the packets of a connected socket from a random start (`inet_id`), and the ICRC covers
//! that identification. To learn it, the socket sends an empty datagram to its own address: the kernel returns a copy
//! with headers through the error queue, as for transmit timestamps.

use std::io;
use std::mem;
use std::net::SocketAddr;
use std::os::fd::AsFd;

use libc::c_int;
use socket2::Socket;

use super::socket;
use crate::net::{Path, SHORT};
use crate::sys::{self, OwnDescriptor, SendMsg};
use crate::wire::encap;
use crate::wire::icrc::IcrcIdPatch;

/// Length of the copied frame to read, without payload.
const MAX_FRAME_HEADERS: usize = 128;

/// A socket that sends from a UDP source port to one peer.
#[derive(Debug)]
pub(super) struct Connected {
    socket: OwnDescriptor<Socket>,
    /// Address and port that it sends from.
    own: SocketAddr,
    next_id: NextId,
    /// Copy of a datagram, sealed for its identification.
    sealed: [u8; SHORT],
    /// Change of the ICRC for the length of the last datagram.
    renumbering: IcrcIdPatch,
}

/// Identification of the next packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum NextId {
    /// None: IPv6.
    NotNumbered,
    /// Not known.
    Unknown,
    /// This one.
    Known(u16),
}

impl Connected {
    /// Opens a socket for a path, beside the unconnected socket with the same source port. `scope` is the interface,
    /// for link-local destinations.
    pub(super) fn open(path: &Path, scope: u32, beside: &Socket) -> io::Result<Self> {
        // Two sockets may share a port if both allow it during the second bind.
        beside.set_reuse_address(true)?;
        let socket = socket::connected(path, scope);
        beside.set_reuse_address(false)?;
        let socket = OwnDescriptor::new(socket?);
        let is_ipv4 = path.destination.is_ipv4();
        Ok(Self {
            socket,
            own: SocketAddr::new(path.source, path.source_port),
            next_id: if is_ipv4 { NextId::Unknown } else { NextId::NotNumbered },
            sealed: [0; SHORT],
            renumbering: IcrcIdPatch::for_len(0),
        })
    }

    /// Returns whether the kernel numbers its packets.
    pub(super) fn is_numbered(&self) -> bool {
        self.next_id != NextId::NotNumbered
    }

    /// Marks the next identification as unknown, as other packets may have used some.
    pub(super) fn invalidate_next_id(&mut self) {
        if self.is_numbered() {
            self.next_id = NextId::Unknown;
        }
    }

    /// Finds the next identification, if it is unknown.
    ///
    /// # Errors
    ///
    /// The system does not report it.
    pub(super) fn find_next_id(&mut self) -> io::Result<()> {
        if self.next_id == NextId::Unknown {
            // Clears an earlier error of the socket, such as an ICMP port unreachable.
            self.socket.take_error()?;
            // Twice, to verify that the kernel counts up.
            let (first, second) = (self.probe_id()?, self.probe_id()?);
            if second != first.wrapping_add(1) {
                return Err(io::ErrorKind::Unsupported.into());
            }
            self.next_id = NextId::Known(second.wrapping_add(1));
        }
        Ok(())
    }

    /// Sends a [short](SHORT) datagram that was sealed for identification 0.
    pub(super) fn send(&mut self, datagram: &[u8]) -> io::Result<()> {
        let sent = match self.next_id {
            NextId::NotNumbered => sys::send_to_peer(self.socket.as_fd(), datagram),
            NextId::Unknown => Err(io::ErrorKind::InvalidInput.into()),
            NextId::Known(id) => self.send_as(id, datagram),
        };
        if sent.is_err() {
            self.invalidate_next_id();
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
        self.next_id = NextId::Known(id.wrapping_add(1));
        Ok(())
    }

    /// Sends an empty datagram to its own address, where the filter drops it, and returns its identification.
    fn probe_id(&self) -> io::Result<u16> {
        let stamp = |value| {
            let (level, name) = (libc::SOL_SOCKET, libc::SO_TIMESTAMPING);
            sys::set_option(self.socket.as_fd(), level, name, value)
        };
        let mut to_ourselves = SendMsg::default();
        to_ourselves.to.set(self.own.ip(), self.own.port(), 0);
        stamp(c_int::try_from(libc::SOF_TIMESTAMPING_TX_SCHED).unwrap_or(0))?;
        let sent = sys::send_one(self.socket.as_fd(), &to_ourselves, &[]);
        stamp(0)?;
        sent?;
        let mut frame = [0; MAX_FRAME_HEADERS];
        let len = sys::receive_error(self.socket.as_fd(), &mut frame)?;
        let unknown = || io::Error::from(io::ErrorKind::InvalidData);
        identification(frame.get(..len).unwrap_or_default(), self.own).ok_or_else(unknown)
    }

    /// Drops the socket without closing the descriptor: other code of this process has closed it, and the number may
    /// belong to another file by now.
    pub(super) fn forget(self) {
        mem::forget(self.socket);
    }
}

/// Returns the IPv4 identification of an Ethernet frame with a datagram from a socket to itself.
fn identification(frame: &[u8], own: SocketAddr) -> Option<u16> {
    let (_, packet) = encap::ethernet(frame).ok()?;
    let datagram = encap::parse_ip(packet).ok()?;
    let is_ours = datagram.source == own && datagram.destination == own;
    datagram.ipv4.filter(|_| is_ours).map(|fields| fields.id)
}

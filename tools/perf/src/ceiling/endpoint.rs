//! One end of a raw UDP measurement: a socket with GSO and GRO, and the work on each datagram.

use std::io::{self, IoSlice, IoSliceMut};
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::os::fd::AsRawFd;
use std::thread;
use std::time::Duration;

use anyhow::Context;
use nix::cmsg_space;
use nix::errno::Errno;
use nix::sys::socket::sockopt::{RcvBuf, RcvBufForce, SndBuf, SndBufForce, UdpGroSegment};
use nix::sys::socket::{
    ControlMessage, ControlMessageOwned, MsgFlags, SockaddrStorage, getsockopt, recvmsg, sendmsg,
    setsockopt,
};
use softroce::wire::icrc::crc32;

use super::shape::{Burst, ICRC_LEN};

/// Requested size of receive and send buffers: more than any window.
const SOCKET_BUFFER: usize = 16 << 20;

/// Number of empty polls before the CPU is yielded. That costs nothing if this end has the CPU to itself, and lets
/// the other end run if both share one.
const POLLS_BEFORE_YIELD: u32 = 4096;

/// Maximum time that a sleeping end waits before it reads the clock.
const SLEEP_TIMEOUT: Duration = Duration::from_millis(100);

/// A socket and its peer.
pub(super) struct Endpoint {
    socket: UdpSocket,
    merge: bool,
    peer: SocketAddr,
    control: Vec<u8>,
    idle_polls: u32,
    sleeps: bool,
}

/// A socket without a peer.
pub(super) struct UnconnectedSocket {
    socket: UdpSocket,
    merge: bool,
}

impl UnconnectedSocket {
    /// Binds a socket to any port of `ip`. The receive buffer is as large as allowed unless it is given. With `merge`
    /// the kernel may return several datagrams at once.
    pub(super) fn open(
        ip: IpAddr,
        receive_buffer: Option<usize>,
        merge: bool,
    ) -> anyhow::Result<Self> {
        let socket = UdpSocket::bind((ip, 0)).with_context(|| format!("UDP socket on {ip}"))?;
        socket.set_nonblocking(true)?;
        match receive_buffer {
            Some(bytes) => setsockopt(&socket, RcvBuf, &bytes)?,
            None => setsockopt(&socket, RcvBufForce, &SOCKET_BUFFER)
                .or_else(|_| setsockopt(&socket, RcvBuf, &SOCKET_BUFFER))?,
        }
        setsockopt(&socket, SndBufForce, &SOCKET_BUFFER)
            .or_else(|_| setsockopt(&socket, SndBuf, &SOCKET_BUFFER))?;
        if merge {
            let since = "UDP_GRO, which Linux has since 5.0";
            setsockopt(&socket, UdpGroSegment, &true).context(since)?;
        }
        Ok(Self { socket, merge })
    }

    pub(super) fn address(&self) -> io::Result<SocketAddr> {
        self.socket.local_addr()
    }

    /// Returns the capacity of the receive queue, as the kernel counts it.
    pub(super) fn receive_buffer(&self) -> io::Result<usize> {
        Ok(getsockopt(&self.socket, RcvBuf)?)
    }

    /// Returns the maximum number of segments in one send: 128 since Linux 6.9, 64 before.
    pub(super) fn max_segments(&self) -> io::Result<usize> {
        let taken = send_burst(&self.socket, &[0; 128], 1, self.address()?).is_ok();
        let mut buffer = [0; 128];
        while self.socket.recv(&mut buffer).is_ok() {}
        Ok(if taken { 128 } else { 64 })
    }

    pub(super) fn pair(self, peer: SocketAddr) -> Endpoint {
        let Self { socket, merge } = self;
        Endpoint { socket, merge, peer, control: cmsg_space!(i32), idle_polls: 0, sleeps: false }
    }
}

impl Endpoint {
    /// Makes the end sleep until a datagram arrives instead of polling.
    pub(super) fn sleep(&mut self) -> io::Result<()> {
        self.sleeps = true;
        self.socket.set_nonblocking(false)?;
        self.socket.set_read_timeout(Some(SLEEP_TIMEOUT))
    }

    /// Returns whether to read the clock after an empty poll, which takes a sixth of a poll.
    pub(super) fn should_check_clock(&self) -> bool {
        self.sleeps || self.idle_polls.is_multiple_of(1024)
    }

    /// Sends a burst; yields while the queues are full.
    pub(super) fn send(&self, burst: Burst, bytes: &[u8]) -> io::Result<()> {
        loop {
            let sent = match burst.count {
                1 => self.socket.send_to(bytes, self.peer).map(|_| ()),
                _ => send_burst(&self.socket, bytes, burst.segment, self.peer),
            };
            match sent {
                Err(e) if is_busy(&e) => thread::yield_now(),
                other => return other,
            }
        }
    }

    /// Sends a datagram that is not part of a message.
    pub(super) fn send_single(&self, bytes: &[u8]) -> io::Result<()> {
        self.send(Burst { count: 1, segment: bytes.len(), bytes: bytes.len() }, bytes)
    }

    /// Returns a received buffer and the length of its datagrams, of which the last may be shorter.
    pub(super) fn receive<'b>(
        &mut self,
        buffer: &'b mut [u8],
    ) -> io::Result<Option<(&'b [u8], usize)>> {
        let received = match self.merge {
            true => receive_merged(&self.socket, &mut self.control, buffer),
            false => self.socket.recv(buffer).map(|len| (len, len)),
        };
        match received {
            Ok((len, segment)) => {
                self.idle_polls = 0;
                Ok(Some((&buffer[..len], segment.max(1))))
            }
            Err(e) if is_busy(&e) => {
                self.idle_polls += 1;
                if self.idle_polls.is_multiple_of(POLLS_BEFORE_YIELD) {
                    thread::yield_now();
                }
                Ok(None)
            }
            Err(e) => Err(e),
        }
    }
}

/// Returns whether there is nothing to receive, or no room to send.
fn is_busy(error: &io::Error) -> bool {
    let errno = error.raw_os_error().map(Errno::from_raw);
    matches!(errno, Some(Errno::EAGAIN | Errno::ENOBUFS | Errno::EINTR))
}

/// Sends datagrams of `segment` bytes in one call, which the kernel segments.
fn send_burst(socket: &UdpSocket, bytes: &[u8], segment: usize, to: SocketAddr) -> io::Result<()> {
    let slices = [IoSlice::new(bytes)];
    let segment = u16::try_from(segment).map_err(|_| Errno::EMSGSIZE)?;
    let control = [ControlMessage::UdpGsoSegments(&segment)];
    let to = SockaddrStorage::from(to);
    sendmsg(socket.as_raw_fd(), &slices, &control, MsgFlags::empty(), Some(&to))?;
    Ok(())
}

/// Receives merged datagrams; returns their total length and the length of each.
fn receive_merged(
    socket: &UdpSocket,
    control: &mut [u8],
    buffer: &mut [u8],
) -> io::Result<(usize, usize)> {
    let mut slices = [IoSliceMut::new(buffer)];
    let flags = MsgFlags::empty();
    let message = recvmsg::<()>(socket.as_raw_fd(), &mut slices, Some(control), flags)?;
    let segment = message.cmsgs()?.find_map(|cmsg| match cmsg {
        ControlMessageOwned::UdpGroSegments(segment) => usize::try_from(segment).ok(),
        _ => None,
    });
    Ok((message.bytes, segment.unwrap_or(message.bytes)))
}

/// Memory for payloads, in the role of registered memory.
pub(super) struct Region {
    bytes: Vec<u8>,
    next: usize,
}

impl Region {
    /// Larger than a first-level cache, smaller than a last-level one.
    const BYTES: usize = 4 << 20;

    pub(super) fn new() -> Self {
        Self { bytes: vec![0x5a; Self::BYTES], next: 0 }
    }

    /// Fills a datagram: copies the payload from here, and computes the CRC-32 over it.
    pub(super) fn fill(&mut self, datagram: &mut [u8]) {
        let Some((body, crc)) = datagram.split_last_chunk_mut::<ICRC_LEN>() else { return };
        let piece = self.piece(body.len());
        body.copy_from_slice(&self.bytes[piece..piece + body.len()]);
        *crc = crc32(0, body).to_le_bytes();
    }

    /// Takes a datagram: copies the payload here; returns whether the CRC-32 matches.
    pub(super) fn take(&mut self, datagram: &[u8]) -> bool {
        let Some((body, crc)) = datagram.split_last_chunk::<ICRC_LEN>() else { return false };
        let piece = self.piece(body.len());
        self.bytes[piece..piece + body.len()].copy_from_slice(body);
        crc32(0, body).to_le_bytes() == *crc
    }

    /// Returns the offset of the next `len` bytes.
    fn piece(&mut self, len: usize) -> usize {
        if self.next + len > self.bytes.len() {
            self.next = 0;
        }
        self.next += len;
        self.next - len
    }
}

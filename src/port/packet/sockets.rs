//! The sockets that see frames: one of the interface, and one of `lo`, by which this host sends to itself.

use std::io;
use std::mem;
use std::net::IpAddr;
use std::os::fd::{AsFd, BorrowedFd};

use smallvec::SmallVec;
use socket2::{Domain, Protocol, Socket, Type};

use super::filter;
use crate::port::PortConfig;
use crate::port::shared::bpf::DROP;
use crate::port::shared::frame;
use crate::port::shared::receive_buffer::size_receive_buffer;
use crate::sys;

/// The interface by which this host sends to itself: the first of every namespace.
const LOOPBACK: u32 = 1;

/// What the system refuses, and what it says.
pub(super) type Refused = (&'static str, io::Error);

/// The sockets of a port.
#[derive(Debug)]
pub(super) struct Sockets {
    ip: IpAddr,
    /// Whose queue pairs packets are received for.
    shard: u8,
    /// Of the interface, which also sends, and of `lo`.
    sockets: SmallVec<[Socket; 2]>,
    /// The interface of the first.
    interface: u32,
    /// The one that the next call receives from first.
    first: usize,
    frame: Box<[u8]>,
}

impl Sockets {
    /// Of nothing yet.
    pub(super) fn new(ip: IpAddr, shard: u8) -> io::Result<Self> {
        let sockets = [raw()?, raw()?].into();
        let frame = vec![0; frame::MAX_FRAME_LEN].into_boxed_slice();
        Ok(Self { ip, shard, sockets, interface: 0, first: 0, frame })
    }

    /// Begins to receive what is for the port, of this interface.
    pub(super) fn open(&mut self, config: &PortConfig, interface: u32) -> Result<(), Refused> {
        let at = |what| move |error| (what, error);
        for socket in &self.sockets {
            socket.set_nonblocking(true).map_err(at("O_NONBLOCK"))?;
            sys::set_option(socket.as_fd(), libc::SOL_PACKET, libc::PACKET_VNET_HDR, 1)
                .map_err(at("PACKET_VNET_HDR"))?;
            size_receive_buffer(socket, config.receive_buffer).map_err(at("SO_RCVBUF"))?;
        }
        self.follow(interface)
    }

    /// From now on the address is of this interface.
    pub(super) fn follow(&mut self, interface: u32) -> Result<(), Refused> {
        if interface == self.interface {
            return Ok(());
        }
        let at = |what| move |error| (what, error);
        let ethertype = frame::ethertype(self.ip.is_ipv4());
        let wanted = || filter::to_shard(self.ip, self.shard);
        // What `lo` has is received once.
        let also = if interface == LOOPBACK { Some(vec![DROP]) } else { wanted() };
        for (socket, (of, program)) in
            self.sockets.iter().zip([(interface, wanted()), (LOOPBACK, also)])
        {
            let program =
                program.ok_or_else(|| ("SO_ATTACH_FILTER", io::ErrorKind::InvalidInput.into()))?;
            socket.attach_filter(&program).map_err(at("SO_ATTACH_FILTER"))?;
            sys::bind_to_link(socket.as_fd(), of, ethertype).map_err(at("bind"))?;
        }
        self.interface = interface;
        Ok(())
    }

    /// Sends a frame in two parts by the interface.
    pub(super) fn send(&self, head: &[u8], payload: &[u8]) -> io::Result<()> {
        let socket = self.sockets.first().ok_or(io::ErrorKind::NotConnected)?;
        socket.send_vectored(&[io::IoSlice::new(head), io::IoSlice::new(payload)]).map(drop)
    }

    /// Receives up to `most` frames and returns how many there were.
    pub(super) fn receive(
        &mut self,
        most: usize,
        sink: &mut dyn FnMut(&[u8]),
    ) -> io::Result<usize> {
        let mut count = 0;
        let sockets = if self.interface == LOOPBACK { 1 } else { self.sockets.len() };
        // Each in turn is the first, so that a flood of one does not silence the other.
        self.first = (self.first + 1) % sockets.max(1);
        for turn in 0..sockets {
            let index = (self.first + turn) % sockets;
            while count < most {
                let len = match read(&self.sockets[index], &mut self.frame) {
                    Ok(Some(len)) => len,
                    Ok(None) => break,
                    Err(error) => {
                        if sys::is_closed(&error) {
                            // By now its number may be that of somebody else's file.
                            mem::forget(self.sockets.swap_remove(index));
                        }
                        return Err(error);
                    }
                };
                count += 1;
                sink(self.frame.get(..len).unwrap_or_default());
            }
        }
        Ok(count)
    }

    /// Bytes that may wait at each, as the kernel counts them.
    pub(super) fn receive_buffer(&self) -> usize {
        self.sockets.first().and_then(|socket| socket.recv_buffer_size().ok()).unwrap_or_default()
    }

    /// Frames that found no room.
    pub(super) fn drops(&self) -> u64 {
        self.sockets.iter().map(|socket| sys::drops(socket.as_fd()).map_or(0, u64::from)).sum()
    }

    pub(super) fn descriptors(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.sockets.iter().map(Socket::as_fd)
    }
}

/// A packet socket, which receives nothing yet.
fn raw() -> io::Result<Socket> {
    Socket::new(Domain::from(libc::AF_PACKET), Type::RAW, Some(Protocol::from(0)))
}

/// The length of the next frame; `None` when there is none.
fn read(mut socket: &Socket, frame: &mut [u8]) -> io::Result<Option<usize>> {
    match io::Read::read(&mut socket, frame) {
        Ok(len) => Ok(Some(len)),
        Err(error) => match error.raw_os_error() {
            // The interface is down or gone, and its state is told elsewhere.
            Some(libc::EAGAIN | libc::EINTR | libc::ENETDOWN) => Ok(None),
            // A frame that the note cannot describe is gone: not one of UDP.
            Some(libc::EINVAL) => Ok(Some(0)),
            _ => Err(error),
        },
    }
}

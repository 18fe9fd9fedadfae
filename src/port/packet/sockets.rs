//! Packet sockets: one of the interface, and one of `lo`, which carries packets of this host to itself.

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

/// Index of `lo`: the first interface of each namespace.
const LOOPBACK: u32 = 1;

/// A call that the system refuses, and its error.
pub(super) type SocketError = (&'static str, io::Error);

/// Packet sockets of a port.
#[derive(Debug)]
pub(super) struct Sockets {
    ip: IpAddr,
    /// Shard that gets the packets.
    shard: u8,
    /// Socket of the interface, which also sends, and socket of `lo`.
    sockets: SmallVec<[Socket; 2]>,
    /// Interface of the first socket.
    interface: u32,
    /// Index of the socket that the next call receives from first.
    first: usize,
    frame: Box<[u8]>,
}

impl Sockets {
    /// Opens unbound sockets.
    pub(super) fn new(ip: IpAddr, shard: u8) -> io::Result<Self> {
        let sockets = [raw()?, raw()?].into();
        let frame = vec![0; frame::MAX_FRAME_LEN].into_boxed_slice();
        Ok(Self { ip, shard, sockets, interface: 0, first: 0, frame })
    }

    /// Configures the sockets and starts to receive on this interface.
    pub(super) fn open(&mut self, config: &PortConfig, interface: u32) -> Result<(), SocketError> {
        let at = |what| move |error| (what, error);
        for socket in &self.sockets {
            socket.set_nonblocking(true).map_err(at("O_NONBLOCK"))?;
            sys::set_option(socket.as_fd(), libc::SOL_PACKET, libc::PACKET_VNET_HDR, 1)
                .map_err(at("PACKET_VNET_HDR"))?;
            size_receive_buffer(socket, config.receive_buffer).map_err(at("SO_RCVBUF"))?;
        }
        self.follow(interface)
    }

    /// Moves the sockets to another interface, which has the address now.
    pub(super) fn follow(&mut self, interface: u32) -> Result<(), SocketError> {
        if interface == self.interface {
            return Ok(());
        }
        let at = |what| move |error| (what, error);
        let ethertype = frame::ethertype(self.ip.is_ipv4());
        let wanted = || filter::to_shard(self.ip, self.shard);
        // Frames of `lo` must not be received twice.
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

    /// Sends a frame in two parts on the interface.
    pub(super) fn send(&self, head: &[u8], payload: &[u8]) -> io::Result<()> {
        let socket = self.sockets.first().ok_or(io::ErrorKind::NotConnected)?;
        socket.send_vectored(&[io::IoSlice::new(head), io::IoSlice::new(payload)]).map(drop)
    }

    /// Receives up to `most` frames and returns their number.
    pub(super) fn receive(
        &mut self,
        most: usize,
        sink: &mut dyn FnMut(&[u8]),
    ) -> io::Result<usize> {
        let mut count = 0;
        let sockets = if self.interface == LOOPBACK { 1 } else { self.sockets.len() };
        // Alternates the first socket, so that a flood on one does not starve the other.
        self.first = (self.first + 1) % sockets.max(1);
        for turn in 0..sockets {
            let index = (self.first + turn) % sockets;
            while count < most {
                let len = match read(&self.sockets[index], &mut self.frame) {
                    Ok(Some(len)) => len,
                    Ok(None) => break,
                    Err(error) => {
                        if sys::is_closed(&error) {
                            // Other code has closed the descriptor, and the number may belong to another file by now.
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

    /// Returns the receive buffer of each socket in bytes, as the kernel counts them.
    pub(super) fn receive_buffer(&self) -> usize {
        self.sockets.first().and_then(|socket| socket.recv_buffer_size().ok()).unwrap_or_default()
    }

    /// Returns the number of frames dropped for lack of space.
    pub(super) fn drops(&self) -> u64 {
        self.sockets.iter().map(|socket| sys::drops(socket.as_fd()).map_or(0, u64::from)).sum()
    }

    pub(super) fn descriptors(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.sockets.iter().map(Socket::as_fd)
    }
}

/// Opens a packet socket that receives no protocol yet.
fn raw() -> io::Result<Socket> {
    Socket::new(Domain::from(libc::AF_PACKET), Type::RAW, Some(Protocol::from(0)))
}

/// Reads the next frame and returns its length; `None` if there is none.
fn read(mut socket: &Socket, frame: &mut [u8]) -> io::Result<Option<usize>> {
    match io::Read::read(&mut socket, frame) {
        Ok(len) => Ok(Some(len)),
        Err(error) => match error.raw_os_error() {
            // The interface is down or deleted; the link state reports that.
            Some(libc::EAGAIN | libc::EINTR | libc::ENETDOWN) => Ok(None),
            // The frame has no `virtio_net_hdr` form, so it is not UDP: skipped.
            Some(libc::EINVAL) => Ok(Some(0)),
            _ => Err(error),
        },
    }
}

//! Packet sockets: one of the interface, and one of `lo`, which carries packets of this host to itself.

use std::io;
use std::net::IpAddr;
use std::os::fd::{AsFd, BorrowedFd};

use smallvec::SmallVec;
use socket2::{Domain, Protocol, Socket, Type};

use super::filter;
use crate::port::PortConfig;
use crate::port::shared::bpf::DROP;
use crate::port::shared::frame;
use crate::port::shared::receive_buffer::size_receive_buffer;
use crate::sys::{self, OwnDescriptor};

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
    sockets: SmallVec<[OwnDescriptor<Socket>; 2]>,
    /// Other code of the process has closed a socket.
    is_lost: bool,
    /// Interface of the first socket.
    interface: u32,
    /// Index of the socket that the next call receives from first.
    first: usize,
    frame: Box<[u8]>,
}

impl Sockets {
    /// Opens unbound sockets.
    pub(super) fn new(ip: IpAddr, shard: u8) -> io::Result<Self> {
        let sockets = [raw()?, raw()?].map(OwnDescriptor::new).into();
        let frame = vec![0; frame::MAX_FRAME_LEN].into_boxed_slice();
        Ok(Self { ip, shard, sockets, is_lost: false, interface: 0, first: 0, frame })
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

    /// Checks that the descriptors still are those of the sockets. Otherwise every later call of [`send`](Self::send) and
    /// [`receive`](Self::receive) fails, so that the program keeps the data of its own files.
    pub(super) fn check(&mut self) {
        self.is_lost |= !self.sockets.iter().all(OwnDescriptor::is_own);
    }

    fn fail_if_lost(&self) -> io::Result<()> {
        if self.is_lost { Err(io::Error::from_raw_os_error(libc::EBADF)) } else { Ok(()) }
    }

    /// Sends a frame in two parts on the interface.
    pub(super) fn send(&self, head: &[u8], payload: &[u8]) -> io::Result<()> {
        self.fail_if_lost()?;
        let socket = self.sockets.first().ok_or(io::ErrorKind::NotConnected)?;
        socket.send_vectored(&[io::IoSlice::new(head), io::IoSlice::new(payload)]).map(drop)
    }

    /// Receives up to `most` frames and returns their number.
    pub(super) fn receive(
        &mut self,
        most: usize,
        sink: &mut dyn FnMut(&[u8]),
    ) -> io::Result<usize> {
        self.fail_if_lost()?;
        let mut count = 0;
        let sockets = if self.interface == LOOPBACK { 1 } else { self.sockets.len() };
        // Alternates the first socket, so that a flood on one does not starve the other.
        self.first = (self.first + 1) % sockets.max(1);
        for turn in 0..sockets {
            let index = (self.first + turn) % sockets;
            while count < most {
                let Some(len) = read(&self.sockets[index], &mut self.frame)? else { break };
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
        self.sockets.iter().map(OwnDescriptor::as_fd)
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

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, UdpSocket};

    use super::*;

    /// Sockets of the program, which needs no privileges, stand for packet sockets.
    #[test]
    fn socket_of_the_program_is_neither_received_from_nor_sent_to() {
        let ip = Ipv4Addr::LOCALHOST;
        let [closed, foreign, peer] = [(); 3].map(|()| UdpSocket::bind((ip, 0)).unwrap());
        foreign.connect(peer.local_addr().unwrap()).unwrap();
        peer.connect(foreign.local_addr().unwrap()).unwrap();
        peer.set_nonblocking(true).unwrap();
        let program = foreign.try_clone().unwrap();
        peer.send(b"data").unwrap();
        let lost = OwnDescriptor::replaced_by(Socket::from(foreign), closed.as_fd());
        let mut sockets = Sockets {
            ip: ip.into(),
            shard: 0,
            sockets: [lost].into_iter().collect(),
            is_lost: false,
            interface: LOOPBACK,
            first: 0,
            frame: vec![0; frame::MAX_FRAME_LEN].into_boxed_slice(),
        };
        sockets.check();
        let received = sockets.receive(1, &mut |_| panic!("a frame"));
        assert!(sys::is_closed(&received.unwrap_err()));
        assert!(sys::is_closed(&sockets.send(b"head", b"payload").unwrap_err()));
        drop(sockets);
        let mut data = [0; 5];
        assert_eq!(program.recv(&mut data).unwrap(), 4);
        assert_eq!(peer.recv(&mut data).unwrap_err().kind(), io::ErrorKind::WouldBlock);
    }
}

//! The receiving side: one socket, bound to the RoCEv2 port of the address.

use std::io;
use std::net::IpAddr;
use std::os::fd::{AsFd, BorrowedFd};

use socket2::Socket;

use crate::net::{RxBuffer, RxMeta};
use crate::port::PortCounters;
use crate::port::shared::recv_batch::RecvBatchSize;
use crate::sys::{OwnDescriptor, Received, RecvBatch, integer};

/// Number of messages that one call receives from the socket of a group.
const MESSAGES_PER_GROUP_RECV: usize = 8;

/// The receiving socket, with its buffers and its batch size.
#[derive(Debug)]
pub(super) struct RxSocket {
    ip: IpAddr,
    socket: OwnDescriptor<Socket>,
    /// Other code of the process has closed the socket.
    is_lost: bool,
    recv_batch: RecvBatch,
    batch: RecvBatchSize,
}

impl RxSocket {
    /// Wraps a socket at `ip`.
    pub(super) fn new(ip: IpAddr, socket: Socket) -> Self {
        Self {
            ip,
            socket: OwnDescriptor::new(socket),
            is_lost: false,
            recv_batch: RecvBatch::new(),
            batch: RecvBatchSize::new(),
        }
    }

    pub(super) fn socket(&self) -> &Socket {
        &self.socket
    }

    /// Reports a send of `bytes` in one call.
    pub(super) fn sends(&mut self, bytes: usize) {
        self.batch.sends(bytes);
    }

    /// Receives datagrams to the address, and returns the number of messages.
    pub(super) fn receive(
        &mut self,
        counters: &mut PortCounters,
        sink: &mut dyn FnMut(RxBuffer<'_>),
    ) -> io::Result<usize> {
        if self.is_lost {
            return Err(io::Error::from_raw_os_error(libc::EBADF));
        }
        let messages = self.recv_batch.receive(self.socket.as_fd(), self.batch.next())?;
        if messages == 0 {
            self.batch.received(0, 0, 0);
            return Ok(0);
        }
        let got = deliver(self.recv_batch.messages(messages), self.ip, counters, sink);
        self.batch.received(messages, got.datagrams, got.bytes);
        Ok(messages)
    }

    /// Receives datagrams to a group, and returns the number of messages.
    pub(super) fn receive_of_group(
        &mut self,
        (group, socket): (IpAddr, BorrowedFd<'_>),
        counters: &mut PortCounters,
        sink: &mut dyn FnMut(RxBuffer<'_>),
    ) -> io::Result<usize> {
        let messages = self.recv_batch.receive(socket, MESSAGES_PER_GROUP_RECV)?;
        deliver(self.recv_batch.messages(messages), group, counters, sink);
        Ok(messages)
    }

    /// Checks that the descriptor still is that of the socket. Otherwise every later call of [`receive`](Self::receive)
    /// fails, so that the program keeps the datagrams of its own socket.
    pub(super) fn check(&mut self) {
        self.is_lost |= !self.socket.is_own();
    }
}

/// Amounts received by one call.
#[derive(Default)]
struct ReceivedAmount {
    datagrams: usize,
    bytes: usize,
}

/// Passes received messages to `sink`.
#[inline]
fn deliver<'a>(
    messages: impl Iterator<Item = Received<'a>>,
    ip: IpAddr,
    counters: &mut PortCounters,
    sink: &mut dyn FnMut(RxBuffer<'_>),
) -> ReceivedAmount {
    let mut got = ReceivedAmount::default();
    for message in messages {
        got.bytes += message.data.len();
        if let Some(buffer) = buffer(&message, ip) {
            got.datagrams += buffer.segments().len();
            counters.received(&buffer);
            sink(buffer);
        }
    }
    got
}

/// Parses the control messages of a received message. `None` if its source is no IP address.
fn buffer<'a>(message: &Received<'a>, destination: IpAddr) -> Option<RxBuffer<'a>> {
    let source = message.from.get()?;
    let (mut segment_len, mut traffic_class, mut hop_limit) = (message.data.len(), 0, 0);
    for (level, kind, data) in message.control.iter() {
        let value = integer(data);
        let byte = value.and_then(|value| u8::try_from(value).ok());
        match (level, kind) {
            (libc::IPPROTO_IP, libc::IP_TOS) | (libc::IPPROTO_IPV6, libc::IPV6_TCLASS) => {
                traffic_class = byte?;
            }
            (libc::IPPROTO_IP, libc::IP_TTL) | (libc::IPPROTO_IPV6, libc::IPV6_HOPLIMIT) => {
                hop_limit = byte?;
            }
            (libc::IPPROTO_UDP, libc::UDP_GRO) => {
                segment_len = value.and_then(|value| usize::try_from(value).ok())?;
            }
            _ => {}
        }
    }
    let meta =
        RxMeta { source, destination, traffic_class, hop_limit, ipv4: None, may_omit_icrc: false };
    Some(RxBuffer { data: message.data, segment_len, meta })
}

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, UdpSocket};
    use std::os::fd::AsRawFd;
    use std::path::Path;
    use std::time::Duration;

    use super::super::tests::{burst, config, open, path};
    use super::*;
    use crate::port::{Control, Datapath, wait_readable};
    use crate::sys;
    use crate::time::Instant;

    /// Senders rely on that (`transport::window`): a split burst takes up to ten times as much of the receive buffer,
    /// and a thread that polled a moment ago may not poll again to receive it.
    #[test]
    fn a_burst_arrives_whole_however_many_lone_datagrams_were_polled_for_before() {
        let (mut a, mut b) = (open(&config()), open(&config()));
        a.keep_identifications();
        let path = path(&mut a, b.info().ip, 0xc000);
        for lens in [&[84][..]; 1000].into_iter().chain([&[1040; 62][..]]) {
            assert_eq!(a.transmit(Instant::ZERO, &[burst(path, lens)]), Ok(1));
            // Without a notice to the receiver.
            assert!(wait_readable(&b.descriptors(), Some(Duration::from_secs(20))).unwrap());
            let mut came = Vec::new();
            let mut take = |rx: RxBuffer<'_>| came.extend(rx.segments().map(<[u8]>::len));
            assert_eq!(b.receive(Instant::ZERO, &mut take).unwrap(), 1);
            assert_eq!(came, lens);
            assert_eq!(b.receive(Instant::ZERO, &mut |_| panic!("a buffer")).unwrap(), 0);
        }
    }

    /// A program that has closed the device's sockets opens its own, and one gets the number of the receiving socket.
    #[test]
    fn socket_of_the_program_is_neither_received_from_nor_closed() {
        let ip = Ipv4Addr::LOCALHOST;
        let [closed, foreign, peer] = [(); 3].map(|()| UdpSocket::bind((ip, 0)).unwrap());
        let (number, program) = (foreign.as_raw_fd(), foreign.try_clone().unwrap());
        peer.send_to(b"data", foreign.local_addr().unwrap()).unwrap();
        let mut rx_socket = RxSocket::new(ip.into(), UdpSocket::bind((ip, 0)).unwrap().into());
        rx_socket.socket = OwnDescriptor::replaced_by(foreign.into(), closed.as_fd());
        rx_socket.check();
        let mut counters = PortCounters::default();
        let received = rx_socket.receive(&mut counters, &mut |_| panic!("a buffer"));
        assert!(sys::is_closed(&received.unwrap_err()));
        drop(rx_socket);
        assert!(Path::new("/proc/self/fd").join(number.to_string()).exists());
        let mut data = [0; 5];
        assert_eq!(program.recv(&mut data).unwrap(), 4);
    }
}

//! The receiving side: one socket, bound to the RoCEv2 port of the address.

use std::io;
use std::mem;
use std::net::IpAddr;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::time::Duration;

use socket2::Socket;

use super::batch::Batch;
use super::merging::Merging;
use super::socket::{self, Receiver};
use crate::io::PortCounters;
use crate::io::cmsg::integer;
use crate::io::sys::{self, Inbox, Received, wait_readable};
use crate::net::{RxBuffer, RxMeta};

/// Messages to receive in one call from the socket of a group.
const GROUP_BATCH: usize = 8;

/// Bytes of a receive buffer, as the kernel counts them, in which what peers of this machine have on its way
/// finds room in pieces too. They reckon with bursts that arrive whole (`transport::window`); in pieces those
/// of the smallest packets take ten times as much.
const ROOMY: usize = 4 << 20;

/// The socket that receives, and what was learnt of how things come.
#[derive(Debug)]
pub(super) struct Intake {
    ip: IpAddr,
    socket: Socket,
    inbox: Inbox,
    batch: Batch,
    merging: Merging,
    /// Whether the kernel tells fields of the IP header.
    tells: bool,
}

impl Intake {
    /// Of a socket at `ip`, with a receive buffer of so many bytes.
    pub(super) fn new(ip: IpAddr, receiver: Receiver, buffer: usize) -> Self {
        let Receiver { socket, gro, tells, .. } = receiver;
        let mut merging = Merging::new(gro);
        if buffer < ROOMY {
            merging.fix();
        }
        Self { ip, socket, inbox: Inbox::new(), batch: Batch::new(), merging, tells }
    }

    pub(super) fn socket(&self) -> &Socket {
        &self.socket
    }

    /// Has the kernel tell the traffic class and the hop limit of what arrives from now on.
    pub(super) fn tell_ip_fields(&mut self) {
        socket::tell_ip_fields(&self.socket, self.ip);
        self.tells = true;
    }

    /// So many bytes are being sent at once.
    pub(super) fn sends(&mut self, bytes: usize) {
        self.batch.sends(bytes);
    }

    /// Receives what was sent to the address, and returns how many messages that was.
    pub(super) fn receive(
        &mut self,
        counters: &mut PortCounters,
        sink: &mut dyn FnMut(RxBuffer<'_>),
    ) -> io::Result<usize> {
        let most = self.batch.next();
        let filled = if most == 1 && !self.tells && !self.merging.is_on() {
            self.inbox.receive_bare(self.socket.as_fd())
        } else {
            self.inbox.receive(self.socket.as_fd(), most)
        };
        if filled.as_ref().is_err_and(sys::is_closed) {
            self.forget_socket();
        }
        let got = deliver(&self.inbox, filled, self.ip, counters, sink)?;
        self.batch.received(got.messages, got.datagrams, got.bytes);
        if let Some(on) = self.merging.received(got.messages, got.datagrams, got.bytes) {
            self.merge(on);
        }
        Ok(got.messages)
    }

    /// Receives what was sent to a group, and returns how many messages that was.
    pub(super) fn receive_of_group(
        &mut self,
        (group, socket): (IpAddr, BorrowedFd<'_>),
        counters: &mut PortCounters,
        sink: &mut dyn FnMut(RxBuffer<'_>),
    ) -> io::Result<usize> {
        let filled = self.inbox.receive(socket, GROUP_BATCH);
        deliver(&self.inbox, filled, group, counters, sink).map(|got| got.messages)
    }

    /// Nobody will look for a while: what comes meanwhile is to take no more room than it must.
    pub(super) fn rest(&mut self) {
        if self.merging.is_paused() {
            self.merge(true);
        }
    }

    /// Tells the kernel whether to merge.
    #[cold]
    fn merge(&mut self, on: bool) {
        if socket::merge(&self.socket, on).is_err() {
            self.merging.fix();
            return;
        }
        // How long the parts are of what was merged before is told only while the kernel merges. So it goes on
        // doing so when something has come since the last look.
        let is_there = || wait_readable(&[self.socket.as_raw_fd()], Some(Duration::ZERO));
        let back = !on && is_there().unwrap_or(true) && socket::merge(&self.socket, true).is_ok();
        self.merging.set(on || back);
    }

    /// Somebody else has closed the socket. By now its number may be that of a file of theirs, which is not
    /// to be closed with the port.
    fn forget_socket(&mut self) {
        if let Ok(fresh) = socket::open(self.ip) {
            mem::forget(mem::replace(&mut self.socket, fresh));
        }
    }
}

/// How much was received.
struct Got {
    messages: usize,
    datagrams: usize,
    bytes: usize,
}

/// Hands over what was received at an address.
#[inline]
fn deliver(
    inbox: &Inbox,
    filled: io::Result<usize>,
    ip: IpAddr,
    counters: &mut PortCounters,
    sink: &mut dyn FnMut(RxBuffer<'_>),
) -> io::Result<Got> {
    let messages = match filled {
        Ok(messages) => messages,
        Err(error) => match error.kind() {
            io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted => 0,
            _ => return Err(error),
        },
    };
    let mut got = Got { messages, datagrams: 0, bytes: 0 };
    for message in inbox.messages(messages) {
        got.bytes += message.data.len();
        if let Some(buffer) = buffer(&message, ip) {
            got.datagrams += buffer.segments().len();
            counters.received(&buffer);
            sink(buffer);
        }
    }
    Ok(got)
}

/// What the kernel says of a received message. `None` when it is from no IP address.
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
    let meta = RxMeta { source, destination, traffic_class, hop_limit, ipv4: None };
    Some(RxBuffer { data: message.data, segment_len, meta })
}

#[cfg(test)]
mod tests {
    use super::super::tests::{burst, config, open, path, receive};
    use super::super::{UdpConfig, UdpPort};
    use super::*;
    use crate::io::Port;
    use crate::net::Path;
    use crate::time::Instant;

    const NOW: Instant = Instant::ZERO;

    /// Two ports, of which the first has sent the second one datagram after the other until that had nothing
    /// merged any more, and the path between them.
    fn lone(config_of_second: &UdpConfig) -> (UdpPort, UdpPort, Path) {
        let (mut a, mut b) = (open(&config()), open(config_of_second));
        let path = path(&mut a, b.info().ip, 0xc000);
        // However small its buffer is where the tests run.
        b.intake.merging = Merging::new(b.info().gro);
        for _ in 0..1000 {
            exchange(&mut a, &mut b, &path, &[84]);
        }
        assert!(!b.intake.merging.is_on());
        (a, b, path)
    }

    /// Sends these datagrams at once, and returns how long the messages are that they come in.
    fn exchange(a: &mut UdpPort, b: &mut UdpPort, path: &Path, lens: &[usize]) -> Vec<Vec<usize>> {
        assert_eq!(a.transmit(NOW, &[burst(*path, lens)]), Ok(1));
        let mut messages: Vec<Vec<usize>> = Vec::new();
        while messages.iter().map(Vec::len).sum::<usize>() < lens.len() {
            // As who polls: the port is not told that anybody waits.
            let ready = wait_readable(&b.descriptors(), Some(Duration::from_secs(20)));
            assert!(ready.unwrap(), "of {lens:?} only {messages:?} have arrived");
            let mut take = |rx: RxBuffer<'_>| {
                assert_eq!(rx.meta.source, (path.source, path.source_port).into());
                messages.push(rx.segments().map(<[u8]>::len).collect());
            };
            b.receive(NOW, &mut take).unwrap();
        }
        assert_eq!(b.receive(NOW, &mut |_| panic!("more than was sent")).unwrap(), 0);
        messages
    }

    #[test]
    fn lone_datagrams_are_not_merged_and_a_stream_is_again() {
        let (mut a, mut b, path) = lone(&config());
        let pair = [84, 84];
        assert_eq!(exchange(&mut a, &mut b, &path, &pair), [[84], [84]]);
        let stream = vec![4112; 15];
        let pieces: Vec<_> = stream.iter().map(|len| vec![*len]).collect();
        assert_eq!(exchange(&mut a, &mut b, &path, &stream), pieces, "the first burst");
        assert!(b.intake.merging.is_on());
        assert_eq!(exchange(&mut a, &mut b, &path, &stream), [stream]);
        assert_eq!(exchange(&mut a, &mut b, &path, &pair), [pair]);
    }

    #[test]
    fn what_comes_while_nobody_looks_is_merged() {
        let (mut a, mut b, path) = lone(&config());
        assert!(b.arm() && b.intake.merging.is_on());
        let stream = vec![1040; 62];
        assert_eq!(exchange(&mut a, &mut b, &path, &stream), [stream]);
    }

    #[test]
    fn a_small_buffer_is_merged_into_always() {
        let mut a = open(&config());
        let mut b = open(&UdpConfig { receive_buffer: Some(ROOMY / 2), ..config() });
        let path = path(&mut a, b.info().ip, 0xc000);
        for _ in 0..1000 {
            exchange(&mut a, &mut b, &path, &[84]);
        }
        assert_eq!(exchange(&mut a, &mut b, &path, &[84, 84]), [[84, 84]]);
    }

    #[test]
    fn what_was_merged_before_it_ends_keeps_its_parts() {
        let (mut a, mut b) = (open(&config()), open(&config()));
        let path = path(&mut a, b.info().ip, 0xc000);
        assert_eq!(a.transmit(NOW, &[burst(path, &[84, 84, 20])]), Ok(1));
        b.intake.merge(false);
        assert!(b.intake.merging.is_on(), "something waits that is merged");
        assert_eq!(receive(&mut b, 3)[0].lens(), [84, 84, 20]);
        b.intake.merge(false);
        assert!(!b.intake.merging.is_on());
    }

    #[test]
    fn fields_of_the_ip_header_are_told_of_lone_datagrams_too() {
        let (mut a, mut b, path) = lone(&config());
        b.tell_ip_fields();
        let marked = Path { traffic_class: 0xba, hop_limit: 17, ..path };
        assert_eq!(a.transmit(NOW, &[burst(marked, &[84])]), Ok(1));
        assert!(wait_readable(&b.descriptors(), Some(Duration::from_secs(20))).unwrap());
        assert!(!b.intake.merging.is_on());
        let mut seen = None;
        let mut take = |rx: RxBuffer<'_>| seen = Some((rx.meta.traffic_class, rx.meta.hop_limit));
        assert_eq!(b.receive(NOW, &mut take).unwrap(), 1);
        assert_eq!(seen, Some((0xba, 17)));
    }

    #[test]
    fn a_port_that_never_merges_stays_so() {
        let (mut a, mut b, path) = lone(&UdpConfig { gro: false, ..config() });
        for _ in 0..2 {
            let came = exchange(&mut a, &mut b, &path, &[4112; 15]);
            assert_eq!(came, [[4112]; 15]);
        }
        assert!(!b.intake.merging.is_on());
    }
}

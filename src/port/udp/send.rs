//! The sending side: one socket for each UDP source port.

use std::io;
use std::mem;
use std::net::IpAddr;
use std::os::fd::AsFd;

use libc::c_int;
use socket2::Socket;

use super::connected_flows::{ConnectedFlows, SendSockets};
use super::socket::{self, DEFAULT_HOP_LIMIT};
use super::sources::{MAX_SOCKETS, Sources};
use crate::net::{Burst, ROCE_PORT, TransmitErrorKind};
use crate::port::shared::send_failure::SendFailure;
use crate::port::{PortCounters, SOURCE_PORTS};
use crate::sys::{self, MAX_MESSAGES, OwnDescriptor, SendMsg};
use crate::time::Instant;
use crate::wire::icrc;

/// Number of source ports to try if another program has the requested one.
const MAX_PORTS_TRIED: u16 = 16;

/// Sockets that packets leave from.
#[derive(Debug)]
pub(super) struct Senders {
    ip: IpAddr,
    /// Interface, for link-local destinations.
    scope: u32,
    /// The kernel splits bursts (UDP GSO).
    gso: bool,
    sockets: Vec<Sender>,
    /// Sockets shared with the ports of other shards at the same address.
    shared: Option<Sources>,
    msgs: Box<[SendMsg]>,
    flows: ConnectedFlows,
    /// Copy of a datagram that is sealed again.
    scratch: Vec<u8>,
}

#[derive(Debug)]
struct Sender {
    port: u16,
    /// `None`: the receiving socket.
    socket: Option<OwnDescriptor<Socket>>,
}

impl Senders {
    pub(super) fn new(ip: IpAddr, scope: u32, gso: bool, shared: Option<Sources>) -> Self {
        Self {
            ip,
            scope,
            gso,
            sockets: Vec::new(),
            shared,
            msgs: vec![SendMsg::default(); MAX_MESSAGES].into_boxed_slice(),
            flows: ConnectedFlows::default(),
            scratch: Vec::new(),
        }
    }

    /// Opens the socket that sends from `port`; the RoCEv2 port is that of the receiving socket.
    pub(super) fn open(&mut self, port: u16) -> io::Result<()> {
        let own = (port != ROCE_PORT).then(|| match &self.shared {
            Some(shared) => shared.get(self.ip, self.scope, port),
            None => socket::sender(self.ip, self.scope, port).map(OwnDescriptor::new),
        });
        let socket = own.transpose()?;
        self.sockets.push(Sender { port, socket });
        Ok(())
    }

    /// Moves the sockets to another interface, which has the address now.
    pub(super) fn follow(&mut self, interface: u32) {
        self.scope = interface;
        self.flows.end();
        for socket in self.sockets.iter().filter_map(|sender| sender.socket.as_ref()) {
            socket::multicast_from(socket, self.ip, interface);
        }
    }

    /// Returns the source port to use for `wanted`: itself, one near it if another program has it, or an open one if
    /// there are enough sockets.
    pub(super) fn source_port_for(&mut self, wanted: u16) -> u16 {
        if self.find(wanted).is_some() {
            return wanted;
        }
        for attempt in 0..MAX_PORTS_TRIED {
            // The odd stride visits the whole range.
            let port = wanted.wrapping_add(attempt.wrapping_mul(0x9e5)) | *SOURCE_PORTS.start();
            if self.sockets.len() >= MAX_SOCKETS {
                break;
            }
            if self.find(port).is_none() && self.open(port).is_ok() {
                return port;
            }
        }
        if self.sockets.is_empty() {
            // No socket can be opened: send from the receiving socket.
            let _ = self.open(ROCE_PORT);
        }
        let folded = usize::from(wanted) % self.sockets.len().max(1);
        self.sockets.get(folded).map_or(ROCE_PORT, |sender| sender.port)
    }

    /// Sends every later datagram with the identification that it was sealed for.
    pub(super) fn keep_identifications(&mut self) {
        self.flows.disable();
    }

    /// Sends the leading bursts with the same source port, and returns the number taken.
    pub(super) fn send(
        &mut self,
        now: Instant,
        bursts: &[Burst],
        receiver: &Socket,
        counters: &mut PortCounters,
    ) -> Result<usize, SendFailure> {
        let Some(first) = bursts.first() else { return Ok(0) };
        self.check(first)?;
        let port = first.path.source_port;
        let fits = |burst: &&Burst| burst.path.source_port == port && self.check(burst).is_ok();
        let count = bursts.iter().take(MAX_MESSAGES).take_while(fits).count();
        let run = &bursts[..count];
        let Some(sender) = self.find(port) else {
            return Err(SendFailure::Refused(TransmitErrorKind::Other));
        };
        let sockets_of_burst = match &self.sockets[sender].socket {
            Some(unconnected) if self.shared.is_none() => {
                self.flows.follow(now, run, self.scope, unconnected)
            }
            _ => SendSockets::Unconnected,
        };
        if let SendSockets::Connected(flow) = sockets_of_burst
            && self.flows.send(flow, first)
        {
            counters.sent(first);
            counters.tx_connected += 1;
            return Ok(1);
        }
        for (msg, burst) in self.msgs.iter_mut().zip(run) {
            address(msg, burst, self.scope);
            if burst.len() > 1 {
                request_gso(msg, burst);
            }
        }
        let socket = self.sockets[sender].socket.as_deref().unwrap_or(receiver).as_fd();
        let sent = match &self.msgs[..count] {
            [msg] => sys::send_one(socket, msg, first.data()).map(|()| 1),
            msgs => sys::send_many(socket, msgs, run.iter().map(Burst::data)),
        };
        let failure = |error| self.on_error(sender, &error, first.len());
        let taken = sent.map_err(failure)?;
        for burst in &run[..taken] {
            counters.sent(burst);
        }
        if let SendSockets::Both(flow) = sockets_of_burst
            && self.flows.send(flow, first)
        {
            counters.sent(first);
            counters.tx_connected += 1;
            counters.tx_copies += 1;
        }
        Ok(taken)
    }

    /// Sends one burst by one call, without counting it: [`Port::send_last`](crate::port::Port::send_last).
    pub(super) fn send_last(&mut self, burst: &Burst, receiver: &Socket) {
        if self.check(burst).is_err() || self.must_split(burst) {
            return;
        }
        let Some(sender) = self.find(burst.path.source_port) else { return };
        let [msg, ..] = &mut self.msgs[..] else { return };
        address(msg, burst, self.scope);
        if burst.len() > 1 {
            request_gso(msg, burst);
        }
        let socket = self.sockets[sender].socket.as_deref().unwrap_or(receiver).as_fd();
        // A failure loses the packet, as a network may: the process ends before a retransmission.
        let _ = sys::send_one(socket, msg, burst.data());
    }

    /// Sends the datagrams of a burst one by one. Each leaves with identification 0, so those sealed as a later segment
    /// are sealed again.
    pub(super) fn send_split(
        &mut self,
        burst: &Burst,
        receiver: &Socket,
        counters: &mut PortCounters,
    ) -> Result<(), SendFailure> {
        self.check(burst)?;
        self.flows.interrupt(burst);
        let path = &burst.path;
        let Some(sender) = self.find(path.source_port) else {
            return Err(SendFailure::Refused(TransmitErrorKind::Other));
        };
        let [msg, ..] = &mut self.msgs[..] else { return Ok(()) };
        address(msg, burst, self.scope);
        let socket = self.sockets[sender].socket.as_deref().unwrap_or(receiver).as_fd();
        let flow = icrc::Flow::of_path(path);
        for (index, datagram) in burst.segments().enumerate() {
            self.scratch.clear();
            self.scratch.extend_from_slice(datagram);
            if index > 0 {
                flow.seal(0, &mut self.scratch);
            }
            match sys::send_one(socket, msg, &self.scratch) {
                Ok(()) => {}
                Err(error) if index == 0 => return Err(self.on_error(sender, &error, 1)),
                // Datagrams that the kernel has taken cannot be recalled: the rest is lost, as in a full queue.
                Err(_) => break,
            }
        }
        counters.sent(burst);
        Ok(())
    }

    /// Returns the reason why a socket did not send a burst of this many segments.
    fn on_error(&mut self, sender: usize, error: &io::Error, segments: usize) -> SendFailure {
        if sys::is_closed(error) {
            // Other code has closed the descriptor, and the number may belong to another file by now.
            mem::forget(self.sockets[sender].socket.take());
        }
        SendFailure::from_os(error, segments)
    }

    /// Returns whether a burst must be split before it is sent.
    pub(super) fn must_split(&self, burst: &Burst) -> bool {
        burst.len() > 1 && !self.gso
    }

    fn check(&self, burst: &Burst) -> Result<(), SendFailure> {
        if burst.path.source != self.ip {
            return Err(SendFailure::Refused(TransmitErrorKind::Other));
        }
        if burst.path.destination.is_ipv4() != self.ip.is_ipv4() {
            return Err(SendFailure::Refused(TransmitErrorKind::Unreachable));
        }
        Ok(())
    }

    fn find(&self, port: u16) -> Option<usize> {
        self.sockets.iter().position(|sender| sender.port == port)
    }
}

/// Writes the destination and, where they differ from the socket's, traffic class and hop limit.
fn address(msg: &mut SendMsg, burst: &Burst, scope: u32) {
    let path = &burst.path;
    msg.to.set(path.destination, ROCE_PORT, scope);
    msg.control.clear();
    let (level, traffic_class, hop_limit) = match path.destination {
        IpAddr::V4(_) => (libc::IPPROTO_IP, libc::IP_TOS, libc::IP_TTL),
        IpAddr::V6(_) => (libc::IPPROTO_IPV6, libc::IPV6_TCLASS, libc::IPV6_HOPLIMIT),
    };
    let int = |value: u8| c_int::from(value).to_ne_bytes();
    if path.traffic_class != 0 {
        msg.control.push(level, traffic_class, &int(path.traffic_class));
    }
    if path.hop_limit != DEFAULT_HOP_LIMIT {
        // The kernel does not send zero; 1 does not leave the link either.
        msg.control.push(level, hop_limit, &int(path.hop_limit.max(1)));
    }
}

/// Requests GSO for the burst.
fn request_gso(msg: &mut SendMsg, burst: &Burst) {
    // A burst fits an IP packet, so its segments do.
    let len = u16::try_from(burst.segment_len()).unwrap_or(u16::MAX);
    msg.control.push(libc::IPPROTO_UDP, libc::UDP_SEGMENT, &len.to_ne_bytes());
}

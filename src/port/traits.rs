//! The two sides of a port: the datapath, which a shard uses in every turn, and the control side, which a device
//! uses now and then.

use std::io;
use std::net::IpAddr;
use std::ops::RangeInclusive;
#[cfg(unix)]
use std::os::fd::BorrowedFd;

use smallvec::SmallVec;
use thiserror::Error;

use super::counters::PortCounters;
use crate::net::{Burst, RxBuffer, TransmitErrorKind};
use crate::time::Instant;

/// UDP source ports of RoCEv2 packets. Switches tell flows apart by them.
pub const SOURCE_PORTS: RangeInclusive<u16> = 0xc000..=0xffff;

/// Sends bursts and receives buffers.
///
/// A shard owns the datapath and calls it in every turn, under its lock. No call blocks. `now` never runs backwards.
///
/// A step between the engine and a port, such as a capture, is a [`Middleware`](super::Middleware), not an
/// implementation of this trait.
pub trait Datapath: Send {
    /// Sends bursts in order and returns the number of bursts taken.
    ///
    /// A smaller number than offered means that the port is busy. The caller offers the rest again at
    /// [`poll_timeout`](Self::poll_timeout) at the latest. An empty slice gives the port a chance to send packets
    /// that it holds back.
    ///
    /// # Errors
    ///
    /// The port refuses `bursts[error.taken]` for good. It has taken all bursts before that one, and none behind it.
    fn transmit(&mut self, now: Instant, bursts: &[Burst]) -> Result<usize, TransmitError>;

    /// Receives a bounded batch, passes each buffer to `sink`, and returns the number of buffers.
    ///
    /// # Errors
    ///
    /// The port is broken. Malformed datagrams are no error. Later calls may succeed, unless another part of the
    /// program has closed the port's socket (`EBADF`, `ENOTSOCK`).
    fn receive(&mut self, now: Instant, sink: &mut dyn FnMut(RxBuffer<'_>)) -> io::Result<usize>;

    /// Returns the time of the next call that the port needs although no packet arrives: a delayed datagram is due,
    /// or a busy port may have room again.
    fn poll_timeout(&self) -> Option<Instant>;

    /// Prepares to sleep on the [`descriptors`](Self::descriptors): until the next [`receive`](Self::receive), one of
    /// them becomes readable when a packet arrives. Returns `false` if a packet is there already.
    ///
    /// Most ports need no preparation.
    fn arm(&mut self) -> bool {
        true
    }

    /// Returns the descriptors that become readable when a packet arrives, if the port is [armed](Self::arm).
    /// Ports that the kernel does not feed have none. [`Control::join`] and [`Control::leave`] change them.
    #[cfg(unix)]
    fn descriptors(&self) -> SmallVec<[BorrowedFd<'_>; 4]> {
        SmallVec::new()
    }

    /// Returns the number of bytes in the receive queue of the RoCEv2 socket at `to`, as the kernel counts them.
    /// `None` for hosts other than this machine, and where the kernel does not report it.
    fn receive_queue_bytes(&mut self, now: Instant, to: IpAddr) -> Option<u64> {
        let _ = (now, to);
        None
    }

    /// Sends a last burst while the process ends, perhaps in a signal handler. Every step is async-signal-safe: the
    /// port takes no lock, allocates nothing, and neither counts nor captures the burst.
    ///
    /// By default the port sends nothing.
    fn send_last(&mut self, burst: &Burst) {
        let _ = burst;
    }

    /// Returns the counters since the port was opened.
    fn counters(&self) -> PortCounters;
}

/// Properties of a port, and requests that change its sockets.
///
/// A device uses this side when it opens, when it creates, connects or attaches a queue pair, and when an interface
/// changes.
pub trait Control: Send {
    /// Returns the properties of the port.
    fn info(&self) -> PortInfo;

    /// Returns the UDP source port for a [`Path`](crate::net::Path) from `source`, an address of the port: `wanted`,
    /// one of [`SOURCE_PORTS`], or another if `wanted` is taken.
    fn source_port(&mut self, source: IpAddr, wanted: u16) -> u16;

    /// Makes the port report traffic class and hop limit of later datagrams in [`RxMeta`](crate::net::RxMeta). Before
    /// this call both may be zero, because they cost time on some ports. They stay zero on systems that do not
    /// report them.
    fn report_ip_fields(&mut self) {}

    /// Makes every later datagram leave with the IPv4 identification that the engine sealed it for, so that a capture
    /// shows the packet that is on the wire. Otherwise a port may use another identification and seal the datagram
    /// again.
    fn keep_identifications(&mut self) {}

    /// Joins a multicast group: the port receives each later datagram to the group once, those of this host
    /// included, with the group as destination. A second join of the same group has no effect.
    ///
    /// # Errors
    ///
    /// [`JoinError`]: the port has no multicast, or the system refuses. The port is unchanged.
    fn join(&mut self, group: IpAddr) -> Result<(), JoinError> {
        Err(JoinError::Unsupported { group })
    }

    /// Leaves a multicast group.
    fn leave(&mut self, group: IpAddr) {
        let _ = group;
    }

    /// Returns the next change of an interface that has one of the port's addresses, and the present state of each at
    /// first. After the first call a descriptor of the port becomes readable when the system reports changes. Ports
    /// without interface return `None` at once.
    fn poll_link(&mut self) -> Option<LinkState> {
        None
    }
}

/// A port: a [`Datapath`] with its [`Control`] side.
pub trait Port: Datapath + Control {}

impl<P: Datapath + Control + ?Sized> Port for P {}

impl<P: Datapath + ?Sized> Datapath for Box<P> {
    fn transmit(&mut self, now: Instant, bursts: &[Burst]) -> Result<usize, TransmitError> {
        (**self).transmit(now, bursts)
    }

    fn receive(&mut self, now: Instant, sink: &mut dyn FnMut(RxBuffer<'_>)) -> io::Result<usize> {
        (**self).receive(now, sink)
    }

    fn poll_timeout(&self) -> Option<Instant> {
        (**self).poll_timeout()
    }

    fn arm(&mut self) -> bool {
        (**self).arm()
    }

    #[cfg(unix)]
    fn descriptors(&self) -> SmallVec<[BorrowedFd<'_>; 4]> {
        (**self).descriptors()
    }

    fn receive_queue_bytes(&mut self, now: Instant, to: IpAddr) -> Option<u64> {
        (**self).receive_queue_bytes(now, to)
    }

    fn send_last(&mut self, burst: &Burst) {
        (**self).send_last(burst);
    }

    fn counters(&self) -> PortCounters {
        (**self).counters()
    }
}

impl<P: Control + ?Sized> Control for Box<P> {
    fn info(&self) -> PortInfo {
        (**self).info()
    }

    fn source_port(&mut self, source: IpAddr, wanted: u16) -> u16 {
        (**self).source_port(source, wanted)
    }

    fn report_ip_fields(&mut self) {
        (**self).report_ip_fields();
    }

    fn keep_identifications(&mut self) {
        (**self).keep_identifications();
    }

    fn join(&mut self, group: IpAddr) -> Result<(), JoinError> {
        (**self).join(group)
    }

    fn leave(&mut self, group: IpAddr) {
        (**self).leave(group);
    }

    fn poll_link(&mut self) -> Option<LinkState> {
        (**self).poll_link()
    }
}

/// Error for a burst that a port refuses for good.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
#[error("burst {taken} of those offered is refused: {kind:?}")]
pub struct TransmitError {
    /// Number of bursts before it, all of which were taken.
    pub taken: usize,
    /// Reason for the refusal.
    pub kind: TransmitErrorKind,
}

impl TransmitError {
    /// Returns the error for a slice that begins with `taken` more bursts, all of which were taken.
    pub(super) fn behind(self, taken: usize) -> Self {
        Self { taken: taken + self.taken, ..self }
    }
}

/// The state of the interface below an address of a port.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LinkState {
    /// The address.
    pub ip: IpAddr,
    /// The number of the interface that has it, or had it last; 0 where that cannot be known.
    pub interface: u32,
    /// An interface has the address.
    pub has_address: bool,
    /// That interface is up, and has a carrier.
    pub running: bool,
    /// Bytes that an IP packet may have there, or had there last.
    pub mtu: usize,
}

impl LinkState {
    /// Whether packets can come and go.
    pub fn is_active(&self) -> bool {
        self.has_address && self.running
    }
}

/// Why a port does not join a multicast group.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum JoinError {
    /// It is a port that knows no groups.
    #[error("cannot join group {group}: this port has no multicast")]
    Unsupported {
        /// The group.
        group: IpAddr,
    },
    /// It is no group, or of another IP version than the port.
    #[error("cannot join {group}: it is no multicast group of the IP version of {ip}")]
    NotAGroup {
        /// What was given.
        group: IpAddr,
        /// The port's address.
        ip: IpAddr,
    },
    /// The system refuses.
    #[error("cannot join group {group}: {what}: {source}")]
    Os {
        /// The group.
        group: IpAddr,
        /// The call or socket option.
        what: &'static str,
        /// What the system says.
        source: io::Error,
    },
}

/// Properties of a port.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PortInfo {
    /// The address it receives at and sends from; of several the first.
    pub ip: IpAddr,
    /// The number of the interface that has it; 0 where there is none, or it cannot be known.
    pub interface: u32,
    /// Bytes that an IP packet may have on the interface below; of several the least.
    pub link_mtu: usize,
    /// Whether a burst of several segments costs one send.
    pub gso: bool,
    /// Maximum number of segments in a burst, up to [`MAX_BURST_SEGMENTS`](crate::net::MAX_BURST_SEGMENTS). The host
    /// does not split a burst of more, so it costs a send for each.
    pub max_burst_segments: usize,
    /// Bytes after which no further burst is built for a call of [`Datapath::transmit`]; `usize::MAX` if each call costs
    /// more than the peer gains when it can process the first burst earlier.
    pub max_batch_bytes: usize,
    /// Whether received datagrams may come merged.
    pub gro: bool,
    /// Bytes that may wait to be received at an address, as the kernel counts them: more than the
    /// datagrams hold.
    pub receive_buffer: usize,
    /// Whether received buffers carry [`Ipv4Fields`](crate::net::Ipv4Fields).
    pub sees_ip_header: bool,
    /// Whether bursts may come without ICRCs. Such a port computes those of all datagrams that leave the host.
    pub omits_icrcs: bool,
}

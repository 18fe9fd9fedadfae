//! Ways onto the wire.
//!
//! A [`Port`] carries what the engine makes: [`Burst`]s go down, [`RxBuffer`]s come up. What kind of
//! port it is, a socket or a simulation, the engine does not know; a middleware port wraps another
//! and is a port itself.
//!
//! | port | carries datagrams |
//! |---|---|
//! | `udp::UdpPort` | over UDP sockets, without privileges |
//! | `shm::ShmPort` | through shared memory to others like it on this machine, else over UDP sockets |
//! | `packet::PacketPort` | in frames of its own, with CAP_NET_RAW: it sees IP headers |
//! | `tap::TapPort` | on a TAP interface, as a host of its own there |
//! | [`several::Several`] | through others, by the address that they leave from |
//! | [`sim::SimPort`] | through a simulated network in virtual time |
//! | [`impair::Impair`] | through another port, with seeded faults |
//! | [`capture::Capture`] | through another port, and shows them to a [`Sink`] |
//! | `sorted::Sorted` | through another port, and hands to other shards of a device what is theirs |

use std::fmt;
use std::io;
use std::net::IpAddr;
use std::ops::RangeInclusive;
#[cfg(unix)]
use std::os::fd::BorrowedFd;
#[cfg(feature = "runtime")]
use std::str::FromStr;

use smallvec::SmallVec;
use thiserror::Error;

use crate::counter::counters;
use crate::net::{Burst, RxBuffer, TransmitErrorKind};
use crate::time::Instant;

#[cfg(feature = "runtime")]
mod bell;
pub mod capture;
#[cfg(feature = "runtime")]
mod claim;
#[cfg(feature = "runtime")]
mod cmsg;
mod conditions;
#[cfg(any(feature = "packet", feature = "tap"))]
mod frame;
pub mod impair;
#[cfg(feature = "packet")]
pub mod packet;
pub mod several;
#[cfg(feature = "runtime")]
pub mod shm;
pub mod sim;
#[cfg(feature = "runtime")]
pub mod sorted;
#[cfg(feature = "runtime")]
#[expect(unsafe_code, reason = "system calls")]
mod sys;
#[cfg(feature = "tap")]
pub mod tap;
#[cfg(feature = "runtime")]
pub mod udp;
mod way;

#[cfg(all(test, feature = "runtime"))]
#[path = "../../tests/support/prerequisite.rs"]
mod prerequisite;

#[cfg(feature = "runtime")]
pub(crate) use bell::Bell;
pub use conditions::{Bursts, Conditions, Outages};
#[cfg(feature = "runtime")]
pub use sys::wait_readable;
#[cfg(feature = "runtime")]
pub(crate) use sys::{
    Restarts, Sleepers, Woken, at_exit, at_fork, has_net_raw, is_closed, is_privileged, monotonic,
    processor_time, restarts, sleep_on,
};

/// UDP source ports that RoCEv2 packets leave from, by which switches tell flows apart.
pub const SOURCE_PORTS: RangeInclusive<u16> = 0xc000..=0xffff;

/// Which port a device has. As text: `udp`, `shm`, `packet`, or `tap:` and what a `tap::TapConfig` is as text.
#[cfg(feature = "runtime")]
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
#[non_exhaustive]
pub enum PortKind {
    /// [`udp::UdpPort`]: UDP sockets, for everybody.
    #[default]
    Udp,
    /// [`shm::ShmPort`]: shared memory between programs of this machine, and UDP sockets.
    Shm,
    /// [`packet::PacketPort`]: packet sockets, for those who may.
    #[cfg(feature = "packet")]
    Packet,
    /// [`tap::TapPort`]: a TAP, on which it is a host of its own.
    #[cfg(feature = "tap")]
    Tap(tap::TapConfig),
}

#[cfg(feature = "runtime")]
impl PortKind {
    /// What it is called: `udp`, `shm`, `packet` or `tap`.
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Udp => "udp",
            Self::Shm => "shm",
            #[cfg(feature = "packet")]
            Self::Packet => "packet",
            #[cfg(feature = "tap")]
            Self::Tap(_) => "tap",
        }
    }

    /// Whether its addresses are those of the kernel here.
    pub const fn is_of_host(&self) -> bool {
        match self {
            #[cfg(feature = "tap")]
            Self::Tap(_) => false,
            _ => true,
        }
    }

    /// The addresses that it brings along, in order: what a device has that is told no others.
    pub fn addresses(&self) -> Vec<IpAddr> {
        match self {
            #[cfg(feature = "tap")]
            Self::Tap(config) => config.networks.iter().map(|network| network.ip).collect(),
            _ => Vec::new(),
        }
    }
}

#[cfg(feature = "runtime")]
impl fmt::Display for PortKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())?;
        match self {
            #[cfg(feature = "tap")]
            Self::Tap(config) => write!(f, ":{config}"),
            _ => Ok(()),
        }
    }
}

/// What names no [`PortKind`].
#[cfg(feature = "runtime")]
#[derive(Clone, PartialEq, Eq, Debug, Error)]
#[non_exhaustive]
pub enum PortKindError {
    /// There is no such port, or not in this program.
    #[error("`{found}` is no port: expected {PORT_KINDS}")]
    Unknown {
        /// What was found.
        found: String,
    },
    /// It is a TAP, and what is said of it makes no sense.
    #[cfg(feature = "tap")]
    #[error("tap: {0}")]
    Tap(#[from] tap::TapConfigError),
}

/// What a port may be, in words.
#[cfg(feature = "runtime")]
const PORT_KINDS: &str = match (cfg!(feature = "packet"), cfg!(feature = "tap")) {
    (true, true) => "udp, shm, packet or tap:NAME,ip=ADDRESS/PREFIX",
    (true, false) => "udp, shm or packet",
    (false, true) => "udp, shm or tap:NAME,ip=ADDRESS/PREFIX",
    (false, false) => "udp or shm",
};

#[cfg(feature = "runtime")]
impl FromStr for PortKind {
    type Err = PortKindError;

    fn from_str(text: &str) -> Result<Self, PortKindError> {
        match text.split_once(':') {
            None if text == "udp" => Ok(Self::Udp),
            None if text == "shm" => Ok(Self::Shm),
            #[cfg(feature = "packet")]
            None if text == "packet" => Ok(Self::Packet),
            #[cfg(feature = "tap")]
            Some(("tap", config)) => Ok(Self::Tap(config.parse()?)),
            _ => Err(PortKindError::Unknown { found: text.into() }),
        }
    }
}

/// Something that carries datagrams.
///
/// No call blocks. `now` never runs backwards.
pub trait Port: Send {
    /// Sends bursts in order and returns how many it took.
    ///
    /// Fewer than all means that the port is busy: offer the rest again later, at
    /// [`poll_timeout`](Self::poll_timeout) at the latest. An empty slice is a chance to send what
    /// the port itself has held back.
    ///
    /// # Errors
    ///
    /// `bursts[error.taken]` is refused for good; those before it were taken, and those after it
    /// were not looked at.
    fn transmit(&mut self, now: Instant, bursts: &[Burst]) -> Result<usize, TransmitError>;

    /// Sends a last burst as the process ends, perhaps in the handler of a signal: only async-signal-safe
    /// steps are taken. No lock is taken, nothing is allocated, and nothing of it is counted or captured.
    ///
    /// A port that cannot do so sends nothing, as this does.
    fn send_last(&mut self, burst: &Burst) {
        let _ = burst;
    }

    /// Receives a bounded batch, calls `sink` for each buffer and returns how many there were: 0
    /// when nothing is there.
    ///
    /// # Errors
    ///
    /// When the port is broken, not when a datagram is. Later calls may succeed, unless its socket was
    /// closed under it (`EBADF`, `ENOTSOCK`).
    fn receive(&mut self, now: Instant, sink: &mut dyn FnMut(RxBuffer<'_>)) -> io::Result<usize>;

    /// Agrees on a UDP source port for a [`Path`](crate::net::Path) from `source`, an address of the
    /// port: `wanted`, of [`SOURCE_PORTS`], or another when that is not to be had.
    fn source_port(&mut self, source: IpAddr, wanted: u16) -> u16;

    /// Asks for the traffic class and the hop limit of what arrives from now on, in
    /// [`RxMeta`](crate::net::RxMeta). Until then they may be zero, because to know them costs time;
    /// a system that does not tell leaves them so.
    fn tell_ip_fields(&mut self);

    /// From now on every datagram leaves with the IPv4 identification that it was sealed for, so that who
    /// sees it here sees what is on the wire. Else a port may give one that leaves alone another, and seal it
    /// for that.
    fn keep_identifications(&mut self) {}

    /// Joins a multicast group: what anybody sends there, this host included, is received from now on, once,
    /// with the group as its destination. To join it twice is to join it once.
    ///
    /// # Errors
    ///
    /// [`JoinError`]: the port knows no groups, or the system refuses. Nothing has changed.
    fn join(&mut self, group: IpAddr) -> Result<(), JoinError> {
        Err(JoinError::Unsupported { group })
    }

    /// Leaves a multicast group that it has joined.
    fn leave(&mut self, group: IpAddr) {
        let _ = group;
    }

    /// Prepares to be waited for: until the next [`receive`](Self::receive), one of the
    /// [`descriptors`](Self::descriptors) becomes readable when something arrives. False when something has
    /// arrived already, and nobody is to wait.
    ///
    /// Most ports need no preparation.
    fn arm(&mut self) -> bool {
        true
    }

    /// Bytes that wait at `to` to be received, as its kernel counts them; `None` when that cannot be
    /// known. Only of a host that datagrams reach at once is it known: of this machine.
    fn backlog(&mut self, now: Instant, to: IpAddr) -> Option<u64> {
        let _ = (now, to);
        None
    }

    /// The state of the interface below one of the port's addresses, when it may be another than it was
    /// when this was last asked: the first time, and whenever the system has told of changes. From the
    /// first time on, a descriptor of the port is readable then. To be asked until there is none, which is
    /// at once when a port has no interface.
    fn poll_link(&mut self) -> Option<LinkState> {
        None
    }

    /// When it wants to be called though nothing has arrived: a delayed datagram is due, or a busy
    /// port is worth another try.
    fn poll_timeout(&self) -> Option<Instant>;

    /// What kind of port it is.
    fn info(&self) -> PortInfo;

    /// What it has done so far.
    fn counters(&self) -> PortCounters;

    /// Descriptors that become readable when there is something to [`receive`](Self::receive), if they are to be
    /// [waited for](Self::arm). None for a port that is not fed by the kernel. They are others after
    /// [`join`](Self::join) and [`leave`](Self::leave).
    #[cfg(unix)]
    fn descriptors(&self) -> SmallVec<[BorrowedFd<'_>; 4]> {
        SmallVec::new()
    }
}

impl<P: Port + ?Sized> Port for Box<P> {
    fn transmit(&mut self, now: Instant, bursts: &[Burst]) -> Result<usize, TransmitError> {
        (**self).transmit(now, bursts)
    }

    fn send_last(&mut self, burst: &Burst) {
        (**self).send_last(burst);
    }

    fn receive(&mut self, now: Instant, sink: &mut dyn FnMut(RxBuffer<'_>)) -> io::Result<usize> {
        (**self).receive(now, sink)
    }

    fn source_port(&mut self, source: IpAddr, wanted: u16) -> u16 {
        (**self).source_port(source, wanted)
    }

    fn tell_ip_fields(&mut self) {
        (**self).tell_ip_fields();
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

    fn arm(&mut self) -> bool {
        (**self).arm()
    }

    fn backlog(&mut self, now: Instant, to: IpAddr) -> Option<u64> {
        (**self).backlog(now, to)
    }

    fn poll_link(&mut self) -> Option<LinkState> {
        (**self).poll_link()
    }

    fn poll_timeout(&self) -> Option<Instant> {
        (**self).poll_timeout()
    }

    fn info(&self) -> PortInfo {
        (**self).info()
    }

    fn counters(&self) -> PortCounters {
        (**self).counters()
    }

    #[cfg(unix)]
    fn descriptors(&self) -> SmallVec<[BorrowedFd<'_>; 4]> {
        (**self).descriptors()
    }
}

/// Of a port around another, which is in a field: the methods that it leaves to that one, by name. What
/// is not named the port has for itself, or has not.
macro_rules! left_to {
    ($port:ident: $($method:ident)*) => { $(crate::io::left_to!(@ $method $port);)* };
    (@ send_last $port:ident) => {
        fn send_last(&mut self, burst: &crate::net::Burst) {
            self.$port.send_last(burst);
        }
    };
    (@ source_port $port:ident) => {
        fn source_port(&mut self, source: std::net::IpAddr, wanted: u16) -> u16 {
            self.$port.source_port(source, wanted)
        }
    };
    (@ tell_ip_fields $port:ident) => {
        fn tell_ip_fields(&mut self) {
            self.$port.tell_ip_fields();
        }
    };
    (@ keep_identifications $port:ident) => {
        fn keep_identifications(&mut self) {
            self.$port.keep_identifications();
        }
    };
    (@ groups $port:ident) => {
        fn join(&mut self, group: std::net::IpAddr) -> Result<(), crate::io::JoinError> {
            self.$port.join(group)
        }

        fn leave(&mut self, group: std::net::IpAddr) {
            self.$port.leave(group);
        }
    };
    (@ arm $port:ident) => {
        fn arm(&mut self) -> bool {
            self.$port.arm()
        }
    };
    (@ backlog $port:ident) => {
        fn backlog(&mut self, now: crate::time::Instant, to: std::net::IpAddr) -> Option<u64> {
            self.$port.backlog(now, to)
        }
    };
    (@ poll_link $port:ident) => {
        fn poll_link(&mut self) -> Option<crate::io::LinkState> {
            self.$port.poll_link()
        }
    };
    (@ poll_timeout $port:ident) => {
        fn poll_timeout(&self) -> Option<crate::time::Instant> {
            self.$port.poll_timeout()
        }
    };
    (@ info $port:ident) => {
        fn info(&self) -> crate::io::PortInfo {
            self.$port.info()
        }
    };
    (@ counters $port:ident) => {
        fn counters(&self) -> crate::io::PortCounters {
            self.$port.counters()
        }
    };
    (@ descriptors $port:ident) => {
        #[cfg(unix)]
        fn descriptors(&self) -> smallvec::SmallVec<[std::os::fd::BorrowedFd<'_>; 4]> {
            self.$port.descriptors()
        }
    };
}

use left_to;

/// A burst that a port will never send.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
#[error("burst {taken} of those offered is refused: {kind:?}")]
pub struct TransmitError {
    /// How many bursts before it were taken.
    pub taken: usize,
    /// Why it is refused.
    pub kind: TransmitErrorKind,
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

/// What kind of port it is.
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
    /// Whether received datagrams may come merged.
    pub gro: bool,
    /// Bytes that may wait to be received at an address, as the kernel counts them: more than the
    /// datagrams hold.
    pub receive_buffer: usize,
    /// Whether received buffers carry [`Ipv4Fields`](crate::net::Ipv4Fields).
    pub sees_ip_header: bool,
}

counters! {
    named "port_";
    /// What a port has done since it was opened.
    pub struct PortCounters {
        tx_bursts: "Bursts sent: datagrams of one size that went with one call.";
        tx_datagrams: "Datagrams sent.";
        tx_bytes: "Bytes of UDP payload sent.";
        rx_buffers: "Buffers received: datagrams of one size that came with one call.";
        rx_datagrams: "Datagrams received.";
        rx_bytes: "Bytes of UDP payload received.";
        kernel_drops: "Buffers that arrived and were thrown away before they could be received: there was no room for them, the UDP checksum was wrong, or they made no packet. The kernel does not tell these apart, and counts merged datagrams as one.";
        busy: "Times that the port took fewer bursts than it was offered.";
        refused: "Bursts that the socket refused for good.";
        gso_refused: "Bursts sent a datagram at a time, because the host would not cut them.";
        tx_connected: "Datagrams of those sent that went to and fro, and so left from a connected socket.";
        tx_copies: "Datagrams of those that were sent by the usual socket before: over IPv4 the first three that go to and fro.";
        strays: "Datagrams that came to another shard's socket than that of their queue pair, and were handed over: somebody mixes in his bursts what goes to several.";
        strays_lost: "Datagrams that came to another shard's socket, when too many waited to be handed over.";
        shm_tx_bursts: "Bursts of those sent that went through shared memory.";
        shm_rx_buffers: "Buffers of those received that came through shared memory.";
        shm_lost: "Bursts for shared memory that was full and that nobody took anything out of.";
        unresolved: "Bursts of a packet or TAP port to where nobody's link address was known: some of the first to an address, and all to a neighbour that does not answer.";
    }
}

impl PortCounters {
    fn sent(&mut self, burst: &Burst) {
        self.tx_bursts += 1;
        self.tx_datagrams += burst.len() as u64;
        self.tx_bytes += burst.data().len() as u64;
    }

    fn received(&mut self, buffer: &RxBuffer<'_>) {
        self.rx_buffers += 1;
        self.rx_datagrams += buffer.segments().len() as u64;
        self.rx_bytes += buffer.data.len() as u64;
    }
}

/// Which way a datagram went.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Direction {
    /// We sent it.
    Sent,
    /// We received it.
    Received,
}

impl fmt::Display for Direction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Sent => "sent",
            Self::Received => "received",
        })
    }
}

/// Takes captured packets: a file writer, a checker, a test.
pub trait Sink: Send {
    /// A packet from its first IP byte to the last of the ICRC, as it was on the wire.
    fn packet(&mut self, at: Instant, direction: Direction, ip_packet: &[u8]);
}

impl<S: Sink + ?Sized> Sink for Box<S> {
    fn packet(&mut self, at: Instant, direction: Direction, ip_packet: &[u8]) {
        (**self).packet(at, direction, ip_packet);
    }
}

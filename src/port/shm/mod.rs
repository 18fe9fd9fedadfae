//! A port that reaches other ports of its kind on this machine through shared memory, and all others by UDP sockets.
//!
//! A socket copies datagrams into and out of the kernel, through IP and UDP with their look-ups; that is most of the
//! time of a single message. Two ports of this kind share a ring of memory for each direction instead. The packets are
//! the same, but their ICRCs are [omitted](crate::wire::icrc::OMITTED). They do not appear on an interface; nor do those
//! that kernel rxe sends to itself. A [`Capture`](super::wrap::capture::Capture) shows them, with ICRCs.
//!
//! ```text
//!                       ┌─ Outgoing: receivers with a ring ──▶ ring ──▶ Incoming ─┐
//!   bursts ──▶ ShmPort ─┤    (handshake)                                          ├─▶ buffers
//!                       └─ all others ──▶ UdpPort ──▶ sockets ──▶ UdpPort ────────┘
//! ```
//!
//! A ring may lose a datagram, as a socket may: when the receiver takes nothing out of a full ring for 10 ms.
//!
//! A ring takes one MiB; at most 64 senders to one address have one. A receiver without a descriptor or memory for a ring
//! refuses it. The sender notices that at its next burst, sends by UDP, and tries again later; the first burst is lost.
//!
//! Ports of one user in one network namespace connect to each other; in a user namespace, only if it maps that user.
//! Ports of other users and of other kinds are reached by UDP. A port that opens later is found within a tenth of a
//! second.

use std::fmt::Display;
use std::io;
use std::net::IpAddr;
use std::os::fd::BorrowedFd;
use std::slice;
use std::time::Duration;

use smallvec::SmallVec;
use thiserror::Error;

use super::config::PortConfig;
use super::counters::PortCounters;
use super::opener::{Kind, OpenPortError, PortOpener};
use super::shared::name_lease::socket_name;
use super::shared::open_error::OpenError;
use super::traits::{Datapath, Port, PortInfo, TransmitError};
use super::wrap::layer::{Layer, Middleware};
use crate::net::{Burst, RxBuffer};
use crate::time::Instant;
use incoming::Incoming;
use outgoing::{Outgoing, SendResult};
use sealer::Sealer;

mod handshake;
mod incoming;
mod outgoing;
mod ring;
mod sealer;
mod user;

pub(crate) use user::is_same as is_same_user;

/// While bursts arrive through rings, the port polls the socket in one of this many calls: a socket takes ten times as
/// long to poll as a ring, 15 times on an emulated CPU.
const CALLS_PER_SOCKET_POLL: u32 = 64;

/// The port polls for new and disconnected senders in one of this many calls.
const CALLS_PER_SENDER_POLL: u32 = 128;

/// Time after which the port retries a full ring: about the time that the receiver takes for a burst.
const FULL_RING_RETRY: Duration = Duration::from_micros(50);

/// The peer copies a burst out of the ring while the next one is built. Half a round trip of 256 KiB takes 0.7 of the time that
/// it takes with several bursts a call.
const MAX_BATCH_BYTES: usize = 8 << 10;

/// Reason why other ports do not send to this one through shared memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
#[error(
    "another program has the Unix socket @{name}: what programs of this machine send to {ip} comes by UDP, not \
     through shared memory",
    name = socket_name(*ip, handshake::NAME)
)]
pub struct NameTaken {
    /// Address of the port.
    pub ip: IpAddr,
}

/// A port that uses shared memory where possible, and otherwise the port below.
pub type ShmPort<P> = Layer<P, SharedMemory>;

/// The [`Middleware`] of a [`ShmPort`]: rings of shared memory to other ports of its kind.
#[derive(Debug)]
pub struct SharedMemory {
    ip: IpAddr,
    incoming: Incoming,
    outgoing: Outgoing,
    /// Number of calls of `receive`, wrapping.
    calls: u32,
    /// The next call polls rings, senders and socket.
    polls: bool,
    /// The last datagrams arrived through a ring.
    last_by_ring: bool,
    /// Time to retry after a full ring.
    retry_at: Option<Instant>,
    sealer: Sealer,
    /// Counters of the rings.
    counters: PortCounters,
}

impl<P: Port> ShmPort<P> {
    /// Opens shared memory above `port`.
    ///
    /// If a program of another user has the name by which other ports find this one, they send by the port below: see
    /// [`name_taken`](Self::name_taken).
    ///
    /// # Errors
    ///
    /// The system refuses a Unix socket.
    pub fn open(port: P) -> io::Result<Self> {
        let ip = port.info().ip;
        Ok(Self::with(port, Incoming::open(ip)?))
    }

    fn with(port: P, incoming: Incoming) -> Self {
        let ip = port.info().ip;
        let rings = SharedMemory {
            ip,
            incoming,
            outgoing: Outgoing::new(ip),
            calls: 0,
            polls: true,
            last_by_ring: false,
            retry_at: None,
            sealer: Sealer::new(),
            counters: PortCounters::default(),
        };
        Self::over(port, rings)
    }

    /// Returns the reason if other ports cannot find this one, because another program has its name.
    pub fn name_taken(&self) -> Option<NameTaken> {
        let SharedMemory { ip, incoming, .. } = &self.middleware;
        incoming.is_name_taken().then_some(NameTaken { ip: *ip })
    }
}

impl SharedMemory {
    /// Sends bursts with one source and one destination, and returns the number taken.
    fn send_run(
        &mut self,
        below: &mut impl Datapath,
        now: Instant,
        run: &[Burst],
    ) -> Result<usize, TransmitError> {
        let Some(path) = run.first().map(|burst| burst.path) else { return Ok(0) };
        // The port below refuses bursts from another address.
        let is_ours = path.source == self.ip;
        if is_ours && let Some(receiver) = self.outgoing.to(now, path.destination) {
            if let Ok(SendResult { put, lost }) = receiver.send(now, run) {
                for burst in &run[..put] {
                    self.counters.sent(burst);
                }
                self.counters.shm_tx_bursts += put as u64;
                self.counters.shm_lost += lost as u64;
                if put + lost < run.len() {
                    self.counters.busy += 1;
                    self.retry_at = Some(now + FULL_RING_RETRY);
                }
                return Ok(put + lost);
            }
            self.outgoing.forget(now, path.destination);
        }
        below.transmit(now, self.sealer.sealed(run))
    }
}

impl Middleware for SharedMemory {
    fn transmit(
        &mut self,
        below: &mut impl Datapath,
        now: Instant,
        bursts: &[Burst],
    ) -> Result<usize, TransmitError> {
        self.retry_at = None;
        if bursts.is_empty() {
            return below.transmit(now, bursts);
        }
        let mut taken = 0;
        while let Some((first, others)) = bursts.get(taken..).and_then(<[_]>::split_first) {
            let has_same_path = |burst: &&Burst| {
                (burst.path.source, burst.path.destination)
                    == (first.path.source, first.path.destination)
            };
            let run = 1 + others.iter().take_while(has_same_path).count();
            let sent = self.send_run(below, now, &bursts[taken..taken + run]);
            let sent = sent.map_err(|error| error.behind(taken))?;
            taken += sent;
            if sent < run {
                break;
            }
        }
        Ok(taken)
    }

    fn receive(
        &mut self,
        below: &mut impl Datapath,
        now: Instant,
        sink: &mut dyn FnMut(RxBuffer<'_>),
    ) -> io::Result<usize> {
        self.calls = self.calls.wrapping_add(1);
        let polls = std::mem::take(&mut self.polls);
        if polls || self.calls.is_multiple_of(CALLS_PER_SENDER_POLL) {
            self.incoming.poll_senders(&mut self.counters)?;
        }
        if self.incoming.is_empty() {
            return below.receive(now, sink);
        }
        if self.incoming.is_udp_first() {
            let received = below.receive(now, sink)?;
            if received > 0 {
                return Ok(received);
            }
            self.incoming.end_udp_first();
        }
        let from_rings = self.incoming.receive(&mut self.counters, sink);
        self.last_by_ring |= from_rings > 0;
        if self.last_by_ring && !polls && !self.calls.is_multiple_of(CALLS_PER_SOCKET_POLL) {
            return Ok(from_rings);
        }
        let from_socket = below.receive(now, sink)?;
        self.last_by_ring &= from_socket == 0;
        Ok(from_rings + from_socket)
    }

    fn arm(&mut self, below: &mut impl Datapath) -> bool {
        self.polls = true;
        below.arm() && self.incoming.arm()
    }

    fn receive_queue_bytes(
        &mut self,
        below: &mut impl Datapath,
        now: Instant,
        to: IpAddr,
    ) -> Option<u64> {
        self.outgoing.backlog(to).or_else(|| below.receive_queue_bytes(now, to))
    }

    /// Sends the packet by the port below, which takes no lock.
    fn send_last(&mut self, below: &mut impl Datapath, burst: &Burst) {
        if let [burst] = self.sealer.sealed(slice::from_ref(burst)) {
            below.send_last(burst);
        }
    }

    fn poll_timeout(&self, below: &impl Datapath) -> Option<Instant> {
        Instant::first(below.poll_timeout(), self.retry_at)
    }

    fn info(&self, below: PortInfo) -> PortInfo {
        PortInfo { max_batch_bytes: MAX_BATCH_BYTES, omits_icrcs: true, ..below }
    }

    fn counters(&self, mut below: PortCounters) -> PortCounters {
        below += &self.counters;
        below
    }

    fn descriptors<'a>(&'a self, below: &'a impl Datapath) -> SmallVec<[BorrowedFd<'a>; 4]> {
        let mut descriptors = below.descriptors();
        descriptors.push(self.incoming.descriptor());
        descriptors
    }
}

/// The kind of [`ShmPort`]s above ports of another kind.
#[derive(Debug)]
pub(super) struct ShmKind<K>(pub(super) K);

impl<K: Kind> Kind for ShmKind<K> {
    fn name(&self) -> &'static str {
        "shm"
    }

    fn opener(&self, ips: &[IpAddr]) -> Result<Box<dyn PortOpener>, OpenPortError> {
        Ok(Box::new(ShmOpener { below: self.0.opener(ips)? }))
    }
}

struct ShmOpener {
    below: Box<dyn PortOpener>,
}

impl PortOpener for ShmOpener {
    fn open(
        &self,
        config: &PortConfig,
        shards: u8,
        warn: &mut dyn FnMut(&dyn Display),
    ) -> Result<Vec<Box<dyn Port>>, OpenPortError> {
        let mut ports: Vec<Box<dyn Port>> = Vec::new();
        for port in self.below.open(config, shards, warn)? {
            let port = ShmPort::open(port).map_err(|source| {
                let what = "an abstract Unix socket beside";
                OpenError::Os { ip: config.ip, what, source }
            })?;
            if let Some(taken) = port.name_taken() {
                warn(&taken);
            }
            ports.push(Box::new(port));
        }
        Ok(ports)
    }
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;
    use std::thread;
    use std::time::Duration;

    use super::super::udp::UdpPort;
    use super::super::udp::tests::{Buffer, burst, config, path, receive};
    use super::super::wait_readable;
    use super::outgoing::{FIND_INTERVAL, MAX_FIND_INTERVAL, MAX_STALL};
    use super::*;
    use crate::net::{Path, TransmitErrorKind};
    use crate::port::Control;
    use crate::wire::Opcode;
    use crate::wire::icrc::{self, Flow, Verdict};

    const NOW: Instant = Instant::ZERO;

    type ShmPort = super::ShmPort<UdpPort>;

    fn open_at(config: &PortConfig) -> ShmPort {
        ShmPort::open(UdpPort::open(config).unwrap()).unwrap()
    }

    fn open() -> ShmPort {
        open_at(&config())
    }

    /// Returns the lengths of the buffers that one call receives.
    fn received(port: &mut ShmPort) -> Vec<usize> {
        let mut lens = Vec::new();
        port.receive(NOW, &mut |rx| lens.extend(rx.segments().map(<[u8]>::len))).unwrap();
        lens
    }

    /// Returns the lengths of all buffers that have arrived.
    fn drained(port: &mut ShmPort) -> Vec<usize> {
        let mut all = Vec::new();
        while !port.arm() || wait_readable(&port.descriptors(), Some(Duration::ZERO)).unwrap() {
            all.extend(received(port));
        }
        all
    }

    /// Returns the numbers of bursts that a port has sent: all, through rings, and lost.
    fn sent(port: &ShmPort) -> [u64; 3] {
        let PortCounters { tx_bursts, shm_tx_bursts, shm_lost, .. } = port.counters();
        [tx_bursts, shm_tx_bursts, shm_lost]
    }

    #[test]
    fn ring_delivers_the_same_packets_as_a_socket() {
        let (mut a, mut b) = (open(), open());
        let plain = path(&mut a, b.info().ip, 0xc123);
        let marked = Path { traffic_class: 0xba, hop_limit: 17, ..plain };
        let lens = [&[4112; 14][..], &[20]].concat();
        let bursts = [burst(plain, &lens), burst(marked, &lens)];
        assert_eq!(a.transmit(NOW, &bursts), Ok(2));
        let buffers = receive(&mut b, 30);
        assert_eq!(buffers.iter().map(Buffer::lens).collect::<Vec<_>>(), [&lens[..], &lens[..]]);
        for (buffer, path) in buffers.iter().zip([plain, marked]) {
            let source = SocketAddr::new(path.source, path.source_port);
            assert_eq!((buffer.meta.source, buffer.meta.destination), (source, path.destination));
            let found = (buffer.meta.traffic_class, buffer.meta.hop_limit);
            assert_eq!(found, (path.traffic_class, path.hop_limit));
            let flow = Flow::of_path(&path);
            for (index, segment) in (0..).zip(&buffer.segments) {
                assert_eq!(flow.check(None, index, segment), Verdict::Good);
            }
        }
        let (tx, rx) = (a.counters(), b.counters());
        assert_eq!((tx.tx_bursts, tx.tx_datagrams, tx.tx_bytes), (2, 30, 2 * 57_588));
        assert_eq!((rx.rx_buffers, rx.rx_datagrams, rx.rx_bytes), (2, 30, 2 * 57_588));
        assert_eq!((tx.shm_tx_bursts, rx.shm_rx_buffers), (2, 2));
    }

    #[test]
    fn ports_of_other_kinds_are_reached_by_their_sockets_and_in_order() {
        let (mut a, mut b) = (open(), open());
        let mut c = UdpPort::open(&config()).unwrap();
        let (to_b, to_c) = (path(&mut a, b.info().ip, 0xc000), path(&mut a, c.info().ip, 0xc000));
        let bursts: Vec<_> = [to_b, to_c, to_c, to_b, to_c]
            .iter()
            .zip(1..)
            .map(|(path, number)| burst(*path, &[60 + number]))
            .collect();
        assert_eq!(a.transmit(NOW, &bursts), Ok(5));
        let lens = |buffers: Vec<Buffer>| buffers.iter().flat_map(Buffer::lens).collect::<Vec<_>>();
        assert_eq!(lens(receive(&mut b, 2)), [61, 64]);
        assert_eq!(lens(receive(&mut c, 3)), [62, 63, 65]);
        assert_eq!(sent(&a), [5, 2, 0]);
        let to_a = path(&mut c, a.info().ip, 0xc000);
        assert_eq!(c.transmit(NOW, &[burst(to_a, &[66])]), Ok(1));
        assert_eq!(lens(receive(&mut a, 1)), [66]);
    }

    /// The engine omits ICRCs for this port. Only the memory of this host may be without.
    #[test]
    fn omitted_icrcs_stay_omitted_in_rings_and_are_computed_for_sockets() {
        let (mut a, mut b) = (open(), open());
        assert!(a.info().omits_icrcs);
        let mut c = UdpPort::open(&config()).unwrap();
        let paths = [path(&mut a, b.info().ip, 0xc000), path(&mut a, c.info().ip, 0xc000)];
        let bursts = paths.map(|path| {
            let mut burst = burst(path, &[]).omitting_icrcs(true);
            for len in [80, 80, 44] {
                let datagram = burst.push(len);
                datagram.fill(7);
                datagram[..2].copy_from_slice(&[Opcode::RcSendOnly.byte(), 0x40]);
                icrc::omit(datagram);
            }
            burst
        });
        assert_eq!(a.transmit(NOW, &bursts), Ok(2));
        a.send_last(&bursts[1]);
        for buffer in receive(&mut b, 3) {
            assert!(buffer.meta.may_omit_icrc);
            assert!(buffer.segments.iter().all(|segment| icrc::is_omitted(segment)));
        }
        for buffer in receive(&mut c, 6) {
            assert!(!buffer.meta.may_omit_icrc);
            for (index, segment) in (0..).zip(&buffer.segments) {
                let verdict = Flow::of_path(&paths[1]).check(None, index, segment);
                assert_eq!(verdict, Verdict::Good);
            }
        }
    }

    #[test]
    fn later_port_is_found_and_receives_earlier_udp_datagrams_first() {
        let mut a = open();
        let at = config();
        let way = path(&mut a, at.ip, 0xc000);
        // The other port has its sockets before its name.
        let udp = UdpPort::open(&at).unwrap();
        assert_eq!(a.transmit(NOW, &[burst(way, &[61])]), Ok(1));
        let incoming = Incoming::open(at.ip).unwrap();
        let mut b = ShmPort::with(udp, incoming);
        assert_eq!(a.transmit(NOW + FIND_INTERVAL / 2, &[burst(way, &[62])]), Ok(1));
        assert_eq!(sent(&a), [2, 0, 0], "not looked for again yet");
        assert_eq!(a.transmit(NOW + FIND_INTERVAL, &[burst(way, &[63])]), Ok(1));
        assert_eq!(sent(&a), [3, 1, 0]);
        assert_eq!(drained(&mut b), [61, 62, 63]);
    }

    /// The receiver has no descriptors or memory for a ring. Each ring that it refuses costs the bursts of one call, however
    /// soon the next one follows, and rings are tried more seldom.
    #[test]
    fn refused_ring_loses_one_burst_and_the_next_ones_go_by_udp() {
        let (mut a, at) = (open(), config());
        let udp = UdpPort::open(&at).unwrap();
        let listener = handshake::listen(at.ip).unwrap();
        let way = path(&mut a, at.ip, 0xc000);
        let mut now = NOW;
        let mut send = |now, lens: &[usize]| {
            for len in lens {
                assert_eq!(a.transmit(now, &[burst(way, &[*len])]), Ok(1));
            }
            sent(&a)
        };
        for (round, interval) in (0..).zip([1, 2, 4]) {
            assert_eq!(send(now, &[61]), [4 * round + 1, round + 1, 0]);
            drop(handshake::accept(&listener).unwrap());
            assert_eq!(send(now, &[62, 63]), [4 * round + 3, round + 1, 0]);
            let pause = interval * FIND_INTERVAL;
            assert_eq!(send(now + pause / 2, &[64]), [4 * round + 4, round + 1, 0]);
            now += pause;
        }
        drop(listener);
        let mut b = ShmPort::with(udp, Incoming::open(at.ip).unwrap());
        assert_eq!(send(now, &[65, 66]), [14, 5, 0]);
        assert_eq!(drained(&mut b), [62, 63, 64, 62, 63, 64, 62, 63, 64, 65, 66]);
        // A receiver that has read is a new one after its end.
        let end = now + MAX_FIND_INTERVAL;
        drop(b);
        assert_eq!(send(end, &[67]), [15, 5, 0]);
        let _listener = handshake::listen(at.ip).unwrap();
        assert_eq!(send(end + FIND_INTERVAL, &[68]), [16, 6, 0]);
    }

    #[test]
    fn port_whose_name_is_taken_is_reached_by_udp() {
        let at = config();
        let squatter = handshake::squat(at.ip);
        let mut b = open_at(&at);
        let said = b.name_taken().unwrap().to_string();
        assert!(said.starts_with("another program has the Unix socket @softroce/127."), "{said}");
        let mut a = open();
        let way = path(&mut a, at.ip, 0xc000);
        assert_eq!(a.transmit(NOW, &[burst(way, &[61])]), Ok(1));
        assert_eq!((sent(&a), drained(&mut b)), ([1, 0, 0], vec![61]));
        // The port still sends through shared memory.
        let mut c = open();
        let way = path(&mut b, c.info().ip, 0xc000);
        assert_eq!(b.transmit(NOW, &[burst(way, &[62])]), Ok(1));
        assert_eq!((sent(&b), drained(&mut c)), ([1, 1, 0], vec![62]));
        assert_eq!(c.name_taken(), None);
        drop((b, squatter));
        assert_eq!(open_at(&at).name_taken(), None);
    }

    #[test]
    fn udp_flood_does_not_starve_a_new_sender() {
        let (mut a, mut b) = (open(), open());
        let mut flood = UdpPort::open(&config()).unwrap();
        let (way, other) =
            (path(&mut a, b.info().ip, 0xc000), path(&mut flood, b.info().ip, 0xc000));
        assert_eq!(a.transmit(NOW, &[burst(way, &[61])]), Ok(1));
        let mut seen = Vec::new();
        for _ in 0..100 {
            assert_eq!(flood.transmit(NOW, &[burst(other, &[62])]), Ok(1));
            seen.extend(received(&mut b));
        }
        assert!(seen.contains(&61), "{seen:?}");
    }

    #[test]
    fn burst_wakes_a_sleeping_port() {
        let (mut a, mut b) = (open(), open());
        let way = path(&mut a, b.info().ip, 0xc000);
        assert_eq!(a.transmit(NOW, &[burst(way, &[61])]), Ok(1));
        assert_eq!(drained(&mut b), [61]);
        for number in 0..100 {
            assert!(b.arm(), "nothing is there");
            thread::scope(|scope| {
                scope.spawn(|| a.transmit(NOW, &[burst(way, &[100 + number])]).unwrap());
                let woken = wait_readable(&b.descriptors(), Some(Duration::from_secs(20)));
                assert!(woken.unwrap(), "{number}");
            });
            assert_eq!(drained(&mut b), [100 + number]);
        }
    }

    #[test]
    fn a_ring_that_is_full_is_busy_and_one_that_stays_so_loses() {
        let (mut a, mut b) = (open(), open());
        let way = path(&mut a, b.info().ip, 0xc000);
        let large: Vec<_> = (0..20).map(|_| burst(way, &[4112; 15])).collect();
        assert_eq!(a.transmit(NOW, &large), Ok(16));
        assert_eq!(a.poll_timeout(), Some(NOW + FULL_RING_RETRY));
        assert_eq!(a.transmit(NOW + FULL_RING_RETRY, &large[16..]), Ok(0));
        assert_eq!(a.receive_queue_bytes(NOW, b.info().ip), Some(16 * 61_696));
        // The receiver took a burst, so the sender goes on.
        assert!(!received(&mut b).is_empty());
        assert!(matches!(a.transmit(NOW + MAX_STALL, &large), Ok(1..=16)));
        assert_eq!((sent(&a)[2], a.counters().busy), (0, 3));
        assert_eq!(a.transmit(NOW + 2 * MAX_STALL, &large), Ok(20));
        assert_eq!(sent(&a)[2], 20);
        // Other receivers are not affected.
        let mut c = open();
        let other = path(&mut a, c.info().ip, 0xc000);
        assert_eq!(
            a.transmit(NOW + 2 * MAX_STALL, &[burst(way, &[61]), burst(other, &[62])]),
            Ok(2)
        );
        assert_eq!(drained(&mut c), [62]);
    }

    #[test]
    fn bursts_of_an_ended_sender_arrive() {
        let (mut a, mut b) = (open(), open());
        let way = path(&mut a, b.info().ip, 0xc000);
        assert_eq!(a.transmit(NOW, &[burst(way, &[61]), burst(way, &[62])]), Ok(2));
        drop(a);
        assert_eq!(drained(&mut b), [61, 62]);
        assert!(b.middleware.incoming.is_empty());
        assert!(b.arm() && !wait_readable(&b.descriptors(), Some(Duration::ZERO)).unwrap());
    }

    #[test]
    fn ended_receivers_make_room_for_others() {
        let mut a = open();
        let mut now = NOW;
        for count in 1..=incoming::MAX_SENDERS + 1 {
            let b = open();
            let way = path(&mut a, b.info().ip, 0xc000);
            assert_eq!(a.transmit(now, &[burst(way, &[61])]), Ok(1));
            let rings = u64::try_from(count).unwrap();
            assert_eq!((sent(&a), a.middleware.outgoing.len()), ([rings, rings, 0], 1), "{count}");
            now += FIND_INTERVAL;
        }
    }

    #[test]
    fn successor_of_an_ended_port_gets_a_ring() {
        let mut a = open();
        let at = config();
        let mut b = open_at(&at);
        let way = path(&mut a, at.ip, 0xc000);
        assert_eq!(a.transmit(NOW, &[burst(way, &[61])]), Ok(1));
        assert_eq!(drained(&mut b), [61]);
        drop(b);
        let mut b = open_at(&at);
        // The sender notices the end at its next check.
        let later = [1, 2, 3].map(|times| NOW + times * FIND_INTERVAL);
        assert_eq!(a.transmit(later[0], &[burst(way, &[62])]), Ok(1));
        assert_eq!(sent(&a), [2, 1, 0]);
        assert_eq!(a.transmit(later[1], &[burst(way, &[63])]), Ok(1));
        assert_eq!(sent(&a), [3, 2, 0]);
        assert_eq!(drained(&mut b), [62, 63]);
        drop(b);
        let mut c = UdpPort::open(&at).unwrap();
        assert_eq!(a.transmit(later[2], &[burst(way, &[64])]), Ok(1));
        assert_eq!(receive(&mut c, 1)[0].lens(), [64]);
        assert_eq!(sent(&a), [4, 2, 0]);
    }

    #[test]
    fn senders_beyond_the_maximum_use_sockets() {
        let mut b = open();
        let mut senders: Vec<_> = (0..incoming::MAX_SENDERS + 3).map(|_| open()).collect();
        for (number, a) in (0..).zip(&mut senders) {
            let way = path(a, b.info().ip, 0xc000);
            for round in 0..2 {
                let now = NOW + round * FIND_INTERVAL;
                assert_eq!(a.transmit(now, &[burst(way, &[64 + number])]), Ok(1));
                drained(&mut b);
            }
        }
        let counters = b.counters();
        let through_rings = 2 * incoming::MAX_SENDERS as u64;
        let found = (counters.rx_buffers, counters.shm_rx_buffers);
        assert_eq!(found, (through_rings + 6, through_rings));
        // One that has ended makes room for another.
        senders.remove(0);
        drained(&mut b);
        let last = senders.last_mut().unwrap();
        let way = path(last, b.info().ip, 0xc000);
        assert_eq!(last.transmit(NOW + 2 * FIND_INTERVAL, &[burst(way, &[64])]), Ok(1));
        assert_eq!(drained(&mut b), [64]);
        assert_eq!(b.counters().shm_rx_buffers, through_rings + 1);
    }

    #[test]
    fn invalid_senders_do_no_harm() {
        let (mut a, mut b) = (open(), open());
        let call = || handshake::connect_with_ring(a.info().ip, b.info().ip).unwrap();
        // One sends nothing, one an invalid hello, one an invalid ring, and one closes at once.
        let (_silent, rude) =
            (handshake::connect(b.info().ip).unwrap(), handshake::connect(b.info().ip).unwrap());
        rude.send(&[7; 32]).unwrap();
        let (_kept, segment) = call();
        segment.word(4096).unwrap().store(u64::MAX, std::sync::atomic::Ordering::Relaxed);
        drop(call());
        let way = path(&mut a, b.info().ip, 0xc000);
        assert_eq!(a.transmit(NOW, &[burst(way, &[61])]), Ok(1));
        assert_eq!(drained(&mut b), [61]);
        assert_eq!(
            b.middleware.incoming.len(),
            2,
            "the silent one, who may still speak, and the good one"
        );
    }

    #[test]
    fn a_refusal_counts_all_that_were_taken_before() {
        let (mut a, b, c) = (open(), open(), UdpPort::open(&config()).unwrap());
        let (good, other) = (path(&mut a, b.info().ip, 0xc000), path(&mut a, c.info().ip, 0xc000));
        let bad = Path { source_port: 0xd000, ..other };
        let bursts = [good, other, bad, good].map(|path| burst(path, &[64]));
        let refused = TransmitError { taken: 2, kind: TransmitErrorKind::Other };
        assert_eq!(a.transmit(NOW, &bursts), Err(refused));
    }
}

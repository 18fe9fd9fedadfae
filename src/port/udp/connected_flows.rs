//! Connected flows: short datagrams from a source port to a queue pair of a peer, one at a time at short intervals,
//! such as requests and their responses, or the acknowledgements of a stream.
//!
//! The peer waits for each datagram of such a flow, so it leaves from a [connected](super::connected) socket, which is
//! faster. A burst or a long datagram to the queue pair ends the flow: packets of two sockets might take two queues and
//! overtake each other.
//!
//! Over IPv4 the identifications of the socket count up. A receiver that has learnt that our identifications are 0
//! takes the first such datagram for corrupted, until it has seen the same one with identification 0. So the first
//! datagrams are sent from both sockets. Only reliable services tolerate the duplicates; others have no connected
//! flows.

use std::io;
use std::mem;
use std::time::Duration;

use socket2::Socket;

use super::connected::Connected;
use crate::net::{Burst, Path, SHORT};
use crate::sys;
use crate::time::Instant;
use crate::wire::{Bth, Opcode, Operation, Syndrome, Transport};

/// Maximum number of flows with a connected socket.
const MAX_SOCKETS: usize = 8;

/// Maximum number of flows that are tracked, with and without a connected socket.
const MAX_TRACKED_FLOWS: usize = 2 * MAX_SOCKETS;

/// Number of datagrams without a pause after which a flow gets a socket.
const DATAGRAMS_BEFORE_SOCKET: u8 = 64;

/// Longest interval within a flow. A peer that receives nothing mostly waits longer before it retransmits, and its
/// retransmission is answered from the unconnected socket: that arrives even if the count of identifications was wrong.
const MAX_FLOW_INTERVAL: Duration = Duration::from_millis(1);

/// A flow that ends after at most this many datagrams from its socket counts as a failure: a device on the path may
/// renumber identifications, so that the datagrams are dropped.
const MAX_DATAGRAMS_OF_FAILURE: u8 = 8;

/// Number of failures in a row after which a flow gets no socket any more.
const MAX_FAILURES: u8 = 3;

/// Longest time that a paused flow keeps its socket while other flows ask for one: see [`Retention`].
const MAX_RETENTION: Duration = Duration::from_secs(8);

/// Time without displacements after which the retention time halves.
const RETENTION_HALF_LIFE: Duration = Duration::from_secs(8);

/// Longest time after which a flow that was refused a socket asks again.
const MAX_REFUSAL_TIME: Duration = Duration::from_millis(128);

/// Number of datagrams that leave from both sockets: one of them must arrive.
const DUPLICATED_DATAGRAMS: u8 = 3;

/// Identity of a flow.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct FlowId {
    /// Destination QP in the BTH.
    qpn: [u8; 3],
    path: Path,
}

impl FlowId {
    fn of(burst: &Burst) -> Option<Self> {
        let [.., q0, q1, q2]: [u8; 8] = *burst.data().first_chunk()?;
        Some(Self { qpn: [q0, q1, q2], path: burst.path })
    }
}

/// A flow, with or without a connected socket.
#[derive(Debug)]
struct ConnectedFlow {
    id: FlowId,
    /// Time of the last datagram.
    last: Instant,
    /// Number of datagrams without a pause.
    datagrams: u8,
    /// Number of datagrams still to be sent from both sockets.
    duplicates_left: u8,
    /// Number of failures in a row; [`MAX_FAILURES`] also if the system refuses the socket.
    failures: u8,
    socket: Option<Connected>,
    /// Pause before it requests a socket again; zero if it was not refused one.
    refusal: Duration,
    /// Time before which it requests no socket.
    refused_until: Instant,
}

/// Flows of a port.
#[derive(Debug, Default)]
pub(super) struct ConnectedFlows {
    flows: Vec<ConnectedFlow>,
    retention: Retention,
    /// Connected sockets are disabled.
    is_off: bool,
}

/// Sockets that a datagram leaves from.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum SendSockets {
    /// The unconnected socket.
    Unconnected,
    /// The unconnected socket, and then the connected one too.
    Both(FlowIndex),
    /// The connected socket; if that fails, the unconnected one.
    Connected(FlowIndex),
}

/// Index of a flow.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct FlowIndex(usize);

impl ConnectedFlows {
    /// Disables connected sockets from now on.
    pub(super) fn disable(&mut self) {
        self.is_off = true;
        self.flows.clear();
    }

    /// Ends all flows, because the interface changed.
    pub(super) fn end(&mut self) {
        self.flows.clear();
    }

    /// Reports a send of these bursts, all from one source port, and selects the sockets. `scope` is the interface, for
    /// link-local destinations, and `unconnected` the unconnected socket.
    pub(super) fn follow(
        &mut self,
        now: Instant,
        bursts: &[Burst],
        scope: u32,
        unconnected: &Socket,
    ) -> SendSockets {
        if self.is_off {
            return SendSockets::Unconnected;
        }
        let [burst] = bursts else {
            bursts.iter().for_each(|burst| self.interrupt(burst));
            return SendSockets::Unconnected;
        };
        if !may_use_connected_socket(burst) {
            self.interrupt(burst);
            return SendSockets::Unconnected;
        }
        let Some(id) = FlowId::of(burst) else { return SendSockets::Unconnected };
        let Some(at) = self.find(id) else {
            self.begin(now, id);
            return SendSockets::Unconnected;
        };
        if !self.flows[at].count_datagram(now) || !self.has_room_for(at, now) {
            return SendSockets::Unconnected;
        }
        let flow = &mut self.flows[at];
        if let Err(error) = flow.prepare(scope, unconnected) {
            flow.fail(&error);
            flow.failures = MAX_FAILURES;
            return SendSockets::Unconnected;
        }
        if flow.duplicates_left > 0 {
            SendSockets::Both(FlowIndex(at))
        } else {
            SendSockets::Connected(FlowIndex(at))
        }
    }

    /// Sends a datagram from the connected socket. Returns true if it was sent.
    pub(super) fn send(&mut self, FlowIndex(at): FlowIndex, burst: &Burst) -> bool {
        let Some(flow) = self.flows.get_mut(at) else { return false };
        let Some(socket) = &mut flow.socket else { return false };
        match socket.send(burst.data()) {
            Ok(()) => {
                flow.duplicates_left = flow.duplicates_left.saturating_sub(1);
                true
            }
            Err(error) => {
                flow.fail(&error);
                false
            }
        }
    }

    /// Ends the flow to the queue pair of a burst that leaves another way.
    pub(super) fn interrupt(&mut self, burst: &Burst) {
        if !self.flows.is_empty()
            && let Some(at) = FlowId::of(burst).and_then(|id| self.find(id))
        {
            self.flows[at].datagrams = 0;
        }
    }

    /// Tracks a flow from its first datagram.
    fn begin(&mut self, now: Instant, id: FlowId) {
        let flow = ConnectedFlow::new(now, id);
        let may_end = |flow: &&mut ConnectedFlow| !flow.counts_as_socket() && flow.is_paused(now);
        if self.flows.len() < MAX_TRACKED_FLOWS {
            self.flows.push(flow);
        } else if let Some(ended) = self.flows.iter_mut().find(may_end) {
            *ended = flow;
        }
    }

    /// Returns whether a flow has a socket or may open one. At the maximum it displaces the flow that has paused longest, if
    /// that is longer than the retention time.
    fn has_room_for(&mut self, at: usize, now: Instant) -> bool {
        let Some(flow) = self.flows.get(at) else { return false };
        if flow.counts_as_socket() {
            return true;
        }
        if now < flow.refused_until {
            return false;
        }
        let with_socket =
            || self.flows.iter().enumerate().filter(|(_, flow)| flow.counts_as_socket());
        if with_socket().count() < MAX_SOCKETS {
            return true;
        }
        let paused = with_socket().min_by_key(|(_, flow)| flow.last);
        let retained = self.retention.at(now);
        match paused.filter(|(_, flow)| now.since(flow.last) > retained).map(|(at, _)| at) {
            Some(paused) => {
                self.flows[paused] =
                    ConnectedFlow::new(self.flows[paused].last, self.flows[paused].id);
                self.retention.displaced(now);
                true
            }
            None => {
                self.flows[at].refuse(now);
                false
            }
        }
    }

    fn find(&self, id: FlowId) -> Option<usize> {
        self.flows.iter().position(|flow| flow.id == id)
    }
}

/// The time that a paused flow keeps its socket although another flow asks for one.
///
/// It is [`MAX_FLOW_INTERVAL`] at first, so that sockets of flows that have ended are soon free. Each displacement doubles it: where
/// more flows than sockets alternate, few displacements follow each other.
#[derive(Debug)]
struct Retention {
    time: Duration,
    /// Time of the last displacement.
    displaced: Instant,
}

impl Default for Retention {
    fn default() -> Self {
        Self { time: MAX_FLOW_INTERVAL, displaced: Instant::ZERO }
    }
}

impl Retention {
    fn at(&self, now: Instant) -> Duration {
        let half_lives = now.since(self.displaced).as_nanos() / RETENTION_HALF_LIFE.as_nanos();
        let shift = u32::try_from(half_lives).unwrap_or(u32::MAX).min(31);
        (self.time / (1 << shift)).max(MAX_FLOW_INTERVAL)
    }

    fn displaced(&mut self, now: Instant) {
        *self = Self { time: (self.at(now) * 2).min(MAX_RETENTION), displaced: now };
    }
}

impl ConnectedFlow {
    /// Returns a flow with one datagram.
    fn new(now: Instant, id: FlowId) -> Self {
        Self {
            id,
            last: now,
            datagrams: 1,
            duplicates_left: 0,
            failures: 0,
            socket: None,
            refusal: Duration::ZERO,
            refused_until: now,
        }
    }

    /// Whether it counts as one of [`MAX_SOCKETS`]. A flow that was given up keeps its place: it would try again
    /// otherwise.
    fn counts_as_socket(&self) -> bool {
        self.socket.is_some() || self.is_given_up()
    }

    /// There is no room for its socket.
    fn refuse(&mut self, now: Instant) {
        self.refusal = (self.refusal * 2).clamp(MAX_FLOW_INTERVAL, MAX_REFUSAL_TIME);
        self.refused_until = now + self.refusal;
    }

    /// Counts a datagram. Returns true if the flow may use a connected socket.
    fn count_datagram(&mut self, now: Instant) -> bool {
        if self.is_paused(now) {
            match mem::take(&mut self.datagrams).saturating_sub(DATAGRAMS_BEFORE_SOCKET) {
                _ if self.is_given_up() => {}
                0 => {}
                1..=MAX_DATAGRAMS_OF_FAILURE => self.failures += 1,
                _ => self.failures = 0,
            }
            // A wrong count of identifications is corrected here.
            if let Some(socket) = &mut self.socket {
                socket.invalidate_next_id();
            }
        }
        self.last = now;
        self.datagrams = self.datagrams.saturating_add(1);
        self.datagrams > DATAGRAMS_BEFORE_SOCKET && !self.is_given_up()
    }

    fn is_given_up(&self) -> bool {
        self.failures >= MAX_FAILURES
    }

    /// Ends the flow after an error of its socket.
    fn fail(&mut self, error: &io::Error) {
        self.datagrams = 0;
        if sys::is_closed(error)
            && let Some(socket) = self.socket.take()
        {
            socket.forget();
        }
    }

    fn is_paused(&self, now: Instant) -> bool {
        now.since(self.last) > MAX_FLOW_INTERVAL
    }

    /// Opens a socket, if necessary, and prepares it to send.
    fn prepare(&mut self, scope: u32, unconnected: &Socket) -> io::Result<()> {
        let socket = match &mut self.socket {
            Some(socket) => socket,
            None => {
                let socket = Connected::open(&self.id.path, scope, unconnected)?;
                self.duplicates_left = if socket.is_numbered() { DUPLICATED_DATAGRAMS } else { 0 };
                self.socket.insert(socket)
            }
        };
        socket.find_next_id()
    }
}

/// Returns whether a burst may leave from a connected socket.
fn may_use_connected_socket(burst: &Burst) -> bool {
    burst.len() == 1 && burst.byte_len() <= SHORT && tolerates_duplicates(burst.data())
}

/// Returns whether a duplicate of the datagram does no harm.
fn tolerates_duplicates(datagram: &[u8]) -> bool {
    let opcode = datagram.first().and_then(|byte| Opcode::from_byte(*byte));
    opcode.is_some_and(|opcode| {
        matches!(opcode.transport(), Transport::Rc | Transport::Xrc)
            && match opcode.operation() {
                // A second RNR NAK consumes a second retry.
                Operation::Acknowledge => {
                    let syndrome = datagram.get(Bth::LEN).map(|byte| Syndrome::from_byte(*byte));
                    matches!(syndrome, Some(Syndrome::Ack { .. }))
                }
                // Its ICRC cannot be updated for another identification.
                Operation::Flush => false,
                _ => true,
            }
    })
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;

    use super::super::tests::{config, ipv6_loopback, open, path, receive};
    use super::super::{PortConfig, UdpPort};
    use super::*;
    use crate::net::BurstToken;
    use crate::port::{Control, Datapath, prerequisite};
    use crate::wire::icrc::{Flow, Verdict};

    const DATAGRAMS_BEFORE_SOCKET: usize = super::DATAGRAMS_BEFORE_SOCKET as usize;

    /// Returns a sealed datagram to queue pair 7: a BTH with this opcode, then `behind`.
    fn datagram(path: Path, opcode: Opcode, behind: &[u8]) -> Burst {
        let mut burst = Burst::new();
        burst.reset(path, BurstToken(0));
        let bytes = burst.push(Bth::LEN + behind.len() + 4);
        bytes[..Bth::LEN].copy_from_slice(&[opcode.byte(), 0x40, 0, 0, 0, 0, 0, 7, 0, 0, 0, 0]);
        bytes[Bth::LEN..][..behind.len()].copy_from_slice(behind);
        Flow::of_path(&path).seal(0, bytes);
        burst
    }

    /// A port that sends to another, with a clock of its own.
    struct Pair {
        port: UdpPort,
        peer: UdpPort,
        path: Path,
        now: Instant,
    }

    impl Pair {
        fn new() -> Self {
            Self::between(config(), open(&config()))
        }

        fn between(config: PortConfig, peer: UdpPort) -> Self {
            let mut port = open(&config);
            let path = path(&mut port, peer.info().ip, 0xc000);
            Self { port, peer, path, now: Instant::ZERO }
        }

        fn send(&mut self, burst: &Burst) {
            self.now += Duration::from_micros(1);
            let bursts = std::slice::from_ref(burst);
            assert_eq!(self.port.transmit(self.now, bursts), Ok(1));
        }

        /// Sends it and returns the ICRC verdicts of a receiver that expects identification 0.
        fn sent(&mut self, burst: &Burst) -> Vec<Verdict> {
            let before = self.port.counters().tx_datagrams;
            self.send(burst);
            let count = self.port.counters().tx_datagrams - before;
            let came = receive(&mut self.peer, usize::try_from(count).unwrap());
            let check = |datagram: &Vec<u8>| Flow::of_path(&burst.path).check(None, 0, datagram);
            came.iter().flat_map(|buffer| &buffer.segments).map(check).collect()
        }

        fn message(&self) -> Burst {
            datagram(self.path, Opcode::RcSendOnly, &[1; 64])
        }

        /// Returns the same message to another queue pair.
        fn message_to(&self, qpn: u8) -> Burst {
            let mut bytes = self.message().data().to_vec();
            bytes[7] = qpn;
            Flow::of_path(&self.path).seal(0, &mut bytes);
            let mut burst = Burst::new();
            burst.reset(self.path, BurstToken(0));
            burst.push(bytes.len()).copy_from_slice(&bytes);
            burst
        }

        /// Sends messages until the flow has a socket, and one more, whose identification it returns.
        fn flow(&mut self) -> u16 {
            let message = self.message();
            for _ in 0..DATAGRAMS_BEFORE_SOCKET + usize::from(DUPLICATED_DATAGRAMS) {
                self.send(&message);
            }
            receive(
                &mut self.peer,
                DATAGRAMS_BEFORE_SOCKET + 2 * usize::from(DUPLICATED_DATAGRAMS),
            );
            self.counted(&message)
        }

        fn counted(&mut self, burst: &Burst) -> u16 {
            match self.sent(burst)[..] {
                [verdict] => identification(verdict),
                ref other => panic!("{other:?}"),
            }
        }
    }

    /// Returns the identification of a datagram, from the verdict of a receiver that expects 0.
    fn identification(verdict: Verdict) -> u16 {
        match verdict {
            Verdict::Good => 0,
            Verdict::Recovered { id } => id,
            Verdict::Bad => panic!("the ICRC is wrong for every identification"),
        }
    }

    #[test]
    fn connected_flow_numbers_datagrams_and_begins_with_duplicates() {
        let mut pair = Pair::new();
        let message = pair.message();
        for number in 0..DATAGRAMS_BEFORE_SOCKET {
            assert_eq!(pair.sent(&message), [Verdict::Good], "{number}");
        }
        let mut ids = Vec::new();
        for number in 0..DUPLICATED_DATAGRAMS {
            let [Verdict::Good, counted] = pair.sent(&message)[..] else { panic!("{number}") };
            ids.push(identification(counted));
        }
        ids.extend((0..100).map(|_| pair.counted(&message)));
        let first = ids[0];
        let expected: Vec<_> = (0..).map(|n| first.wrapping_add(n)).take(ids.len()).collect();
        assert_eq!(ids, expected);
        assert_eq!(pair.port.counters().refused, 0);
    }

    #[test]
    fn invalid_icrc_stays_invalid() {
        let mut pair = Pair::new();
        pair.flow();
        let mut burst = Burst::new();
        burst.reset(pair.path, BurstToken(0));
        let message = pair.message();
        let bytes = burst.push(message.byte_len());
        bytes.copy_from_slice(message.data());
        bytes[30] ^= 1;
        assert_eq!(pair.sent(&burst), [Verdict::Bad]);
    }

    #[test]
    fn pause_or_other_burst_ends_a_flow_and_numbering_continues() {
        let mut pair = Pair::new();
        let message = pair.message();
        let long = datagram(pair.path, Opcode::RcSendMiddle, &[1; 1024]);
        let nak = datagram(pair.path, Opcode::RcAcknowledge, &[0x60, 0, 0, 0]);
        let mut last = pair.flow();
        for end in [None, Some(long), Some(nak)] {
            match end {
                None => pair.now += MAX_FLOW_INTERVAL,
                Some(other) => assert_eq!(pair.sent(&other), [Verdict::Good]),
            }
            for number in 0..DATAGRAMS_BEFORE_SOCKET {
                assert_eq!(pair.sent(&message), [Verdict::Good], "{number}");
            }
            let id = pair.counted(&message);
            assert!((1..=3).contains(&id.wrapping_sub(last)), "{id:#x} after {last:#x}");
            last = id;
        }
        let bursts = [pair.message(), pair.message()];
        pair.now += Duration::from_micros(1);
        assert_eq!(pair.port.transmit(pair.now, &bursts), Ok(2));
        receive(&mut pair.peer, 2);
        assert_eq!(pair.sent(&message), [Verdict::Good], "two at once are no flow");
    }

    #[test]
    fn datagrams_that_tolerate_no_duplicate_have_no_flow() {
        let mut pair = Pair::new();
        for (opcode, behind) in [
            (Opcode::UcSendOnly, &[1; 64][..]),
            (Opcode::UdSendOnly, &[1; 64]),
            (Opcode::RcFlush, &[1; 20]),
            (Opcode::RcAcknowledge, &[0x20, 0, 0, 0]),
            (Opcode::RcSendOnly, &[1; SHORT - 12]),
        ] {
            let burst = datagram(pair.path, opcode, behind);
            assert!(
                (0..2 * DATAGRAMS_BEFORE_SOCKET).all(|_| pair.sent(&burst) == [Verdict::Good]),
                "{opcode:?}"
            );
        }
        let ack = datagram(pair.path, Opcode::RcAcknowledge, &[0x1f, 0, 0, 0]);
        assert!((0..2 * DATAGRAMS_BEFORE_SOCKET).any(|_| pair.sent(&ack) != [Verdict::Good]));
    }

    #[test]
    fn each_flow_has_its_own_path() {
        let mut pair = Pair::new();
        pair.peer.report_ip_fields();
        for (path, hop_limit) in [
            (Path { traffic_class: 0xba, ..pair.path }, 64),
            (Path { hop_limit: 17, ..pair.path }, 17),
            (Path { hop_limit: 0, ..pair.path }, 1),
            (pair.path, 64),
        ] {
            pair.path = path;
            pair.flow();
            pair.send(&pair.message());
            let meta = receive(&mut pair.peer, 1)[0].meta;
            assert_eq!(meta.source, SocketAddr::new(path.source, path.source_port));
            assert_eq!((meta.traffic_class, meta.hop_limit), (path.traffic_class, hop_limit));
        }
    }

    #[test]
    fn ended_flows_make_room_for_others() {
        let mut pair = Pair::new();
        let count_datagram = |pair: &mut Pair, qpn| {
            let burst = pair.message_to(qpn);
            for _ in 0..2 * DATAGRAMS_BEFORE_SOCKET {
                pair.sent(&burst);
            }
            pair.sent(&burst) != [Verdict::Good]
        };
        let many = u8::try_from(MAX_SOCKETS).unwrap();
        assert!((0..many).all(|qpn| count_datagram(&mut pair, qpn)));
        assert!(!count_datagram(&mut pair, many));
        assert!(count_datagram(&mut pair, many - 1), "that goes on");
        pair.now += MAX_FLOW_INTERVAL;
        assert!(count_datagram(&mut pair, many));
    }

    /// Returns the number of sockets opened: the first datagrams from each are sent twice.
    fn opened(pair: &Pair) -> u64 {
        pair.port.counters().tx_copies / u64::from(DUPLICATED_DATAGRAMS)
    }

    /// Alternates between this many flows, each long enough for a socket. Returns the number of sockets opened.
    fn alternate(pair: &mut Pair, flows: u8, rounds: usize) -> u64 {
        let before = opened(pair);
        let bursts: Vec<_> = (0..flows).map(|qpn| pair.message_to(qpn)).collect();
        for _ in 0..rounds {
            for burst in &bursts {
                for _ in 0..DATAGRAMS_BEFORE_SOCKET + 2 * usize::from(DUPLICATED_DATAGRAMS) {
                    pair.sent(burst);
                }
                pair.now += MAX_FLOW_INTERVAL / 8;
            }
        }
        opened(pair) - before
    }

    #[test]
    fn thirty_two_alternating_flows_open_few_sockets() {
        let mut pair = Pair::new();
        let first = alternate(&mut pair, 32, 10);
        assert!((8..24).contains(&first), "{first} sockets");
        // Fewer and fewer; flows with a socket send from it.
        assert_eq!(alternate(&mut pair, 32, 10), 0);
        assert!(pair.port.counters().tx_connected > 0);
    }

    #[test]
    fn eight_alternating_flows_keep_their_sockets() {
        let mut pair = Pair::new();
        assert_eq!(alternate(&mut pair, 8, 10), 8);
    }

    #[test]
    fn datagrams_without_a_socket_displace_none() {
        let mut pair = Pair::new();
        assert_eq!(alternate(&mut pair, 8, 1), 8);
        pair.now += MAX_RETENTION;
        for qpn in 8..200 {
            pair.send(&pair.message_to(qpn));
        }
        receive(&mut pair.peer, 192);
        assert_eq!(alternate(&mut pair, 8, 1), 0);
    }

    #[test]
    fn retention_grows_with_each_displacement_and_shrinks_with_time() {
        let mut retention = Retention::default();
        let mut now = Instant::ZERO;
        for expected in [1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8000, 8000] {
            assert_eq!(retention.at(now).as_millis(), expected);
            now += Duration::from_millis(1);
            retention.displaced(now);
        }
        for (half_lives, expected) in [(0, 8000), (1, 4000), (2, 2000), (12, 1), (1000, 1)] {
            let later = now + RETENTION_HALF_LIFE * half_lives;
            assert_eq!(retention.at(later).as_millis(), expected, "{half_lives}");
        }
    }

    #[test]
    fn refused_flow_asks_less_and_less_often() {
        let mut now = Instant::ZERO;
        let id = FlowId { qpn: [0; 3], path: Pair::new().path };
        let mut flow = ConnectedFlow::new(now, id);
        let pauses = (0..10).map(|_| {
            flow.refuse(now);
            let pause = flow.refused_until.since(now);
            now = flow.refused_until;
            pause.as_millis()
        });
        assert_eq!(pauses.collect::<Vec<_>>(), [1, 2, 4, 8, 16, 32, 64, 128, 128, 128]);
    }

    #[test]
    fn flow_survives_a_peer_that_is_not_open_yet() {
        let (peer, later) = (config(), open(&config()));
        let mut pair = Pair::between(config(), later);
        pair.path.destination = peer.ip;
        let message = pair.message();
        for _ in 0..4 * DATAGRAMS_BEFORE_SOCKET {
            pair.send(&message);
        }
        assert_eq!(pair.port.counters().refused, 0);
        pair.peer = open(&peer);
        pair.now += MAX_FLOW_INTERVAL;
        for _ in 0..2 * DATAGRAMS_BEFORE_SOCKET {
            pair.sent(&message);
        }
        pair.counted(&message);
    }

    #[test]
    fn flow_that_fails_repeatedly_gets_no_socket() {
        let mut pair = Pair::new();
        let message = pair.message();
        let goes_to = |pair: &mut Pair, count: usize| {
            pair.now += MAX_FLOW_INTERVAL;
            let sent: Vec<_> = (0..count).map(|_| pair.sent(&message)).collect();
            sent[DATAGRAMS_BEFORE_SOCKET..].iter().all(|verdicts| verdicts[..] != [Verdict::Good])
        };
        let few = DATAGRAMS_BEFORE_SOCKET + usize::from(MAX_DATAGRAMS_OF_FAILURE);
        assert!((1..MAX_FAILURES).all(|_| goes_to(&mut pair, few)));
        assert!(goes_to(&mut pair, few + 1), "that was far enough");
        assert!((0..MAX_FAILURES).all(|_| goes_to(&mut pair, few)));
        assert!((0..3).all(|_| !goes_to(&mut pair, 4 * DATAGRAMS_BEFORE_SOCKET)));
    }

    #[test]
    fn port_that_keeps_identifications_has_no_flows() {
        let mut pair = Pair::new();
        pair.flow();
        pair.port.keep_identifications();
        let message = pair.message();
        assert!((0..2 * DATAGRAMS_BEFORE_SOCKET).all(|_| pair.sent(&message) == [Verdict::Good]));
    }

    #[test]
    fn ipv6_flow_has_no_identifications() {
        let Some((_turn, mut port)) = ipv6_loopback() else {
            return prerequisite::missing("IPv6 (::1)");
        };
        let own = port.info().ip;
        let path = path(&mut port, own, 0xc000);
        let message = datagram(path, Opcode::RcSendOnly, &[1; 64]);
        for number in 1..200 {
            let now = Instant::from_micros(number);
            assert_eq!(port.transmit(now, std::slice::from_ref(&message)), Ok(1));
            let came = receive(&mut port, 1);
            assert_eq!(Flow::of_path(&path).check(None, 0, &came[0].segments[0]), Verdict::Good);
        }
        assert_eq!(port.counters().tx_datagrams, 199);
        let connected =
            format!(":{:04X} 00000000000000000000000001000000:12B7 01", path.source_port);
        let sockets = std::fs::read_to_string("/proc/net/udp6").unwrap();
        assert!(sockets.contains(&connected), "no {connected} in\n{sockets}");
    }

    #[test]
    fn port_has_a_flow_to_itself() {
        let own = config();
        let mut port = open(&own);
        let path = path(&mut port, own.ip, 0xc000);
        let message = datagram(path, Opcode::RcSendOnly, &[1; 64]);
        let mut came = Vec::new();
        for number in 1..200 {
            let now = Instant::from_micros(number);
            assert_eq!(port.transmit(now, std::slice::from_ref(&message)), Ok(1));
            let count = port.counters().tx_datagrams - port.counters().rx_datagrams;
            for buffer in receive(&mut port, usize::try_from(count).unwrap()) {
                came.extend(buffer.segments.iter().map(|s| Flow::of_path(&path).check(None, 0, s)));
            }
        }
        assert!(came.iter().all(|verdict| *verdict != Verdict::Bad));
        assert!(matches!(came.last(), Some(Verdict::Recovered { .. })));
    }
}

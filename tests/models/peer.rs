//! The requester with a responder written for this test, which behaves as kernel rxe where rxe differs from this
//! library. It acknowledges requested packets only, keeps no state after an RNR NAK, continues a resumed READ with
//! MIDDLE and LAST, and acknowledges duplicates with a PSN that READs do not advance. Some of these peers require the
//! FLUSH ICRC of rxe, and drop others silently.
//!
//! Results depend on the posting order only; the network loses, duplicates and delays packets.

#![allow(clippy::unwrap_used, clippy::cast_possible_truncation, reason = "test code")]

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::net::IpAddr;
use std::time::Duration;

use crate::support::{
    Link, World, full_access, init_attr, pattern, request, rtr_attr, rts_attr, sge,
};
use proptest::prelude::Rng;
use proptest::test_runner::{RngAlgorithm, TestRng};
use softroce::ids::{Mtu, Qpn, Rkey};
use softroce::net::{Burst, ROCE_PORT};
use softroce::port::sim::HostConfig;
use softroce::psn::Psn;
use softroce::time::Instant;
use softroce::transport::outputs::Counters;
use softroce::transport::work::{
    FlushPlacement, FlushTarget, RemoteAddr, SendFlags, SendOp, WcStatus,
};
use softroce::wire::icrc::Flow;
use softroce::wire::{Datagram, Opcode, Operation};

const PEER: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(10, 0, 0, 9));
const PEER_QPN: Qpn = Qpn::new(0x11);
const KEY: Rkey = Rkey(0x100);
/// The peer's memory: READs take from the first area, WRITEs go to the second, atomics to the third.
const AREA: usize = 64 << 10;
const FIRST_PSN: u32 = 0xff_fff0;

struct Random(TestRng);

impl Random {
    fn below(&mut self, n: u64) -> u64 {
        self.0.next_u64() % n
    }

    fn percent(&mut self, p: u64) -> bool {
        self.below(100) < p
    }
}

/// The responder.
struct Peer {
    qpn: Qpn,
    mtu: usize,
    memory: Vec<u8>,
    inbox: Vec<Vec<u8>>,
    expected: Psn,
    msn: u32,
    nak_told: bool,
    /// Newest packet that is not a READ.
    acknowledged: Psn,
    message: Message,
    /// PSN, number of packets, and response.
    remembered: VecDeque<(Psn, u32, Answer)>,
    not_ready: u64,
}

/// Response to a request.
#[derive(Clone, Copy)]
enum Answer {
    /// The bytes from this address on.
    Read(u64),
    /// The original value of an atomic.
    Atomic(u64),
    /// Empty, for FLUSH or ATOMIC WRITE.
    Done,
}

#[derive(Default)]
enum Message {
    #[default]
    None,
    Send(Vec<u8>),
    /// Place of the next bytes.
    Write(u64),
}

impl Peer {
    /// Processes a packet and returns its responses.
    fn receive(&mut self, bytes: &[u8], random: &mut Random) -> Vec<Vec<u8>> {
        let packet = Datagram::parse(bytes).unwrap();
        let psn = packet.bth.psn;
        if psn.is_before(self.expected) {
            return self.repeat(&packet, random);
        }
        if psn != self.expected {
            let told = std::mem::replace(&mut self.nak_told, true);
            let (expected, msn) = (self.expected, self.msn);
            return if told {
                vec![]
            } else {
                vec![self.line(&format!("NAK_PSN psn={expected} msn={msn}"))]
            };
        }
        let position = packet.bth.opcode.position();
        let takes_receive = match packet.bth.opcode.operation() {
            Operation::Send => position.is_start(),
            Operation::Write => packet.imm().is_some(),
            _ => false,
        };
        if takes_receive && random.percent(self.not_ready) {
            return vec![self.line(&format!("RNR_NAK psn={psn} msn={} timer=0.01ms", self.msn))];
        }
        self.nak_told = false;
        self.expected = psn.next();
        self.msn += u32::from(position.is_end());
        match packet.bth.opcode.operation() {
            Operation::Send => self.send(&packet),
            Operation::Write => self.write(&packet),
            Operation::ReadRequest => {
                let reth = packet.reth().unwrap();
                let packets = reth.length.div_ceil(self.mtu as u32).max(1);
                self.expected = psn.plus(packets);
                self.remember((psn, packets, Answer::Read(reth.addr)));
                return self.read(psn, reth.addr, reth.length as usize, false);
            }
            Operation::Flush | Operation::AtomicWrite => return vec![self.place(&packet)],
            _ => return vec![self.atomic(&packet)],
        }
        self.acknowledged = psn;
        match packet.bth.ack_req {
            true => vec![self.line(&format!("ACK psn={psn} msn={}", self.msn))],
            false => vec![],
        }
    }

    fn send(&mut self, packet: &Datagram<'_>) {
        let mut message = match std::mem::take(&mut self.message) {
            Message::Send(message) => message,
            _ => {
                assert!(packet.bth.opcode.position().is_start());
                Vec::new()
            }
        };
        message.extend_from_slice(packet.payload);
        match packet.bth.opcode.position().is_end() {
            true => self.inbox.push(message),
            false => self.message = Message::Send(message),
        }
    }

    fn write(&mut self, packet: &Datagram<'_>) {
        let at = match (packet.reth(), &self.message) {
            (Some(reth), _) => {
                assert_eq!(reth.rkey, KEY);
                reth.addr
            }
            (None, Message::Write(at)) => *at,
            (None, _) => panic!("{:?} while no WRITE is open", packet.bth),
        };
        let start = at as usize;
        self.memory[start..start + packet.payload.len()].copy_from_slice(packet.payload);
        self.message = match packet.bth.opcode.position().is_end() {
            true => Message::None,
            false => Message::Write(at + packet.payload.len() as u64),
        };
    }

    fn atomic(&mut self, packet: &Datagram<'_>) -> Vec<u8> {
        let atomic = packet.atomic_eth().unwrap();
        let word = &mut self.memory[atomic.addr as usize..][..8];
        let old = u64::from_ne_bytes((&*word).try_into().unwrap());
        let new = match packet.bth.opcode {
            Opcode::RcFetchAdd => old.wrapping_add(atomic.swap),
            _ if old == atomic.compare => atomic.swap,
            _ => old,
        };
        word.copy_from_slice(&new.to_ne_bytes());
        self.remember((packet.bth.psn, 1, Answer::Atomic(old)));
        self.acknowledged = packet.bth.psn;
        self.line(&format!("ATOMIC_ACK psn={} msn={} value={old:#x}", packet.bth.psn, self.msn))
    }

    fn place(&mut self, packet: &Datagram<'_>) -> Vec<u8> {
        let reth = packet.reth().unwrap();
        assert_eq!(reth.rkey, KEY);
        let at = reth.addr as usize;
        self.memory[at..at + packet.payload.len()].copy_from_slice(packet.payload);
        self.remember((packet.bth.psn, 1, Answer::Done));
        self.done(packet.bth.psn)
    }

    fn done(&self, psn: Psn) -> Vec<u8> {
        self.line(&format!("READ_RESPONSE_ONLY psn={psn} msn={} len=0", self.msn))
    }

    fn read(&self, psn: Psn, addr: u64, length: usize, carried_on: bool) -> Vec<Vec<u8>> {
        let packets = length.div_ceil(self.mtu).max(1);
        let answer = |index: usize| {
            let at = index * self.mtu;
            let data = &self.memory[addr as usize + at..addr as usize + length.min(at + self.mtu)];
            let opens = index == 0 && !carried_on;
            let name = match (opens, index + 1 == packets) {
                (true, true) => "ONLY",
                (true, false) => "FIRST",
                (false, true) => "LAST",
                (false, false) => "MIDDLE",
            };
            let msn = if name == "MIDDLE" { String::new() } else { format!(" msn={}", self.msn) };
            let (psn, len) = (psn.plus(index as u32), data.len());
            let mut bytes = self.line(&format!("READ_RESPONSE_{name} psn={psn}{msn} len={len}"));
            let start = if name == "MIDDLE" { 12 } else { 16 };
            bytes[start..start + len].copy_from_slice(data);
            bytes
        };
        (0..packets).map(answer).collect()
    }

    fn repeat(&mut self, packet: &Datagram<'_>, random: &mut Random) -> Vec<Vec<u8>> {
        let psn = packet.bth.psn;
        let found =
            self.remembered.iter().find(|(first, packets, ..)| psn.is_within(*first, *packets));
        match (packet.bth.opcode.operation(), found) {
            (Operation::Send | Operation::Write, _) => {
                vec![self.line(&format!("ACK psn={} msn={}", self.acknowledged, self.msn))]
            }
            (Operation::ReadRequest, Some((first, _, Answer::Read(addr)))) => {
                let reth = packet.reth().unwrap();
                let skipped = u64::from(psn.since(*first)) * self.mtu as u64;
                assert_eq!(reth.addr, addr + skipped, "resumed where it was interrupted");
                let carried_on = skipped > 0 && random.percent(70);
                self.read(psn, reth.addr, reth.length as usize, carried_on)
            }
            (_, Some((_, _, Answer::Atomic(old)))) => {
                vec![self.line(&format!("ATOMIC_ACK psn={psn} msn={} value={old:#x}", self.msn))]
            }
            (_, Some((_, _, Answer::Done))) => vec![self.done(psn)],
            _ => vec![],
        }
    }

    fn remember(&mut self, entry: (Psn, u32, Answer)) {
        self.remembered.push_back(entry);
        if self.remembered.len() > 4 {
            self.remembered.pop_front();
        }
    }

    fn line(&self, line: &str) -> Vec<u8> {
        crate::support::line::datagram(line, self.qpn)
    }
}

/// Returns whether the peer drops a FLUSH because of the variant of its ICRC.
fn is_dropped_for_its_icrc(burst: &Burst, bytes: &[u8], wants_twice: bool) -> bool {
    if bytes[0] != Opcode::RcFlush.byte() {
        return false;
    }
    let path = &burst.path;
    let flow =
        Flow::new((path.source, path.source_port).into(), (path.destination, ROCE_PORT).into());
    let id = burst.segments().position(|segment| segment.as_ptr() == bytes.as_ptr()).unwrap();
    let mut once = bytes.to_vec();
    flow.seal(id as u16, &mut once);
    (once == bytes) == wants_twice
}

/// A packet in flight: arrival time, order among packets of the same time, direction, and bytes.
type Flight = Reverse<(Instant, u64, bool, Vec<u8>)>;

/// Runs one seed, with this percentage of packets lost, duplicated and late.
fn run(seed: u64, loss: u64) -> Counters {
    let mut key = [0; 32];
    key[..8].copy_from_slice(&seed.to_le_bytes());
    let mut random = Random(TestRng::from_seed(RngAlgorithm::ChaCha, &key));
    let mtu = Mtu::ALL[random.below(5) as usize];
    let mut world = World::with(seed, 1, HostConfig::default(), |_| {});
    let link = Link { mtu, timeout: 8, ..Link::default() };
    let qpn = world.create_qp(0, &link);
    world.modify(0, qpn, init_attr(&link));
    world.modify(0, qpn, rtr_attr(&link, PEER, PEER_QPN, 5));
    world.modify(0, qpn, rts_attr(&link, FIRST_PSN));
    let mut memory = pattern(seed, AREA);
    memory.resize(3 * AREA, 0);
    let mut peer = Peer {
        qpn,
        mtu: mtu.bytes(),
        memory: memory.clone(),
        inbox: Vec::new(),
        expected: Psn::new(FIRST_PSN),
        msn: 0,
        nak_told: false,
        acknowledged: Psn::new(FIRST_PSN).previous(),
        message: Message::None,
        remembered: VecDeque::new(),
        not_ready: if loss == 0 { 0 } else { 20 },
    };

    // Posted requests and their expected results.
    let ours = world.nodes[0].region(2 * AREA, 0x10_0000, full_access());
    let source = pattern(seed + 1, AREA);
    ours.write_at(0, &source).unwrap();
    let wants_twice = loss > 0 && random.percent(50);
    let (mut answers, mut used) = (vec![0; AREA], 0);
    let (mut inbox, mut sent) = (Vec::new(), 0);
    while sent < 40 {
        let len = match random.below(6) {
            0 => 0,
            1 => 1 + random.below(9) as usize,
            2 => mtu.bytes(),
            3 => mtu.bytes() + 1,
            _ => random.below(6000) as usize,
        };
        let from = random.below((AREA - len) as u64 + 1) as usize;
        let at =
            |area: u64, offset: u64| RemoteAddr { addr: area * AREA as u64 + offset, rkey: KEY };
        let offset = random.below((AREA - len) as u64 + 1);
        let (op, place, len) = match random.below(7) {
            0 => {
                inbox.push(source[from..from + len].to_vec());
                (SendOp::Send, from, len)
            }
            1 | 2 => {
                let to = AREA + offset as usize;
                memory[to..to + len].copy_from_slice(&source[from..from + len]);
                (SendOp::Write { to: at(1, offset) }, from, len)
            }
            3 if used + len <= AREA => {
                answers[used..used + len].copy_from_slice(&memory[offset as usize..][..len]);
                (SendOp::Read { from: at(0, offset) }, AREA + used, len)
            }
            4 => {
                let word = random.below(4) as usize * 8;
                let from = from.min(AREA - 8);
                memory[2 * AREA + word..][..8].copy_from_slice(&source[from..from + 8]);
                (SendOp::AtomicWrite { to: at(2, word as u64) }, from, 8)
            }
            5 => {
                let target = FlushTarget::Range { at: at(1, offset), length: len as u32 };
                let placement = FlushPlacement::GLOBAL_VISIBILITY;
                (SendOp::Flush { target, placement }, 0, 0)
            }
            _ if used + 8 <= AREA => {
                let word = random.below(4) as usize * 8;
                let old: [u8; 8] = memory[2 * AREA + word..][..8].try_into().unwrap();
                answers[used..used + 8].copy_from_slice(&old);
                let new = u64::from_ne_bytes(old).wrapping_add(seed);
                memory[2 * AREA + word..][..8].copy_from_slice(&new.to_ne_bytes());
                (SendOp::FetchAdd { at: at(2, word as u64), add: seed }, AREA + used, 8)
            }
            _ => continue,
        };
        if op.has_result() {
            used += len;
        }
        let piece = [sge(&ours, place, len)];
        let pieces = if matches!(op, SendOp::Flush { .. }) { &piece[..0] } else { &piece };
        let mut request = request(sent, op, pieces);
        request.flags.set(SendFlags::FENCE, random.percent(10));
        world.post_send(0, qpn, request);
        sent += 1;
    }

    let mut flights: BinaryHeap<Flight> = BinaryHeap::new();
    let mut order = 0;
    let mut launch =
        |flights: &mut BinaryHeap<Flight>, random: &mut Random, now, to_peer, bytes: Vec<u8>| {
            if random.percent(loss) {
                return;
            }
            for _ in 0..if random.percent(loss) { 2 } else { 1 } {
                let late = if random.percent(loss) { random.below(30) } else { 0 };
                order += 1;
                let arrival = now + Duration::from_micros(10 + late);
                flights.push(Reverse((arrival, order, to_peer, bytes.clone())));
            }
        };
    let (ip, mut now, mut done) = (world.nodes[0].ip, Instant::ZERO, Vec::new());
    let engine = &mut world.nodes[0].engine;
    while done.len() < 40 {
        let mut burst = Burst::new();
        while engine.poll_transmit(now, &mut burst) {
            for bytes in burst.segments() {
                if !is_dropped_for_its_icrc(&burst, bytes, wants_twice) {
                    launch(&mut flights, &mut random, now, true, bytes.to_vec());
                }
            }
        }
        done.extend(
            std::iter::from_fn(|| engine.poll_completion()).map(|(_, c)| (c.wr_id, c.status)),
        );
        let arrival = flights.peek().map(|Reverse((at, ..))| *at);
        now = [arrival, engine.poll_timeout()].into_iter().flatten().min().unwrap().max(now);
        assert!(
            now < Instant::from_millis(10_000),
            "seed {seed}, loss {loss}: {} done",
            done.len()
        );
        engine.handle_timeout(now);
        while flights.peek().is_some_and(|Reverse((at, ..))| *at <= now) {
            let Reverse((_, _, to_peer, bytes)) = flights.pop().unwrap();
            if !to_peer {
                crate::support::receive(engine, now, PEER, ip, bytes);
                continue;
            }
            for answer in peer.receive(&bytes, &mut random) {
                launch(&mut flights, &mut random, now, false, answer);
            }
        }
    }
    let expected: Vec<_> = (0..40).map(|wr_id| (wr_id, WcStatus::Success)).collect();
    assert_eq!(done, expected, "seed {seed}, loss {loss}");
    assert!(peer.memory == memory, "seed {seed}, loss {loss}: the peer's memory");
    assert!(peer.inbox == inbox, "seed {seed}, loss {loss}: messages");
    let mut found = vec![0; AREA];
    ours.read_at(AREA, &mut found).unwrap();
    assert!(found == answers, "seed {seed}, loss {loss}: answers");
    engine.counters()
}

#[test]
fn lossless_network_causes_no_retransmission() {
    for seed in 0..200 {
        let counters = run(seed, 0);
        assert_eq!((counters.retransmitted, counters.timeouts), (0, 0), "seed {seed}");
    }
}

#[test]
fn lost_packets_are_retransmitted() {
    for (first, loss) in [(200, 1), (400, 5)] {
        let runs: Vec<_> = (first..first + 200).map(|seed| run(seed, loss)).collect();
        let saw = |count: fn(&Counters) -> u64| runs.iter().map(count).sum::<u64>();
        let saw = [
            saw(|c| c.retransmitted),
            saw(|c| c.timeouts),
            saw(|c| c.sequence_naks),
            saw(|c| c.implied_naks),
            saw(|c| c.rnr_naks_received),
        ];
        assert!(saw.iter().all(|count| *count > 10), "{loss} in a hundred lost: {saw:?}");
    }
}

//! Random verbs over a lossy network, compared with plain arrays.
//!
//! Both sides of a connection post requests generated from a seed. The posting order alone determines memory, receive
//! buffers, results and completions; the network may lose, duplicate, reorder and corrupt packets. A failure prints
//! its seed: `replay` runs it alone.
//!
//! Over RC, and over XRC with an initiator, a target and a shared receive queue on both sides.

#![allow(clippy::unwrap_used, clippy::cast_possible_truncation, reason = "test code")]

use std::sync::Arc;
use std::time::Duration;

use crate::support::choice::Choice;
use crate::support::{
    Link, World, XrcEnd, full_access, lossy, pattern, remote, replay, sge, some_in_memory,
    some_reorder,
};
use softroce::ids::{Mtu, Qpn};
use softroce::mem::Region;
use softroce::port::sim::{Conditions, HostConfig};
use softroce::transport::outputs::Counters;
use softroce::transport::work::{
    FlushPlacement, FlushTarget, RecvRequest, RemoteAddr, SendData, SendFlags, SendOp, SendRequest,
    Sge, SgeList, WcOpcode, WcStatus,
};
use softroce::wire::Transport;

/// Bytes of each area of a side's memory.
const AREA: usize = 96 << 10;
/// Atomic counters of each side.
const COUNTERS: usize = 8;
/// Operations a side posts.
const OPERATIONS: u64 = 24;

/// One side: its memory and its expected state in the end.
struct Side {
    end: End,
    /// Source of SENDs, WRITEs and the peer's READs, never written.
    source: Arc<Region>,
    /// Destination of the peer's WRITEs.
    written: Arc<Region>,
    /// Destination of the peer's atomics and ATOMIC WRITEs.
    counters: Arc<Region>,
    /// Responses to READs and atomics.
    answers: Arc<Region>,
    /// Receive buffers.
    inbox: Arc<Region>,
    model: Model,
    posted: u64,
}

/// Queue pairs to which a side posts.
#[derive(Clone, Copy)]
enum End {
    Rc(Qpn),
    Xrc(XrcEnd),
}

/// Expected state of a side in the end. The peer's operations update it when they are posted.
struct Model {
    source: Vec<u8>,
    written: Vec<u8>,
    counters: [u64; COUNTERS],
    answers: Vec<u8>,
    answers_used: usize,
    inbox: Vec<u8>,
    inbox_used: usize,
    sends: Vec<(u64, WcOpcode, u32)>,
    recvs: Vec<(u64, WcOpcode, u32, Option<u32>)>,
}

impl Side {
    fn new(world: &World, node: usize, end: End) -> Self {
        let region = |at: u64| world.nodes[node].region(AREA, at << 32, full_access());
        let (source, written) = (region(1), region(2));
        let (counters, answers, inbox) = (region(3), region(4), region(5));
        let bytes = pattern(node as u64 + 1, AREA);
        source.write_at(0, &bytes).unwrap();
        let model = Model {
            source: bytes,
            written: vec![0; AREA],
            counters: [0; COUNTERS],
            answers: vec![0; AREA],
            answers_used: 0,
            inbox: vec![0; AREA],
            inbox_used: 0,
            sends: Vec::new(),
            recvs: Vec::new(),
        };
        Self { end, source, written, counters, answers, inbox, model, posted: 0 }
    }

    /// Posts a receive request for a message of the other side.
    fn post_recv(&self, world: &mut World, node: usize, wr_id: u64, sges: &[Sge]) {
        match self.end {
            End::Rc(qpn) => world.post_recv(node, qpn, wr_id, sges),
            End::Xrc(end) => {
                let request = RecvRequest::scattered(wr_id, sges);
                world.nodes[node].engine.post_srq_recv(end.srqn, request).unwrap();
            }
        }
    }
}

/// Splits `len` bytes at `offset` of a region into a few elements.
fn pieces(choice: &mut Choice, region: &Region, offset: usize, len: usize) -> Vec<Sge> {
    let mut sges = Vec::new();
    let (mut at, end) = (offset, offset + len);
    while at < end && sges.len() < 4 {
        let take =
            if choice.one_in(2) { end - at } else { 1 + choice.below((end - at) as u64) as usize };
        sges.push(sge(region, at, take));
        at += take;
    }
    if at < end {
        sges.push(sge(region, at, end - at));
    }
    sges
}

fn length(choice: &mut Choice, mtu: usize) -> usize {
    match choice.below(8) {
        0 => 0,
        1 => 1 + choice.below(7) as usize,
        2 => mtu - 1,
        3 => mtu,
        4 => mtu + 1,
        5 => 3 * mtu + choice.below(5) as usize,
        6 => choice.below(8 << 10) as usize,
        _ => choice.below(3 * mtu as u64) as usize,
    }
}

/// Posts one operation from `sides[me]` and applies it to both models.
fn post(world: &mut World, sides: &mut [Side; 2], me: usize, choice: &mut Choice, mtu: usize) {
    let [a, b] = sides;
    let (mine, theirs) = if me == 0 { (a, b) } else { (b, a) };
    let wr_id = mine.posted;
    mine.posted += 1;
    let mut flags = SendFlags::empty();
    flags.set(SendFlags::SIGNALED, !choice.one_in(3));
    flags.set(SendFlags::FENCE, choice.one_in(6));
    flags.set(SendFlags::SOLICITED, choice.one_in(2));

    let len = length(choice, mtu);
    let from = choice.below((AREA - len) as u64 + 1) as usize;
    let bytes = mine.model.source[from..from + len].to_vec();
    let imm = choice.one_in(2).then(|| choice.below(1 << 32) as u32);
    let inline = len <= 64 && choice.one_in(2);
    let data = if inline {
        SendData::Inline(bytes.iter().copied().collect())
    } else {
        SendData::Sges(pieces(choice, &mine.source, from, len).into_iter().collect())
    };
    let mut completes = len as u32;
    let kind = choice.below(7);
    if matches!((kind, mine.end), (4 | 5, End::Xrc(_))) {
        // XRC has no packets for ATOMIC WRITE and FLUSH.
        return;
    }
    let (op, data) = match kind {
        0 | 1 => {
            let room = len + choice.below(9) as usize;
            let Some(at) = claim(&mut theirs.model.inbox_used, room) else { return };
            let sges = pieces(choice, &theirs.inbox, at, room);
            let id = 1000 + wr_id;
            theirs.post_recv(world, 1 - me, id, &sges);
            theirs.model.inbox[at..at + len].copy_from_slice(&bytes);
            theirs.model.recvs.push((id, WcOpcode::Recv, len as u32, imm));
            (imm.map_or(SendOp::Send, |imm| SendOp::SendImm { imm }), data)
        }
        2 => {
            let at = choice.below((AREA - len) as u64 + 1) as usize;
            theirs.model.written[at..at + len].copy_from_slice(&bytes);
            let to = remote(&theirs.written, at);
            match imm {
                None => (SendOp::Write { to }, data),
                Some(imm) => {
                    let id = 1000 + wr_id;
                    theirs.post_recv(world, 1 - me, id, &[]);
                    let recv = (id, WcOpcode::RecvRdmaWithImm, len as u32, Some(imm));
                    theirs.model.recvs.push(recv);
                    (SendOp::WriteImm { to, imm }, data)
                }
            }
        }
        3 => {
            let at = choice.below((AREA - len) as u64 + 1) as usize;
            let Some(into) = claim(&mut mine.model.answers_used, len) else { return };
            let bytes = &theirs.model.source[at..at + len];
            mine.model.answers[into..into + len].copy_from_slice(bytes);
            let data =
                SendData::Sges(pieces(choice, &mine.answers, into, len).into_iter().collect());
            (SendOp::Read { from: remote(&theirs.source, at) }, data)
        }
        4 => {
            let index = choice.below(COUNTERS as u64) as usize;
            let word = choice.below(1 << 62);
            theirs.model.counters[index] = word;
            completes = 8;
            let to = remote(&theirs.counters, index * 8);
            (SendOp::AtomicWrite { to }, SendData::inline(&word.to_ne_bytes()))
        }
        5 => {
            completes = 0;
            let at = remote(&theirs.written, from);
            let target = match choice.one_in(2) {
                true => FlushTarget::Range { at, length: len as u32 },
                false => FlushTarget::Region { rkey: at.rkey },
            };
            let placement = FlushPlacement::GLOBAL_VISIBILITY;
            (SendOp::Flush { target, placement }, SendData::Sges(SgeList::new()))
        }
        _ => {
            let Some(into) = claim(&mut mine.model.answers_used, 8) else { return };
            let index = choice.below(COUNTERS as u64) as usize;
            let counter = &mut theirs.model.counters[index];
            let at: RemoteAddr = remote(&theirs.counters, index * 8);
            mine.model.answers[into..into + 8].copy_from_slice(&counter.to_ne_bytes());
            let operand = choice.below(1 << 40);
            let op = if choice.one_in(2) {
                *counter = counter.wrapping_add(operand);
                SendOp::FetchAdd { at, add: operand }
            } else {
                let expect = if choice.one_in(3) { 1 } else { *counter };
                if *counter == expect {
                    *counter = operand;
                }
                SendOp::CompareSwap { at, expect, swap: operand }
            };
            completes = 8;
            (op, SendData::Sges([sge(&mine.answers, into, 8)].into_iter().collect()))
        }
    };
    if flags.contains(SendFlags::SIGNALED) {
        mine.model.sends.push((wr_id, op.wc_opcode(), completes));
    }
    let (qpn, to) = match (mine.end, theirs.end) {
        (End::Rc(qpn), _) => (qpn, None),
        (End::Xrc(end), End::Xrc(other)) => (end.initiator, Some(other.srqn.into())),
        _ => unreachable!("both are of one service"),
    };
    world.post_send(me, qpn, SendRequest { wr_id, op, data, flags, to });
}

/// Reserves the next `len` bytes of an area, aligned for atomics, or returns `None`.
fn claim(used: &mut usize, len: usize) -> Option<usize> {
    let at = used.next_multiple_of(8);
    let end = at + len;
    if end > AREA {
        return None;
    }
    *used = end;
    Some(at)
}

/// Counters of both engines of a run.
struct Outcome {
    counters: [Counters; 2],
}

/// Runs one seed and compares everything.
fn run(seed: u64, conditions: Conditions, service: Transport) -> Outcome {
    let mut choice = Choice::new(seed);
    let (conditions, omits_icrcs) = some_in_memory(seed, conditions);
    let mtu = Mtu::ALL[choice.below(5) as usize];
    let host = HostConfig {
        gro: choice.one_in(2),
        receive_buffer: if choice.one_in(3) { 212_992 } else { 4 << 20 },
        sees_ip_header: choice.one_in(3),
        omits_icrcs,
        ..HostConfig::default()
    };
    let mut world = World::with(seed, 2, host, some_reorder(seed));
    world.network.set_conditions(conditions);
    // PSNs wrap during the run.
    let psn = [0xff_fffe - choice.below(60) as u32, 0xff_fffe - choice.below(60) as u32];
    let link = Link { mtu, psn, rd_atomic: 1 + choice.below(5) as u8, ..Link::default() };
    let [near, far] = match service {
        Transport::Xrc => world.xrc_pair(&link, 128).map(End::Xrc),
        _ => world.pair(&link).map(End::Rc),
    };
    let mut sides = [Side::new(&world, 0, near), Side::new(&world, 1, far)];
    for _ in 0..OPERATIONS {
        for me in [0, 1] {
            post(&mut world, &mut sides, me, &mut choice, mtu.bytes());
        }
        match choice.below(3) {
            0 => world.run(Duration::from_micros(choice.below(200))),
            1 => world.settle(),
            _ => {}
        }
    }
    world.run(Duration::from_secs(120));
    for (node, side) in sides.iter().enumerate() {
        compare(seed, &world, node, side);
    }
    Outcome { counters: [0, 1].map(|node: usize| world.nodes[node].engine.counters()) }
}

fn compare(seed: u64, world: &World, node: usize, side: &Side) {
    let host = &world.nodes[node];
    let sends: Vec<_> = host.sends.iter().map(|c| (c.wr_id, c.opcode, c.byte_len)).collect();
    assert!(
        host.sends.iter().chain(&host.recvs).all(|c| c.status == WcStatus::Success),
        "seed {seed:#x}, host {node}: {:?} {:?}",
        host.sends,
        host.recvs
    );
    assert_eq!(sends, side.model.sends, "seed {seed:#x}, host {node}: send completions");
    let recvs: Vec<_> = host.recvs.iter().map(|c| (c.wr_id, c.opcode, c.byte_len, c.imm)).collect();
    assert_eq!(recvs, side.model.recvs, "seed {seed:#x}, host {node}: receive completions");
    let same = |region: &Region, expected: &[u8], name: &str| {
        let mut found = vec![0; AREA];
        region.read_at(0, &mut found).unwrap();
        let differs = found.iter().zip(expected).position(|(a, b)| a != b);
        assert_eq!(differs, None, "seed {seed:#x}, host {node}: {name} differs at this offset");
    };
    same(&side.written, &side.model.written, "memory written by the peer");
    same(&side.answers, &side.model.answers, "answers to READs and atomics");
    same(&side.inbox, &side.model.inbox, "received messages");
    same(&side.source, &side.model.source, "read-only memory");
    for (index, value) in side.model.counters.iter().enumerate() {
        let found = side.counters.load_u64(index * 8).unwrap();
        assert_eq!(found, *value, "seed {seed:#x}, host {node}: counter {index}");
    }
    assert_eq!(host.events, [], "seed {seed:#x}, host {node}");
}

fn seeds(first: u64, count: u64, loss: f64) -> Counters {
    seeds_over(Transport::Rc, first, count, loss)
}

fn seeds_over(service: Transport, first: u64, count: u64, loss: f64) -> Counters {
    let mut total = Counters::default();
    for seed in first..first + count {
        let outcome = run(seed, lossy(loss), service);
        for counters in outcome.counters {
            total.retransmitted += counters.retransmitted;
            total.timeouts += counters.timeouts;
        }
    }
    total
}

#[test]
fn rc_over_a_lossless_network_needs_no_retransmission() {
    let total = seeds(0x1000, 400, 0.0);
    assert_eq!((total.retransmitted, total.timeouts), (0, 0));
}

#[test]
fn rc_survives_loss_of_one_packet_in_a_thousand() {
    assert!(seeds(0x2000, 400, 0.001).retransmitted > 0);
}

#[test]
fn rc_survives_loss_of_one_packet_in_a_hundred() {
    assert!(seeds(0x3000, 400, 0.01).retransmitted > 0);
}

/// CC-09
#[test]
fn rc_survives_loss_of_one_packet_in_twenty() {
    assert!(seeds(0x4000, 400, 0.05).retransmitted > 0);
}

#[test]
fn xrc_over_a_lossless_network_needs_no_retransmission() {
    let total = seeds_over(Transport::Xrc, 0x6000, 200, 0.0);
    assert_eq!((total.retransmitted, total.timeouts), (0, 0));
}

#[test]
fn xrc_survives_loss_of_one_packet_in_fifty() {
    assert!(seeds_over(Transport::Xrc, 0x7000, 400, 0.02).retransmitted > 0);
}

/// `SEED=0x3012 LOSS=0.01 cargo test --test models rc::replay` runs one seed, with `XRC=1` over XRC.
#[test]
fn replay() {
    let service = if replay::value("XRC", 0) > 0 { Transport::Xrc } else { Transport::Rc };
    run(replay::seed(0x5000), lossy(replay::value("LOSS", 0.02)), service);
}

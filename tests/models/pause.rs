//! Send queues that are drained, modified and resumed at random, while both sides post.
//!
//! Every request succeeds in order, and memory reflects the posting order. A drained send queue sends nothing until
//! it resumes.

#![allow(clippy::unwrap_used, clippy::cast_possible_truncation, reason = "test code")]

use std::sync::Arc;
use std::time::Duration;

use crate::support::choice::Choice;
use crate::support::{Link, World, full_access, pattern, remote, request, sge};
use softroce::engine::{ModifyError, QpAttr, QpState, QpType, RateLimit};
use softroce::ids::{Gid, Mtu, Qpn};
use softroce::mem::Region;
use softroce::net::AddressVector;
use softroce::port::sim::{Conditions, HostConfig};
use softroce::time::AckTimeout;
use softroce::transport::outputs::AsyncEvent;
use softroce::transport::work::{SendOp, WcStatus};

const AREA: usize = 64 << 10;
const STEPS: u64 = 60;

/// State of a send queue.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Phase {
    Running,
    Draining,
    /// Drained after this number of completed requests.
    Drained(usize),
}

struct Side {
    qpn: Qpn,
    source: Arc<Region>,
    written: Arc<Region>,
    answers: Arc<Region>,
    bytes: Vec<u8>,
    /// Expected contents of `written` in the end.
    expected: Vec<u8>,
    /// Expected results of READs, by their places.
    read: Vec<(usize, Vec<u8>)>,
    posted: u64,
    phase: Phase,
    pauses: usize,
}

impl Side {
    fn new(world: &World, node: usize, qpn: Qpn) -> Self {
        let region = |at: u64| world.nodes[node].region(AREA, at << 32, full_access());
        let bytes = pattern(node as u64 + 3, AREA);
        let (source, written, answers) = (region(1), region(2), region(3));
        source.write_at(0, &bytes).unwrap();
        let (expected, read) = (vec![0; AREA], Vec::new());
        let (posted, phase, pauses) = (0, Phase::Running, 0);
        Self { qpn, source, written, answers, bytes, expected, read, posted, phase, pauses }
    }
}

/// Posts a WRITE or a READ. Results are placed consecutively, so that each can be checked.
fn post(world: &mut World, sides: &mut [Side; 2], me: usize, choice: &mut Choice, reads: bool) {
    let [a, b] = sides;
    let (mine, theirs) = if me == 0 { (a, b) } else { (b, a) };
    let len = choice.below(6 << 10) as usize;
    let (from, to) =
        (choice.below((AREA - len) as u64) as usize, choice.below((AREA - len) as u64));
    let at = mine.read.last().map_or(0, |(at, bytes)| at + bytes.len());
    let (op, sges) = if reads && choice.one_in(3) && at + len <= AREA {
        mine.read.push((at, theirs.bytes[from..from + len].to_vec()));
        (SendOp::Read { from: remote(&theirs.source, from) }, [sge(&mine.answers, at, len)])
    } else {
        let to = to as usize;
        theirs.expected[to..to + len].copy_from_slice(&mine.bytes[from..from + len]);
        (SendOp::Write { to: remote(&theirs.written, to) }, [sge(&mine.source, from, len)])
    };
    world.post_send(me, mine.qpn, request(mine.posted, op, &sges));
    mine.posted += 1;
}

fn modify(world: &mut World, me: usize, qpn: Qpn, attr: QpAttr) -> Result<(), ModifyError> {
    let now = world.now;
    world.nodes[me].engine.modify_qp(now, qpn, &attr, |_, wanted| wanted)
}

/// Returns an attribute that may change in SQD.
fn change(choice: &mut Choice, qp_type: QpType, peer: Gid) -> QpAttr {
    let rate = [0, 50_000, 1_000_000][choice.below(3) as usize];
    let mut attr = QpAttr { rate_limit: Some(RateLimit::kbps(rate)), ..QpAttr::default() };
    if choice.one_in(2) {
        let traffic_class = choice.below(64) as u8 * 4;
        let hop_limit = 1 + choice.below(200) as u8;
        attr.av = Some(AddressVector { traffic_class, hop_limit, ..AddressVector::to(peer) });
    }
    if qp_type == QpType::Rc {
        attr.timeout = AckTimeout::new(8 + choice.below(4) as u8);
        attr.max_rd_atomic = Some(1 + choice.below(4) as u8);
    }
    attr
}

/// Drains the send queue, checks it, modifies it, or resumes it.
fn disturb(world: &mut World, side: &mut Side, me: usize, qp_type: QpType, choice: &mut Choice) {
    let ended = world.nodes[me].sends.len();
    let resume = QpAttr::to(QpState::Rts);
    let drained = AsyncEvent::SqDrained(side.qpn);
    let told = world.nodes[me].events.iter().filter(|event| **event == drained).count();
    match side.phase {
        Phase::Running if choice.one_in(3) => {
            modify(world, me, side.qpn, QpAttr::to(QpState::Sqd)).unwrap();
            side.pauses += 1;
            side.phase = Phase::Draining;
        }
        Phase::Running => {}
        Phase::Draining if told == side.pauses => side.phase = Phase::Drained(ended),
        Phase::Draining => {
            // The event may not have been reported yet.
            let draining = world.nodes[me].engine.query_qp(side.qpn).unwrap().sq_draining;
            if draining {
                assert_eq!(modify(world, me, side.qpn, resume), Err(ModifyError::Draining));
            }
        }
        Phase::Drained(at) => {
            assert_eq!(ended, at, "requests end though the send queue is drained");
            let peer = Gid::from(world.nodes[1 - me].ip);
            modify(world, me, side.qpn, change(choice, qp_type, peer)).unwrap();
            if choice.one_in(2) {
                modify(world, me, side.qpn, resume).unwrap();
                side.phase = Phase::Running;
            }
        }
    }
}

fn run(seed: u64, qp_type: QpType, loss: f64) -> usize {
    let mut choice = Choice::new(seed);
    let host = HostConfig { receive_buffer: 4 << 20, ..HostConfig::default() };
    let mut world = World::with(seed, 2, host, |_| {});
    let delay = Duration::from_micros(5);
    world.network.set_conditions(Conditions { loss, delay, ..Conditions::default() });
    let mtu = Mtu::ALL[choice.below(5) as usize];
    let link = Link { mtu, qp_type, psn: [0xff_fff0, 0xff_ff80], ..Link::default() };
    let qps = world.pair(&link);
    let mut sides = [Side::new(&world, 0, qps[0]), Side::new(&world, 1, qps[1])];
    for _ in 0..STEPS {
        for me in [0, 1] {
            post(&mut world, &mut sides, me, &mut choice, qp_type == QpType::Rc);
            disturb(&mut world, &mut sides[me], me, qp_type, &mut choice);
        }
        world.run(Duration::from_micros(choice.below(300)));
    }
    // Both resume, in any state.
    for _ in 0..3 {
        world.run(Duration::from_secs(60));
        for (me, side) in sides.iter_mut().enumerate() {
            if side.phase != Phase::Running {
                modify(&mut world, me, side.qpn, QpAttr::to(QpState::Rts)).unwrap();
                side.phase = Phase::Running;
            }
        }
    }
    for (node, side) in sides.iter().enumerate() {
        let what = format!("{qp_type}, seed {seed:#x}, host {node}");
        let ends: Vec<_> = world.nodes[node].sends.iter().map(|c| (c.wr_id, c.status)).collect();
        let expected: Vec<_> = (0..side.posted).map(|wr_id| (wr_id, WcStatus::Success)).collect();
        assert_eq!(ends, expected, "{what}");
        let drained = vec![AsyncEvent::SqDrained(side.qpn); side.pauses];
        assert_eq!(world.nodes[node].events, drained, "{what}: one event a pause");
        let mut found = vec![0; AREA];
        side.written.read_at(0, &mut found).unwrap();
        assert!(found == side.expected, "{what}: memory written by the peer");
        for (at, bytes) in &side.read {
            let mut found = vec![0; bytes.len()];
            side.answers.read_at(*at, &mut found).unwrap();
            assert!(found == *bytes, "{what}: what was read to {at}");
        }
    }
    sides.iter().map(|side| side.pauses).sum()
}

/// QPS-09
#[test]
fn rc_resumes_after_sqd() {
    let pauses: usize = (0x100..0x160).map(|seed| run(seed, QpType::Rc, 0.0)).sum();
    assert!(pauses > 500, "{pauses}");
}

/// QPS-09
#[test]
fn rc_resumes_after_sqd_on_a_lossy_network() {
    for (first, loss) in [(0x200, 0.01), (0x300, 0.05)] {
        (first..first + 40).for_each(|seed| {
            run(seed, QpType::Rc, loss);
        });
    }
}

/// QPS-09
#[test]
fn uc_resumes_after_sqd() {
    (0x400..0x440).for_each(|seed| {
        run(seed, QpType::Uc, 0.0);
    });
}

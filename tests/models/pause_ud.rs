//! UD send queues that are drained, rate limited and resumed at random.
//!
//! Queue pairs of one host send to those of another, interleaved. Each numbered message arrives at its destination
//! with the right source, at most once if the network does not duplicate packets.

#![allow(clippy::unwrap_used, clippy::cast_possible_truncation, reason = "test code")]

use std::sync::Arc;
use std::time::Duration;

use crate::support::choice::Choice;
use crate::support::{Link, QKEY, World, full_access, pattern, request, sge};
use softroce::engine::{ModifyError, QpAttr, QpCap, QpState, QpType, RateLimit};
use softroce::ids::{Gid, Qpn};
use softroce::mem::Region;
use softroce::net::AddressVector;
use softroce::port::sim::{Conditions, HostConfig};
use softroce::transport::outputs::AsyncEvent;
use softroce::transport::work::{SendOp, SendRequest, UdTarget, WcStatus};

const AREA: usize = 4096;
/// Bytes of a receive buffer before the payload.
const GRH: usize = 40;
const QPS: usize = 3;
const STEPS: usize = 40;
/// Maximum number of messages of one queue pair; each queue pair has receives for all of them.
const MAX_PER_STEP: u64 = 6;
const RECEIVES: usize = QPS * STEPS * MAX_PER_STEP as usize;

/// A message in flight: its sender, its receiver, and its bytes.
struct Message {
    from: usize,
    to: usize,
    bytes: Vec<u8>,
    received: usize,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Phase {
    Running,
    /// Drained, after this number of completions of the queue pair.
    Drained(usize),
}

struct Sender {
    qpn: Qpn,
    phase: Phase,
    pauses: usize,
    /// Numbers of its messages, in order.
    posted: Vec<u64>,
}

fn link() -> Link {
    let cap = QpCap {
        max_send_wr: 1024,
        max_recv_wr: RECEIVES as u32,
        max_recv_sge: 1,
        ..QpCap::default()
    };
    Link { qp_type: QpType::Ud, cap, ..Link::default() }
}

fn modify(world: &mut World, qpn: Qpn, attr: &QpAttr) -> Result<(), ModifyError> {
    let now = world.now;
    world.nodes[0].engine.modify_qp(now, qpn, attr, |_, wanted| wanted)
}

fn ended(world: &World, qpn: Qpn) -> usize {
    world.nodes[0].sends.iter().filter(|completion| completion.qpn == qpn).count()
}

/// Returns the numbers of the successfully sent messages, in order of completion.
fn succeeded(world: &World, sender: &Sender) -> Vec<u64> {
    let of_sender = world.nodes[0].sends.iter().filter(|end| end.qpn == sender.qpn);
    of_sender
        .map(|end| {
            assert_eq!(end.status, WcStatus::Success);
            end.wr_id
        })
        .collect()
}

fn pause_or_resume(world: &mut World, sender: &mut Sender, choice: &mut Choice) {
    match sender.phase {
        Phase::Running if choice.one_in(3) => {
            modify(world, sender.qpn, &QpAttr::to(QpState::Sqd)).unwrap();
            sender.pauses += 1;
            sender.phase = Phase::Drained(ended(world, sender.qpn));
        }
        Phase::Running => {
            let kbps = [0, 0, 2_000, 20_000, 400_000][choice.below(5) as usize];
            let limit = RateLimit { kbps, max_burst: choice.below(2) as u32 * 3000 };
            let attr = QpAttr { rate_limit: Some(limit), ..QpAttr::default() };
            modify(world, sender.qpn, &attr).unwrap();
        }
        Phase::Drained(at) => {
            assert_eq!(ended(world, sender.qpn), at, "a drained send queue ends requests");
            if choice.one_in(2) {
                modify(world, sender.qpn, &QpAttr::to(QpState::Rts)).unwrap();
                sender.phase = Phase::Running;
            }
        }
    }
}

struct Seen {
    pauses: usize,
    lost: usize,
    copied: usize,
}

fn run(seed: u64, loss: f64, duplicate: f64) -> Seen {
    let mut choice = Choice::new(seed);
    let receive_buffer = if choice.one_in(2) { 4 << 20 } else { 64 << 10 };
    let host = HostConfig { receive_buffer, ..HostConfig::default() };
    let mut world = World::with(seed, 2, host, |_| {});
    let delay = Duration::from_micros(5);
    let conditions = Conditions { loss, duplicate, delay, ..Conditions::default() };
    world.network.set_conditions(conditions);
    let link = link();
    let (source, inbox) = areas(&world);
    let bytes = pattern(seed, AREA);
    source.write_at(0, &bytes).unwrap();

    let mut senders: Vec<Sender> = Vec::new();
    let mut receivers = Vec::new();
    for index in 0..QPS {
        let [from, to] = world.pair(&link);
        senders.push(Sender { qpn: from, phase: Phase::Running, pauses: 0, posted: Vec::new() });
        receivers.push(to);
        for n in 0..RECEIVES {
            let slot = index * RECEIVES + n;
            world.post_recv(1, to, slot as u64, &[sge(&inbox, slot * (GRH + 1024), GRH + 1024)]);
        }
    }

    let mut messages: Vec<Message> = Vec::new();
    for _ in 0..STEPS {
        for (from, sender) in senders.iter_mut().enumerate() {
            for _ in 0..choice.below(MAX_PER_STEP + 1) {
                let (to, len) = (choice.below(QPS as u64) as usize, choice.below(1025) as usize);
                let at = choice.below((AREA - len) as u64 + 1) as usize;
                let number = messages.len() as u64;
                let op = SendOp::SendImm { imm: number as u32 };
                let av = AddressVector::to(Gid::from(world.nodes[1].ip));
                let target = UdTarget { av, qpn: receivers[to], qkey: QKEY };
                let message: SendRequest = request(number, op, &[sge(&source, at, len)]);
                world.post_send(0, sender.qpn, SendRequest { to: Some(target.into()), ..message });
                sender.posted.push(number);
                messages.push(Message {
                    from,
                    to,
                    bytes: bytes[at..at + len].to_vec(),
                    received: 0,
                });
            }
            pause_or_resume(&mut world, sender, &mut choice);
        }
        world.run(Duration::from_micros(choice.below(300)));
        for sender in &senders {
            if let Phase::Drained(at) = sender.phase {
                assert_eq!(ended(&world, sender.qpn), at, "seed {seed:#x}: ended while drained");
            }
        }
    }
    for sender in &mut senders {
        if sender.phase != Phase::Running {
            modify(&mut world, sender.qpn, &QpAttr::to(QpState::Rts)).unwrap();
        }
    }
    world.run(Duration::from_secs(60));

    for sender in &senders {
        assert_eq!(succeeded(&world, sender), sender.posted, "seed {seed:#x}: sends");
    }
    let drained: usize = senders.iter().map(|sender| sender.pauses).sum();
    assert_eq!(world.nodes[0].events.len(), drained, "seed {seed:#x}: one event a pause");
    let is_drained = |event: &AsyncEvent| matches!(event, AsyncEvent::SqDrained(_));
    assert!(world.nodes[0].events.iter().all(is_drained), "{:?}", world.nodes[0].events);

    for completion in &world.nodes[1].recvs {
        let number = completion.imm.unwrap() as usize;
        let message = &mut messages[number];
        let what = format!("seed {seed:#x}, message {number}");
        let found = (completion.qpn, completion.source_qp, completion.byte_len as usize - GRH);
        let expected =
            (receivers[message.to], Some(senders[message.from].qpn), message.bytes.len());
        assert_eq!(found, expected, "{what}");
        let mut payload = vec![0; message.bytes.len()];
        let at = completion.wr_id as usize * (GRH + 1024) + GRH;
        inbox.read_at(at, &mut payload).unwrap();
        assert!(payload == message.bytes, "{what}: its bytes");
        message.received += 1;
    }
    let most = if duplicate > 0.0 { 2 } else { 1 };
    for (number, message) in messages.iter().enumerate() {
        assert!(message.received <= most, "seed {seed:#x}, message {number}: {}", message.received);
    }
    let lost = messages.iter().filter(|message| message.received == 0).count();
    if loss == 0.0 && receive_buffer > 1 << 20 {
        assert_eq!(lost, 0, "seed {seed:#x}");
    }
    let copied = messages.iter().filter(|message| message.received > 1).count();
    Seen { pauses: drained, lost, copied }
}

fn areas(world: &World) -> (Arc<Region>, Arc<Region>) {
    let source = world.nodes[0].region(AREA, 1 << 32, full_access());
    (source, world.nodes[1].region(QPS * RECEIVES * (GRH + 1024), 2 << 32, full_access()))
}

/// QPS-09
#[test]
fn ud_messages_arrive_once_despite_sqd() {
    let pauses: usize = (0x100..0x140).map(|seed| run(seed, 0.0, 0.0).pauses).sum();
    assert!(pauses > 500, "{pauses}");
}

/// QPS-09
#[test]
fn ud_messages_arrive_at_most_once_on_a_lossy_network() {
    let lost: usize = (0x200..0x230).map(|seed| run(seed, 0.05, 0.0).lost).sum();
    assert!(lost > 100, "{lost}");
}

/// QPS-09
#[test]
fn ud_messages_are_duplicated_by_the_network_only() {
    let copied: usize = (0x300..0x320).map(|seed| run(seed, 0.02, 0.02).copied).sum();
    assert!(copied > 50, "{copied}");
}

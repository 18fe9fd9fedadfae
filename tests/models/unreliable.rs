//! Random UC and UD messages over a lossy network, compared with a model.
//!
//! There are no retransmissions, so the network determines which messages arrive. Where only the test itself loses
//! and duplicates packets, the model predicts exactly which messages arrive; where the network also corrupts and
//! reorders them, it predicts what may never happen. A failure prints its seed.

#![allow(clippy::unwrap_used, clippy::cast_possible_truncation, reason = "test code")]

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::support::choice::Choice;
use crate::support::{
    Link, QKEY, World, full_access, pattern, remote, request, sge, some_in_memory,
};
use softroce::engine::{QpState, QpType};
use softroce::ids::{Gid, Mtu, QKey, Qpn};
use softroce::mem::Region;
use softroce::net::AddressVector;
use softroce::port::sim::{Conditions, FaultDecision, HostConfig};
use softroce::psn::Psn;
use softroce::transport::outputs::DropReason;
use softroce::transport::work::{
    Completion, SendData, SendFlags, SendOp, SendRequest, UdTarget, WcOpcode, WcStatus,
};
use softroce::wire::Datagram;

/// Messages of each side; few enough to be identified by their first byte.
const MESSAGES: usize = 40;
/// Length of the memory for each message, in bytes.
const SLOT: usize = 13 << 10;

/// Network faults of every kind.
fn bad(seed: u64) -> Conditions {
    let rate = [0.002, 0.02, 0.1][seed as usize % 3];
    Conditions {
        loss: rate,
        duplicate: rate,
        reorder: rate,
        corrupt: rate,
        delay: Duration::from_micros(5),
        jitter: Duration::from_micros(1),
        refuse_send: 0.05,
        ..Conditions::default()
    }
}

/// Network faults that keep the order, all known to the test.
fn calm() -> Conditions {
    Conditions { delay: Duration::from_micros(5), refuse_send: 0.05, ..Conditions::default() }
}

/// Number of arrivals of packets that do not arrive exactly once, by sender, destination host and PSN.
type Copies = Arc<Mutex<BTreeMap<(IpAddr, IpAddr, u32), usize>>>;

/// Loses and duplicates packets, each with this probability.
fn lose_and_copy(world: &World, seed: u64, probability: f64) -> Copies {
    let copies = Copies::default();
    let (noted, mut choice) = (copies.clone(), Choice::new(!seed));
    world.network.observe(move |seen| {
        let psn = Datagram::parse(seen.datagram).unwrap().bth.psn.value();
        let (fate, times) = match (choice.happens(probability), choice.happens(probability)) {
            (true, _) => (FaultDecision::Drop, 0),
            (_, true) => (FaultDecision::Duplicate, 2),
            _ => return FaultDecision::ByConditions,
        };
        noted.lock().unwrap().insert((seen.path.source, seen.to, psn), times);
        fate
    });
    copies
}

// ---- UC ----

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Kind {
    Send,
    SendImm,
    Write,
    WriteImm,
}

#[derive(Clone, Copy, Debug)]
struct Message {
    kind: Kind,
    len: usize,
    first: Psn,
    packets: u32,
    signaled: bool,
}

impl Message {
    fn is_send(&self) -> bool {
        matches!(self.kind, Kind::Send | Kind::SendImm)
    }
}

/// One end of a connection.
struct Side {
    qpn: Qpn,
    source: Arc<Region>,
    /// Slots for the peer's WRITEs.
    written: Arc<Region>,
    /// Slots for receives.
    inbox: Arc<Region>,
    /// Length of each receive.
    rooms: Vec<usize>,
    sent: Vec<Message>,
}

/// Returns the bytes of a message of a host.
fn content(node: usize, number: usize, len: usize) -> Vec<u8> {
    pattern((number + 100 * node) as u64, len)
}

fn slot(region: &Region, number: usize, len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    region.read_at(number * SLOT, &mut bytes).unwrap();
    bytes
}

fn uc_side(world: &mut World, node: usize, qpn: Qpn, choice: &mut Choice) -> Side {
    let region = |at: u64| world.nodes[node].region(MESSAGES * SLOT, at << 32, full_access());
    let (source, written, inbox) = (region(1), region(2), region(3));
    for number in 0..MESSAGES {
        source.write_at(number * SLOT, &content(node, number, SLOT)).unwrap();
    }
    let receives = [MESSAGES, MESSAGES / 2][choice.below(2) as usize];
    let rooms = (0..receives).map(|_| match choice.below(10) {
        0 => choice.below(SLOT as u64) as usize,
        _ => SLOT,
    });
    let rooms: Vec<_> = rooms.collect();
    for (wr_id, room) in (0..).zip(&rooms) {
        world.post_recv(node, qpn, wr_id, &[sge(&inbox, wr_id as usize * SLOT, *room)]);
    }
    Side { qpn, source, written, inbox, rooms, sent: Vec::new() }
}

/// Posts the next message of `sides[me]`.
fn uc_post(world: &mut World, sides: &mut [Side; 2], me: usize, choice: &mut Choice, link: &Link) {
    let mtu = link.mtu.bytes();
    let number = sides[me].sent.len();
    let kind = [Kind::Send, Kind::SendImm, Kind::Write, Kind::WriteImm][choice.below(4) as usize];
    let len = match choice.below(6) {
        0 => 1,
        1 => mtu,
        2 => mtu + 1,
        3 => 3 * mtu,
        // The first byte of a SEND without immediate data contains its number.
        4 => usize::from(kind == Kind::Send),
        _ => 1 + choice.below(3 * mtu as u64) as usize,
    };
    let to = remote(&sides[1 - me].written, number * SLOT);
    let imm = number as u32;
    let op = match kind {
        Kind::Send => SendOp::Send,
        Kind::SendImm => SendOp::SendImm { imm },
        Kind::Write => SendOp::Write { to },
        Kind::WriteImm => SendOp::WriteImm { to, imm },
    };
    let cut = choice.below(len as u64 + 1) as usize;
    let [at, mid] = [0, cut].map(|offset| number * SLOT + offset);
    let source = &sides[me].source;
    let pieces = [sge(source, at, cut), sge(source, mid, len - cut)];
    let mut request = request(number as u64, op, &pieces);
    let signaled = !choice.one_in(4);
    request.flags.set(SendFlags::SIGNALED, signaled);
    world.post_send(me, sides[me].qpn, request);
    let first = sides[me].sent.last().map_or(Psn::new(link.psn[me]), |m| m.first.plus(m.packets));
    let packets = len.div_ceil(mtu).max(1) as u32;
    sides[me].sent.push(Message { kind, len, first, packets, signaled });
}

/// Returns the number and the completion of each message that host `node` has received.
fn uc_arrived(seed: u64, world: &World, sides: &[Side; 2], node: usize) -> Vec<usize> {
    let (side, peer) = (&sides[node], &sides[1 - node]);
    let number = |(wr_id, completion): (u64, &Completion)| {
        let context = format!("seed {seed:#x}, host {node}: {completion:?}");
        assert_eq!((completion.status, completion.wr_id), (WcStatus::Success, wr_id), "{context}");
        let first = slot(&side.inbox, wr_id as usize, 1)[0];
        let by_content = || (0..MESSAGES).find(|n| content(1 - node, *n, 1)[0] == first);
        let number = completion.imm.map_or_else(by_content, |imm| Some(imm as usize)).unwrap();
        let message = peer.sent[number];
        let expected = match message.kind {
            Kind::Send => (WcOpcode::Recv, None),
            Kind::SendImm => (WcOpcode::Recv, Some(number as u32)),
            Kind::Write | Kind::WriteImm => (WcOpcode::RecvRdmaWithImm, Some(number as u32)),
        };
        assert_eq!((completion.opcode, completion.imm), expected, "{context}");
        assert_eq!(completion.byte_len as usize, message.len, "{context}: torn");
        let found = match message.is_send() {
            true => slot(&side.inbox, wr_id as usize, message.len),
            false => slot(&side.written, number, message.len),
        };
        assert!(found == content(1 - node, number, message.len), "{context}: torn");
        number
    };
    (0..).zip(&world.nodes[node].recvs).map(number).collect()
}

/// Checks the invariants on any network.
fn uc_is_sound(seed: u64, world: &World, sides: &[Side; 2], mtu: usize) -> [Vec<usize>; 2] {
    [0, 1].map(|node| {
        let host = &world.nodes[node];
        let context = format!("seed {seed:#x}, host {node}");
        let ends: Vec<_> = host.sends.iter().map(|c| (c.wr_id, c.status)).collect();
        let signaled = (0..).zip(&sides[node].sent).filter(|(_, message)| message.signaled);
        let expected: Vec<_> = signaled.map(|(wr_id, _)| (wr_id, WcStatus::Success)).collect();
        assert_eq!(ends, expected, "{context}: every request completes, in order");
        assert_eq!((&host.events[..], world.state(node, sides[node].qpn)), (&[][..], QpState::Rts));
        // A WRITE may have placed its first packets only.
        for (number, message) in sides[1 - node].sent.iter().enumerate() {
            let found = slot(&sides[node].written, number, SLOT);
            let bytes = content(1 - node, number, message.len);
            let placed = (0..=message.packets as usize)
                .map(|n| (n * mtu).min(message.len))
                .any(|n| found[..n] == bytes[..n] && found[n..].iter().all(|byte| *byte == 0));
            assert!(placed, "{context}: message {number}, {message:?}");
            let is_write = !message.is_send();
            assert!(
                is_write || found.iter().all(|byte| *byte == 0),
                "{context}: {number} is a SEND"
            );
        }
        let arrived = uc_arrived(seed, world, sides, node);
        let once: BTreeSet<_> = arrived.iter().collect();
        assert_eq!(once.len(), arrived.len(), "{context}: completed twice: {arrived:?}");
        arrived
    })
}

/// Returns the messages that arrive when packets are lost or duplicated in order: those that are complete and find a
/// receive of sufficient length.
fn uc_expected(
    [from, to]: [IpAddr; 2],
    side: &Side,
    rooms: &[usize],
    copies: &Copies,
) -> Vec<usize> {
    let copies = copies.lock().unwrap();
    let mut rooms = rooms.iter().peekable();
    let mut arrived = Vec::new();
    for (number, message) in side.sent.iter().enumerate() {
        let mut psns = (0..message.packets).map(|n| message.first.plus(n).value());
        let is_whole = psns.all(|psn| copies.get(&(from, to, psn)) != Some(&0));
        let fits = |room: &&usize| **room >= message.len || !message.is_send();
        if is_whole && message.kind != Kind::Write && rooms.next_if(fits).is_some() {
            arrived.push(number);
        }
    }
    arrived
}

/// Runs both directions of a connection.
fn uc_run(
    seed: u64,
    conditions: Conditions,
    damage: Option<f64>,
) -> (World, [Side; 2], Link, Option<Copies>) {
    let mut choice = Choice::new(seed);
    let (conditions, omits_icrcs) = some_in_memory(seed, conditions);
    let mtu = Mtu::ALL[choice.below(5) as usize];
    let host = HostConfig {
        gro: choice.one_in(2),
        sees_ip_header: choice.one_in(3),
        receive_buffer: [212_992, 16 << 20][choice.below(2) as usize],
        omits_icrcs,
        ..HostConfig::default()
    };
    let net = [[10, 0, 0], [127, 0, 0]][choice.below(2) as usize];
    let mut world = World::in_net(net, seed, 2, host, |_| {});
    world.network.set_conditions(conditions);
    let copies = damage.map(|probability| lose_and_copy(&world, seed, probability));
    let psn = [0xff_ffff - choice.below(60) as u32, choice.below(1 << 24) as u32];
    let link = Link { mtu, psn, qp_type: QpType::Uc, ..Link::default() };
    let qps = world.pair(&link);
    let mut sides = [0, 1].map(|node| uc_side(&mut world, node, qps[node], &mut choice));
    for _ in 0..MESSAGES {
        for me in [0, 1] {
            uc_post(&mut world, &mut sides, me, &mut choice, &link);
        }
        match choice.below(3) {
            0 => world.run(Duration::from_micros(choice.below(200))),
            1 => world.settle(),
            _ => {}
        }
    }
    world.run(Duration::from_secs(1));
    (world, sides, link, copies)
}

/// UC-02, UC-03, UC-04: exactly the messages of which no packet is lost, in order, each once.
#[test]
fn uc_delivers_complete_messages_only() {
    let (mut whole, mut torn) = (0, 0);
    for seed in 0..300 {
        let damage = [0.0, 0.01, 0.05, 0.2][seed as usize % 4];
        let (world, sides, link, copies) = uc_run(seed, calm(), Some(damage));
        let arrived = uc_is_sound(seed, &world, &sides, link.mtu.bytes());
        for node in [0, 1] {
            let way = [1 - node, node].map(|node| world.nodes[node].ip);
            let copies = copies.as_ref().unwrap();
            let expected = uc_expected(way, &sides[1 - node], &sides[node].rooms, copies);
            assert_eq!(arrived[node], expected, "seed {seed:#x}, host {node}");
            whole += expected.len();
            torn += MESSAGES - expected.len();
        }
        if damage == 0.0 {
            let counters = [0, 1].map(|node: usize| world.nodes[node].engine.counters());
            assert!(counters.iter().all(|c| c.out_of_sequence + c.duplicate_requests == 0));
            let packets = |side: &Side| side.sent.iter().map(|m| u64::from(m.packets)).sum::<u64>();
            assert_eq!(counters.map(|c| c.tx_packets), [0, 1].map(|node| packets(&sides[node])));
        }
    }
    assert!(whole > 5000 && torn > 2000, "{whole} messages arrived, {torn} did not");
}

/// UC-01, UC-02: on any network no message is reported incomplete or twice, and after the faults the next message
/// arrives.
#[test]
fn uc_never_delivers_incomplete_or_duplicate_messages() {
    let mut arrived = 0;
    for seed in 1000..1400 {
        let (mut world, sides, link, _) = uc_run(seed, bad(seed), None);
        uc_is_sound(seed, &world, &sides, link.mtu.bytes());
        world.network.set_conditions(Conditions::default());
        for node in [0, 1] {
            let before = world.nodes[node].recvs.len();
            // The remaining receives may be too short.
            if before + 1 < sides[node].rooms.len() && sides[node].rooms[before] >= 8 {
                let source = &sides[1 - node].source;
                let last = request(99, SendOp::SendImm { imm: 99 }, &[sge(source, 0, 8)]);
                world.post_send(1 - node, sides[1 - node].qpn, last);
                world.run(Duration::from_secs(1));
                let end = world.nodes[node].recvs.last().map(|c| (c.imm, c.status));
                assert_eq!(end, Some((Some(99), WcStatus::Success)), "seed {seed:#x}");
                arrived += 1;
            }
        }
    }
    assert!(arrived > 300, "{arrived}");
}

// ---- UD ----

/// A queue pair, by its host and its index.
type Place = (usize, usize);

/// A sent message: its sender, its destination, and its bytes.
#[derive(Clone, Debug)]
struct SentDatagram {
    from: Place,
    to: BTreeSet<Place>,
    bytes: Vec<u8>,
}

const HOSTS: usize = 3;
/// Queue pairs of each host.
const QPS: usize = 2;
const DATAGRAMS: usize = 120;
/// Bytes of a receive.
const RECEIVE_BYTES: usize = 40 + 1024;

struct Ud {
    world: World,
    qps: Vec<[Qpn; QPS]>,
    inboxes: Vec<[Arc<Region>; QPS]>,
    datagrams: Vec<SentDatagram>,
}

/// Multicast groups and their members.
#[derive(Default)]
struct Groups([BTreeSet<Place>; 2]);

impl Groups {
    fn ip(number: usize) -> IpAddr {
        [239, 0, 0, number as u8].into()
    }

    /// A queue pair joins or leaves a group, while no packet is in flight.
    fn change(&mut self, world: &mut World, qps: &[[Qpn; QPS]], choice: &mut Choice) {
        world.run(Duration::from_millis(1));
        let (number, node, n) =
            (choice.below(2) as usize, choice.below(3) as usize, choice.below(2) as usize);
        let (qpn, members) = (qps[node][n], &mut self.0[number]);
        if members.insert((node, n)) {
            world.attach(node, qpn, Self::ip(number));
        } else {
            members.remove(&(node, n));
            world.detach(node, qpn, Self::ip(number));
        }
    }
}

/// Every queue pair sends to every other, to itself, and to groups, sometimes with a wrong queue key.
fn ud_run(seed: u64, conditions: Conditions, damage: Option<f64>) -> (Ud, Option<Copies>) {
    let mut choice = Choice::new(seed);
    let (conditions, omits_icrcs) = some_in_memory(seed, conditions);
    let host = HostConfig {
        gro: choice.one_in(2),
        sees_ip_header: choice.one_in(3),
        omits_icrcs,
        ..HostConfig::default()
    };
    let mut world = World::with(seed, HOSTS as u8, host, |config| config.active_mtu = Mtu::Mtu1024);
    world.network.set_conditions(conditions);
    let copies = damage.map(|probability| lose_and_copy(&world, seed, probability));
    let mut link = Link { qp_type: QpType::Ud, ..Link::default() };
    link.cap.max_recv_wr = 4 * DATAGRAMS as u32;
    let (mut qps, mut inboxes, mut sources) = (Vec::new(), Vec::new(), Vec::new());
    for node in 0..HOSTS {
        let pair = [0, 1].map(|n| {
            let qpn = world.create_qp(node, &link);
            // Disjoint PSN ranges, so that a PSN identifies one packet.
            let psn = (node * QPS + n) as u32 * 1000;
            world.connect(node, qpn, (node, qpn), &link, [psn, 0]);
            qpn
        });
        let inbox = pair.map(|qpn| {
            let region =
                world.nodes[node].region(4 * DATAGRAMS * RECEIVE_BYTES, 1 << 32, full_access());
            for wr_id in 0..4 * DATAGRAMS {
                world.post_recv(
                    node,
                    qpn,
                    wr_id as u64,
                    &[sge(&region, wr_id * RECEIVE_BYTES, RECEIVE_BYTES)],
                );
            }
            region
        });
        sources.push(world.nodes[node].region(4096, 1 << 40, full_access()));
        qps.push(pair);
        inboxes.push(inbox);
    }
    let (mut datagrams, mut groups) = (Vec::new(), Groups::default());
    for number in 0..DATAGRAMS {
        if choice.one_in(3) {
            groups.change(&mut world, &qps, &mut choice);
        }
        let mut one = || (choice.below(3) as usize, choice.below(2) as usize);
        let (from, to) = (one(), one());
        // The queue pair number of a message to a group is ignored.
        let group = choice.one_in(3).then(|| choice.below(2) as usize);
        let ip = group.map_or(world.nodes[to.0].ip, Groups::ip);
        let mut for_these = group.map_or([to].into(), |number| groups.0[number].clone());
        if group.is_some() {
            for_these.remove(&from);
        }
        let len = [0, 1, 8, 1024, 1025][choice.below(5) as usize];
        let bytes = pattern(number as u64, len);
        let good = !choice.one_in(8);
        let qkey = if good { [QKEY, QKey(1 << 31)][number % 2] } else { QKey(0x4321) };
        let av = AddressVector::to(Gid::from(ip));
        let target = UdTarget { av, qpn: qps[to.0][to.1], qkey };
        let op = SendOp::SendImm { imm: number as u32 };
        let inline = len <= 8;
        let data = match inline {
            true => SendData::inline(&bytes),
            false => {
                // Its bytes must stay until it is sent.
                sources[from.0].write_at(0, &bytes).unwrap();
                sge(&sources[from.0], 0, len).into()
            }
        };
        let request = SendRequest { data, ..request(number as u64, op, &[]) };
        world.post_send(from.0, qps[from.0][from.1], request.to(target));
        if !inline || choice.one_in(2) {
            world.run(Duration::from_millis(1));
        }
        let delivered = good && len <= 1024;
        if !delivered {
            for_these.clear();
        }
        datagrams.push(SentDatagram { from, to: for_these, bytes });
    }
    world.run(Duration::from_secs(1));
    (Ud { world, qps, inboxes, datagrams }, copies)
}

/// Checks the invariants on any network. Returns the number of arrivals of each message by destination.
fn ud_is_sound(seed: u64, ud: &Ud) -> Vec<BTreeMap<Place, usize>> {
    let mut times = vec![BTreeMap::new(); DATAGRAMS];
    for (node, host) in ud.world.nodes.iter().enumerate() {
        let mut used = [0; QPS];
        for completion in &host.recvs {
            let context = format!("seed {seed:#x}, host {node}: {completion:?}");
            let number = completion.imm.unwrap() as usize;
            let datagram = &ud.datagrams[number];
            let n = ud.qps[node].iter().position(|qpn| *qpn == completion.qpn).unwrap();
            assert!(datagram.to.contains(&(node, n)), "{context}: {datagram:?}");
            let source = ud.qps[datagram.from.0][datagram.from.1];
            assert_eq!(completion.source_qp, Some(source), "{context}");
            let len = datagram.bytes.len();
            let end = (completion.status, completion.byte_len as usize, completion.wr_id);
            assert_eq!(end, (WcStatus::Success, 40 + len, used[n]), "{context}");
            let mut found = vec![0; 40 + len];
            ud.inboxes[node][n].read_at(used[n] as usize * RECEIVE_BYTES, &mut found).unwrap();
            assert!(found[40..] == datagram.bytes, "{context}: torn");
            let header = *found.first_chunk().unwrap();
            let sender = AddressVector::to_sender(&header).map(|av| av.gid.ip());
            assert_eq!(sender, Some(ud.world.nodes[datagram.from.0].ip), "{context}");
            used[n] += 1;
            *times[number].entry((node, n)).or_default() += 1;
        }
        for (n, qpn) in ud.qps[node].iter().enumerate() {
            let ends = host.sends.iter().filter(|c| c.qpn == *qpn);
            let ends: Vec<_> = ends.map(|c| (c.wr_id as usize, c.status)).collect();
            let own = (0..DATAGRAMS).filter(|number| ud.datagrams[*number].from == (node, n));
            let own: Vec<_> = own.map(|number| (number, WcStatus::Success)).collect();
            assert_eq!(ends, own, "seed {seed:#x}: every request completes, in order");
            assert_eq!(ud.world.state(node, *qpn), QpState::Rts);
        }
    }
    times
}

/// UD-01, UD-06, UD-07, UD-09: each message arrives as often as its packet, at its destination queue pair or at the
/// members of its group, and nowhere else.
#[test]
fn ud_delivers_each_packet_to_the_queue_pair_it_names() {
    let mut at_several = 0;
    for seed in 0..60 {
        let damage = [0.0, 0.02, 0.2][seed as usize % 3];
        let (ud, copies) = ud_run(seed, calm(), Some(damage));
        let times = ud_is_sound(seed, &ud);
        let copies = copies.unwrap();
        let copies = copies.lock().unwrap();
        let mut psns: BTreeMap<_, u32> = BTreeMap::new();
        for (number, datagram) in ud.datagrams.iter().enumerate() {
            // A too long message has no packet.
            let next = psns.entry(datagram.from).or_default();
            let psn = (datagram.from.0 * QPS + datagram.from.1) as u32 * 1000 + *next;
            *next += u32::from(datagram.bytes.len() <= 1024);
            let ip = |place: Place| ud.world.nodes[place.0].ip;
            let times_at = |to| copies.get(&(ip(datagram.from), ip(to), psn)).copied().unwrap_or(1);
            let expected = datagram.to.iter().map(|to| (*to, times_at(*to)));
            let expected: BTreeMap<_, _> = expected.filter(|(_, times)| *times > 0).collect();
            assert_eq!(times[number], expected, "seed {seed:#x}: message {number}");
            at_several += usize::from(expected.len() > 1);
        }
        let wrong_keys =
            |node: usize| ud.world.nodes[node].engine.counters().dropped(DropReason::QKeyMismatch);
        assert!((0..HOSTS).map(wrong_keys).sum::<u64>() > 0, "seed {seed:#x}");
    }
    assert!(at_several > 500, "{at_several} messages to groups arrived at several");
}

/// Corruption is always detected, and no message arrives at another queue pair.
#[test]
fn ud_never_delivers_corrupt_messages() {
    let (mut arrived, mut twice) = (0, 0);
    for seed in 1000..1060 {
        let (ud, _) = ud_run(seed, bad(seed), None);
        let times = ud_is_sound(seed, &ud);
        let times = || times.iter().flat_map(BTreeMap::values);
        assert!(times().all(|times| *times <= 2), "seed {seed:#x}: the network copies once");
        arrived += times().count();
        twice += times().filter(|times| **times == 2).count();
    }
    assert!(arrived > 2000 && twice > 50, "{arrived} arrived, {twice} of them twice");
}

//! Operations beyond data transfer: atomics, concurrency, flags.

use std::time::Duration;

use softroce::verbs::*;

use super::messages::Kind;
use super::pair::{Pair, SERVICES, Setup, TARGET, WAIT_LIMIT};
use super::peer::INLINE;

#[test]
#[ignore = "needs a peer"]
fn atomics_are_done_once_and_return_what_was_there() {
    let mut pair = Pair::new(Setup::default());
    let (at, result) = (TARGET, pair.mr.sge(..8));
    let there = pair.peer.mr.remote(at);
    let here = pair.mr.remote(at);
    let lkey = pair.peer.mr.lkey;
    let cases = [
        (SendOp::FetchAdd { at: there, add: 5 }, 105),
        (SendOp::FetchAdd { at: there, add: u64::MAX }, 99),
        (SendOp::CompareSwap { at: there, expect: 100, swap: 7 }, 7),
        (SendOp::CompareSwap { at: there, expect: 101, swap: 7 }, 100),
    ];
    for (op, left) in cases {
        pair.peer.store(at, 100);
        pair.qp.post_send(SendRequest::new(1, op, result).signaled()).unwrap();
        assert_eq!(pair.ours().status, WcStatus::Success, "{op:?}");
        assert_eq!((pair.mr.load_u64(0), pair.peer.load(at)), (Ok(100), left), "{op:?}");

        let op = match op {
            SendOp::FetchAdd { add, .. } => SendOp::FetchAdd { at: here, add },
            SendOp::CompareSwap { expect, swap, .. } => {
                SendOp::CompareSwap { at: here, expect, swap }
            }
            other => other,
        };
        pair.mr.store_u64(at, 100).unwrap();
        pair.peer.post_send(1, &op, SendFlags::SIGNALED.bits(), &[(0, 8, lkey)]);
        assert_eq!(pair.theirs().status, 0, "{op:?}");
        assert_eq!((pair.peer.load(0), pair.mr.load_u64(at)), (100, Ok(left)), "{op:?}");
    }
}

#[test]
#[ignore = "needs a peer"]
fn several_reads_and_atomics_are_outstanding() {
    let mut pair = Pair::new(Setup::default());
    let lkey = pair.peer.mr.lkey;
    let (size, n) = (5_000, 12);
    for i in 0..n {
        pair.peer.fill(i * size, size, i as u32);
        pair.fill(i * size, size, 100 + i as u32);
    }
    pair.peer.store(TARGET - 8, 0);
    pair.mr.store_u64(TARGET - 8, 0).unwrap();
    let counter = (pair.peer.mr.remote(TARGET - 8), pair.mr.remote(TARGET - 8));
    for i in 0..n {
        let at = TARGET + i * size;
        let (theirs, ours) = (pair.peer.mr.remote(i * size), pair.mr.remote(i * size));
        let id = i as u64;
        pair.qp.post_send(SendRequest::read(id, pair.mr.sge(at..at + size), theirs)).unwrap();
        let result = pair.mr.sge(TARGET - 16..TARGET - 8);
        pair.qp.post_send(SendRequest::fetch_add(id, result, counter.0, 1).signaled()).unwrap();
        pair.peer.post_send(id, &SendOp::Read { from: ours }, 0, &[(at, size, lkey)]);
        let add = SendOp::FetchAdd { at: counter.1, add: 1 };
        pair.peer.post_send(id, &add, 2, &[(TARGET - 16, 8, lkey)]);
    }
    for i in 0..n {
        let (ours, theirs) = (pair.ours(), pair.theirs());
        assert_eq!((ours.wr_id, ours.status), (i as u64, WcStatus::Success));
        assert_eq!((theirs.id, theirs.status), (i as u64, 0));
    }
    for i in 0..n {
        pair.check(TARGET + i * size, size, i as u32);
        pair.peer.check(TARGET + i * size, size, 100 + i as u32);
    }
    assert_eq!((pair.peer.load(TARGET - 8), pair.mr.load_u64(TARGET - 8)), (12, Ok(12)));
}

/// A READ, and a fenced, inline, solicited SEND behind it.
#[test]
#[ignore = "needs a peer"]
fn fenced_inline_solicited_send_follows_a_read() {
    let mut pair = Pair::new(Setup::default());
    let lkey = pair.peer.mr.lkey;
    pair.fill(0, 32, 1);
    pair.peer.fill(0, 32, 2);
    let mut bytes = [0; 32];
    pair.mr.read_at(0, &mut bytes).unwrap();
    pair.peer.post_recv(3, &[(TARGET, 64, lkey)]);
    pair.qp.post_recv(RecvRequest::new(4, pair.mr.sge(TARGET..TARGET + 64))).unwrap();

    let read = SendRequest::read(1, pair.mr.sge(TARGET + 64..TARGET + 96), pair.peer.mr.remote(0));
    pair.qp.post_send(read).unwrap();
    let send = SendRequest::send(2, SendData::inline(&bytes)).fenced().solicited().signaled();
    pair.qp.post_send(send).unwrap();
    assert_eq!((pair.ours().status, pair.theirs().len), (WcStatus::Success, 32));
    pair.check(TARGET + 64, 32, 2);
    pair.peer.check(TARGET, 32, 1);

    let to = pair.mr.remote(0);
    pair.peer.post_send(4, &SendOp::Read { from: to }, 0, &[(TARGET + 64, 32, lkey)]);
    let flags = (SendFlags::FENCE | SendFlags::SIGNALED | SendFlags::SOLICITED).bits() | INLINE;
    pair.peer.post_send(5, &SendOp::Send, flags, &[(0, 32, lkey)]);
    assert_eq!(pair.theirs().id, 5);
    let got = pair.ours();
    assert_eq!((got.wr_id, got.byte_len, got.solicited), (4, 32, true));
    pair.check(TARGET, 32, 2);
    pair.peer.check(TARGET + 64, 32, 1);
}

/// For each transport: inline data of every length up to the peer's maximum, changed after the post.
fn inline(service: QpType) {
    let mut pair = Pair::new(Setup { service, ..Setup::default() });
    let lkey = pair.peer.mr.lkey;
    for (id, size) in (0..).zip([0, 1, 3, 31, 32, 64]) {
        let header = if service == QpType::Ud { GRH_LEN } else { 0 };
        let seed = id as u32;
        pair.fill(0, size, seed);
        pair.peer.fill(0, size, !seed);
        let mut bytes = vec![0; size];
        pair.mr.read_at(0, &mut bytes).unwrap();
        pair.peer.post_recv(id, &[(TARGET, header + size, lkey)]);
        let list = pair.mr.sge(TARGET..TARGET + header + size);
        pair.qp.post_recv(RecvRequest::new(id, list)).unwrap();
        let send = pair.request(id, SendOp::Send, SendData::inline(&bytes));
        pair.qp.post_send(send.signaled()).unwrap();
        assert_eq!((pair.ours().status, pair.theirs().status), (WcStatus::Success, 0));
        pair.peer.check(TARGET + header, size, seed);
        let flags = SendFlags::SIGNALED.bits() | INLINE;
        pair.peer.post_send(id, &SendOp::Send, flags, &[(0, size, lkey)]);
        pair.peer.fill(0, size, seed);
        assert_eq!((pair.theirs().status, pair.ours().status), (0, WcStatus::Success));
        pair.check(TARGET + header, size, !seed);
    }
}

#[test]
#[ignore = "needs a peer"]
fn inline_data_is_taken_when_posted() {
    SERVICES.into_iter().for_each(inline);
}

/// Only a solicited message wakes a waiter for solicited completions.
#[test]
#[ignore = "needs a peer"]
fn solicited_messages_wake_the_peer_and_others_do_not() {
    for service in SERVICES {
        let mut pair = Pair::new(Setup { service, ..Setup::default() });
        let lkey = pair.peer.mr.lkey;
        for id in 0..2 {
            pair.peer.post_recv(id, &[(TARGET, 64, lkey)]);
        }
        pair.peer.arm(true);
        let send = pair.request(1, SendOp::Send, pair.mr.sge(..8)).signaled();
        pair.qp.post_send(send.clone()).unwrap();
        assert_eq!(pair.ours().status, WcStatus::Success);
        assert!(!pair.peer.event(Duration::from_millis(100)), "{service}: not solicited");
        pair.qp.post_send(send.solicited()).unwrap();
        assert!(pair.peer.event(WAIT_LIMIT), "{service}: solicited");
        assert_eq!((pair.theirs().id, pair.theirs().id), (0, 1));
    }
}

/// Messages of every kind without completion, and one with a completion.
#[test]
#[ignore = "needs a peer"]
fn unsignaled_requests_end_without_completion() {
    SERVICES.into_iter().for_each(unsignaled);
}

fn unsignaled(service: QpType) {
    let mut pair = Pair::new(Setup { service, ..Setup::default() });
    let (lkey, size) = (pair.peer.mr.lkey, 700);
    let header = if service == QpType::Ud { GRH_LEN } else { 0 };
    let kinds: Vec<Kind> = (0..3).flat_map(|_| Kind::of(service).iter().copied()).collect();
    let (mut theirs, mut receives) = (Vec::new(), 0);
    for (i, kind) in kinds.iter().enumerate() {
        let (source, sink, id) = (i * 1000, TARGET + i * 1000 + 64, i as u64);
        pair.fill(source, size, id as u32);
        pair.peer.fill(source, size, !(id as u32));
        let end = sink + size;
        if kind.receipt().is_some() {
            receives += 1;
            pair.peer.post_recv(100, &[(sink - header, header + size, lkey)]);
            let request = RecvRequest::new(100, pair.mr.sge(sink - header..end));
            pair.qp.post_recv(request).unwrap();
        }
        let at = if *kind == Kind::Read { source } else { sink };
        let (there, here) = (pair.peer.mr.remote(at), pair.mr.remote(at));
        let local = if *kind == Kind::Read { sink..end } else { source..source + size };
        let flags = if i + 1 == kinds.len() { SendFlags::SIGNALED } else { SendFlags::empty() };
        let data = pair.mr.sge(local.clone());
        let request = SendRequest { flags, ..pair.request(id, kind.op(there, 0), data) };
        pair.qp.post_send(request).unwrap();
        theirs.push((id, kind.op(here, 0), flags.bits(), (local.start, size, lkey)));
    }
    for (id, op, flags, piece) in theirs {
        pair.peer.post_send(id, &op, flags, &[piece]);
    }
    // Each side has one send completion, the last; the others are receives.
    let last = kinds.len() as u64 - 1;
    let mut ours: Vec<_> = (0..=receives).map(|_| pair.ours().wr_id).collect();
    let mut theirs: Vec<_> = (0..=receives).map(|_| pair.theirs().id).collect();
    ours.sort_unstable();
    theirs.sort_unstable();
    let expected: Vec<_> = std::iter::once(last).chain((0..receives).map(|_| 100)).collect();
    assert_eq!((&ours, &theirs), (&expected, &expected), "{service}");
    assert_eq!((pair.cq.poll_one(), pair.peer.poll(Duration::ZERO)), (None, None), "{service}");
    // With the READs and WRITEs, the memories are exchanged.
    for i in 0..kinds.len() {
        let (sink, seed) = (TARGET + i * 1000 + 64, i as u32);
        pair.check(sink, size, !seed);
        pair.peer.check(sink, size, seed);
    }
}

#[test]
#[ignore = "needs a peer"]
fn both_directions_carry_at_once_over_rc() {
    let mut pair = both_directions(QpType::Rc);
    for _ in 0..2 * MESSAGES {
        assert_eq!((pair.ours().status, pair.theirs().status), (WcStatus::Success, 0));
    }
    exchanged(&mut pair);
}

/// Where the network drops a packet, UC loses the message: then both sides start again.
#[test]
#[ignore = "needs a peer"]
fn both_directions_carry_at_once_over_uc() {
    let carried = (0..3).any(|_| {
        let mut pair = both_directions(QpType::Uc);
        let complete = all_complete_over_uc(&mut pair);
        if complete {
            exchanged(&mut pair);
        }
        complete
    });
    assert!(carried, "packets were lost three times");
}

/// Number of messages in each direction, and their length in bytes.
const MESSAGES: usize = 32;
const MESSAGE_LEN: usize = 30_000;

/// Posts messages in both directions. Each has a completion at both ends.
fn both_directions(service: QpType) -> Pair {
    let mut pair = Pair::new(Setup { service, ..Setup::default() });
    let (size, lkey) = (MESSAGE_LEN, pair.peer.mr.lkey);
    for i in 0..MESSAGES {
        pair.fill(i * size, size, i as u32);
        pair.peer.fill(i * size, size, 100 + i as u32);
        pair.peer.post_recv(100, &[]);
        pair.qp.post_recv(RecvRequest::scattered(100, &[])).unwrap();
    }
    for i in 0..MESSAGES {
        let (source, sink, id) = (i * size, TARGET + i * size, i as u64);
        let (to, back) = (pair.peer.mr.remote(sink), pair.mr.remote(sink));
        let op = SendOp::WriteImm { to, imm: id as u32 };
        let data = pair.mr.sge(source..source + size);
        pair.qp.post_send(pair.request(id, op, data).signaled()).unwrap();
        let op = SendOp::WriteImm { to: back, imm: id as u32 };
        pair.peer.post_send(id, &op, 2, &[(source, size, lkey)]);
    }
    pair
}

/// Returns whether all messages complete at both ends. If not, it checks that the packets were lost elsewhere: either
/// not all packets of the peer arrived here, or all packets for the peer were sent.
fn all_complete_over_uc(pair: &mut Pair) -> bool {
    let mtu = Setup::default().mtu.bytes();
    let packets = (MESSAGES * MESSAGE_LEN.div_ceil(mtu)) as u64;
    for _ in 0..2 * MESSAGES {
        let (ours, theirs) = (pair.ours_over_uc(), pair.theirs_over_uc());
        if let (Some(ours), Some(theirs)) = (&ours, &theirs) {
            assert_eq!((ours.status, theirs.status), (WcStatus::Success, 0));
            continue;
        }
        let counters = pair.qp.counters().unwrap();
        println!("not complete: here {ours:?}, at the peer {theirs:?}; {counters:?}");
        if ours.is_none() {
            let arrived = counters.rx_packets.saturating_sub(pair.wakes);
            assert!(arrived < packets, "all {packets} packets of the peer arrived");
        }
        if theirs.is_none() {
            assert_eq!((counters.tx_packets, counters.transmit_errors), (packets, 0));
        }
        return false;
    }
    true
}

/// Checks that the memories were exchanged, and that no completion is left.
fn exchanged(pair: &mut Pair) {
    for i in 0..MESSAGES {
        pair.peer.check(TARGET + i * MESSAGE_LEN, MESSAGE_LEN, i as u32);
        pair.check(TARGET + i * MESSAGE_LEN, MESSAGE_LEN, 100 + i as u32);
    }
    assert_eq!((pair.cq.poll_one(), pair.peer.poll(WAIT_LIMIT / 100)), (None, None));
}

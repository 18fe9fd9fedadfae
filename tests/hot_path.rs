//! The data path, from posting a request to polling its completion, allocates nothing.

#![allow(clippy::unwrap_used, clippy::cast_possible_truncation, reason = "test code")]

#[path = "support/counting.rs"]
mod counting;
#[allow(dead_code, reason = "the verbs' tests use the rest")]
#[path = "verbs/node.rs"]
mod node;

use counting::allocations;
use node::{Node, QKEY, WAIT_LIMIT, datagrams, open};
use softroce::verbs::*;

/// Messages in flight, in one list.
const WINDOW: u64 = 4;

/// Number of rounds per measurement.
const ROUNDS: u32 = 300;

/// Maximum repetitions of the rounds, of which one must allocate nothing. A queue grows once more when a thread has to wait for a
/// CPU; code that allocates for each message does so in every repetition.
const REPETITIONS: usize = 10;

/// Takes the completions of this many requests.
fn take(node: &Node, count: u64) {
    for _ in 0..count {
        let completion = match node.cq.poll_one() {
            Some(completion) => completion,
            None => node.cq.wait_one(WAIT_LIMIT).unwrap(),
        };
        assert_eq!(completion.status, WcStatus::Success);
    }
}

/// Sends one list of requests, for which the peer posts `receives` receive requests.
fn round(a: &Node, b: &Node, request: &SendRequest, receives: u64) {
    let room = |wr_id| RecvRequest::new(wr_id, b.mr.sge(..256));
    b.qp.post_recvs((0..receives).map(room)).1.unwrap();
    let requests = (0..WINDOW).map(|wr_id| SendRequest { wr_id, ..request.clone() }.signaled());
    a.qp.post_sends(requests).1.unwrap();
    take(b, receives);
    take(a, WINDOW);
}

#[track_caller]
fn allocates_nothing(a: &Node, b: &Node, request: &SendRequest, receives: u64) {
    let rounds = || (0..ROUNDS).for_each(|_| round(a, b, request, receives));
    rounds();
    let mut counted = Vec::new();
    while !counted.contains(&0) {
        assert!(counted.len() < REPETITIONS, "allocations of {ROUNDS} rounds each: {counted:?}");
        counted.push(allocations(rounds));
    }
}

#[test]
fn send_allocates_nothing() {
    let (a, b) = Node::pair();
    allocates_nothing(&a, &b, &SendRequest::send(0, a.mr.sge(..64)), WINDOW);
    allocates_nothing(&a, &b, &SendRequest::send(0, SendData::inline(&[7; 64])), WINDOW);
}

#[test]
fn write_allocates_nothing() {
    let (a, b) = Node::pair();
    for len in [4096, 65_536] {
        let write = SendRequest::write(0, a.mr.sge(..len), b.mr.remote(0));
        allocates_nothing(&a, &b, &write, 0);
    }
}

#[test]
fn read_allocates_nothing() {
    let (a, b) = Node::pair();
    for len in [64, 65_536] {
        let read = SendRequest::read(0, a.mr.sge(..len), b.mr.remote(0));
        allocates_nothing(&a, &b, &read, 0);
    }
}

#[test]
fn datagram_allocates_nothing() {
    let (a, b) = (datagrams(open(), 0), datagrams(open(), 0));
    let to = b.qp.endpoint();
    let ah = a.pd.create_ah(AddressVector::to(to.gid)).unwrap();
    let message = SendRequest::send(0, a.mr.sge(..64)).to(ah.target(to.qpn, QKEY));
    allocates_nothing(&a, &b, &message, WINDOW);
}

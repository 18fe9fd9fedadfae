//! Process exit within a signal handler. It affects all devices of the process, so this file contains one test.

#![allow(clippy::unwrap_used, clippy::cast_possible_truncation, reason = "test code")]

#[path = "support/counting.rs"]
mod counting;
#[allow(dead_code, reason = "the verbs' tests use the rest")]
#[path = "verbs/node.rs"]
mod node;

use counting::allocations;
use node::{Node, WAIT_LIMIT};
use softroce::verbs::*;

/// The signal may have interrupted the allocator.
#[test]
fn process_exit_allocates_nothing() {
    let (a, b) = Node::pair();
    for wr_id in 0..300 {
        b.recv(wr_id, 0..64);
        a.send(SendRequest::send(wr_id, a.mr.sge(..64)));
        // A program that polls has a pending acknowledgement afterwards.
        let received = std::iter::repeat_with(|| b.cq.poll_one()).take(1000).flatten().next();
        let received = received.map_or_else(|| b.cq.wait_one(WAIT_LIMIT), Ok);
        assert_eq!(received.unwrap().status, WcStatus::Success);
        assert_eq!(allocations(softroce::runtime::flush), 0);
        assert_eq!(a.end(), (wr_id, WcStatus::Success));
    }
}

//! Locks of the hot path: one step takes none of them twice.

use std::sync::Arc;

use crate::ids::Qpn;
use crate::runtime::AckPolicy;
use crate::runtime::lease::AddressLease;
use crate::runtime::post_coalescing::Doorbell;
use crate::runtime::ring::Ring;
use crate::runtime::shard::Shard;
use crate::runtime::wire_of_tests::{End, pair};
use crate::sync::taken;
use crate::transport::work::{Completion, RecvRequest, RemoteAddr, SendRequest, Sge};

/// Locks of the shard, of the key table and of a completion queue, named by the types they protect.
const SHARD: &str = "Core";
const KEYS: &str = "Table";
const QUEUE: &str = "State<TimestampedCompletion, EventFd, ShardSet>";

/// Number of requests in a list, which fit one burst to another host.
const LIST: usize = 64;

/// An end of a connection with a shard without a thread: the tests take the turns.
struct Node {
    shard: Shard,
    ring: Arc<Ring>,
    qpn: Qpn,
    /// Parts of its memory.
    small: Sge,
    long: Sge,
    remote: RemoteAddr,
}

impl Node {
    fn pair(ips: [[u8; 4]; 2]) -> (Self, Self) {
        let (a, b) = pair(AckPolicy::Lazy, 2 * LIST);
        (Self::new(a, ips[0]), Self::new(b, ips[1]))
    }

    fn new(end: End, ip: [u8; 4]) -> Self {
        let lease = AddressLease::of_tests(ip);
        let (small, long, remote) = (end.sge(8), end.sge(1 << 16), end.remote());
        let shard = Shard::new(end.core, 0, &Arc::new(lease)).unwrap();
        Self { shard, ring: end.ring, qpn: end.qpn, small, long, remote }
    }

    fn post(&self, request: &SendRequest, count: usize) {
        let requests = std::iter::repeat_n(request.clone(), count);
        self.shard
            .with(|core, now| core.post_sends(now, self.qpn, requests, Doorbell::Now))
            .unwrap()
            .1
            .unwrap();
    }

    fn post_recvs(&self) {
        let requests = std::iter::repeat_n(RecvRequest::new(0, self.small), LIST);
        let posted = self.shard.with_old_time(|core, now| core.post_recvs(now, self.qpn, requests));
        posted.unwrap().1.unwrap();
    }

    /// Polls as a program that found nothing before.
    fn turn(&self) {
        self.shard.turn_for(&self.ring.completions).unwrap();
    }

    /// Takes completions as a poll does.
    fn take(&self) -> usize {
        self.ring.completions.pop_into::<Completion>(&mut Vec::new(), LIST)
    }
}

#[test]
fn a_list_takes_each_lock_once() {
    let (a, b) = Node::pair([[10, 255, 3, 1], [10, 255, 3, 2]]);
    assert_eq!(taken(|| b.post_recvs()), [SHARD]);
    let send = SendRequest::send(0, a.small).signaled();
    assert_eq!(taken(|| a.post(&send, LIST)), [SHARD, KEYS]);
    let write = SendRequest::write(0, a.long, b.remote);
    assert_eq!(taken(|| a.post(&write, 1)), [SHARD, KEYS], "a message of several bursts");
}

#[test]
fn a_poll_that_finds_nothing_takes_the_shards_lock() {
    let (a, _) = Node::pair([[10, 255, 3, 3], [10, 255, 3, 4]]);
    assert_eq!(taken(|| a.turn()), [SHARD]);
    assert_eq!(taken(|| assert_eq!(a.take(), 0)), [] as [&str; 0], "who looks takes none");
    let held = a.shard.lock().unwrap();
    assert_eq!(taken(|| a.turn()), [] as [&str; 0], "nor does he wait for one");
    drop(held);
}

#[test]
fn a_burst_of_messages_takes_each_lock_once() {
    let (a, b) = Node::pair([[10, 255, 3, 5], [10, 255, 3, 6]]);
    b.post_recvs();
    a.post(&SendRequest::send(0, a.small).signaled(), LIST);
    assert_eq!(taken(|| b.turn()), [SHARD, KEYS, QUEUE], "the messages");
    assert_eq!(taken(|| assert_eq!(b.take(), LIST)), [QUEUE]);
    b.turn();
    assert_eq!(taken(|| a.turn()), [SHARD, QUEUE], "what acknowledges them");
    assert_eq!(taken(|| assert_eq!(a.take(), LIST)), [QUEUE]);
}

#[test]
fn a_burst_of_writes_takes_each_lock_once() {
    let (a, b) = Node::pair([[10, 255, 3, 7], [10, 255, 3, 8]]);
    a.post(&SendRequest::write(0, a.small, b.remote), LIST);
    assert_eq!(taken(|| b.turn()), [SHARD, KEYS]);
}

//! Laps of PSNs: after 2^24 packets a PSN means another request, while the replay cache may still hold the one of the
//! lap before.
//!
//! A lap takes few packets here. A READ of 64 MiB has 2^18 PSNs at a path MTU of 256, and a duplicate that requests its
//! last packet alone ends the response.

#![allow(clippy::unwrap_used, reason = "test code")]

use crate::support::script::{Script, rts_qp};
use crate::support::{Link, full_access};
use softroce::mem::Region;
use softroce::transport::outputs::DropReason;
use std::sync::Arc;

/// Bytes of one long READ.
const LONG: u32 = 64 << 20;
/// Response packets of one long READ.
const PACKETS: u32 = LONG / 256;
const LAP: u32 = 1 << 24;

/// A responder with a replay cache for more than a lap of long READs, and the next PSN of its peer.
struct Peer {
    t: Script,
    long: Arc<Region>,
    /// The next PSN, and how many messages were completed.
    next: u32,
    msn: u32,
}

impl Peer {
    fn new(first: u32) -> Self {
        let t = Script::responder(Link { psn: [5, first], rd_atomic: 128, ..rts_qp() });
        let long = t.region(LONG as usize, 0x1000_0000, full_access());
        Self { t, long, next: first, msn: 0 }
    }

    /// Takes the next `count` PSNs and returns the first.
    fn take(&mut self, count: u32) -> u32 {
        self.msn += 1;
        let psn = self.next;
        self.next = (psn + count) % LAP;
        psn
    }

    fn read_8(&mut self) -> u32 {
        let psn = self.take(1);
        self.t.rx(0, &format!("READ_REQUEST psn={psn} ackreq va=0x1000 rkey=mem dmalen=8"));
        self.t.tx(0, &format!("READ_RESPONSE_ONLY psn={psn} msn={} len=8", self.msn));
        psn
    }

    fn add(&mut self, found: u64) -> u32 {
        let psn = self.take(1);
        self.t.rx(0, &format!("FETCH_ADD psn={psn} ackreq va=0x1000 rkey=mem add=0x1"));
        self.t.tx(0, &format!("ATOMIC_ACK psn={psn} msn={} value={found:#x}", self.msn));
        psn
    }

    fn write(&mut self) -> u32 {
        let psn = self.take(1);
        self.t.rx(0, &format!("WRITE_ONLY psn={psn} ackreq va=0x1000 rkey=mem dmalen=0 len=0"));
        self.t.tx(0, &format!("ACK psn={psn} msn={}", self.msn));
        psn
    }

    /// A READ with `packets` response packets, of which only the last is sent.
    fn long_read(&mut self, packets: u32) {
        let (rkey, psn, length) = (self.long.rkey(), self.take(packets), packets * 256);
        let (last, va) = ((psn + packets - 1) % LAP, 0x1000_0000 + length - 256);
        let whole =
            format!("READ_REQUEST psn={psn} ackreq va=0x10000000 rkey={rkey} dmalen={length}");
        self.t.rx(0, &whole);
        self.t.rx(0, &format!("READ_REQUEST psn={last} ackreq va={va:#x} rkey={rkey} dmalen=256"));
        self.t.tx(0, &format!("READ_RESPONSE_ONLY psn={last} msn={} len=256", self.msn));
    }

    /// Uses PSNs until the next one is `psn`.
    fn run_to(&mut self, psn: u32) {
        while self.next != psn {
            let left = (psn + LAP - self.next) % LAP;
            self.long_read(left.min(PACKETS));
        }
    }
}

#[test]
fn write_with_the_psn_of_a_read_one_lap_ago_is_acknowledged() {
    for first in [5, 0, LAP - 1, LAP / 2] {
        let mut peer = Peer::new(first);
        let read = peer.read_8();
        (0..4).for_each(|_| _ = peer.write());
        peer.run_to(read);
        assert_eq!(peer.write(), read);
        peer.write();
    }
}

#[test]
fn duplicate_atomic_returns_its_own_result_one_lap_after_another() {
    let mut peer = Peer::new(5);
    let first = peer.add(0);
    (0..4).for_each(|_| _ = peer.write());
    peer.run_to(first);
    peer.add(1);
    let msn = peer.msn;
    peer.t.rx(0, "FETCH_ADD psn=5 ackreq va=0x1000 rkey=mem add=0x1");
    peer.t.tx(0, &format!("ATOMIC_ACK psn=5 msn={msn} value=0x1"));
}

#[test]
fn duplicate_atomic_within_the_psns_of_a_read_one_lap_ago_is_answered() {
    let mut peer = Peer::new(5);
    peer.long_read(PACKETS);
    peer.run_to(5);
    (0..4).for_each(|_| _ = peer.write());
    let psn = peer.add(0);
    let msn = peer.msn;
    peer.t.rx(0, &format!("FETCH_ADD psn={psn} ackreq va=0x1000 rkey=mem add=0x1"));
    peer.t.tx(0, &format!("ATOMIC_ACK psn={psn} msn={msn} value=0x0"));
}

#[test]
fn duplicate_of_a_psn_before_the_first_one_is_dropped() {
    let mut peer = Peer::new(5);
    peer.t.rx(0, "READ_REQUEST psn=4 ackreq va=0x1000 rkey=mem dmalen=8");
    peer.t.rx(0, "FETCH_ADD psn=4 ackreq va=0x1000 rkey=mem add=0x1");
    assert_eq!(peer.t.dropped(DropReason::StaleDuplicate), 2);
    peer.read_8();
}

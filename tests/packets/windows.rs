//! Memory windows and invalidation, packet by packet: local requests without packets, and access of the peer through
//! windows.
//!
//! The queue pair expects PSN 5 and starts with PSN 5, and the path MTU is 256.

#![allow(clippy::unwrap_used, clippy::cast_possible_truncation, reason = "test code")]

use std::sync::Arc;

use crate::support::script::{REMOTE, Script, bytes, failed, ok, rts_qp, rts_qp_of};
use crate::support::{Link, PD, pattern, sge};
use softroce::engine::{PostError, QpAttr, QpState, QpType};
use softroce::ids::{MwId, Qpn, Rkey};
use softroce::mem::{Access, AccessError, BindInfo, KeyUser, MwType, Region};
use softroce::transport::outputs::AsyncEvent::QpAccessErr;
use softroce::transport::outputs::DropReason;
use softroce::transport::work::{
    Completion, SendData, SendFlags, SendOp, SendRequest, WcOpcode, WcStatus,
};

const SEND: WcOpcode = WcOpcode::Send;
const BIND: WcOpcode = WcOpcode::BindMw;
const INV: WcOpcode = WcOpcode::LocalInv;

/// Access rights of the windows.
const ALL: Access = Access::REMOTE_WRITE.union(Access::REMOTE_READ).union(Access::REMOTE_ATOMIC);

/// First address of the region.
const BASE: u64 = 0x9_0000;

/// A region that peers can access through windows only, and a window for 1000 of its bytes.
struct Fixture {
    t: Script,
    region: Arc<Region>,
    id: MwId,
    info: BindInfo,
}

impl Fixture {
    fn new(mw_type: MwType) -> Self {
        Self::on(Script::responder(rts_qp()), mw_type)
    }

    fn on(t: Script, mw_type: MwType) -> Self {
        let region = t.region(4096, BASE, Access::LOCAL_WRITE | Access::MW_BIND);
        let id = t.memory.alloc_window(PD, mw_type).unwrap();
        let info = BindInfo { lkey: region.lkey(), addr: BASE + 1000, length: 1000, access: ALL };
        Self { t, region, id, info }
    }

    fn key(&self) -> Rkey {
        self.t.memory.window_key(self.id).unwrap()
    }

    /// Posts a bind under the next key, and returns the key.
    fn post_bind(&mut self, wr_id: u64) -> Rkey {
        let rkey = self.key().inc();
        self.t.post(SendRequest::bind_mw(wr_id, self.id, rkey, self.info).signaled()).unwrap();
        rkey
    }

    /// Binds under the next key immediately.
    fn bind(&mut self) -> Rkey {
        let rkey = self.post_bind(1000);
        self.t.quiet(0);
        assert_eq!(self.t.sends(), [ok(1000, BIND, 0)]);
        rkey
    }

    fn post_inv(&mut self, wr_id: u64, rkey: Rkey) {
        self.t.post(SendRequest::local_inv(wr_id, rkey).signaled()).unwrap();
    }

    /// Returns whether the peer of the queue pair can access the window's first byte.
    fn is_open(&self, rkey: Rkey) -> Result<usize, AccessError> {
        let via = KeyUser { pd: PD, qpn: Some(self.t.qpn) };
        let found = self.t.memory.remote(via, rkey, BASE + 1000, 1, Access::REMOTE_READ);
        found.map(|span| span.len())
    }

    /// Checks that the peer's next request is refused and fails the queue pair.
    #[track_caller]
    fn refused(&mut self, request: &str, nak: &str) {
        self.t.rx(0, request);
        self.t.tx(0, nak);
        assert_eq!(self.t.events(), [QpAccessErr(self.t.qpn)], "{request}");
        assert_eq!(self.t.state(), QpState::Err, "{request}");
    }
}

/// Returns the completion of a SEND that has invalidated a window.
fn invalidated(wr_id: u64, byte_len: u32, rkey: Rkey) -> Completion {
    Completion { invalidated: Some(rkey), ..ok(wr_id, WcOpcode::Recv, byte_len) }
}

// ---- access through windows ----

#[test]
fn peer_writes_reads_and_adds_through_a_window() {
    for mw_type in MwType::ALL {
        let mut f = Fixture::new(mw_type);
        f.region.store_u64(1000, 7).unwrap();
        let rkey = f.bind();
        f.t.rx(0, &format!("FETCH_ADD psn=5 ackreq va=0x903e8 rkey={rkey} add=0x5"));
        f.t.tx(0, "ATOMIC_ACK psn=5 msn=1 value=0x7");
        f.t.rx(0, &format!("WRITE_FIRST psn=6 va=0x904e8 rkey={rkey} dmalen=300 len=256"));
        f.t.rx(0, "WRITE_LAST psn=7 ackreq len=44");
        f.t.tx(0, "ACK psn=7 msn=2");
        f.t.rx(0, &format!("READ_REQUEST psn=8 ackreq va=0x904e8 rkey={rkey} dmalen=300"));
        f.t.tx(0, "READ_RESPONSE_FIRST psn=8 msn=3 len=256");
        f.t.tx(0, "READ_RESPONSE_LAST psn=9 msn=3 len=44");
        assert_eq!(f.region.load_u64(1000), Ok(12));
        let written = [pattern(6, 256), pattern(7, 44)].concat();
        assert_eq!(bytes(&f.region, 1256, 300), written);
    }
}

/// MR-08: bounds and rights are those of the window, independent of the region's.
#[test]
fn window_grants_nothing_outside_it() {
    for mw_type in MwType::ALL {
        for (va, rights, request) in [
            (BASE + 999, ALL, "WRITE_ONLY"),
            (BASE + 1993, ALL, "WRITE_ONLY"),
            (BASE + 3000, ALL, "WRITE_ONLY"),
            (BASE + 1993, ALL, "READ_REQUEST"),
            (BASE + 1000, Access::REMOTE_READ, "WRITE_ONLY"),
            (BASE + 1000, Access::REMOTE_WRITE, "READ_REQUEST"),
        ] {
            let mut f = Fixture::new(mw_type);
            f.info.access = rights;
            let rkey = f.bind();
            let request = match request {
                "WRITE_ONLY" => {
                    format!("WRITE_ONLY psn=5 ackreq va={va:#x} rkey={rkey} dmalen=8 len=8")
                }
                _ => format!("READ_REQUEST psn=5 ackreq va={va:#x} rkey={rkey} dmalen=8"),
            };
            f.refused(&request, "NAK_ACCESS psn=5 msn=0");
            assert_eq!(bytes(&f.region, 0, 4096), [0; 4096], "{request}");
        }
    }
}

#[test]
fn peer_flushes_and_writes_atomically_through_a_window() {
    for mw_type in MwType::ALL {
        let mut f = Fixture::new(mw_type);
        let access = Access::LOCAL_WRITE | Access::MW_BIND | Access::FLUSH_GLOBAL;
        f.region = f.t.region(4096, BASE, access);
        f.info.lkey = f.region.lkey();
        f.info.access |= Access::FLUSH_GLOBAL;
        let rkey = f.bind();
        f.t.rx(0, &format!("ATOMIC_WRITE psn=5 ackreq va=0x903e8 rkey={rkey} dmalen=8 len=8"));
        f.t.tx(0, "READ_RESPONSE_ONLY psn=5 msn=1 len=0");
        assert_eq!(bytes(&f.region, 1000, 8), pattern(5, 8));
        let flush = "FLUSH psn=6 ackreq placement=0x1 selectivity=0";
        f.t.rx(0, &format!("{flush} va=0x903e8 rkey={rkey} dmalen=1000"));
        f.t.tx(0, "READ_RESPONSE_ONLY psn=6 msn=2 len=0");
        let beyond =
            format!("FLUSH psn=7 ackreq placement=0x1 selectivity=0 va=0x903e8 rkey={rkey}");
        f.refused(&format!("{beyond} dmalen=1001"), "NAK_ACCESS psn=7 msn=2");
    }
}

#[test]
fn zero_based_window_is_addressed_from_its_first_byte() {
    let mut f = Fixture::new(MwType::Type2);
    f.info.access |= Access::ZERO_BASED;
    let rkey = f.bind();
    f.t.rx(0, &format!("WRITE_ONLY psn=5 ackreq va=0x3e0 rkey={rkey} dmalen=8 len=8"));
    f.t.tx(0, "ACK psn=5 msn=1");
    assert_eq!(bytes(&f.region, 1992, 8), pattern(5, 8));
    let beyond = format!("WRITE_ONLY psn=6 ackreq va=0x3e1 rkey={rkey} dmalen=8 len=8");
    f.refused(&beyond, "NAK_ACCESS psn=6 msn=1");
}

/// MR-06
#[test]
fn window_of_another_queue_pair_grants_no_access() {
    let mut f = Fixture::new(MwType::Type2);
    let other = KeyUser { pd: PD, qpn: Some(Qpn::new(f.t.qpn.value() ^ 0x40)) };
    f.t.memory.bind(other, f.id, 1, &f.info).unwrap();
    let write = format!("WRITE_ONLY psn=5 ackreq va=0x903e8 rkey={} dmalen=8 len=8", f.key());
    f.refused(&write, "NAK_ACCESS psn=5 msn=0");
}

/// MR-05
#[test]
fn type_1_bind_invalidates_the_old_key() {
    let mut f = Fixture::new(MwType::Type1);
    let old = f.bind();
    f.bind();
    let write = format!("WRITE_ONLY psn=5 ackreq va=0x903e8 rkey={old} dmalen=8 len=8");
    f.refused(&write, "NAK_ACCESS psn=5 msn=0");
}

/// The owner invalidates the window during a message.
#[test]
fn invalidated_window_admits_no_further_packet() {
    let mut f = Fixture::new(MwType::Type2);
    let rkey = f.bind();
    f.t.rx(0, &format!("WRITE_FIRST psn=5 va=0x903e8 rkey={rkey} dmalen=512 len=256"));
    f.post_inv(1, rkey);
    f.t.quiet(0);
    assert_eq!(f.t.sends(), [ok(1, INV, 0)]);
    f.refused("WRITE_LAST psn=6 ackreq len=256", "NAK_ACCESS psn=6 msn=0");
    assert_eq!(bytes(&f.region, 1000, 512), [pattern(5, 256), vec![0; 256]].concat());
}

// ---- SEND with invalidate, received ----

/// RSP-37
#[test]
fn send_with_invalidate_unbinds_a_window_and_reports_it() {
    let mut f = Fixture::new(MwType::Type2);
    let rkey = f.bind();
    f.t.post_recv(64);
    f.t.rx(0, &format!("SEND_ONLY_INV psn=5 ackreq inv={rkey} len=8"));
    f.t.tx(0, "ACK psn=5 msn=1");
    assert_eq!(f.t.recvs(), [invalidated(1, 8, rkey)]);
    assert_eq!(f.t.received(1, 8), pattern(5, 8));
    let write = format!("WRITE_ONLY psn=6 ackreq va=0x903e8 rkey={rkey} dmalen=8 len=8");
    f.refused(&write, "NAK_ACCESS psn=6 msn=1");
}

/// RSP-37: the last packet contains the key.
#[test]
fn long_send_with_invalidate_invalidates_with_its_last_packet() {
    let mut f = Fixture::new(MwType::Type2);
    let rkey = f.bind();
    f.t.post_recv(512);
    f.t.rx(0, "SEND_FIRST psn=5 len=256");
    assert_eq!(f.is_open(rkey), Ok(1));
    f.t.rx(0, &format!("SEND_LAST_INV psn=6 ackreq solicited inv={rkey} len=100"));
    f.t.tx(0, "ACK psn=6 msn=1");
    assert_eq!(f.is_open(rkey), Err(AccessError::Unbound { key: rkey.0 }));
    assert_eq!(f.t.recvs(), [Completion { solicited: true, ..invalidated(1, 356, rkey) }]);
}

/// RSP-38, class J: the sender receives a NAK, because it has no other way to detect the error.
#[test]
fn send_with_an_invalid_key_to_invalidate_fails_the_queue_pair() {
    let refused = |f: &mut Fixture, rkey: Rkey| {
        f.t.post_recv(64);
        f.t.post_recv(64);
        f.t.rx(0, &format!("SEND_ONLY_INV psn=5 ackreq inv={rkey} len=8"));
        f.t.tx(0, "NAK_ACCESS psn=5 msn=0");
        let ends = [failed(1, WcStatus::RemInvReqErr), failed(2, WcStatus::WrFlushErr)];
        assert_eq!(f.t.recvs(), ends);
        assert_eq!((f.t.events(), f.t.state()), (vec![], QpState::Err));
    };
    let mut f = Fixture::new(MwType::Type2);
    let rkey = f.bind();
    refused(&mut f, Rkey(rkey.0 ^ 0x100));
    assert_eq!(f.is_open(rkey), Ok(1), "an unknown key");

    let mut f = Fixture::new(MwType::Type2);
    let rkey = f.bind();
    refused(&mut f, rkey.inc());
    assert_eq!(f.is_open(rkey), Ok(1), "another variant");

    let mut f = Fixture::new(MwType::Type2);
    let rkey = f.key();
    refused(&mut f, rkey);

    let mut f = Fixture::new(MwType::Type1);
    let rkey = f.bind();
    refused(&mut f, rkey);
    assert_eq!(f.is_open(rkey), Ok(1), "type 1");

    let mut f = Fixture::new(MwType::Type1);
    let rkey = f.t.mem.rkey();
    refused(&mut f, rkey);

    let mut f = Fixture::new(MwType::Type2);
    let other = KeyUser { pd: PD, qpn: Some(Qpn::new(f.t.qpn.value() ^ 0x40)) };
    f.t.memory.bind(other, f.id, 1, &f.info).unwrap();
    let rkey = f.key();
    refused(&mut f, rkey);
    assert!(f.t.memory.remote(other, rkey, BASE + 1000, 1, Access::REMOTE_READ).is_ok());
}

/// A duplicate of a SEND with invalidate arrives when the window has that key again.
#[test]
fn duplicate_send_does_not_invalidate_again() {
    let mut f = Fixture::new(MwType::Type2);
    let rkey = f.bind();
    f.t.post_recv(64);
    let send = format!("SEND_ONLY_INV psn=5 ackreq inv={rkey} len=8");
    f.t.rx(0, &send);
    f.t.tx(0, "ACK psn=5 msn=1");
    let between = f.bind();
    f.post_inv(1, between);
    f.t.post(SendRequest::bind_mw(2, f.id, rkey, f.info).signaled()).unwrap();
    f.t.quiet(0);
    assert_eq!(f.t.sends(), [ok(1, INV, 0), ok(2, BIND, 0)]);
    f.t.rx(0, &send);
    f.t.tx(0, "ACK psn=5 msn=1");
    assert_eq!((f.is_open(rkey), f.t.engine.counters().duplicate_requests), (Ok(1), 1));
    assert_eq!(f.t.recvs(), [invalidated(1, 8, rkey)]);
}

/// A requester that does not fence invalidates the memory of its own READ (IBTA vol 1, §10.8.3.3).
#[test]
fn invalidation_ends_a_read_in_progress() {
    let mut f = Fixture::new(MwType::Type2);
    let rkey = f.bind();
    f.t.post_recv(64);
    f.t.rx(0, &format!("READ_REQUEST psn=5 ackreq va=0x903e8 rkey={rkey} dmalen=300"));
    f.t.rx(0, &format!("SEND_ONLY_INV psn=7 ackreq inv={rkey} len=8"));
    f.t.tx(0, "NAK_ACCESS psn=5 msn=2");
    assert_eq!(f.t.recvs(), [invalidated(1, 8, rkey)]);
    assert_eq!(f.t.events(), [QpAccessErr(f.t.qpn)]);
}

/// A READ with a lost response is repeated after the invalidation of its window, which is not an error.
#[test]
fn duplicate_read_of_an_unbound_window_is_dropped() {
    let mut f = Fixture::new(MwType::Type2);
    let rkey = f.bind();
    let read = format!("READ_REQUEST psn=5 ackreq va=0x903e8 rkey={rkey} dmalen=8");
    f.t.rx(0, &read);
    f.t.tx(0, "READ_RESPONSE_ONLY psn=5 msn=1 len=8");
    f.post_inv(1, rkey);
    f.t.quiet(0);
    assert_eq!(f.t.sends(), [ok(1, INV, 0)]);
    f.t.rx(0, &read);
    f.t.quiet(0);
    assert_eq!((f.t.dropped(DropReason::StaleDuplicate), f.t.state()), (1, QpState::Rts));
}

// ---- SEND with invalidate, sent ----

#[test]
fn last_packet_of_a_send_has_the_key_to_invalidate() {
    let mut t = Script::requester(rts_qp());
    t.post_op(1, SendOp::SendInv { rkey: Rkey(0x1a2b) }, 8);
    let flags = SendFlags::SIGNALED | SendFlags::SOLICITED;
    t.post_flags(2, SendOp::SendInv { rkey: Rkey(0x1a2c) }, 300, flags);
    t.tx(0, "SEND_ONLY_INV psn=5 ackreq inv=0x00001a2b len=8");
    t.tx(0, "SEND_FIRST psn=6 len=256");
    t.tx(0, "SEND_LAST_INV psn=7 ackreq solicited inv=0x00001a2c len=44");
    t.rx(1, "ACK psn=7 msn=2");
    assert_eq!(t.sends(), [ok(1, SEND, 8), ok(2, SEND, 300)]);
}

#[test]
fn failed_invalidation_by_the_peer_is_a_remote_access_error() {
    let mut t = Script::requester(rts_qp());
    t.post_op(1, SendOp::SendInv { rkey: Rkey(0x1a2b) }, 8);
    t.tx(0, "SEND_ONLY_INV psn=5 ackreq inv=0x00001a2b len=8");
    t.rx(1, "NAK_ACCESS psn=5 msn=0");
    assert_eq!(t.sends(), [failed(1, WcStatus::RemAccessErr)]);
}

// ---- local bind and invalidate ----

#[test]
fn bind_takes_no_psn_and_completes_in_order() {
    for mw_type in MwType::ALL {
        let mut f = Fixture::new(mw_type);
        f.t.send(1, 8);
        let rkey = f.post_bind(2);
        f.t.send(3, 8);
        f.t.tx(0, "SEND_ONLY psn=5 ackreq len=8");
        f.t.tx(0, "SEND_ONLY psn=6 ackreq len=8");
        // The peer that receives the second SEND may use the key.
        assert_eq!((f.is_open(rkey), f.t.sends()), (Ok(1), vec![]));
        f.t.rx(1, "ACK psn=5 msn=1");
        assert_eq!(f.t.sends(), [ok(1, SEND, 8), ok(2, BIND, 0)]);
        f.t.rx(2, "ACK psn=6 msn=2");
        assert_eq!(f.t.sends(), [ok(3, SEND, 8)]);
    }
}

/// REQ-34
#[test]
fn local_invalidate_waits_for_all_earlier_requests() {
    let mut f = Fixture::new(MwType::Type2);
    let rkey = f.bind();
    f.t.send(1, 8);
    f.t.write(2, 300);
    f.post_inv(3, rkey);
    f.t.send(4, 8);
    f.t.tx(0, "SEND_ONLY psn=5 ackreq len=8");
    f.t.tx(0, "WRITE_FIRST psn=6 va=0x8000 rkey=0x00000100 dmalen=300 len=256");
    f.t.tx(0, "WRITE_LAST psn=7 ackreq len=44");
    f.t.quiet(1);
    f.t.rx(1, "ACK psn=6 msn=1");
    f.t.quiet(2);
    assert_eq!((f.is_open(rkey), f.t.sends()), (Ok(1), vec![ok(1, SEND, 8)]));
    f.t.rx(2, "ACK psn=7 msn=2");
    f.t.tx(2, "SEND_ONLY psn=8 ackreq len=8");
    assert_eq!(f.is_open(rkey), Err(AccessError::Unbound { key: rkey.0 }));
    assert_eq!(f.t.sends(), [ok(2, WcOpcode::RdmaWrite, 300), ok(3, INV, 0)]);
}

#[test]
fn fenced_bind_waits_for_reads() {
    for fence in [SendFlags::empty(), SendFlags::FENCE] {
        let mut f = Fixture::new(MwType::Type1);
        let before = f.key();
        f.t.read(1, 8);
        let request = SendRequest::bind_mw(2, f.id, before.inc(), f.info);
        f.t.post(SendRequest { flags: fence | SendFlags::SIGNALED, ..request }).unwrap();
        f.t.tx(0, "READ_REQUEST psn=5 ackreq va=0x8000 rkey=0x00000100 dmalen=8");
        f.t.quiet(1);
        let early = if fence.is_empty() { before.inc() } else { before };
        assert_eq!(f.key(), early);
        f.t.rx(2, "READ_RESPONSE_ONLY psn=5 msn=1 len=8");
        f.t.quiet(2);
        assert_eq!(f.key(), before.inc());
        assert_eq!(f.t.sends(), [ok(1, WcOpcode::RdmaRead, 8), ok(2, BIND, 0)]);
    }
}

/// A second bind or invalidation of the same window would fail.
#[test]
fn retransmission_does_not_repeat_local_requests() {
    let mut f = Fixture::new(MwType::Type2);
    f.t.send(1, 8);
    let rkey = f.post_bind(2);
    f.t.send(3, 8);
    f.t.tx(0, "SEND_ONLY psn=5 ackreq len=8");
    f.t.tx(0, "SEND_ONLY psn=6 ackreq len=8");
    f.t.tx(1049, "SEND_ONLY psn=5 ackreq len=8");
    f.t.rx(1100, "ACK psn=5 msn=1");
    assert_eq!(f.t.sends(), [ok(1, SEND, 8), ok(2, BIND, 0)]);
    f.t.tx(1100, "SEND_ONLY psn=6 ackreq len=8");
    f.t.rx(1101, "NAK_PSN psn=6 msn=1");
    f.t.tx(1101, "SEND_ONLY psn=6 ackreq len=8");
    f.t.rx(1102, "ACK psn=6 msn=2");
    assert_eq!((f.is_open(rkey), f.t.sends()), (Ok(1), vec![ok(3, SEND, 8)]));
}

/// The acknowledgement arrives while `snd_nxt` is before the bind.
#[test]
fn bind_between_two_sends_survives_a_late_ack() {
    let mut f = Fixture::new(MwType::Type2);
    f.t.send(1, 8);
    f.post_bind(2);
    f.t.send(3, 8);
    f.t.tx(0, "SEND_ONLY psn=5 ackreq len=8");
    f.t.tx(0, "SEND_ONLY psn=6 ackreq len=8");
    f.t.rx(10, "RNR_NAK psn=5 msn=0 timer=0.64ms");
    f.t.rx(20, "ACK psn=6 msn=2");
    assert_eq!(f.t.sends(), [ok(1, SEND, 8), ok(2, BIND, 0), ok(3, SEND, 8)]);
    f.t.send(4, 8);
    f.t.tx(20, "SEND_ONLY psn=7 ackreq len=8");
    f.t.quiet(1000);
}

/// MR-07, REQ-35: also without the signaled flag.
#[test]
fn failed_bind_fails_the_queue_pair_in_order() {
    let mut f = Fixture::new(MwType::Type2);
    f.info.length = 4096;
    let before = f.key();
    f.t.send(1, 8);
    f.t.post(SendRequest::bind_mw(2, f.id, before.inc(), f.info)).unwrap();
    f.t.send(3, 8);
    f.t.tx(0, "SEND_ONLY psn=5 ackreq len=8");
    f.t.quiet(1);
    assert_eq!((f.t.sends(), f.t.state()), (vec![], QpState::Rts));
    f.t.rx(1, "ACK psn=5 msn=1");
    let ends = [ok(1, SEND, 8), failed(2, WcStatus::MwBindErr), failed(3, WcStatus::WrFlushErr)];
    assert_eq!((f.t.sends(), f.t.state()), (ends.to_vec(), QpState::Err));
    assert_eq!(f.key(), before);
}

/// MR-04: neither a region, a window of type 1, an unknown key, nor a window of another queue pair.
#[test]
fn invalidation_of_an_invalid_key_fails_the_request() {
    let fails = |f: &mut Fixture, rkey: Rkey| {
        f.t.post(SendRequest::local_inv(1, rkey)).unwrap();
        f.t.quiet(0);
        assert_eq!(f.t.sends(), [failed(1, WcStatus::MwBindErr)]);
        assert_eq!(f.t.state(), QpState::Err);
    };
    let mut f = Fixture::new(MwType::Type1);
    let rkey = f.bind();
    fails(&mut f, rkey);
    assert_eq!(f.is_open(rkey), Ok(1));

    let mut f = Fixture::new(MwType::Type1);
    let rkey = f.t.mem.rkey();
    fails(&mut f, rkey);

    let mut f = Fixture::new(MwType::Type2);
    let rkey = f.key();
    fails(&mut f, rkey);

    let mut f = Fixture::new(MwType::Type2);
    let other = KeyUser { pd: PD, qpn: Some(Qpn::new(f.t.qpn.value() ^ 0x40)) };
    f.t.memory.bind(other, f.id, 1, &f.info).unwrap();
    let rkey = f.key();
    fails(&mut f, rkey);
    assert!(f.t.memory.remote(other, rkey, BASE + 1000, 1, Access::REMOTE_READ).is_ok());
}

#[test]
fn unsignaled_bind_and_invalidation_do_not_complete() {
    let mut f = Fixture::new(MwType::Type2);
    let rkey = f.key().inc();
    f.t.post(SendRequest::bind_mw(1, f.id, rkey, f.info)).unwrap();
    f.t.quiet(0);
    assert_eq!((f.is_open(rkey), f.t.sends()), (Ok(1), vec![]));
    f.t.post(SendRequest::local_inv(2, rkey)).unwrap();
    f.t.quiet(0);
    assert_eq!((f.is_open(rkey), f.t.sends()), (Err(AccessError::Unbound { key: rkey.0 }), vec![]));
}

#[test]
fn sqd_holds_a_bind() {
    let mut f = Fixture::new(MwType::Type1);
    f.t.modify(QpAttr::to(QpState::Sqd)).unwrap();
    f.t.events();
    let before = f.key();
    let rkey = f.post_bind(1);
    f.t.quiet(0);
    assert_eq!((f.key(), f.t.sends()), (before, vec![]));
    f.t.modify(QpAttr::to(QpState::Rts)).unwrap();
    f.t.quiet(0);
    assert_eq!((f.is_open(rkey), f.t.sends()), (Ok(1), vec![ok(1, BIND, 0)]));
}

#[test]
fn err_flushes_binds_and_invalidations() {
    let mut f = Fixture::new(MwType::Type2);
    let rkey = f.bind();
    f.t.modify(QpAttr::to(QpState::Err)).unwrap();
    f.post_bind(1);
    f.post_inv(2, rkey);
    let flushed = WcStatus::WrFlushErr;
    assert_eq!(f.t.sends(), [failed(1, flushed), failed(2, flushed)]);
    assert_eq!(f.is_open(rkey), Ok(1));
}

#[test]
fn reset_or_destroyed_queue_pair_frees_its_windows() {
    let mut f = Fixture::new(MwType::Type2);
    let rkey = f.bind();
    f.t.modify(QpAttr::to(QpState::Reset)).unwrap();
    assert_eq!(f.is_open(rkey), Err(AccessError::Unbound { key: rkey.0 }));
    f.t.bring_to(QpState::Rts);
    let rkey = f.bind();
    let (now, qpn) = (softroce::time::Instant::ZERO, f.t.qpn);
    f.t.engine.destroy_qp(now, qpn);
    assert_eq!(f.is_open(rkey), Err(AccessError::Unbound { key: rkey.0 }));
    assert_eq!(f.t.memory.try_deregister(&f.region), Ok(()));
}

// ---- refused requests ----

#[test]
fn posting_refuses_invalid_binds() {
    let mut f = Fixture::new(MwType::Type1);
    let rkey = f.key().inc();
    let access = Access::LOCAL_WRITE | Access::MW_BIND;
    let info = BindInfo { access: access | Access::REMOTE_READ, ..f.info };
    let refused = f.t.post(SendRequest::bind_mw(1, f.id, rkey, info));
    assert_eq!(refused, Err(PostError::WindowAccess { access }));
    for (request, operation) in [
        (SendRequest::bind_mw(1, f.id, rkey, f.info), BIND),
        (SendRequest::local_inv(1, rkey), INV),
    ] {
        for data in [SendData::inline(b"data"), SendData::from(sge(&f.region, 0, 4))] {
            let refused = f.t.post(SendRequest { data, ..request.clone() });
            assert_eq!(refused, Err(PostError::LocalData { operation, found: 4 }));
        }
    }
}

/// UC has windows, but no packets with a key to invalidate; UD has neither.
#[test]
fn uc_and_ud_support_their_window_operations() {
    let send_inv = || SendRequest::send_inv(1, SendData::none(), Rkey(1));
    let refused = |qp_type, operation| Err(PostError::NoSuchOperation { qp_type, operation });
    let mut f = Fixture::on(Script::requester(rts_qp_of(QpType::Uc)), MwType::Type2);
    assert_eq!(f.t.post(send_inv()), refused(QpType::Uc, SEND));
    f.t.post_op(1, SendOp::Write { to: REMOTE }, 300);
    let rkey = f.post_bind(2);
    f.post_inv(3, rkey);
    let rkey = rkey.inc();
    f.t.post(SendRequest::bind_mw(4, f.id, rkey, f.info).signaled()).unwrap();
    f.t.tx(0, "WRITE_FIRST psn=5 va=0x8000 rkey=0x00000100 dmalen=300 len=256");
    f.t.tx(0, "WRITE_LAST psn=6 len=44");
    f.t.quiet(0);
    let write = ok(1, WcOpcode::RdmaWrite, 300);
    assert_eq!(f.t.sends(), [write, ok(2, BIND, 0), ok(3, INV, 0), ok(4, BIND, 0)]);
    f.t.rx(0, &format!("WRITE_ONLY psn=5 va=0x903e8 rkey={rkey} dmalen=8 len=8"));
    assert_eq!(bytes(&f.region, 1000, 8), pattern(5, 8));
    f.post_bind(5);
    f.t.quiet(0);
    assert_eq!(f.t.sends(), [failed(5, WcStatus::MwBindErr)]);
    assert_eq!(f.t.state(), QpState::Sqe);

    let mut f = Fixture::on(Script::requester(rts_qp_of(QpType::Ud)), MwType::Type2);
    for (request, operation) in [
        (send_inv(), SEND),
        (SendRequest::bind_mw(1, f.id, Rkey(1), f.info), BIND),
        (SendRequest::local_inv(1, Rkey(1)), INV),
    ] {
        assert_eq!(f.t.post(request), refused(QpType::Ud, operation));
    }
}

/// With an idle queue a bind executes immediately, on any path.
#[test]
fn binds_execute_when_posted_to_an_idle_queue() {
    let mut f = Fixture::on(Script::requester(Link { rd_atomic: 0, ..rts_qp() }), MwType::Type1);
    for wr_id in 1..=10 {
        let rkey = f.post_bind(wr_id);
        f.t.quiet(0);
        assert_eq!((f.is_open(rkey), f.t.sends()), (Ok(1), vec![ok(wr_id, BIND, 0)]));
    }
}

//! FLUSH and ATOMIC WRITE, packet by packet, at either end.
//!
//! An empty READ response is the only valid response to both. As in the other scripts, the path MTU is 256, both
//! sides start with PSN 5, four requests with a response may be outstanding, and `va=0x1000 rkey=mem` is 64 KiB that
//! the peer may write, read, change by atomics and flush.

#![allow(clippy::unwrap_used, clippy::cast_possible_truncation, reason = "test code")]

use softroce::engine::{PostError, QpState, QpType};

use softroce::mem::Access;
use softroce::net::{Ipv4Fields, ROCE_PORT};
use softroce::transport::outputs::{AsyncEvent, DropReason};
use softroce::transport::work::{
    FlushPlacement, SendData, SendOp, SendRequest, WcOpcode, WcStatus,
};
use softroce::wire::icrc::{Flow, Verdict};

use crate::support::script::{OURS, PEER, REMOTE, Script, Sent, failed, ok, rts_qp};
use crate::support::{Link, full_access, pattern, sge};

const FLUSH: &str = "FLUSH psn=5 ackreq placement=0x1 selectivity=0 va=0x8000 rkey=0x00000100";

// ---- the requester ----

/// REQ-40
#[test]
fn flush_and_atomic_write_complete_with_an_empty_read_response() {
    let mut t = Script::requester(rts_qp());
    t.flush_remote(1, 100);
    t.post_op(2, SendOp::AtomicWrite { to: REMOTE }, 8);
    t.tx(0, &format!("{FLUSH} dmalen=100"));
    let sent = t.tx(0, "ATOMIC_WRITE psn=6 ackreq va=0x8000 rkey=0x00000100 dmalen=8 len=8");
    assert_eq!(sent.payload(), t.sent_data(0..8), "as they stand in memory");
    t.rx(1, "READ_RESPONSE_ONLY psn=5 msn=1 len=0");
    assert_eq!(t.sends(), [ok(1, WcOpcode::Flush, 0)]);
    t.rx(2, "READ_RESPONSE_ONLY psn=6 msn=2 len=0");
    assert_eq!(t.sends(), [ok(2, WcOpcode::AtomicWrite, 8)]);
}

/// REQ-40: an acknowledgement implies that the response was lost.
#[test]
fn ack_does_not_complete_flush_and_atomic_write() {
    let mut t = Script::requester(rts_qp());
    t.flush_remote(1, 8);
    t.send(2, 8);
    t.tx(0, &format!("{FLUSH} dmalen=8"));
    t.tx(0, "SEND_ONLY psn=6 ackreq len=8");
    t.rx(1, "ACK psn=6 msn=2");
    assert_eq!(t.sends(), []);
    t.tx(1, &format!("{FLUSH} dmalen=8"));
    t.quiet(1);
    t.rx(2, "READ_RESPONSE_ONLY psn=5 msn=1 len=0");
    assert_eq!(t.sends(), [ok(1, WcOpcode::Flush, 0), ok(2, WcOpcode::Send, 8)]);
}

#[test]
fn malformed_response_does_not_complete_a_flush() {
    let bad = [
        "READ_RESPONSE_ONLY psn=5 msn=1 len=4",
        "READ_RESPONSE_FIRST psn=5 msn=1 len=256",
        "READ_RESPONSE_LAST psn=5 msn=1 len=4",
        "ATOMIC_ACK psn=5 msn=1 value=0x0",
    ];
    for line in bad {
        let mut t = Script::requester(rts_qp());
        t.post_op(1, SendOp::AtomicWrite { to: REMOTE }, 8);
        t.all(0);
        t.rx(1, line);
        assert_eq!(t.sends(), [failed(1, WcStatus::BadRespErr)], "{line}");
        assert_eq!(t.state(), QpState::Err);
    }
}

#[test]
fn flush_of_a_region_carries_its_key_only() {
    let mut t = Script::requester(rts_qp());
    let both = FlushPlacement::GLOBAL_VISIBILITY | FlushPlacement::PERSISTENCE;
    t.post(SendRequest::flush_region(1, REMOTE.rkey, both).signaled()).unwrap();
    t.tx(0, "FLUSH psn=5 ackreq placement=0x3 selectivity=1 va=0x0 rkey=0x00000100 dmalen=0");
    t.rx(1, "NAK_ACCESS psn=5 msn=0");
    assert_eq!(t.sends(), [failed(1, WcStatus::RemAccessErr)]);
}

/// They count like READs and atomics, and a fence waits for them.
#[test]
fn flush_and_atomic_write_count_towards_max_rd_atomic() {
    let mut t = Script::requester(Link { rd_atomic: 2, ..rts_qp() });
    t.flush_remote(1, 8);
    t.post_op(2, SendOp::AtomicWrite { to: REMOTE }, 8);
    t.flush_remote(3, 8);
    t.post(SendRequest::send(4, sge(&t.data, 0, 8)).fenced().signaled()).unwrap();
    t.tx(0, &format!("{FLUSH} dmalen=8"));
    t.tx(0, "ATOMIC_WRITE psn=6 ackreq va=0x8000 rkey=0x00000100 dmalen=8 len=8");
    t.quiet(0);
    t.rx(1, "READ_RESPONSE_ONLY psn=5 msn=1 len=0");
    t.tx(1, &format!("{} dmalen=8", FLUSH.replace("psn=5", "psn=7")));
    t.rx(2, "READ_RESPONSE_ONLY psn=6 msn=2 len=0");
    t.quiet(2);
    t.rx(3, "READ_RESPONSE_ONLY psn=7 msn=3 len=0");
    t.tx(3, "SEND_ONLY psn=8 ackreq len=8");
    t.rx(4, "ACK psn=8 msn=4");
    assert_eq!(t.sends().iter().map(|done| done.wr_id).collect::<Vec<_>>(), [1, 2, 3, 4]);
}

#[test]
fn atomic_write_may_be_inline_without_max_inline_data() {
    let mut link = rts_qp();
    link.cap.max_inline_data = 0;
    let mut t = Script::requester(link);
    let data = SendData::inline(b"8 bytes!");
    t.post(SendRequest::atomic_write(1, data, REMOTE).signaled()).unwrap();
    let sent = t.tx(0, "ATOMIC_WRITE psn=5 ackreq va=0x8000 rkey=0x00000100 dmalen=8 len=8");
    assert_eq!(sent.payload(), b"8 bytes!");
    t.rx(1, "READ_RESPONSE_ONLY psn=5 msn=1 len=0");
    assert_eq!(t.sends(), [ok(1, WcOpcode::AtomicWrite, 8)]);
}

#[test]
fn posting_refuses_invalid_flushes_and_atomic_writes() {
    let mut t = Script::requester(rts_qp());
    let bytes = |n| sge(&t.data, 0, n);
    let global = FlushPlacement::GLOBAL_VISIBILITY;
    let flush_with_data =
        SendRequest { data: bytes(1).into(), ..SendRequest::flush(1, REMOTE, 8, global) };
    let too_long = SendRequest::flush(1, REMOTE, (1 << 31) + 1, global);
    let nowhere =
        |bits| SendRequest::flush_region(1, REMOTE.rkey, FlushPlacement::from_bits_retain(bits));
    let cases = [
        (SendRequest::atomic_write(1, bytes(7), REMOTE), PostError::AtomicWriteLength { found: 7 }),
        (
            SendRequest::atomic_write(1, [bytes(8), bytes(8)], REMOTE),
            PostError::AtomicWriteLength { found: 16 },
        ),
        (flush_with_data, PostError::LocalData { operation: WcOpcode::Flush, found: 1 }),
        (too_long, PostError::TooLong { found: (1 << 31) + 1, max: 1 << 31 }),
        (nowhere(0), PostError::FlushPlacement { bits: 0 }),
        (nowhere(5), PostError::FlushPlacement { bits: 5 }),
    ];
    for (request, error) in cases {
        assert_eq!(t.post(request), Err(error));
    }
    let mut none = Script::requester(Link { rd_atomic: 0, ..rts_qp() });
    assert_eq!(none.post(SendRequest::flush(1, REMOTE, 8, global)), Err(PostError::NoReads));
    for qp_type in [QpType::Uc, QpType::Ud] {
        let mut t = Script::requester(Link { qp_type, ..rts_qp() });
        let refused = t.post(SendRequest::flush(1, REMOTE, 8, global));
        let operation = WcOpcode::Flush;
        assert_eq!(refused, Err(PostError::NoSuchOperation { qp_type, operation }));
    }
}

// ---- the ICRC of a FLUSH ----

/// Returns whether a packet has the ICRC of the specification, instead of rxe's.
fn is_plain(sent: &Sent) -> bool {
    let path = &sent.path;
    let flow = Flow::new((OURS, path.source_port).into(), (PEER, ROCE_PORT).into());
    let mut plain = sent.bytes.clone();
    flow.seal(0, &mut plain);
    let seen = Some(Ipv4Fields { id: 0, dont_fragment: true });
    assert_eq!(flow.check(seen, 0, &sent.bytes), Verdict::Good);
    plain == sent.bytes
}

/// Delivers a packet as kernel rxe sends it, without MigReq.
fn rx_of_rxe(t: &mut Script, us: u64, line: &str) {
    let mut packet = t.packet(line);
    packet[1] &= !0x40;
    let packet = t.seal(packet);
    t.rx_bytes(us, &packet);
}

#[test]
fn peer_that_clears_migreq_receives_the_flush_icrc_of_rxe() {
    let mut t = Script::requester(rts_qp());
    t.write(1, 8);
    t.all(0);
    rx_of_rxe(&mut t, 1, "ACK psn=5 msn=1");
    t.flush_remote(2, 8);
    let flush = t.tx(1, &format!("{} dmalen=8", FLUSH.replace("psn=5", "psn=6")));
    assert!(!is_plain(&flush));
    t.post_op(3, SendOp::AtomicWrite { to: REMOTE }, 8);
    let write = t.tx(1, "ATOMIC_WRITE psn=7 ackreq va=0x8000 rkey=0x00000100 dmalen=8 len=8");
    assert!(is_plain(&write), "only FLUSH is special");
    t.leave();
}

#[test]
fn unanswered_flush_is_retried_with_the_other_icrc() {
    let mut t = Script::requester(rts_qp());
    t.flush_remote(1, 8);
    assert!(is_plain(&t.tx(0, &format!("{FLUSH} dmalen=8"))));
    // The ACK timer is 1048.576 µs.
    assert!(!is_plain(&t.tx(1049, &format!("{FLUSH} dmalen=8"))));
    t.rx(1100, "READ_RESPONSE_ONLY psn=5 msn=1 len=0");
    assert_eq!(t.sends(), [ok(1, WcOpcode::Flush, 0)]);
    // The variant that was answered remains in use despite one loss.
    t.flush_remote(2, 8);
    let flush = format!("{} dmalen=8", FLUSH.replace("psn=5", "psn=6"));
    assert!(!is_plain(&t.tx(1100, &flush)));
    assert!(!is_plain(&t.tx(2149, &flush)));
    assert!(is_plain(&t.tx(3198, &flush)));
    t.rx(3200, "READ_RESPONSE_ONLY psn=6 msn=2 len=0");
    assert_eq!(t.sends(), [ok(2, WcOpcode::Flush, 0)]);
}

/// The peer's NAK shows that it dropped the FLUSH, before any timer.
#[test]
fn sequence_nak_of_a_flush_switches_the_icrc() {
    let mut t = Script::requester(rts_qp());
    t.flush_remote(1, 8);
    t.send(2, 8);
    assert!(is_plain(&t.tx(0, &format!("{FLUSH} dmalen=8"))));
    t.tx(0, "SEND_ONLY psn=6 ackreq len=8");
    t.rx(1, "NAK_PSN psn=5 msn=0");
    assert!(!is_plain(&t.tx(1, &format!("{FLUSH} dmalen=8"))));
    t.tx(1, "SEND_ONLY psn=6 ackreq len=8");
    t.leave();
}

#[test]
fn sequence_nak_before_a_flush_keeps_the_icrc() {
    let mut t = Script::requester(rts_qp());
    t.write(1, 8);
    t.flush_remote(2, 8);
    t.all(0);
    t.rx(1, "NAK_PSN psn=5 msn=0");
    t.tx(1, "WRITE_ONLY psn=5 ackreq va=0x8000 rkey=0x00000100 dmalen=8 len=8");
    let flush = t.tx(1, &format!("{} dmalen=8", FLUSH.replace("psn=5", "psn=6")));
    assert!(is_plain(&flush));
    t.leave();
}

// ---- the responder ----

#[test]
fn flush_and_atomic_write_are_answered_in_order() {
    let mut t = Script::responder(rts_qp());
    t.rx(0, "WRITE_ONLY psn=5 va=0x1000 rkey=mem dmalen=8 len=8");
    t.rx(0, "READ_REQUEST psn=6 ackreq va=0x1000 rkey=mem dmalen=8");
    t.rx(0, "FLUSH psn=7 ackreq placement=0x1 selectivity=0 va=0x1000 rkey=mem dmalen=8");
    t.rx(0, "ATOMIC_WRITE psn=8 ackreq va=0x1008 rkey=mem dmalen=8 len=8");
    t.rx(0, "WRITE_ONLY psn=9 ackreq va=0x1010 rkey=mem dmalen=8 len=8");
    let read = t.tx(0, "READ_RESPONSE_ONLY psn=6 msn=2 len=8");
    assert_eq!(read.payload(), pattern(5, 8));
    t.tx(0, "READ_RESPONSE_ONLY psn=7 msn=3 len=0");
    t.tx(0, "READ_RESPONSE_ONLY psn=8 msn=4 len=0");
    t.tx(0, "ACK psn=9 msn=5");
    let written = u64::from_ne_bytes(pattern(8, 8).try_into().unwrap());
    assert_eq!(t.mem.load_u64(8), Ok(written));
}

/// RSP-10
#[test]
fn duplicate_atomic_write_is_answered_without_execution() {
    let mut t = Script::responder(rts_qp());
    let write = "ATOMIC_WRITE psn=5 ackreq va=0x1000 rkey=mem dmalen=8 len=8";
    let flush = "FLUSH psn=6 ackreq placement=0x1 selectivity=1 va=0x0 rkey=mem dmalen=0";
    t.rx(0, write);
    t.rx(0, flush);
    t.tx(0, "READ_RESPONSE_ONLY psn=5 msn=1 len=0");
    t.tx(0, "READ_RESPONSE_ONLY psn=6 msn=2 len=0");
    t.mem.store_u64(0, 77).unwrap();
    t.rx(1, write);
    t.tx(1, "READ_RESPONSE_ONLY psn=5 msn=1 len=0");
    t.rx(1, flush);
    t.tx(1, "READ_RESPONSE_ONLY psn=6 msn=2 len=0");
    assert_eq!(t.mem.load_u64(0), Ok(77));
    // Nor is it what has another opcode, whatever its PSN.
    t.rx(2, "FETCH_ADD psn=5 ackreq va=0x1000 rkey=mem add=0x1");
    t.rx(2, "FLUSH psn=5 ackreq placement=0x1 selectivity=1 va=0x0 rkey=mem dmalen=0");
    t.quiet(3);
    assert_eq!((t.dropped(DropReason::StaleDuplicate), t.mem.load_u64(0)), (2, Ok(77)));
}

/// After the loss of an ATOMIC WRITE its successors are retransmitted too.
#[test]
fn requests_behind_a_lost_atomic_write_wait_for_it() {
    let mut t = Script::responder(rts_qp());
    t.rx(0, "FLUSH psn=6 ackreq placement=0x1 selectivity=1 va=0x0 rkey=mem dmalen=0");
    t.tx(0, "NAK_PSN psn=5 msn=0");
    t.rx(1, "ATOMIC_WRITE psn=5 ackreq va=0x1000 rkey=mem dmalen=8 len=8");
    t.tx(1, "READ_RESPONSE_ONLY psn=5 msn=1 len=0");
    t.rx(1, "FLUSH psn=6 ackreq placement=0x1 selectivity=1 va=0x0 rkey=mem dmalen=0");
    t.tx(1, "READ_RESPONSE_ONLY psn=6 msn=2 len=0");
}

#[test]
fn flush_with_the_icrc_of_rxe_is_accepted() {
    let mut t = Script::responder(rts_qp());
    let line = "FLUSH psn=5 ackreq placement=0x1 selectivity=0 va=0x1000 rkey=mem dmalen=8";
    let mut packet = t.packet(line);
    let meta = t.meta();
    Flow::new(meta.source, (OURS, ROCE_PORT).into()).set_rxe_flush_icrc(0, &mut packet);
    assert_ne!(packet, t.packet(line));
    t.rx_bytes(0, &packet);
    t.tx(0, "READ_RESPONSE_ONLY psn=5 msn=1 len=0");
}

/// Kernel rxe does not count FLUSHes as outstanding.
#[test]
fn flushes_beyond_max_dest_rd_atomic_are_answered() {
    let mut t = Script::responder(Link { rd_atomic: 1, ..rts_qp() });
    let flush = |psn| {
        format!("FLUSH psn={psn} ackreq placement=0x1 selectivity=0 va=0x1000 rkey=mem dmalen=8")
    };
    (5..25).for_each(|psn| t.rx(0, &flush(psn)));
    for psn in 5..25 {
        t.tx(0, &format!("READ_RESPONSE_ONLY psn={psn} msn={} len=0", psn - 4));
    }
    t.rx(1, &flush(7));
    t.tx(1, "READ_RESPONSE_ONLY psn=7 msn=3 len=0");
}

/// Checks that a request fails the queue pair with this NAK and this event.
#[track_caller]
fn refused(mut t: Script, line: &str, nak: &str) {
    t.rx(0, line);
    t.tx(0, &format!("{nak} psn=5 msn=0"));
    let event = match nak {
        "NAK_ACCESS" => AsyncEvent::QpAccessErr(t.qpn),
        _ => AsyncEvent::QpReqErr(t.qpn),
    };
    assert_eq!((t.events(), t.state()), (vec![event], QpState::Err), "{line}");
    assert_eq!(t.mem.load_u64(0), Ok(0), "{line}");
}

/// RSP-32, RSP-31, RSP-26, RSP-28
#[test]
fn atomic_write_requires_eight_aligned_writable_bytes() {
    let to = |va: &str, dmalen: u32, len: u32| {
        format!("ATOMIC_WRITE psn=5 ackreq va={va} rkey=mem dmalen={dmalen} len={len}")
    };
    let cases = [
        (to("0x1000", 8, 4), "NAK_INV"),
        (to("0x1000", 8, 0), "NAK_INV"),
        (to("0x1000", 8, 12), "NAK_INV"),
        (to("0x1000", 4, 4), "NAK_INV"),
        (to("0x1000", 0, 0), "NAK_INV"),
        (to("0x1000", 16, 8), "NAK_INV"),
        (to("0x1004", 8, 8), "NAK_INV"),
        (to("0x11000", 8, 8), "NAK_ACCESS"),
        (to("0xfffffffffffffff8", 8, 8), "NAK_ACCESS"),
        (to("0x1000", 8, 8).replace("rkey=mem", "rkey=0x00000001"), "NAK_ACCESS"),
    ];
    for (line, nak) in cases {
        refused(Script::responder(rts_qp()), &line, nak);
    }
}

#[test]
fn flush_requires_a_valid_placement_type_and_selectivity() {
    let flush = |placement: u8, selectivity: u8, va: &str, dmalen: u32| {
        format!(
            "FLUSH psn=5 ackreq placement={placement:#x} selectivity={selectivity} va={va} \
             rkey=mem dmalen={dmalen}"
        )
    };
    let cases = [
        (flush(0, 0, "0x1000", 8), "NAK_INV"),
        (flush(4, 0, "0x1000", 8), "NAK_INV"),
        (flush(1, 2, "0x1000", 8), "NAK_INV"),
        (flush(1, 3, "0x1000", 8), "NAK_INV"),
        (flush(1, 0, "0x1000", 0x8000_0001), "NAK_INV"),
        (flush(1, 0, "0x1000", 0x1_0001), "NAK_ACCESS"),
        (flush(1, 0, "0xfff", 8), "NAK_ACCESS"),
        (flush(1, 0, "0xffffffffffffffff", 8), "NAK_ACCESS"),
        (flush(1, 1, "0x1000", 8).replace("rkey=mem", "rkey=0x00000001"), "NAK_ACCESS"),
        // Only empty READs and WRITEs need no key.
        (flush(1, 0, "0x1000", 0).replace("rkey=mem", "rkey=0x00000001"), "NAK_ACCESS"),
    ];
    for (line, nak) in cases {
        refused(Script::responder(rts_qp()), &line, nak);
    }
    for line in [flush(1, 0, "0x1000", 0), flush(1, 1, "0x0", u32::MAX)] {
        let mut t = Script::responder(rts_qp());
        t.rx(0, &line);
        t.tx(0, "READ_RESPONSE_ONLY psn=5 msn=1 len=0");
    }
}

/// RSP-29, and the same for the region's access rights.
#[test]
fn flush_and_atomic_write_need_rights_of_queue_pair_and_region() {
    let flush = "FLUSH psn=5 ackreq placement=0x1 selectivity=1 va=0x0 rkey=mem dmalen=0";
    let write = "ATOMIC_WRITE psn=5 ackreq va=0x1000 rkey=mem dmalen=8 len=8";
    let persist = "FLUSH psn=5 ackreq placement=0x3 selectivity=1 va=0x0 rkey=mem dmalen=0";
    for (line, right) in [
        (flush, Access::FLUSH_GLOBAL),
        (write, Access::REMOTE_WRITE),
        (persist, Access::FLUSH_PERSISTENT),
    ] {
        let access = full_access() - right;
        refused(Script::responder(Link { access, ..rts_qp() }), line, "NAK_ACCESS");
        let access = full_access() | Access::FLUSH_PERSISTENT;
        let t = Script::responder(Link { access, ..rts_qp() });
        let other = t.region(4096, 0x1000, full_access() - right);
        let line = line.replace("rkey=mem", &format!("rkey={}", other.rkey()));
        refused(t, &line, "NAK_ACCESS");
    }
}

/// RSP-30
#[test]
fn flush_and_atomic_write_require_max_dest_rd_atomic() {
    for line in [
        "FLUSH psn=5 ackreq placement=0x1 selectivity=1 va=0x0 rkey=mem dmalen=0",
        "ATOMIC_WRITE psn=5 ackreq va=0x1000 rkey=mem dmalen=8 len=8",
    ] {
        refused(Script::responder(Link { rd_atomic: 0, ..rts_qp() }), line, "NAK_INV");
    }
}

#[test]
fn flush_within_a_message_is_out_of_sequence() {
    let mut t = Script::responder(rts_qp());
    t.rx(0, "WRITE_FIRST psn=5 va=0x1000 rkey=mem dmalen=300 len=256");
    t.rx(0, "FLUSH psn=6 ackreq placement=0x1 selectivity=1 va=0x0 rkey=mem dmalen=0");
    t.tx(0, "NAK_INV psn=6 msn=0");
    assert_eq!(t.events(), [AsyncEvent::QpReqErr(t.qpn)]);
}

#[test]
fn flush_with_a_deregistered_key_is_refused() {
    let t = Script::responder(rts_qp());
    let gone = t.region(4096, 0x1000, full_access());
    t.memory.deregister(&gone);
    let line = format!(
        "FLUSH psn=5 ackreq placement=0x1 selectivity=1 va=0x0 rkey={} dmalen=0",
        gone.rkey()
    );
    refused(t, &line, "NAK_ACCESS");
}

//! Requests that the RC responder refuses: every kind of invalid request, the NAK for the peer, and the local result.
//!
//! The first expected PSN is 5, the path MTU is 256, four READs or atomics may be outstanding, and `va=0x1000
//! rkey=mem` is 64 KiB that the peer may write, read and change by atomics.

#![allow(clippy::unwrap_used, clippy::cast_possible_truncation, reason = "test code")]

use crate::support::script::{Script, bytes, failed, ok, rts_qp};
use crate::support::{Link, full_access, pattern, sge};
use softroce::engine::QpState;
use softroce::ids::{Lkey, PdId, Qpn, Rkey};
use softroce::mem::{Access, HostMemory, Region};
use softroce::transport::outputs::AsyncEvent::{self, QpAccessErr, QpReqErr};
use softroce::transport::outputs::DropReason;
use softroce::transport::work::{Sge, WcOpcode, WcStatus};

/// Checks that a request without a receive is refused: the NAK for the peer, the local event, the flushed receives,
/// and ERR.
#[track_caller]
fn refused(t: &mut Script, request: &str, nak: &str, event: fn(Qpn) -> AsyncEvent) {
    let receive = t.post_recv(64);
    t.rx(0, request);
    t.tx(0, nak);
    assert_eq!(t.recvs(), [failed(receive, WcStatus::WrFlushErr)], "{request}");
    assert_eq!((t.events(), t.state()), (vec![event(t.qpn)], QpState::Err), "{request}");
}

// ---- opcode sequence ----

/// RSP-15
#[test]
fn message_must_start_with_first_or_only() {
    for packet in [
        "SEND_MIDDLE psn=5 len=256",
        "SEND_LAST psn=5 ackreq len=8",
        "SEND_LAST_IMM psn=5 ackreq imm=0x00000001 len=8",
        "WRITE_MIDDLE psn=5 len=256",
        "WRITE_LAST psn=5 ackreq len=8",
        "WRITE_LAST_IMM psn=5 ackreq imm=0x00000001 len=8",
    ] {
        let mut t = Script::responder(rts_qp());
        refused(&mut t, packet, "NAK_INV psn=5 msn=0", QpReqErr);
    }
}

/// RSP-16, RSP-46: the receive of the incomplete message is flushed.
#[test]
fn other_requests_within_a_send_are_invalid() {
    for packet in [
        "SEND_FIRST psn=6 len=256",
        "SEND_ONLY psn=6 ackreq len=8",
        "WRITE_FIRST psn=6 va=0x1000 rkey=mem dmalen=512 len=256",
        "WRITE_ONLY psn=6 ackreq va=0x1000 rkey=mem dmalen=8 len=8",
        "READ_REQUEST psn=6 ackreq va=0x1000 rkey=mem dmalen=8",
        "COMPARE_SWAP psn=6 ackreq va=0x1000 rkey=mem expect=0x0 swap=0x1",
        "FETCH_ADD psn=6 ackreq va=0x1000 rkey=mem add=0x1",
        "WRITE_MIDDLE psn=6 len=256",
        "WRITE_LAST psn=6 ackreq len=256",
    ] {
        let mut t = Script::responder(rts_qp());
        t.post_recv(1024);
        t.post_recv(1024);
        t.rx(0, "SEND_FIRST psn=5 len=256");
        t.rx(0, packet);
        t.tx(0, "NAK_INV psn=6 msn=0");
        let ends = [failed(1, WcStatus::RemInvReqErr), failed(2, WcStatus::WrFlushErr)];
        assert_eq!(t.recvs(), ends, "{packet}");
        assert_eq!(t.mem.load_u64(0), Ok(0), "{packet}");
    }
}

/// RSP-16, RSP-17
#[test]
fn other_requests_within_a_write_are_invalid() {
    for packet in [
        "WRITE_FIRST psn=6 va=0x1000 rkey=mem dmalen=512 len=256",
        "WRITE_ONLY psn=6 ackreq va=0x1000 rkey=mem dmalen=8 len=8",
        "SEND_FIRST psn=6 len=256",
        "SEND_ONLY psn=6 ackreq len=8",
        "READ_REQUEST psn=6 ackreq va=0x1000 rkey=mem dmalen=8",
        "FETCH_ADD psn=6 ackreq va=0x1000 rkey=mem add=0x1",
        "SEND_MIDDLE psn=6 len=256",
        "SEND_LAST psn=6 ackreq len=256",
        "SEND_LAST_IMM psn=6 ackreq imm=0x00000001 len=256",
    ] {
        let mut t = Script::responder(rts_qp());
        t.rx(0, "WRITE_FIRST psn=5 va=0x1000 rkey=mem dmalen=512 len=256");
        refused(&mut t, packet, "NAK_INV psn=6 msn=0", QpReqErr);
    }
}

// ---- lengths ----

/// RSP-18
#[test]
fn first_and_middle_packets_must_be_full() {
    for len in [0, 1, 252, 255, 257, 512] {
        let mut t = Script::responder(rts_qp());
        t.post_recv(2048);
        t.rx(0, &format!("SEND_FIRST psn=5 len={len}"));
        t.tx(0, "NAK_INV psn=5 msn=0");
        assert_eq!(t.recvs(), [failed(1, WcStatus::RemInvReqErr)], "{len}");

        let mut t = Script::responder(rts_qp());
        t.rx(0, "WRITE_FIRST psn=5 va=0x1000 rkey=mem dmalen=2048 len=256");
        let middle = format!("WRITE_MIDDLE psn=6 len={len}");
        refused(&mut t, &middle, "NAK_INV psn=6 msn=0", QpReqErr);

        let mut t = Script::responder(rts_qp());
        let first = format!("WRITE_FIRST psn=5 va=0x1000 rkey=mem dmalen=2048 len={len}");
        refused(&mut t, &first, "NAK_INV psn=5 msn=0", QpReqErr);
    }
}

/// RSP-19
#[test]
fn last_packet_has_1_byte_to_a_full_payload() {
    for len in [0, 257, 4096] {
        let mut t = Script::responder(rts_qp());
        t.post_recv(8192);
        t.rx(0, "SEND_FIRST psn=5 len=256");
        t.rx(0, &format!("SEND_LAST psn=6 ackreq len={len}"));
        t.tx(0, "NAK_INV psn=6 msn=0");
        assert_eq!(t.recvs(), [failed(1, WcStatus::RemInvReqErr)], "{len}");
    }
    for len in [1, 256] {
        let mut t = Script::responder(rts_qp());
        t.post_recv(8192);
        t.rx(0, "SEND_FIRST psn=5 len=256");
        t.rx(0, &format!("SEND_LAST psn=6 ackreq len={len}"));
        t.tx(0, "ACK psn=6 msn=1");
        assert_eq!(t.recvs(), [ok(1, WcOpcode::Recv, 256 + len)]);
    }
}

/// RSP-19
#[test]
fn only_packet_has_at_most_a_full_payload() {
    let mut t = Script::responder(rts_qp());
    t.post_recv(8192);
    t.rx(0, "SEND_ONLY psn=5 ackreq len=257");
    t.tx(0, "NAK_INV psn=5 msn=0");
    assert_eq!(t.recvs(), [failed(1, WcStatus::RemInvReqErr)]);

    let mut t = Script::responder(rts_qp());
    let write = "WRITE_ONLY psn=5 ackreq va=0x1000 rkey=mem dmalen=300 len=300";
    refused(&mut t, write, "NAK_INV psn=5 msn=0", QpReqErr);
}

/// RSP-18: padding in a packet that cannot have any.
#[test]
fn full_packet_has_no_padding() {
    let mut t = Script::responder(rts_qp());
    t.post_recv(8192);
    t.rx(0, "SEND_FIRST psn=5 len=255");
    t.tx(0, "NAK_INV psn=5 msn=0");
    assert_eq!(t.recvs(), [failed(1, WcStatus::RemInvReqErr)]);
}

/// RSP-20
#[test]
fn packets_of_a_write_add_up_to_its_length() {
    // dmalen, packets after the FIRST, the one that is wrong
    for (dmalen, rest, wrong) in [
        (0, &[][..], 5),
        (255, &[][..], 5),
        (256, &[][..], 5),
        (257, &["WRITE_LAST psn=6 ackreq len=2"][..], 6),
        (511, &["WRITE_LAST psn=6 ackreq len=256"][..], 6),
        (513, &["WRITE_LAST psn=6 ackreq len=256"][..], 6),
        (600, &["WRITE_MIDDLE psn=6 len=256", "WRITE_MIDDLE psn=7 len=256"][..], 7),
        (2048, &["WRITE_MIDDLE psn=6 len=256", "WRITE_LAST psn=7 ackreq len=256"][..], 7),
    ] {
        let mut t = Script::responder(rts_qp());
        t.rx(0, &format!("WRITE_FIRST psn=5 va=0x1000 rkey=mem dmalen={dmalen} len=256"));
        for line in rest {
            t.rx(0, line);
        }
        t.tx(0, &format!("NAK_INV psn={wrong} msn=0"));
        assert_eq!(t.events(), [QpReqErr(t.qpn)], "{dmalen}");
        assert_eq!(bytes(&t.mem, 0, 16) == [0; 16], wrong == 5, "{dmalen}");
    }
    for dmalen in [0, 7, 9, 256] {
        let mut t = Script::responder(rts_qp());
        let write = format!("WRITE_ONLY psn=5 ackreq va=0x1000 rkey=mem dmalen={dmalen} len=8");
        refused(&mut t, &write, "NAK_INV psn=5 msn=0", QpReqErr);
        assert_eq!(bytes(&t.mem, 0, 16), [0; 16], "{dmalen}");
    }
}

/// RSP-21
#[test]
fn no_message_is_longer_than_2_to_the_31() {
    for packet in [
        "WRITE_FIRST psn=5 va=0x1000 rkey=mem dmalen=2147483649 len=256",
        "WRITE_FIRST psn=5 va=0x1000 rkey=mem dmalen=4294967295 len=256",
        "READ_REQUEST psn=5 ackreq va=0x1000 rkey=mem dmalen=2147483649",
        "READ_REQUEST psn=5 ackreq va=0x1000 rkey=mem dmalen=4294967295",
    ] {
        let mut t = Script::responder(rts_qp());
        refused(&mut t, packet, "NAK_INV psn=5 msn=0", QpReqErr);
    }
}

/// A READ or atomic request has no payload.
#[test]
fn read_request_with_payload_is_invalid() {
    for packet in [
        "READ_REQUEST psn=5 ackreq va=0x1000 rkey=mem dmalen=8 len=4",
        "FETCH_ADD psn=5 ackreq va=0x1000 rkey=mem add=0x1 len=4",
    ] {
        let mut t = Script::responder(rts_qp());
        refused(&mut t, packet, "NAK_INV psn=5 msn=0", QpReqErr);
        assert_eq!(t.mem.load_u64(0), Ok(0));
    }
}

// ---- receives ----

/// RSP-22
#[test]
fn send_longer_than_its_receive_fails_both_sides() {
    let mut t = Script::responder(rts_qp());
    t.post_recv(63);
    t.post_recv(64);
    t.rx(0, "SEND_ONLY psn=5 ackreq len=64");
    t.tx(0, "NAK_INV psn=5 msn=0");
    assert_eq!(t.recvs(), [failed(1, WcStatus::LocLenErr), failed(2, WcStatus::WrFlushErr)]);
    assert_eq!(t.state(), QpState::Err);

    // Detected at the packet that does not fit.
    let mut t = Script::responder(rts_qp());
    t.post_recv(300);
    t.rx(0, "SEND_FIRST psn=5 ackreq len=256");
    t.tx(0, "ACK psn=5 msn=0");
    t.rx(0, "SEND_LAST psn=6 ackreq len=45");
    t.tx(0, "NAK_INV psn=6 msn=0");
    assert_eq!(t.recvs(), [failed(1, WcStatus::LocLenErr)]);
}

/// The receive's memory cannot take the message: an error of the responder, not of the requester.
#[test]
fn receive_with_an_invalid_key_fails_both_sides() {
    let t = Script::responder(rts_qp());
    let read_only = t.region(64, 0x50_0000, Access::empty());
    let gone = t.region(64, 0x60_0000, Access::LOCAL_WRITE);
    t.memory.deregister(&gone);
    let mut wrong = vec![sge(&read_only, 0, 64), sge(&gone, 0, 64), sge(&t.mem, 65_530, 64)];
    wrong.push(Sge { lkey: Lkey(1), ..sge(&t.mem, 0, 64) });
    for sge in wrong {
        let mut t = Script::responder(rts_qp());
        t.region(64, 0x50_0000, Access::empty());
        t.post_recv_sges(&[sge]).unwrap();
        t.rx(0, "SEND_ONLY psn=5 ackreq len=8");
        t.tx(0, "NAK_OP psn=5 msn=0");
        assert_eq!(t.recvs(), [failed(1, WcStatus::LocProtErr)], "{sge:?}");
    }
}

/// Returns a receive request of 300 valid bytes and 300 with an unknown key.
fn half_valid(mem: &Region) -> [Sge; 2] {
    [sge(mem, 0, 300), Sge { lkey: Lkey(1), ..sge(mem, 300, 300) }]
}

/// Programs post more than they have registered, and messages that do not reach that far arrive, as at adapters and rxe.
#[test]
fn receive_is_checked_as_far_as_the_message_reaches() {
    let mut t = Script::responder(rts_qp());
    let unknown = Sge { lkey: Lkey(1), ..sge(&t.mem, 0, 64) };
    let past_the_end = sge(&t.mem, 65_500, 64);
    for (psn, sges, len) in [
        (5, vec![unknown], 0),
        (6, vec![past_the_end], 36),
        (7, half_valid(&t.mem).to_vec(), 200),
        (8, half_valid(&t.mem).to_vec(), 0),
    ] {
        let receive = t.post_recv_sges(&sges).unwrap();
        t.rx(0, &format!("SEND_ONLY psn={psn} ackreq len={len}"));
        t.tx(0, &format!("ACK psn={psn} msn={}", psn - 4));
        assert_eq!(t.recvs(), [ok(receive, WcOpcode::Recv, len)]);
    }
    assert_eq!(bytes(&t.mem, 0, 200), pattern(7, 200));
    assert_eq!(bytes(&t.mem, 65_500, 36), pattern(6, 36));

    let half = half_valid(&t.mem);
    for (psn, sges) in [(9, half.to_vec()), (11, vec![sge(&t.mem, 65_236, 400)])] {
        let receive = t.post_recv_sges(&sges).unwrap();
        t.rx(0, &format!("SEND_FIRST psn={psn} len=256"));
        t.rx(0, &format!("SEND_LAST psn={} ackreq len=44", psn + 1));
        t.tx(0, &format!("ACK psn={} msn={}", psn + 1, psn / 2 + 1));
        assert_eq!(t.recvs(), [ok(receive, WcOpcode::Recv, 300)]);
    }

    let receive = t.post_recv_sges(&half).unwrap();
    t.rx(0, "SEND_FIRST psn=13 len=256");
    t.rx(0, "SEND_LAST psn=14 ackreq len=45");
    t.tx(0, "NAK_OP psn=14 msn=6");
    assert_eq!(t.recvs(), [failed(receive, WcStatus::LocProtErr)]);

    // Its length is checked before its memory.
    let mut t = Script::responder(rts_qp());
    let (valid, unknown) = (sge(&t.mem, 0, 200), Sge { lkey: Lkey(1), ..sge(&t.mem, 200, 20) });
    t.post_recv_sges(&[valid, unknown]).unwrap();
    t.rx(0, "SEND_FIRST psn=5 len=256");
    t.tx(0, "NAK_INV psn=5 msn=0");
    assert_eq!(t.recvs(), [failed(1, WcStatus::LocLenErr)]);
}

/// The region is deregistered during a message.
#[test]
fn receive_deregistered_during_a_message_fails_it() {
    let mut t = Script::responder(rts_qp());
    let region = t.region(512, 0x50_0000, Access::LOCAL_WRITE);
    t.post_recv_sges(&[sge(&region, 0, 512)]).unwrap();
    t.rx(0, "SEND_FIRST psn=5 len=256");
    t.memory.deregister(&region);
    t.rx(0, "SEND_LAST psn=6 ackreq len=8");
    t.tx(0, "NAK_OP psn=6 msn=0");
    assert_eq!(t.recvs(), [failed(1, WcStatus::LocProtErr)]);
    assert_eq!(bytes(&region, 256, 256), [0; 256]);
}

// ---- access ----

/// RSP-26
#[test]
fn key_must_grant_the_requested_access() {
    let t = Script::responder(rts_qp());
    let read_only = t.region(64, 0x1000, Access::REMOTE_READ).rkey();
    let write_only = t.region(64, 0x1000, Access::LOCAL_WRITE | Access::REMOTE_WRITE).rkey();
    let local_only = t.region(64, 0x1000, Access::LOCAL_WRITE).rkey();
    let foreign = HostMemory::alloc(64).unwrap();
    let foreign = t.memory.register(PdId(9), foreign, Some(0x1000), full_access()).unwrap().rkey();
    let gone = t.region(64, 0x1000, full_access());
    t.memory.deregister(&gone);
    let gone = gone.rkey();
    let variant = Rkey(t.mem.rkey().0 ^ 1);
    let mut wrong = Vec::new();
    for key in [read_only, local_only, foreign, gone, variant] {
        wrong.push(format!("WRITE_ONLY psn=5 ackreq va=0x1000 rkey={key} dmalen=8 len=8"));
        wrong.push(format!("WRITE_FIRST psn=5 va=0x1000 rkey={key} dmalen=257 len=256"));
        wrong.push(format!("FETCH_ADD psn=5 ackreq va=0x1000 rkey={key} add=0x1"));
        let swap = "expect=0x0 swap=0x1";
        wrong.push(format!("COMPARE_SWAP psn=5 ackreq va=0x1000 rkey={key} {swap}"));
    }
    for key in [write_only, local_only, foreign, gone, variant] {
        wrong.push(format!("READ_REQUEST psn=5 ackreq va=0x1000 rkey={key} dmalen=8"));
    }
    // The region ends at 0x11000.
    for va in ["0xfff", "0x10ff9", "0x11000", "0x0", "0x7fffffffffffffff"] {
        wrong.push(format!("READ_REQUEST psn=5 ackreq va={va} rkey=mem dmalen=8"));
        wrong.push(format!("WRITE_ONLY psn=5 ackreq va={va} rkey=mem dmalen=8 len=8"));
    }
    for va in ["0xff8", "0x11000", "0xfffffffffffffff8"] {
        wrong.push(format!("FETCH_ADD psn=5 ackreq va={va} rkey=mem add=0x1"));
    }
    wrong.push("READ_REQUEST psn=5 ackreq va=0x1000 rkey=mem dmalen=65537".into());
    wrong.push("READ_REQUEST psn=5 ackreq va=0x1000 rkey=mem dmalen=2147483648".into());
    for line in wrong {
        let mut t = Script::responder(rts_qp());
        // The same regions in the same order have the same keys.
        t.region(64, 0x1000, Access::REMOTE_READ);
        t.region(64, 0x1000, Access::LOCAL_WRITE | Access::REMOTE_WRITE);
        t.region(64, 0x1000, Access::LOCAL_WRITE);
        let foreign = HostMemory::alloc(64).unwrap();
        t.memory.register(PdId(9), foreign, Some(0x1000), full_access()).unwrap();
        refused(&mut t, &line, "NAK_ACCESS psn=5 msn=0", QpAccessErr);
        assert_eq!(t.mem.load_u64(0), Ok(0), "{line}");
    }
}

/// RSP-26: earlier packets are executed, and the NAK acknowledges them.
#[test]
fn write_fails_when_its_region_is_deregistered() {
    let mut t = Script::responder(rts_qp());
    t.rx(0, "WRITE_FIRST psn=5 va=0x1000 rkey=mem dmalen=600 len=256");
    t.memory.deregister(&t.mem);
    t.rx(0, "WRITE_MIDDLE psn=6 ackreq len=256");
    t.tx(0, "NAK_ACCESS psn=6 msn=0");
    assert_eq!(t.events(), [QpAccessErr(t.qpn)]);
    assert_eq!(bytes(&t.mem, 0, 256), pattern(5, 256));
    assert_eq!(bytes(&t.mem, 256, 256), [0; 256]);
}

/// RSP-28
#[test]
fn address_range_that_wraps_is_out_of_bounds() {
    for packet in [
        "WRITE_ONLY psn=5 ackreq va=0xfffffffffffffffc rkey=mem dmalen=8 len=8",
        "WRITE_FIRST psn=5 va=0xffffffffffff1000 rkey=mem dmalen=2147483648 len=256",
        "READ_REQUEST psn=5 ackreq va=0xffffffffffffffff rkey=mem dmalen=1",
        "READ_REQUEST psn=5 ackreq va=0xffffffffffff1000 rkey=mem dmalen=65536",
        "FETCH_ADD psn=5 ackreq va=0xfffffffffffffff8 rkey=mem add=0x1",
    ] {
        let mut t = Script::responder(rts_qp());
        refused(&mut t, packet, "NAK_ACCESS psn=5 msn=0", QpAccessErr);
    }
}

/// RSP-29
#[test]
fn queue_pair_must_permit_the_operation() {
    for (flag, packets) in [
        (
            Access::REMOTE_WRITE,
            &[
                "WRITE_ONLY psn=5 ackreq va=0x1000 rkey=mem dmalen=8 len=8",
                "WRITE_FIRST psn=5 va=0x1000 rkey=mem dmalen=512 len=256",
                "WRITE_ONLY psn=5 ackreq va=0x1000 rkey=mem dmalen=0 len=0",
            ][..],
        ),
        (
            Access::REMOTE_READ,
            &[
                "READ_REQUEST psn=5 ackreq va=0x1000 rkey=mem dmalen=8",
                "READ_REQUEST psn=5 ackreq va=0x1000 rkey=mem dmalen=0",
            ],
        ),
        (
            Access::REMOTE_ATOMIC,
            &[
                "FETCH_ADD psn=5 ackreq va=0x1000 rkey=mem add=0x1",
                "COMPARE_SWAP psn=5 ackreq va=0x1000 rkey=mem expect=0x0 swap=0x1",
            ],
        ),
    ] {
        for packet in packets {
            let access = full_access().difference(flag);
            let mut t = Script::responder(Link { access, ..rts_qp() });
            refused(&mut t, packet, "NAK_ACCESS psn=5 msn=0", QpAccessErr);
            assert_eq!(t.mem.load_u64(0), Ok(0));
        }
    }
}

/// RSP-30
#[test]
fn reads_and_atomics_require_max_dest_rd_atomic() {
    for packet in [
        "READ_REQUEST psn=5 ackreq va=0x1000 rkey=mem dmalen=8",
        "FETCH_ADD psn=5 ackreq va=0x1000 rkey=mem add=0x1",
    ] {
        let mut t = Script::responder(Link { rd_atomic: 0, ..rts_qp() });
        refused(&mut t, packet, "NAK_INV psn=5 msn=0", QpReqErr);
        assert_eq!(t.mem.load_u64(0), Ok(0));
    }
}

/// RSP-30, §4.3: more READs and atomics than max_dest_rd_atomic, before the first response.
#[test]
fn read_beyond_max_dest_rd_atomic_is_invalid() {
    let mut t = Script::responder(Link { rd_atomic: 2, ..rts_qp() });
    t.rx(0, "FETCH_ADD psn=5 ackreq va=0x1000 rkey=mem add=0x1");
    t.rx(0, "READ_REQUEST psn=6 ackreq va=0x1000 rkey=mem dmalen=8");
    t.rx(0, "FETCH_ADD psn=7 ackreq va=0x1000 rkey=mem add=0x1");
    // Earlier pending responses leave first.
    t.tx(0, "ATOMIC_ACK psn=5 msn=1 value=0x0");
    t.tx(0, "READ_RESPONSE_ONLY psn=6 msn=2 len=8");
    t.tx(0, "NAK_INV psn=7 msn=2");
    assert_eq!(t.events(), [QpReqErr(t.qpn)]);
    assert_eq!(t.mem.load_u64(0), Ok(1));
}

/// RSP-31
#[test]
fn atomic_requires_an_aligned_address() {
    for va in ["0x1001", "0x1004", "0x1007"] {
        let mut t = Script::responder(rts_qp());
        let add = format!("FETCH_ADD psn=5 ackreq va={va} rkey=mem add=0x1");
        refused(&mut t, &add, "NAK_INV psn=5 msn=0", QpReqErr);
        let mut t = Script::responder(rts_qp());
        let swap = format!("COMPARE_SWAP psn=5 ackreq va={va} rkey=mem expect=0x0 swap=0x1");
        refused(&mut t, &swap, "NAK_INV psn=5 msn=0", QpReqErr);
    }
}

/// RSP-36
#[test]
fn read_ends_where_its_region_is_deregistered() {
    let mut t = Script::responder(rts_qp());
    let receive = t.post_recv(64);
    t.rx(0, "WRITE_ONLY psn=5 va=0x1000 rkey=mem dmalen=8 len=8");
    t.rx(0, "READ_REQUEST psn=6 ackreq va=0x1000 rkey=mem dmalen=1024");
    t.tx(0, "READ_RESPONSE_FIRST psn=6 msn=2 len=256");
    t.tx(0, "READ_RESPONSE_MIDDLE psn=7 len=256");
    t.memory.deregister(&t.mem);
    t.tx(0, "NAK_ACCESS psn=8 msn=2");
    assert_eq!(t.events(), [QpAccessErr(t.qpn)]);
    assert_eq!(t.recvs(), [failed(receive, WcStatus::WrFlushErr)]);
    assert_eq!(t.state(), QpState::Err);
}

/// RSP-36: at the first packet of the response.
#[test]
fn read_of_a_region_deregistered_before_the_response_is_refused() {
    let mut t = Script::responder(rts_qp());
    t.rx(0, "READ_REQUEST psn=5 ackreq va=0x1000 rkey=mem dmalen=8");
    t.rx(0, "FETCH_ADD psn=6 ackreq va=0x1000 rkey=mem add=0x1");
    t.memory.deregister(&t.mem);
    t.tx(0, "NAK_ACCESS psn=5 msn=2");
    assert_eq!(t.events(), [QpAccessErr(t.qpn)]);
}

/// RSP-42
#[test]
fn packets_after_a_terminal_nak_are_dropped() {
    let mut t = Script::responder(rts_qp());
    t.rx(0, "FETCH_ADD psn=5 ackreq va=0x1000 rkey=mem add=0x1");
    t.tx(0, "ATOMIC_ACK psn=5 msn=1 value=0x0");
    t.rx(0, "WRITE_ONLY psn=6 ackreq va=0x1000 rkey=0x00000001 dmalen=8 len=8");
    t.tx(0, "NAK_ACCESS psn=6 msn=1");
    assert_eq!(t.events(), [QpAccessErr(t.qpn)]);
    for (us, line) in (1..).zip([
        "WRITE_ONLY psn=6 ackreq va=0x1000 rkey=0x00000001 dmalen=8 len=8",
        "WRITE_ONLY psn=7 ackreq va=0x1000 rkey=mem dmalen=8 len=8",
        "WRITE_ONLY psn=9 ackreq va=0x1000 rkey=mem dmalen=8 len=8",
        "FETCH_ADD psn=5 ackreq va=0x1000 rkey=mem add=0x1",
        "ACK psn=5 msn=0",
    ]) {
        t.rx(us, line);
        t.quiet(us);
        assert_eq!(t.dropped(DropReason::QpState), us);
    }
}

/// RSP-42: a NAK does not overtake pending responses.
#[test]
fn terminal_nak_follows_earlier_responses() {
    let mut t = Script::responder(rts_qp());
    t.rx(0, "READ_REQUEST psn=5 ackreq va=0x1000 rkey=mem dmalen=600");
    t.rx(0, "WRITE_ONLY psn=8 ackreq va=0x1000 rkey=0x00000001 dmalen=8 len=8");
    assert_eq!(t.events(), [QpAccessErr(t.qpn)]);
    t.tx(0, "READ_RESPONSE_FIRST psn=5 msn=1 len=256");
    t.tx(0, "READ_RESPONSE_MIDDLE psn=6 len=256");
    t.tx(0, "READ_RESPONSE_LAST psn=7 msn=1 len=88");
    t.tx(0, "NAK_ACCESS psn=8 msn=1");
}

/// RSP-47: the completion of its receive reports the error, instead of an event.
#[test]
fn write_with_immediate_to_an_invalid_key_fails_its_receive() {
    let only =
        "WRITE_ONLY_IMM psn=5 ackreq va=0x1000 rkey=0x00000001 dmalen=8 imm=0x00000001 len=8";
    let mut t = Script::responder(rts_qp());
    t.post_recv(64);
    t.post_recv(64);
    t.rx(0, only);
    t.tx(0, "NAK_ACCESS psn=5 msn=0");
    let ends = [failed(1, WcStatus::LocAccessErr), failed(2, WcStatus::WrFlushErr)];
    assert_eq!((t.recvs(), t.events(), t.state()), (ends.to_vec(), vec![], QpState::Err));

    // It also takes a receive from a shared queue.
    let mut t = Script::sharing(rts_qp(), 4);
    t.post_recv(64);
    t.rx(0, only);
    t.tx(0, "NAK_ACCESS psn=5 msn=0");
    assert_eq!(t.recvs(), [failed(1, WcStatus::LocAccessErr)]);
    assert_eq!(t.events(), [AsyncEvent::QpLastWqeReached(t.qpn)]);
}

/// RSP-47: the region is deregistered during the message.
#[test]
fn write_with_immediate_to_a_deregistered_region_fails_its_receive() {
    let mut t = Script::responder(rts_qp());
    t.post_recv(64);
    t.rx(0, "WRITE_FIRST psn=5 va=0x1000 rkey=mem dmalen=264 len=256");
    t.memory.deregister(&t.mem);
    t.rx(0, "WRITE_LAST_IMM psn=6 ackreq imm=0x00000001 len=8");
    t.tx(0, "NAK_ACCESS psn=6 msn=0");
    let ends = [failed(1, WcStatus::LocAccessErr)];
    assert_eq!((t.recvs(), t.events(), t.state()), (ends.to_vec(), vec![], QpState::Err));
}

/// RSP-47: only the last packet shows that the message takes a receive.
#[test]
fn write_to_an_invalid_key_takes_no_receive_before_its_end() {
    for write in [
        "WRITE_FIRST psn=5 va=0x1000 rkey=0x00000001 dmalen=264 len=256",
        "WRITE_ONLY psn=5 ackreq va=0x1000 rkey=0x00000001 dmalen=8 len=8",
    ] {
        refused(&mut Script::responder(rts_qp()), write, "NAK_ACCESS psn=5 msn=0", QpAccessErr);
    }
}

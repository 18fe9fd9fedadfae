//! Packets that have crashed other stacks, corrupted their data or caused wrong responses. A dropped packet changes
//! nothing; a refused one causes one NAK and the specified state. No packet causes a panic or unbounded memory.
//!
//! Related tests are elsewhere: unassigned opcodes, other transport versions and too short packets at an RC queue
//! pair (`rc_packets.rs`); address ranges that wrap (`rc_refusals.rs`); duplicate READs with other parameters
//! (`rc_responder.rs`); ACKs without outstanding requests (`rc_requester.rs`); gaps and first packets of UC
//! (`uc_receiver.rs`).

#![allow(clippy::unwrap_used, clippy::cast_possible_truncation, reason = "test code")]

use crate::support::script::{REMOTE, Script, bytes, failed, ok, rts_qp, rts_qp_of};
use crate::support::{Link, QKEY};
use softroce::engine::{QpState, QpType};
use softroce::ids::Mtu;
use softroce::transport::outputs::DropReason;
use softroce::transport::work::{SendOp, WcOpcode, WcStatus};
use softroce::wire::{Opcode, Transport};

/// Returns a queue pair of each transport.
fn of_every_service() -> Vec<Script> {
    let plain = [QpType::Rc, QpType::Uc, QpType::Ud, QpType::XrcIni];
    let scripts = plain.map(|qp_type| Script::with(rts_qp_of(qp_type), |_| {}));
    scripts.into_iter().chain([Script::xrc_target()]).collect()
}

/// Returns a datagram of `len` bytes with these header fields, zeros, and a valid ICRC.
fn packet(t: &Script, opcode: u8, pad: u8, psn: u32, len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len.max(12)];
    bytes[..4].copy_from_slice(&[opcode, 0x40 | pad << 4, 0xff, 0xff]);
    bytes[5..8].copy_from_slice(&t.qpn.value().to_be_bytes()[1..]);
    bytes[9..12].copy_from_slice(&psn.to_be_bytes()[1..]);
    bytes.truncate(len);
    t.seal(bytes)
}

/// Checks that a datagram is dropped for this reason, without response, completion or event.
#[track_caller]
fn dropped(t: &mut Script, datagram: &[u8], reason: DropReason) {
    let before = t.dropped(reason);
    t.rx_bytes(0, datagram);
    t.quiet(0);
    let left = (t.dropped(reason), t.state(), t.sends(), t.recvs(), t.events());
    assert_eq!(left, (before + 1, QpState::Rts, vec![], vec![], vec![]), "{reason:?}");
}

/// Checks that the request with PSN 5 causes this NAK and fails the queue pair.
#[track_caller]
fn refused(mut t: Script, datagram: &[u8], nak: &str) {
    t.rx_bytes(0, datagram);
    t.tx(0, nak);
    assert_eq!((t.state(), t.events().len()), (QpState::Err, 1));
    t.recvs();
    t.quiet(0);
}

/// PKT-09: for every destination queue pair, including reserved numbers.
#[test]
fn unassigned_opcodes_are_dropped_for_every_queue_pair() {
    let unassigned: Vec<u8> = (0..=255).filter(|byte| Opcode::from_byte(*byte).is_none()).collect();
    for mut t in of_every_service() {
        let ours = t.qpn.value();
        for qpn in [0, 1, 2, ours, ours ^ 1, ours ^ 0x80_0000, 0xff_fffe, 0xff_ffff] {
            for opcode in &unassigned {
                let mut bytes = packet(&t, *opcode, 0, 5, 64);
                bytes[5..8].copy_from_slice(&qpn.to_be_bytes()[1..]);
                let bytes = t.seal(bytes);
                dropped(&mut t, &bytes, DropReason::UnassignedOpcode);
            }
        }
    }
}

/// PKT-07: 48 bytes have crashed a kernel.
#[test]
fn too_short_packets_are_dropped_by_every_transport() {
    for mut t in of_every_service() {
        for opcode in Opcode::ALL {
            for pad in 0..4 {
                for len in 0..opcode.header_len() + usize::from(pad) + 4 {
                    let bytes = packet(&t, opcode.byte(), pad, 5, len);
                    dropped(&mut t, &bytes, DropReason::Malformed);
                }
            }
        }
    }
}

/// PKT-07
#[test]
fn packet_with_padding_longer_than_its_payload_is_dropped() {
    for (pad, payload) in [(1, 0), (2, 0), (3, 0), (2, 1), (3, 1), (3, 2)] {
        for mut t in of_every_service() {
            for opcode in Opcode::ALL {
                let bytes = packet(&t, opcode.byte(), pad, 5, opcode.header_len() + payload + 4);
                dropped(&mut t, &bytes, DropReason::Malformed);
            }
        }
    }
}

/// RSP-32
#[test]
fn atomic_write_of_another_length_is_refused() {
    for (announced, carried) in (0..=300)
        .map(|len| (8, len))
        .chain((0..=300).map(|len| (len, 8)))
        .chain((0..=300).map(|len| (len, len)))
        .chain([(u32::MAX, 8), (1 << 31, 8), (1 << 31, 256)])
        .filter(|lens| *lens != (8, 8))
    {
        let t = Script::responder(rts_qp());
        let line = format!(
            "ATOMIC_WRITE psn=5 ackreq va=0x1000 rkey=mem dmalen={announced} len={carried}"
        );
        let bytes = t.packet(&line);
        let mem = t.mem.clone();
        refused(t, &bytes, "NAK_INV psn=5 msn=0");
        assert_eq!(mem.load_u64(0), Ok(0), "{line}");
    }
}

/// RSP-28: with every operation that accesses memory, on the last address and beyond it.
#[test]
fn address_range_beyond_the_last_address_is_refused() {
    let last = u64::MAX;
    let requests = |va: u64, dmalen: u32| {
        let len = dmalen.min(256);
        let write = if dmalen > 256 { "WRITE_FIRST" } else { "WRITE_ONLY" };
        [
            format!("{write} psn=5 va={va:#x} rkey=mem dmalen={dmalen} len={len}"),
            format!("READ_REQUEST psn=5 va={va:#x} rkey=mem dmalen={dmalen}"),
            format!("FLUSH psn=5 placement=0x1 selectivity=0 va={va:#x} rkey=mem dmalen={dmalen}"),
        ]
    };
    for (va, dmalen) in [
        (last, 1),
        (last, 2),
        (last - 7, 8),
        (last - 7, 9),
        (last - 0x7fff_ffff, 1 << 31),
        (last - 0x7fff_fffe, 1 << 31),
        (last - 0xffe, 0x1000),
    ] {
        for line in requests(va, dmalen) {
            let t = Script::responder(rts_qp());
            let bytes = t.packet(&line);
            refused(t, &bytes, "NAK_ACCESS psn=5 msn=0");
        }
    }
}

/// RSP-21
#[test]
fn read_of_four_gigabytes_is_refused() {
    for (line, nak) in [
        ("WRITE_FIRST psn=5 va=0x1000 rkey=mem dmalen=4294967295 len=256", "NAK_INV psn=5 msn=0"),
        ("WRITE_ONLY psn=5 va=0x1000 rkey=mem dmalen=4294967295 len=256", "NAK_INV psn=5 msn=0"),
        ("READ_REQUEST psn=5 va=0x1000 rkey=mem dmalen=4294967295", "NAK_INV psn=5 msn=0"),
        ("READ_REQUEST psn=5 va=0x1000 rkey=mem dmalen=2147483649", "NAK_INV psn=5 msn=0"),
        (
            "FLUSH psn=5 placement=0x1 selectivity=0 va=0x1000 rkey=mem dmalen=4294967295",
            "NAK_INV psn=5 msn=0",
        ),
    ] {
        let t = Script::responder(rts_qp());
        let bytes = t.packet(line);
        refused(t, &bytes, nak);
    }
}

/// RSP-05: 4,096 duplicates of a READ in one buffer cause one response, without queueing.
#[test]
fn duplicate_read_flood_is_answered_once_per_round() {
    let mut t = Script::responder(rts_qp());
    let read = "READ_REQUEST psn=5 ackreq va=0x1000 rkey=mem dmalen=16384";
    t.rx(0, read);
    assert_eq!(t.all(0).len(), 64);
    for round in 1..=4 {
        for _ in 0..4096 / 4 {
            t.rx_merged(round, &[read; 4]);
        }
        assert_eq!(t.all(round).len(), 64, "in round {round}");
    }
    t.rx(5, "WRITE_ONLY psn=69 ackreq va=0x1000 rkey=mem dmalen=8 len=8");
    t.tx(5, "ACK psn=69 msn=2");
}

/// RSP-30: more READs than max_dest_rd_atomic, before the first response.
#[test]
fn read_beyond_max_dest_rd_atomic_fails_the_queue_pair() {
    let mut t = Script::responder(Link { rd_atomic: 4, ..rts_qp() });
    let psns = [5, 69, 133, 197, 261];
    let reads = psns.map(|psn| format!("READ_REQUEST psn={psn} va=0x1000 rkey=mem dmalen=16384"));
    t.rx_merged(0, &reads.each_ref().map(String::as_str));
    let sent = t.all(0);
    assert_eq!(sent.len(), 4 * 64 + 1);
    assert_eq!(sent.last().unwrap().line(), "NAK_INV psn=261 msn=4");
    assert_eq!((t.state(), t.events().len()), (QpState::Err, 1));
}

/// RSP-07: duplicates without an original READ.
#[test]
fn duplicate_reads_without_an_original_are_dropped() {
    let mut t = Script::responder(rts_qp());
    for back in [1, 2, 4, 0x7f_ffff] {
        for dmalen in [0_u32, 1, 256, 1 << 31, u32::MAX] {
            let psn = 5_u32.wrapping_sub(back) & 0xff_ffff;
            let line = format!("READ_REQUEST psn={psn} va=0x1000 rkey=mem dmalen={dmalen}");
            let bytes = t.packet(&line);
            dropped(&mut t, &bytes, DropReason::StaleDuplicate);
        }
    }
}

/// REQ-10: to a requester without outstanding requests, and with every syndrome.
#[test]
fn unsolicited_responses_are_dropped() {
    for (mut t, transport) in [
        (Script::requester(rts_qp()), Transport::Rc),
        (Script::requester(rts_qp_of(QpType::XrcIni)), Transport::Xrc),
    ] {
        let responses = Opcode::ALL
            .iter()
            .filter(|opcode| opcode.transport() == transport && !opcode.is_request());
        for opcode in responses {
            for psn in [4, 5, 6, 0x80_0004, 0x80_0005, 0xff_ffff] {
                for syndrome in 0..=255 {
                    let mut bytes = packet(&t, opcode.byte(), 0, psn, opcode.header_len() + 4);
                    if let Some(at) = opcode.layout().aeth {
                        bytes[usize::from(at)] = syndrome;
                    }
                    let bytes = t.seal(bytes);
                    dropped(&mut t, &bytes, DropReason::Ghost);
                }
            }
        }
    }
}

/// REQ-10: of posted requests with unsent packets.
#[test]
fn ack_of_unsent_packets_is_ignored() {
    let mut t = Script::requester(rts_qp());
    t.send(1, 256);
    t.read(2, 256);
    t.fetch_add(3, 1);
    assert_eq!(t.all(0).len(), 3);
    for (us, line) in (1..).zip([
        "ACK psn=8 msn=3",
        "ACK psn=8388612 msn=3",
        "NAK_PSN psn=8 msn=3",
        "NAK_ACCESS psn=8 msn=3",
        "RNR_NAK psn=8 msn=3 timer=655.36ms",
        "ATOMIC_ACK psn=8 msn=3 value=0x0",
        "READ_RESPONSE_ONLY psn=8 msn=3 len=256",
    ]) {
        t.rx(us, line);
        t.quiet(us);
        assert_eq!((t.sends(), t.dropped(DropReason::Ghost)), (vec![], us), "{line}");
    }
    t.rx(10, "ACK psn=5 msn=1");
    t.rx(10, "READ_RESPONSE_ONLY psn=6 msn=2 len=256");
    t.rx(10, "ATOMIC_ACK psn=7 msn=3 value=0x0");
    let done =
        [ok(1, WcOpcode::Send, 256), ok(2, WcOpcode::RdmaRead, 256), ok(3, WcOpcode::FetchAdd, 8)];
    assert_eq!(t.sends(), done);
}

/// RSP-16: the second first packet fails the queue pair.
#[test]
fn repeated_first_packets_fail_an_rc_queue_pair() {
    let mut t = Script::responder(rts_qp());
    t.post_recv(4096);
    t.post_recv(4096);
    t.rx(0, "SEND_FIRST psn=5 len=256");
    t.rx(0, "SEND_FIRST psn=6 len=256");
    t.tx(0, "NAK_INV psn=6 msn=0");
    assert_eq!(t.state(), QpState::Err);
    assert_eq!(t.recvs().iter().map(|c| c.wr_id).collect::<Vec<_>>(), [1, 2], "each ends once");
    t.events();
}

/// UC-02: a hundred thousand first packets use one receive request.
#[test]
fn repeated_first_packets_take_one_receive_of_a_uc_queue_pair() {
    let mut t = Script::with(rts_qp_of(QpType::Uc), |_| {});
    t.post_recv(4096);
    for psn in 5..100_005 {
        t.rx_bytes(0, &packet(&t, Opcode::UcSendFirst.byte(), 0, psn, 12 + 256 + 4));
    }
    assert_eq!((t.recvs(), t.state()), (vec![], QpState::Rts));
    t.rx(0, "SEND_ONLY psn=100005 len=8");
    assert_eq!(t.recvs(), [ok(1, WcOpcode::Recv, 8)]);
}

/// RSP-20, RSP-22: an endless message ends at the end of its memory.
#[test]
fn endless_message_ends_at_the_end_of_its_memory() {
    let mut t = Script::responder(rts_qp());
    t.post_recv(1024);
    t.rx(0, "SEND_FIRST psn=5 len=256");
    for psn in 6..9 {
        t.rx(0, &format!("SEND_MIDDLE psn={psn} len=256"));
    }
    t.quiet(0);
    t.rx(0, "SEND_MIDDLE psn=9 len=256");
    t.tx(0, "NAK_INV psn=9 msn=0");
    assert_eq!(t.recvs(), [failed(1, WcStatus::LocLenErr)]);

    let mut t = Script::responder(rts_qp());
    t.rx(0, "WRITE_FIRST psn=5 va=0x1000 rkey=mem dmalen=700 len=256");
    t.rx(0, "WRITE_MIDDLE psn=6 len=256");
    t.rx(0, "WRITE_MIDDLE psn=7 len=256");
    t.tx(0, "NAK_INV psn=7 msn=0");
    assert_eq!(bytes(&t.mem, 512, 256), [0; 256], "nothing past what was announced");
    t.events();
}

/// UD-01: only the exact queue key is accepted.
#[test]
fn datagram_with_another_qkey_is_dropped() {
    let mut t = Script::with(rts_qp_of(QpType::Ud), |config| config.active_mtu = Mtu::Mtu256);
    t.post_recv(296);
    let near = (0..32).map(|bit| QKEY.0 ^ 1 << bit);
    for qkey in near.chain([0, 1, QKEY.0.swap_bytes(), 0x8001_0000, u32::MAX]) {
        let line = format!("SEND_ONLY psn=5 qkey={qkey:#010x} srcqp=0x000012 len=8");
        let bytes = t.packet(&line);
        dropped(&mut t, &bytes, DropReason::QKeyMismatch);
    }
    t.rx(0, "SEND_ONLY psn=5 qkey=0x00001234 srcqp=0x000012 len=8");
    assert_eq!(t.recvs().len(), 1);
}

/// UD-05: the 40 bytes of the GRH count towards the length, for every division into elements.
#[test]
fn receive_too_short_for_the_grh_stays_posted() {
    for len in [0, 1, 255, 256] {
        for room in (0..=41).chain([39 + len, 40 + len, 41 + len]) {
            let mut t = Script::with(rts_qp_of(QpType::Ud), |c| c.active_mtu = Mtu::Mtu256);
            t.post_recv(room);
            let line = format!("SEND_ONLY psn=5 qkey=0x00001234 srcqp=0x000012 len={len}");
            let bytes = t.packet(&line);
            if room < 40 + len {
                dropped(&mut t, &bytes, DropReason::Refused);
                assert_eq!(t.received(1, room), vec![0; room], "nothing of it was written");
            } else {
                t.rx_bytes(0, &bytes);
                let lens: Vec<_> = t.recvs().iter().map(|c| c.byte_len).collect();
                assert_eq!(lens, [40 + len as u32], "{room} bytes for {len}");
            }
        }
    }
}

/// REQ-17: a READ response must come from the responder and have the requested length.
#[test]
fn read_response_never_writes_beyond_the_requested_length() {
    let mut t = Script::requester(rts_qp());
    t.post_op(1, SendOp::Read { from: REMOTE }, 300);
    assert_eq!(t.all(0).len(), 1);
    t.rx(0, "READ_RESPONSE_FIRST psn=5 msn=1 len=256");
    t.rx(0, "READ_RESPONSE_LAST psn=6 msn=1 len=256");
    assert_eq!(t.sends(), [failed(1, WcStatus::BadRespErr)]);
    assert_eq!(bytes(&t.answers, 300, 300), [0; 300]);
    t.quiet(0);
}

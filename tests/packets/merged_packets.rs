//! Packets of one kind in one buffer take a fast path, which must have the same effect as single packets.

#![allow(clippy::unwrap_used, reason = "test code")]

use crate::support::script::{Script, Sent, ok, rts_qp, rts_qp_of};
use softroce::engine::QpType;
use softroce::transport::work::WcOpcode;

fn write(psn: u32) -> String {
    format!("WRITE_ONLY psn={psn} ackreq va={:#x} rkey=mem dmalen=8 len=8", 0x1000 + 8 * psn)
}

fn rx_merged(t: &mut Script, us: u64, lines: &[String]) {
    let lines: Vec<_> = lines.iter().map(String::as_str).collect();
    t.rx_merged(us, &lines);
}

/// C9-105
#[test]
fn merged_messages_release_the_buffered_packet_behind_them() {
    let mut t = Script::responder(rts_qp());
    t.rx(0, &write(7));
    t.tx(0, "NAK_PSN psn=5 msn=0");
    rx_merged(&mut t, 1, &[write(5), write(6)]);
    t.tx(1, "ACK psn=7 msn=3");
}

/// C9-105
#[test]
fn merged_middles_release_the_buffered_packet_behind_them() {
    let mut t = Script::responder(rts_qp());
    t.post_recv(1024);
    t.rx(0, "SEND_FIRST psn=5 len=256");
    t.rx(0, "SEND_LAST psn=8 ackreq len=8");
    t.tx(0, "NAK_PSN psn=6 msn=0");
    rx_merged(&mut t, 1, &[6, 7].map(|psn| format!("SEND_MIDDLE psn={psn} len=256")));
    t.tx(1, "ACK psn=8 msn=1");
    assert_eq!(t.recvs(), [ok(1, WcOpcode::Recv, 776)]);
}

fn read_middles<const N: usize>(psns: [u32; N]) -> [String; N] {
    psns.map(|psn| format!("READ_RESPONSE_MIDDLE psn={psn} len=256"))
}

/// REQ-14: the missing MIDDLEs arrive, and the LAST is buffered.
#[test]
fn merged_middles_of_a_response_release_the_buffered_last() {
    let mut t = Script::requester(rts_qp());
    t.read(1, 1024);
    t.tx(0, "READ_REQUEST psn=5 ackreq va=0x8000 rkey=0x00000100 dmalen=1024");
    t.rx(1, "READ_RESPONSE_FIRST psn=5 msn=1 len=256");
    t.rx(1, "READ_RESPONSE_LAST psn=8 msn=1 len=256");
    t.tx(1, "READ_REQUEST psn=6 ackreq va=0x8100 rkey=0x00000100 dmalen=768");
    rx_merged(&mut t, 2, &read_middles([6, 7]));
    assert_eq!(t.sends(), [ok(1, WcOpcode::RdmaRead, 1024)]);
}

/// After a timeout, each response packet permits one more packet.
#[test]
fn merged_middles_of_a_response_open_the_window_after_a_timeout() {
    let mut t = Script::requester(rts_qp());
    t.read(1, 2048);
    t.write(2, 8);
    assert_eq!(t.all(0).len(), 2);
    t.tx(1049, "READ_REQUEST psn=5 ackreq va=0x8000 rkey=0x00000100 dmalen=2048");
    t.rx(1050, "READ_RESPONSE_FIRST psn=5 msn=1 len=256");
    t.quiet(1050);
    rx_merged(&mut t, 1051, &read_middles([6, 7, 8]));
    // At first eight PSNs lie between `una` and the WRITE: four have arrived, and five may be in flight.
    let again = t.all(1051);
    let lines: Vec<_> = again.iter().map(Sent::line).collect();
    assert_eq!(lines, ["WRITE_ONLY psn=13 ackreq va=0x8000 rkey=0x00000100 dmalen=8 len=8"]);
    t.leave();
}

#[test]
fn copy_of_a_merged_uc_packet_does_not_end_the_next_message() {
    let mut t = Script::responder(rts_qp_of(QpType::Uc));
    t.post_recv(2048);
    t.post_recv(2048);
    t.rx(0, "SEND_FIRST psn=5 len=256");
    rx_merged(&mut t, 0, &[6, 7, 8].map(|psn| format!("SEND_MIDDLE psn={psn} len=256")));
    t.rx(0, "SEND_LAST psn=9 len=8");
    t.rx(1, "SEND_FIRST psn=10 len=256");
    t.rx(2, "SEND_MIDDLE psn=7 len=256");
    t.rx(3, "SEND_LAST psn=11 len=8");
    assert_eq!(t.recvs(), [ok(1, WcOpcode::Recv, 1032), ok(2, WcOpcode::Recv, 264)]);
    let counters = t.engine.counters();
    assert_eq!((counters.duplicate_requests, counters.out_of_sequence), (1, 0));
}

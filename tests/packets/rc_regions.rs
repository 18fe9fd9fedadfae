//! Regions that are reregistered, or have their memory changed, during messages: packet by packet, at either end.
//! (`rc_refusals` covers deregistration.)

#![allow(clippy::unwrap_used, clippy::cast_possible_truncation, reason = "test code")]

use std::sync::Arc;

use crate::support::script::{REMOTE, Script, bytes, failed, ok, rts_qp};
use crate::support::{full_access, pattern, sge};
use softroce::engine::QpState;
use softroce::mem::{Access, HostMemory, Region, Reregister};
use softroce::transport::outputs::AsyncEvent::QpAccessErr;
use softroce::transport::work::{SendOp, SendRequest, WcOpcode, WcStatus};

/// Replaces the memory of a region of the script.
fn replace(t: &Script, region: &Region) -> Arc<Region> {
    let memory = Some((HostMemory::alloc(64 << 10).unwrap(), Some(region.addr())));
    t.memory.reregister(region, Reregister { memory, ..Reregister::default() }).unwrap()
}

#[test]
fn write_ends_where_its_region_is_reregistered() {
    let mut t = Script::responder(rts_qp());
    t.rx(0, "WRITE_FIRST psn=5 va=0x1000 rkey=mem dmalen=300 len=256");
    let new = replace(&t, &t.mem);
    t.rx(0, "WRITE_LAST psn=6 ackreq len=44");
    t.tx(0, "NAK_ACCESS psn=6 msn=0");
    assert_eq!((t.events(), t.state()), (vec![QpAccessErr(t.qpn)], QpState::Err));
    assert_eq!((bytes(&t.mem, 0, 256), bytes(&new, 0, 300)), (pattern(5, 256), vec![0; 300]));
}

#[test]
fn read_ends_where_its_region_is_reregistered() {
    let mut t = Script::responder(rts_qp());
    t.rx(0, "READ_REQUEST psn=5 ackreq va=0x1000 rkey=mem dmalen=1024");
    t.tx(0, "READ_RESPONSE_FIRST psn=5 msn=1 len=256");
    t.tx(0, "READ_RESPONSE_MIDDLE psn=6 len=256");
    let change = Reregister { access: Some(full_access()), ..Reregister::default() };
    t.memory.reregister(&t.mem, change).unwrap();
    t.tx(0, "NAK_ACCESS psn=7 msn=1");
    assert_eq!(t.events(), [QpAccessErr(t.qpn)]);
}

/// The key stays valid.
#[test]
fn next_message_uses_the_reregistered_region() {
    let mut t = Script::responder(rts_qp());
    t.rx(0, "WRITE_ONLY psn=5 va=0x1000 rkey=mem dmalen=8 len=8");
    let new = replace(&t, &t.mem);
    t.rx(0, "WRITE_ONLY psn=6 ackreq va=0x1000 rkey=mem dmalen=8 len=8");
    t.tx(0, "ACK psn=6 msn=2");
    assert_eq!((bytes(&t.mem, 0, 8), bytes(&new, 0, 8)), (pattern(5, 8), pattern(6, 8)));
    let change = Reregister { access: Some(Access::REMOTE_READ), ..Reregister::default() };
    t.memory.reregister(&new, change).unwrap();
    t.rx(1, "READ_REQUEST psn=7 ackreq va=0x1000 rkey=mem dmalen=8");
    let answer = t.tx(1, "READ_RESPONSE_ONLY psn=7 msn=3 len=8");
    assert_eq!(answer.payload(), pattern(6, 8));
    t.rx(2, "WRITE_ONLY psn=8 ackreq va=0x1000 rkey=mem dmalen=8 len=8");
    t.tx(2, "NAK_ACCESS psn=8 msn=3");
    assert_eq!(t.events(), [QpAccessErr(t.qpn)]);
}

/// A local request looks its key up when it starts.
#[test]
fn waiting_request_uses_the_reregistered_region() {
    let mut t = Script::requester(rts_qp());
    t.read(1, 8);
    let fenced = SendRequest::write(2, sge(&t.data, 0, 8), REMOTE).fenced().signaled();
    t.post(fenced).unwrap();
    t.tx(0, "READ_REQUEST psn=5 ackreq va=0x8000 rkey=0x00000100 dmalen=8");
    let new = replace(&t, &t.data);
    new.write_at(0, b"the new!").unwrap();
    t.rx(1, "READ_RESPONSE_ONLY psn=5 msn=1 len=8");
    let write = t.tx(1, "WRITE_ONLY psn=6 ackreq va=0x8000 rkey=0x00000100 dmalen=8 len=8");
    assert_eq!(write.payload(), b"the new!");
    t.rx(2, "ACK psn=6 msn=2");
    assert_eq!(t.sends(), [ok(1, WcOpcode::RdmaRead, 8), ok(2, WcOpcode::RdmaWrite, 8)]);
}

/// A retransmission must equal the original, so it may not use the new memory.
#[test]
fn request_in_progress_is_not_retransmitted_from_other_memory() {
    let mut t = Script::requester(rts_qp());
    t.post_op(1, SendOp::Write { to: REMOTE }, 8);
    t.tx(0, "WRITE_ONLY psn=5 ackreq va=0x8000 rkey=0x00000100 dmalen=8 len=8");
    replace(&t, &t.data);
    t.rx(1, "NAK_PSN psn=5 msn=0");
    t.quiet(1);
    assert_eq!((t.sends(), t.state()), (vec![failed(1, WcStatus::LocProtErr)], QpState::Err));
}

/// Messages of elements of which one is a null region.
#[test]
fn null_region_discards_its_part_of_a_message() {
    let mut t = Script::responder(rts_qp());
    let register = |access| t.memory.register(crate::support::PD, HostMemory::null(), None, access);
    let null = register(Access::LOCAL_WRITE).unwrap();
    let kept = t.region(4096, 0x9_0000, Access::LOCAL_WRITE);
    let pieces = [sge(&null, 77, 300), sge(&kept, 0, 100)];
    let receive = t.post_recv_sges(&pieces).unwrap();
    t.rx(0, "SEND_FIRST psn=5 len=256");
    t.rx(0, "SEND_LAST psn=6 ackreq len=144");
    t.tx(0, "ACK psn=6 msn=1");
    assert_eq!(t.recvs(), [ok(receive, WcOpcode::Recv, 400)]);
    assert_eq!(bytes(&kept, 0, 100), pattern(6, 144)[44..]);
    t.rx(1, &format!("READ_REQUEST psn=7 ackreq va=0x0 rkey={} dmalen=8", null.rkey()));
    t.tx(1, "NAK_ACCESS psn=7 msn=1");
    assert_eq!(t.events(), [QpAccessErr(t.qpn)]);
}

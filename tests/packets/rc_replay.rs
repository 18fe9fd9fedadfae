//! Requests with a response, and duplicates of them, while memory or state changes: the replay cache of the RC responder.
//!
//! The first expected PSN is 5, the path MTU is 256, four READs or atomics may be outstanding, and `va=0x1000
//! rkey=mem` is 64 KiB that the peer may write, read and change by atomics.

#![allow(clippy::unwrap_used, reason = "test code")]

use crate::support::script::{Script, failed, ok, rts_qp};
use crate::support::{Link, full_access, pattern};
use softroce::engine::QpState;
use softroce::transport::outputs::{AsyncEvent, DropReason};
use softroce::transport::work::{WcOpcode, WcStatus};

const READ: &str = "READ_REQUEST psn=5 ackreq va=0x1000 rkey=mem dmalen=600";

fn answered_read() -> Script {
    let mut t = Script::responder(rts_qp());
    t.rx(0, READ);
    t.tx(0, "READ_RESPONSE_FIRST psn=5 msn=1 len=256");
    t.tx(0, "READ_RESPONSE_MIDDLE psn=6 len=256");
    t.tx(0, "READ_RESPONSE_LAST psn=7 msn=1 len=88");
    t
}

/// A network may deliver a duplicate at any time.
#[test]
fn duplicate_read_of_a_deregistered_region_is_dropped() {
    let mut t = answered_read();
    t.memory.deregister(&t.mem);
    t.rx(0, READ);
    t.post_recv(64);
    t.rx(0, "SEND_ONLY psn=8 ackreq len=8");
    t.tx(0, "ACK psn=8 msn=2");
    assert_eq!(t.recvs(), [ok(1, WcOpcode::Recv, 8)]);
    assert_eq!((t.dropped(DropReason::StaleDuplicate), t.state()), (1, QpState::Rts));
}

#[test]
fn duplicate_read_is_dropped_when_its_region_is_deregistered_before_the_response() {
    let mut t = answered_read();
    t.rx(0, READ);
    t.memory.deregister(&t.mem);
    t.rx(0, "READ_REQUEST psn=6 ackreq va=0x1100 rkey=mem dmalen=256");
    assert_eq!((t.dropped(DropReason::StaleDuplicate), t.state()), (1, QpState::Rts));
    t.quiet(1_000);
    assert_eq!((t.dropped(DropReason::StaleDuplicate), t.state()), (2, QpState::Rts));
}

/// The requester waits for the last packet, which was not sent.
#[test]
fn read_fails_when_its_region_is_deregistered_during_its_first_response() {
    let mut t = Script::responder(rts_qp());
    t.rx(0, READ);
    t.tx(0, "READ_RESPONSE_FIRST psn=5 msn=1 len=256");
    t.tx(0, "READ_RESPONSE_MIDDLE psn=6 len=256");
    t.rx(0, READ);
    t.memory.deregister(&t.mem);
    t.tx(0, "NAK_ACCESS psn=5 msn=1");
    assert_eq!((t.events(), t.state()), (vec![AsyncEvent::QpAccessErr(t.qpn)], QpState::Err));
}

/// Kernel rxe and adapters execute requests in order, and Open MPI relies on it.
#[test]
fn read_returns_the_bytes_before_a_later_write() {
    let mut t = Script::responder(rts_qp());
    let before = pattern(3, 600);
    t.mem.write_at(0, &before).unwrap();
    t.rx(0, READ);
    t.rx(0, "WRITE_ONLY psn=8 ackreq va=0x1200 rkey=mem dmalen=64 len=64");
    assert_eq!(t.tx(0, "READ_RESPONSE_FIRST psn=5 msn=1 len=256").payload(), &before[..256]);
    assert_eq!(t.tx(0, "READ_RESPONSE_MIDDLE psn=6 len=256").payload(), &before[256..512]);
    assert_eq!(t.tx(0, "READ_RESPONSE_LAST psn=7 msn=1 len=88").payload(), &before[512..]);
    t.tx(0, "ACK psn=8 msn=2");
    let mut now = [0; 600];
    t.mem.read_at(0, &mut now).unwrap();
    assert_eq!(now, [&before[..512], &pattern(8, 64), &before[576..]].concat()[..]);

    // A duplicate is executed again.
    t.rx(1, "READ_REQUEST psn=7 ackreq va=0x1200 rkey=mem dmalen=88");
    assert_eq!(t.tx(1, "READ_RESPONSE_ONLY psn=7 msn=1 len=88").payload(), &now[512..]);
}

/// Sent packets of a response are not saved, and a second write does not change saved bytes either.
#[test]
fn rest_of_a_read_response_is_that_before_later_writes() {
    let mut t = Script::responder(rts_qp());
    let before = pattern(3, 1024);
    t.mem.write_at(0, &before).unwrap();
    t.rx(0, "READ_REQUEST psn=5 ackreq va=0x1000 rkey=mem dmalen=1024");
    t.tx(0, "READ_RESPONSE_FIRST psn=5 msn=1 len=256");
    t.rx(0, "WRITE_FIRST psn=9 va=0x1000 rkey=mem dmalen=300 len=256");
    t.rx(0, "WRITE_LAST psn=10 len=44");
    t.rx(0, "WRITE_ONLY psn=11 ackreq va=0x1300 rkey=mem dmalen=256 len=256");
    assert_eq!(t.tx(0, "READ_RESPONSE_MIDDLE psn=6 len=256").payload(), &before[256..512]);
    assert_eq!(t.tx(0, "READ_RESPONSE_MIDDLE psn=7 len=256").payload(), &before[512..768]);
    assert_eq!(t.tx(0, "READ_RESPONSE_LAST psn=8 msn=1 len=256").payload(), &before[768..]);
    t.tx(0, "ACK psn=11 msn=3");
}

#[test]
fn later_write_of_a_stream_is_executed_after_the_read() {
    let mut t = Script::responder(rts_qp());
    t.rx(0, "WRITE_ONLY psn=5 va=0x2000 rkey=mem dmalen=8 len=8");
    t.rx(0, "READ_REQUEST psn=6 ackreq va=0x1000 rkey=mem dmalen=8");
    let writes = [(7, 0x2000), (8, 0x1000)]
        .map(|(psn, va)| format!("WRITE_ONLY psn={psn} va={va:#x} rkey=mem dmalen=8 len=8"));
    t.rx_merged(0, &writes.each_ref().map(String::as_str));
    assert_eq!(t.tx(0, "READ_RESPONSE_ONLY psn=6 msn=2 len=8").payload(), [0; 8]);
}

#[test]
fn read_returns_the_word_before_a_later_atomic() {
    for atomic in [
        "FETCH_ADD psn=6 ackreq va=0x1008 rkey=mem add=0x1",
        "COMPARE_SWAP psn=6 ackreq va=0x1008 rkey=mem expect=0x7 swap=0x8",
    ] {
        let mut t = Script::responder(rts_qp());
        t.mem.store_u64(8, 7).unwrap();
        t.rx(0, "READ_REQUEST psn=5 ackreq va=0x1000 rkey=mem dmalen=16");
        t.rx(0, atomic);
        let sent = t.tx(0, "READ_RESPONSE_ONLY psn=5 msn=1 len=16");
        assert_eq!(sent.payload()[8..], 7_u64.to_ne_bytes());
        t.tx(0, "ATOMIC_ACK psn=6 msn=2 value=0x7");
        assert_eq!(t.mem.load_u64(8), Ok(8));
    }
}

#[test]
fn saved_bytes_of_a_deregistered_region_are_not_sent() {
    let mut t = Script::responder(rts_qp());
    t.rx(0, READ);
    t.rx(0, "WRITE_ONLY psn=8 va=0x1000 rkey=mem dmalen=8 len=8");
    t.memory.deregister(&t.mem);
    t.tx(0, "NAK_ACCESS psn=5 msn=2");
    assert_eq!((t.events(), t.state()), (vec![AsyncEvent::QpAccessErr(t.qpn)], QpState::Err));
}

/// A peer cannot make a queue pair save more than 4 MiB. The specification permits the bytes from after the write.
#[test]
fn what_a_queue_pair_saves_is_bounded() {
    const MIB: u32 = 1 << 20;
    let mut t = Script::responder(rts_qp());
    let region = t.region(3 * MIB as usize, 0, full_access());
    let first = region.rkey();
    let read = |psn: u32| format!("READ_REQUEST psn={psn} va=0x0 rkey={first} dmalen={}", 3 * MIB);
    let packets = 3 * MIB / 256;
    t.rx(0, &read(5));
    t.rx(0, &read(5 + packets));
    let psn = 5 + 2 * packets;
    let held = crate::counting::held();
    t.rx(0, &format!("WRITE_ONLY psn={psn} va=0x0 rkey={first} dmalen=8 len=8"));
    let grown = crate::counting::held() - held;
    assert!((3 << 20..4 << 20).contains(&grown), "{grown}");
    let sent = t.all(0);
    let payloads = [0, packets as usize].map(|index| sent[index].payload()[..8].to_vec());
    assert_eq!(payloads, [vec![0; 8], pattern(psn.into(), 8)]);
}

/// Bytes that a later READ has saved count too.
#[test]
fn what_a_queue_pair_saves_is_bounded_in_any_order() {
    const MIB: u32 = 1 << 20;
    let mut t = Script::responder(rts_qp());
    let regions = [0, 1].map(|_| t.region(3 * MIB as usize, 0, full_access()));
    let [first, second] = regions.each_ref().map(|region| region.rkey());
    let packets = 3 * MIB / 256;
    for (psn, rkey) in [(5, first), (5 + packets, second)] {
        t.rx(0, &format!("READ_REQUEST psn={psn} va=0x0 rkey={rkey} dmalen={}", 3 * MIB));
    }
    let held = crate::counting::held();
    for (psn, rkey) in [(5 + 2 * packets, second), (6 + 2 * packets, first)] {
        t.rx(0, &format!("WRITE_ONLY psn={psn} va=0x0 rkey={rkey} dmalen=8 len=8"));
    }
    let grown = crate::counting::held() - held;
    assert!((3 << 20..4 << 20).contains(&grown), "{grown}");
    t.all(0);
}

/// The failed requester ends the queue pair, and its responder sends nothing in ERR.
#[test]
fn read_responses_end_when_the_requester_fails() {
    let mut t = Script::responder(Link { retry_cnt: 0, ..rts_qp() });
    t.send(1, 8);
    t.tx(0, "SEND_ONLY psn=5 ackreq len=8");
    t.rx(0, "READ_REQUEST psn=5 ackreq va=0x1000 rkey=mem dmalen=65536");
    t.rx(0, "NAK_OP psn=5 msn=0");
    assert_eq!(t.sends(), [failed(1, WcStatus::RemOpErr)]);
    assert_eq!(t.state(), QpState::Err);
    t.memory.deregister(&t.mem);
    t.quiet(10_000);
    assert_eq!(t.events(), [] as [AsyncEvent; 0]);
}

/// The NAK follows the responses to earlier requests. Deregistration of their memory meanwhile is the same failure.
#[test]
fn region_deregistered_in_err_raises_no_second_event() {
    let mut t = Script::responder(rts_qp());
    t.rx(0, "READ_REQUEST psn=5 ackreq va=0x1000 rkey=mem dmalen=8");
    t.rx(0, "READ_REQUEST psn=6 ackreq va=0x0 rkey=mem dmalen=8");
    assert_eq!(t.events(), [AsyncEvent::QpAccessErr(t.qpn)]);
    t.memory.deregister(&t.mem);
    t.tx(0, "NAK_ACCESS psn=6 msn=1");
    assert_eq!((t.events(), t.state()), (vec![], QpState::Err));
}

#[cfg(feature = "runtime")]
#[test]
fn answered_read_holds_no_memory() {
    use crate::support::PD;
    use softroce::mem::HostMemory;

    let mut t = Script::responder(rts_qp());
    let file = tempfile::NamedTempFile::new().unwrap();
    file.as_file().set_len(4096).unwrap();
    let is_mapped = || {
        let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
        maps.contains(file.path().to_str().unwrap())
    };
    let memory = HostMemory::map_file(file.as_file(), 0, 4096).unwrap();
    let region = t.memory.register(PD, memory, Some(0x50_0000), full_access()).unwrap();
    let read = format!("READ_REQUEST psn=5 ackreq va=0x500000 rkey={} dmalen=8", region.rkey());
    for _ in 0..2 {
        t.rx(0, &read);
        t.tx(0, "READ_RESPONSE_ONLY psn=5 msn=1 len=8");
    }
    t.memory.deregister(&region);
    assert!(is_mapped());
    drop(region);
    assert!(!is_mapped(), "the queue pair holds the memory of a READ that it has answered");
}

/// Each packet of a response carries its part of the memory, in bursts and after gaps.
#[test]
fn read_response_carries_the_memory_in_order() {
    let mut t = Script::responder(rts_qp());
    let memory = pattern(3, 5000);
    t.mem.write_at(0, &memory).unwrap();
    let response = |t: &mut Script, us| {
        let sent = t.all(us);
        let bursts = sent.last().unwrap().burst - sent[0].burst + 1;
        let payloads: Vec<_> = sent.iter().map(|sent| sent.payload().to_vec()).collect();
        (sent.len(), bursts, payloads.concat())
    };
    t.rx(1, "READ_REQUEST psn=5 ackreq va=0x1000 rkey=mem dmalen=5000");
    // The first packet has an AETH, so the second is shorter and ends the burst.
    assert_eq!(response(&mut t, 1), (20, 2, memory.clone()));
    // The requester has received part of the first burst, so the rest leaves in bursts again.
    t.rx(2, "READ_REQUEST psn=9 ackreq va=0x1400 rkey=mem dmalen=3976");
    assert_eq!(response(&mut t, 2), (16, 2, memory[1024..].to_vec()));
}

/// The last but one burst has MIDDLE packets only, and the requester reports the arrival of the second.
#[test]
fn middle_packets_prove_that_bursts_arrive() {
    let mut t = Script::responder(rts_qp());
    t.rx(1, READ);
    assert_eq!(t.all(1).len(), 3);
    t.rx(1, "READ_REQUEST psn=8 ackreq va=0x1000 rkey=mem dmalen=5000");
    t.tx(1, "READ_RESPONSE_FIRST psn=8 msn=2 len=256");
    t.tx(1, "READ_RESPONSE_MIDDLE psn=9 len=256");
    // This request shows that all packets behind others have arrived so far.
    t.rx(1, "READ_REQUEST psn=7 ackreq va=0x1200 rkey=mem dmalen=88");
    let bursts = |t: &mut Script, us| {
        let sent = t.all(us);
        (sent.len(), sent.last().unwrap().burst - sent[0].burst + 1)
    };
    assert_eq!(bursts(&mut t, 1), (19, 2));
    t.rx(2, "READ_REQUEST psn=12 ackreq va=0x1400 rkey=mem dmalen=3976");
    assert_eq!(bursts(&mut t, 2), (16, 2));
}

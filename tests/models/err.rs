//! Queue pairs that fail at random with pending responses and unsent requests.
//!
//! In ERR no request leaves. After a refused request of the peer, the earlier responses and the NAK leave; after any
//! other failure nothing leaves. Later requests and deregistrations have no effect.

#![allow(clippy::unwrap_used, reason = "test code")]

use crate::support::choice::Choice;
use crate::support::script::{Script, rts_qp};
use crate::support::{RECV_CQ, SEND_CQ};
use softroce::engine::{QpAttr, QpState};
use softroce::net::Burst;
use softroce::time::Instant;
use softroce::transport::outputs::AsyncEvent;

/// Reasons for a queue pair to fail.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Reason {
    Program,
    CompletionQueue,
    /// The peer refuses a request of this side.
    Requester,
    /// This side refuses a request of the peer.
    Responder,
}

/// Makes a queue pair fail, and returns whether responses were pending then.
fn fail(mut t: Script, srqn: &str, seed: u64) -> bool {
    let mut choice = Choice::new(seed);
    let is_xrc = !srqn.is_empty();
    if !is_xrc {
        for wr_id in 1..=choice.below(3) {
            t.send(wr_id, 600);
        }
        t.send(9, 8);
        assert_ne!(t.all(0), [], "the first message leaves");
    }
    let mut psn = 5;
    for _ in 0..1 + choice.below(3) {
        let len = 1 + choice.below(20_000);
        let read = "va=0x1000 rkey=mem dmalen=";
        t.rx(0, &format!("READ_REQUEST psn={psn} ackreq{srqn} {read}{len}"));
        psn += len.div_ceil(256);
    }
    if !is_xrc && choice.one_in(2) {
        t.send(10, 40_000);
    }
    // Some packets leave.
    let mut burst = Burst::new();
    for _ in 0..choice.below(3) {
        t.engine.poll_transmit(Instant::ZERO, &mut burst);
    }
    let owed = t.engine.wants_to_transmit();
    let reason = match choice.below(4) {
        0 => Reason::CompletionQueue,
        1 if !is_xrc => Reason::Requester,
        2 => Reason::Responder,
        _ => Reason::Program,
    };
    // An XRC target has no completion queue that could fail.
    let reason = if is_xrc && reason == Reason::CompletionQueue { Reason::Program } else { reason };
    match reason {
        Reason::Program => t.modify(QpAttr::to(QpState::Err)).unwrap(),
        Reason::CompletionQueue => {
            let cq = if choice.one_in(2) { SEND_CQ } else { RECV_CQ };
            t.engine.handle_cq_overflow(Instant::ZERO, cq);
        }
        Reason::Requester => t.rx(0, "NAK_OP psn=5 msn=0"),
        Reason::Responder => {
            let write = "va=0x1000 rkey=0x00000001 dmalen=8 len=8";
            t.rx(0, &format!("WRITE_ONLY psn={psn} ackreq{srqn} {write}"));
        }
    }
    assert_eq!(t.state(), QpState::Err, "{reason:?}");
    let sent: Vec<_> = t.all(0).iter().map(crate::support::script::Sent::line).collect();
    match (reason, sent.split_last()) {
        (Reason::Responder, Some((nak, responses))) => {
            assert_eq!(*nak, format!("NAK_ACCESS psn={psn} msn={}", reads(&t)), "{reason:?}");
            let foreign = responses.iter().find(|line| !line.starts_with("READ_RESPONSE"));
            assert_eq!(foreign, None, "before the NAK");
        }
        (Reason::Responder, None) => panic!("no NAK"),
        _ => assert_eq!(sent, Vec::<String>::new(), "{reason:?}"),
    }
    let access = AsyncEvent::QpAccessErr(t.qpn);
    let told = t.events().iter().filter(|event| **event == access).count();
    assert_eq!(told, usize::from(reason == Reason::Responder), "{reason:?}");
    // Duplicates, new requests, and deregistrations.
    t.rx(1, &format!("READ_REQUEST psn=5 ackreq{srqn} va=0x1000 rkey=mem dmalen=8"));
    t.rx(1, &format!("WRITE_ONLY psn={psn} ackreq{srqn} va=0x1000 rkey=mem dmalen=8 len=8"));
    t.memory.deregister(&t.mem);
    t.quiet(1_000_000);
    assert_eq!(t.events(), []);
    t.leave();
    owed
}

/// Returns the number of READs that the responder has executed.
fn reads(t: &Script) -> u64 {
    t.engine.counters().rx_read_requests
}

fn run(make: fn() -> Script, srqn: &'static str) {
    let mut owed = 0;
    for seed in 0..400 {
        let Ok(owes) = std::panic::catch_unwind(|| fail(make(), srqn, seed)) else {
            panic!("seed {seed:#x}")
        };
        owed += usize::from(owes);
    }
    assert!(owed > 100, "{owed} queue pairs owed responses when they failed");
}

/// QPS-16, RSP-42
#[test]
fn rc_sends_nothing_in_err_but_a_refusal() {
    run(|| Script::responder(rts_qp()), "");
}

/// QPS-16, RSP-42
#[test]
fn xrc_target_sends_nothing_in_err_but_a_refusal() {
    run(Script::xrc_target, " srqn=ours");
}

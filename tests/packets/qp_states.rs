//! States of an RC queue pair: transitions, and the handling of packets and requests in each state.

#![allow(clippy::unwrap_used, clippy::cast_possible_truncation, reason = "test code")]

use crate::support::script::{
    PEER, PEER_QPN, PEER_SRQN, REMOTE, Script, Sent, failed, ok, rts_qp, rts_qp_of,
};
use crate::support::{Link, RECV_CQ, SEND_CQ, full_access, qp_init, request, sge};
use softroce::engine::{AttrMask, ModifyError, PostError, QpAttr, QpState, QpType};
use softroce::ids::{Gid, Mtu};
use softroce::mem::Access;
use softroce::net::{AddressVector, RxMeta};
use softroce::psn::Psn;
use softroce::time::{AckTimeout, RnrTimer};
use softroce::transport::outputs::{AsyncEvent, DropReason};
use softroce::transport::work::{RecvRequest, SendFlags, SendOp, SendRequest, WcOpcode, WcStatus};

const SEND: WcOpcode = WcOpcode::Send;
const WRITE: WcOpcode = WcOpcode::RdmaWrite;

/// Creates a queue pair in this state.
fn in_state(state: QpState) -> Script {
    let mut t = Script::reset(rts_qp(), |_| {});
    match state {
        QpState::Err => {
            t.bring_to(QpState::Rts);
            t.modify(QpAttr::to(QpState::Err)).unwrap();
        }
        _ => t.bring_to(state),
    }
    t.events();
    t
}

/// States of an RC queue pair.
const STATES: [QpState; 6] =
    [QpState::Reset, QpState::Init, QpState::Rtr, QpState::Rts, QpState::Sqd, QpState::Err];

// ---- transitions ----

/// QPS-01
#[test]
fn transition_requires_all_its_attributes() {
    use QpState::{Init, Reset, Rtr, Rts};
    for (from, to) in [(Reset, Init), (Init, Rtr), (Rtr, Rts)] {
        let mut t = in_state(from);
        let whole = t.step(to);
        let required = whole.mask().difference(AttrMask::STATE);
        assert!(!required.is_empty());
        for missing in required.iter() {
            let before = t.engine.query_qp(t.qpn).unwrap();
            let attr = without(whole, missing);
            let error = ModifyError::Attributes { from, to, missing, surplus: AttrMask::empty() };
            assert_eq!(t.modify(attr), Err(error));
            assert_eq!(t.engine.query_qp(t.qpn), Some(before), "without {missing}");
        }
        assert_eq!(t.modify(whole), Ok(()));
        assert_eq!(t.state(), to);
    }
}

/// Returns the attributes without one of them.
fn without(mut attr: QpAttr, missing: AttrMask) -> QpAttr {
    macro_rules! clear {
        ($($flag:ident $field:ident)*) => {$(
            if missing == AttrMask::$flag {
                attr.$field = None;
            }
        )*};
    }
    clear!(PKEY_INDEX pkey_index PORT port_num ACCESS_FLAGS access AV av PATH_MTU path_mtu);
    clear!(DEST_QPN dest_qpn RQ_PSN rq_psn MAX_DEST_RD_ATOMIC max_dest_rd_atomic);
    clear!(MIN_RNR_TIMER min_rnr_timer TIMEOUT timeout RETRY_CNT retry_cnt);
    clear!(RNR_RETRY rnr_retry SQ_PSN sq_psn MAX_QP_RD_ATOMIC max_rd_atomic);
    attr
}

/// QPS-01
#[test]
fn transition_refuses_superfluous_attributes() {
    let mut t = in_state(QpState::Rtr);
    let before = t.engine.query_qp(t.qpn);
    let attr = QpAttr { path_mtu: Some(Mtu::Mtu512), ..t.step(QpState::Rts) };
    let error = ModifyError::Attributes {
        from: QpState::Rtr,
        to: QpState::Rts,
        missing: AttrMask::empty(),
        surplus: AttrMask::PATH_MTU,
    };
    assert_eq!(t.modify(attr), Err(error));
    assert_eq!(t.engine.query_qp(t.qpn), before);
}

/// QPS-02
#[test]
fn only_specified_transitions_are_possible() {
    use QpState::{Err, Init, Reset, Rtr, Rts, Sqd};
    let legal = [
        (Reset, Init),
        (Init, Init),
        (Init, Rtr),
        (Rtr, Rts),
        (Rts, Rts),
        (Rts, Sqd),
        (Sqd, Sqd),
        (Sqd, Rts),
    ];
    for (from, to) in STATES.into_iter().flat_map(|from| QpState::ALL.map(|to| (from, to))) {
        let mut t = in_state(from);
        let attr = match (from, to) {
            (Init, Init) | (Rts, Rts) | (Sqd, Rts) => QpAttr::to(to),
            _ => t.step(to),
        };
        let is_legal = to == Reset || (to == Err && from != Reset) || legal.contains(&(from, to));
        let expected = match is_legal {
            true => Ok(()),
            false => Result::Err(ModifyError::Illegal { from, to }),
        };
        assert_eq!(t.modify(attr), expected, "{from} to {to}");
        assert_eq!(t.state(), if is_legal { to } else { from }, "{from} to {to}");
        t.events();
    }
}

/// QPS-12
#[test]
fn path_mtu_above_the_active_mtu_is_refused() {
    let mut t = Script::reset(Link { mtu: Mtu::Mtu2048, ..rts_qp() }, |config| {
        config.active_mtu = Mtu::Mtu1024;
    });
    t.bring_to(QpState::Init);
    let to_rtr = t.step(QpState::Rtr);
    let error = ModifyError::PathMtu { found: Mtu::Mtu2048, active: Mtu::Mtu1024 };
    assert_eq!(t.modify(to_rtr), Err(error));
    assert_eq!(t.state(), QpState::Init);
    assert_eq!(t.modify(QpAttr { path_mtu: Some(Mtu::Mtu1024), ..to_rtr }), Ok(()));
}

/// QPS-13
#[test]
fn alternate_path_is_refused() {
    for (from, to) in [(QpState::Init, QpState::Rtr), (QpState::Rtr, QpState::Rts)] {
        let mut t = in_state(from);
        let alt_path = Some(AddressVector::to(Gid::from(PEER)));
        let attr = QpAttr { alt_path, ..t.step(to) };
        assert_eq!(t.modify(attr), Err(ModifyError::AltPath));
        assert_eq!(t.state(), from);
    }
}

/// QPS-01: PSNs have 24 bits.
#[test]
fn high_bits_of_a_psn_are_ignored() {
    let mut t = Script::requester(Link { psn: [0x7f00_0005, 0xff00_0005], ..rts_qp() });
    t.send(1, 8);
    t.tx(0, "SEND_ONLY psn=5 ackreq len=8");
    t.rx(1, "WRITE_ONLY psn=5 ackreq va=0x1000 rkey=mem dmalen=8 len=8");
    t.tx(1, "ACK psn=5 msn=1");
}

// ---- RESET ----

/// QPS-03
#[test]
fn reset_discards_all_work_without_completions() {
    let mut t = Script::requester(rts_qp());
    t.post_recv(512);
    t.post_recv(64);
    t.send(1, 600);
    t.read(2, 600);
    t.fetch_add(3, 1);
    assert_eq!(t.all(0).len(), 5);
    t.rx(0, "SEND_FIRST psn=5 ackreq len=256");
    t.tx(0, "ACK psn=5 msn=0");
    t.rx(0, "SEND_LAST psn=7 ackreq len=8");
    t.tx(0, "NAK_PSN psn=6 msn=0");
    t.modify(QpAttr::to(QpState::Reset)).unwrap();
    t.quiet(1_000_000);
    assert_eq!((t.sends(), t.recvs(), t.events()), (vec![], vec![], vec![]));
    assert_eq!(t.engine.poll_timeout(), None);

    // A new connection starts with new PSNs, message count, gaps and receives.
    t.bring_to(QpState::Rts);
    t.send(4, 8);
    t.tx(1_000_000, "SEND_ONLY psn=5 ackreq len=8");
    t.rx(1_000_000, "SEND_ONLY psn=5 ackreq len=8");
    t.tx(1_000_000, "RNR_NAK psn=5 msn=0 timer=0.64ms");
    t.rx(1_000_001, "WRITE_ONLY psn=5 ackreq va=0x1000 rkey=mem dmalen=8 len=8");
    t.tx(1_000_001, "ACK psn=5 msn=1");
    t.rx(1_000_002, "FETCH_ADD psn=4 ackreq va=0x1000 rkey=mem add=0x1");
    t.rx(1_000_003, "WRITE_ONLY psn=7 ackreq va=0x1000 rkey=mem dmalen=8 len=8");
    t.tx(1_000_003, "NAK_PSN psn=6 msn=1");
    t.rx(1_000_004, "ACK psn=5 msn=1");
    assert_eq!(t.sends(), [ok(4, SEND, 8)]);
}

/// QPS-03: waiting for the peer or for room ends too.
#[test]
fn reset_cancels_waiting() {
    let mut t = Script::requester(rts_qp());
    t.send(1, 8);
    t.tx(0, "SEND_ONLY psn=5 ackreq len=8");
    t.rx(0, "RNR_NAK psn=5 msn=0 timer=655.36ms");
    t.modify(QpAttr::to(QpState::Reset)).unwrap();
    t.bring_to(QpState::Rts);
    t.send(2, 8);
    t.tx(0, "SEND_ONLY psn=5 ackreq len=8");
    t.rx(1, "ACK psn=5 msn=1");
    assert_eq!(t.sends(), [ok(2, SEND, 8)]);
    t.quiet(1_000_000);
}

/// QPS-03: the window is free again.
#[test]
fn reset_frees_the_window() {
    let link = Link { rd_atomic: 1, ..rts_qp() };
    let mut t = Script::with(link, |config| {
        (config.peer_receive_buffer, config.receive_buffer) = (16 << 10, 16 << 10);
    });
    for _ in 0..3 {
        t.write(1, 32 << 10);
        let sent = t.all(0);
        assert!(sent.len() < 129 && sent.len() > 4, "{} packets", sent.len());
        t.modify(QpAttr::to(QpState::Reset)).unwrap();
        t.bring_to(QpState::Rts);
        t.read(1, 4096);
        t.tx(0, "READ_REQUEST psn=5 ackreq va=0x8000 rkey=0x00000100 dmalen=2048");
        t.quiet(0);
        t.modify(QpAttr::to(QpState::Reset)).unwrap();
        t.bring_to(QpState::Rts);
    }
}

/// QPS-06
#[test]
fn requests_are_accepted_in_the_specified_states() {
    for state in STATES {
        let mut t = in_state(state);
        let sges = [sge(&t.data, 0, 8)];
        let sends = t.post(request(1, SendOp::Send, &sges)).err();
        let refused = |needed| PostError::State { qpn: t.qpn, found: state, needed };
        let expected = match state {
            QpState::Reset | QpState::Init | QpState::Rtr => {
                Some(refused("send requests are taken from RTS on"))
            }
            _ => None,
        };
        assert_eq!(sends, expected, "{state}");
        let recv = RecvRequest { wr_id: 2, ..RecvRequest::default() };
        let recvs = t.engine.post_recv(softroce::time::Instant::ZERO, t.qpn, recv).err();
        let expected =
            (state == QpState::Reset).then(|| refused("receive requests are taken from INIT on"));
        assert_eq!(recvs, expected, "{state}");
        t.leave();
    }
}

#[test]
fn receive_request_with_too_many_sges_is_refused() {
    let mut link = rts_qp();
    link.cap.max_recv_sge = 2;
    let mut t = Script::responder(link);
    let piece = sge(&t.answers, 0, 8);
    let error = PostError::TooManySges { found: 3, max: 2 };
    assert_eq!(t.post_recv_sges(&[piece; 3]), Err(error));
    assert_eq!(t.post_recv_sges(&[piece; 2]), Ok(1));
    t.rx(0, "SEND_ONLY psn=5 ackreq len=16");
    t.tx(0, "ACK psn=5 msn=1");
    assert_eq!(t.recvs(), [ok(1, WcOpcode::Recv, 16)]);
}

/// QPS-07
#[test]
fn packets_before_rtr_are_dropped() {
    for state in [QpState::Reset, QpState::Init] {
        let mut t = in_state(state);
        for (us, line) in (1..).zip([
            "WRITE_ONLY psn=5 ackreq va=0x1000 rkey=mem dmalen=8 len=8",
            "SEND_ONLY psn=5 ackreq len=8",
            "READ_REQUEST psn=5 ackreq va=0x1000 rkey=mem dmalen=8",
            "ACK psn=5 msn=1",
        ]) {
            t.rx(us, line);
            t.quiet(us);
            assert_eq!(t.dropped(DropReason::QpState), us, "{line}");
        }
        assert_eq!((t.mem.load_u64(0), t.state(), t.events()), (Ok(0), state, vec![]));
    }
}

// ---- RTR ----

/// CC-06: the ECN bits are those of the connection, regardless of the request's.
#[test]
fn requests_and_responses_carry_the_traffic_class_of_the_connection() {
    const CLASS: u8 = 0x4a;
    let mut t = in_state(QpState::Init);
    let step = t.step(QpState::Rtr);
    let av = step.av.map(|av| AddressVector { traffic_class: CLASS, ..av });
    t.modify(QpAttr { av, ..step }).unwrap();
    t.bring_to(QpState::Rts);
    let class_of = |sent: Sent| sent.path.traffic_class;
    for (us, traffic_class) in [(0, 0), (1, 0x01), (2, 0x03)] {
        let request = t.packet(&format!("READ_REQUEST psn={} va=0x1000 rkey=mem dmalen=8", 5 + us));
        let meta = RxMeta { traffic_class, ..t.meta() };
        t.rx_meta(us, &request, meta);
        let line = format!("READ_RESPONSE_ONLY psn={} msn={} len=8", 5 + us, 1 + us);
        assert_eq!(class_of(t.tx(us, &line)), CLASS);
    }
    t.rx(3, "WRITE_ONLY psn=8 ackreq va=0x1000 rkey=mem dmalen=8 len=8");
    assert_eq!(class_of(t.tx(3, "ACK psn=8 msn=4")), CLASS);
    t.send(1, 8);
    assert_eq!(class_of(t.tx(3, "SEND_ONLY psn=5 ackreq len=8")), CLASS);
    t.rx(4, "ACK psn=5 msn=1");
    assert_eq!(t.sends(), [ok(1, SEND, 8)]);
}

/// A connection manager takes the first packet as an RTU, in RTS too.
#[test]
fn first_packet_since_rtr_is_reported_once() {
    for (state, events) in [(QpState::Rtr, 1), (QpState::Rts, 0)] {
        let mut t = in_state(state);
        assert_eq!(t.engine.poll_first_packet(), None);
        t.post_recv(64);
        t.rx(0, "SEND_ONLY psn=5 ackreq len=8");
        assert_eq!((t.events().len(), t.engine.poll_first_packet()), (events, Some(t.qpn)));
        t.tx(0, "ACK psn=5 msn=1");
        t.rx(0, "SEND_ONLY psn=6 ackreq len=8");
        t.tx(0, "RNR_NAK psn=6 msn=1 timer=0.64ms");
        assert_eq!((t.events(), t.engine.poll_first_packet()), (vec![], None));
        assert_eq!(t.recvs().len(), 1);
        // After a reset it is another connection.
        t.modify(QpAttr::to(QpState::Reset)).unwrap();
        t.bring_to(QpState::Rts);
        t.post_recv(64);
        t.rx(1, "SEND_ONLY psn=5 ackreq len=8");
        assert_eq!(t.engine.poll_first_packet(), Some(t.qpn));
        t.tx(1, "ACK psn=5 msn=1");
        assert_eq!(t.recvs().len(), 1);
    }
}

/// QPS-08
#[test]
fn queue_pair_in_rtr_responds_and_reports_comm_est() {
    let mut t = in_state(QpState::Rtr);
    t.post_recv(64);
    t.rx(0, "SEND_ONLY psn=5 ackreq len=8");
    t.tx(0, "ACK psn=5 msn=1");
    assert_eq!(t.recvs(), [ok(1, WcOpcode::Recv, 8)]);
    assert_eq!(t.events(), [AsyncEvent::CommEst(t.qpn)]);
    t.rx(0, "READ_REQUEST psn=6 ackreq va=0x1000 rkey=mem dmalen=8");
    t.tx(0, "READ_RESPONSE_ONLY psn=6 msn=2 len=8");
    t.rx(0, "SEND_ONLY psn=7 ackreq len=8");
    t.tx(0, "RNR_NAK psn=7 msn=2 timer=0.64ms");
    assert_eq!(t.events(), [], "once");
    // RTS continues from there.
    t.bring_to(QpState::Rts);
    t.post_recv(64);
    t.rx(1, "SEND_ONLY psn=7 ackreq len=8");
    t.tx(1, "ACK psn=7 msn=3");
    assert_eq!(t.recvs(), [ok(2, WcOpcode::Recv, 8)]);
}

/// QPS-08: RTR has no outstanding requests, so no response is valid.
#[test]
fn queue_pair_in_rtr_drops_responses() {
    let mut t = in_state(QpState::Rtr);
    t.rx(0, "ACK psn=4 msn=0");
    t.rx(0, "READ_RESPONSE_ONLY psn=5 msn=0 len=8");
    assert_eq!(t.dropped(DropReason::QpState), 2);
    assert_eq!(t.events(), []);
}

/// A queue pair in RTS that has received a packet in RTR raises no event.
#[test]
fn first_packet_in_rts_raises_no_event() {
    let mut t = in_state(QpState::Rts);
    t.rx(0, "WRITE_ONLY psn=5 ackreq va=0x1000 rkey=mem dmalen=8 len=8");
    t.tx(0, "ACK psn=5 msn=1");
    assert_eq!(t.events(), []);
}

// ---- RTS ----

#[test]
fn attributes_changed_in_rts_take_effect() {
    let mut t = in_state(QpState::Rts);
    t.rx(0, "SEND_ONLY psn=5 ackreq len=8");
    t.tx(0, "RNR_NAK psn=5 msn=0 timer=0.64ms");
    let attr = QpAttr {
        min_rnr_timer: RnrTimer::new(1),
        access: Some(Access::REMOTE_READ),
        ..QpAttr::default()
    };
    t.modify(attr).unwrap();
    t.rx(0, "SEND_ONLY psn=5 ackreq len=8");
    t.tx(0, "RNR_NAK psn=5 msn=0 timer=0.01ms");
    t.rx(0, "READ_REQUEST psn=5 ackreq va=0x1000 rkey=mem dmalen=8");
    t.tx(0, "READ_RESPONSE_ONLY psn=5 msn=1 len=8");
    t.rx(0, "WRITE_ONLY psn=6 ackreq va=0x1000 rkey=mem dmalen=8 len=8");
    t.tx(0, "NAK_ACCESS psn=6 msn=1");
    assert_eq!(t.events(), [AsyncEvent::QpAccessErr(t.qpn)]);
}

/// CUR_STATE contains the caller's assumption.
#[test]
fn wrong_current_state_is_refused() {
    let mut t = in_state(QpState::Rts);
    let attr = QpAttr { cur_state: Some(QpState::Rtr), ..QpAttr::to(QpState::Rts) };
    let error = ModifyError::CurState { claimed: QpState::Rtr, found: QpState::Rts };
    assert_eq!(t.modify(attr), Err(error));
    let attr = QpAttr { cur_state: Some(QpState::Rts), ..attr };
    assert_eq!(t.modify(attr), Ok(()));
}

// ---- SQD ----

/// QPS-09
#[test]
fn sqd_finishes_started_requests_and_holds_the_rest() {
    let mut t = Script::requester(Link { rd_atomic: 1, ..rts_qp() });
    t.send(1, 8);
    t.read(2, 600);
    t.fetch_add(3, 1);
    assert_eq!(t.all(0).len(), 2, "the atomic waits for the READ");
    t.modify(QpAttr::to(QpState::Sqd)).unwrap();
    t.send(4, 8);
    assert_eq!(t.events(), []);
    t.rx(1, "ACK psn=5 msn=1");
    assert_eq!(t.sends(), [ok(1, SEND, 8)]);
    t.rx(1, "READ_RESPONSE_FIRST psn=6 msn=2 len=256");
    // A retry belongs to a started request.
    t.tx(1050, "READ_REQUEST psn=7 ackreq va=0x8100 rkey=0x00000100 dmalen=344");
    t.rx(1050, "READ_RESPONSE_FIRST psn=7 msn=2 len=256");
    assert_eq!(t.events(), []);
    t.rx(1050, "READ_RESPONSE_LAST psn=8 msn=2 len=88");
    assert_eq!(t.sends(), [ok(2, WcOpcode::RdmaRead, 600)]);
    assert_eq!(t.events(), [AsyncEvent::SqDrained(t.qpn)]);
    t.quiet(1_000_000);
    t.modify(QpAttr::to(QpState::Rts)).unwrap();
    t.tx(1_000_000, "FETCH_ADD psn=9 ackreq va=0x8000 rkey=0x00000100 add=0x1");
    t.tx(1_000_000, "SEND_ONLY psn=10 ackreq len=8");
}

/// QPS-09: a partly sent message is finished.
#[test]
fn sqd_finishes_a_started_message() {
    let mut t = Script::with(rts_qp(), |config| config.peer_receive_buffer = 16 << 10);
    t.write(1, 16 << 10);
    t.send(2, 8);
    let begun = t.all(0).len();
    assert!((2..64).contains(&begun), "{begun} packets fit the window");
    t.modify(QpAttr::to(QpState::Sqd)).unwrap();
    let mut psn = 4 + begun as u32;
    let mut us = 0;
    while psn < 68 {
        us += 1;
        t.rx(us, &format!("ACK psn={psn} msn=0"));
        let sent = t.all(us);
        assert!(!sent.is_empty(), "after PSN {psn}");
        psn += sent.len() as u32;
    }
    assert_eq!((psn, t.events()), (68, vec![]));
    t.rx(us, "ACK psn=68 msn=1");
    assert_eq!(t.sends(), [ok(1, WRITE, 16 << 10)]);
    assert_eq!(t.events(), [AsyncEvent::SqDrained(t.qpn)]);
    t.quiet(1_000_000);
}

/// QPS-09: no request is outstanding.
#[test]
fn idle_send_queue_drains_immediately() {
    let mut t = in_state(QpState::Rts);
    t.modify(QpAttr::to(QpState::Sqd)).unwrap();
    assert_eq!(t.events(), [AsyncEvent::SqDrained(t.qpn)]);
    t.send(1, 8);
    t.quiet(1000);
    assert_eq!(t.events(), []);
    t.modify(QpAttr::to(QpState::Rts)).unwrap();
    t.tx(1000, "SEND_ONLY psn=5 ackreq len=8");
}

/// QPS-09: the event is optional.
#[test]
fn sq_drained_event_is_optional() {
    let mut t = in_state(QpState::Rts);
    let quietly = |notify| QpAttr { en_sqd_async_notify: Some(notify), ..QpAttr::to(QpState::Sqd) };
    t.modify(quietly(false)).unwrap();
    assert_eq!(t.events(), []);
    t.modify(QpAttr::to(QpState::Rts)).unwrap();
    t.modify(quietly(true)).unwrap();
    assert_eq!(t.events(), [AsyncEvent::SqDrained(t.qpn)]);
}

/// §5.2
#[test]
fn draining_send_queue_admits_only_reset_and_err() {
    let mut t = in_state(QpState::Rts);
    t.send(1, 8);
    t.tx(0, "SEND_ONLY psn=5 ackreq len=8");
    t.modify(QpAttr::to(QpState::Sqd)).unwrap();
    assert_eq!(t.modify(QpAttr::to(QpState::Rts)), Err(ModifyError::Draining));
    assert_eq!(t.modify(QpAttr::to(QpState::Sqd)), Err(ModifyError::Draining));
    t.modify(QpAttr::to(QpState::Err)).unwrap();
    assert_eq!(t.sends(), [failed(1, WcStatus::WrFlushErr)]);
    assert_eq!(t.events(), [], "it was not drained");
}

/// QPS-10
#[test]
fn sqd_does_not_affect_the_responder() {
    let mut t = in_state(QpState::Sqd);
    t.post_recv(64);
    t.rx(0, "SEND_ONLY psn=5 ackreq len=8");
    t.tx(0, "ACK psn=5 msn=1");
    assert_eq!(t.recvs(), [ok(1, WcOpcode::Recv, 8)]);
    t.rx(0, "READ_REQUEST psn=6 ackreq va=0x1000 rkey=mem dmalen=300");
    t.tx(0, "READ_RESPONSE_FIRST psn=6 msn=2 len=256");
    t.tx(0, "READ_RESPONSE_LAST psn=7 msn=2 len=44");
    t.rx(0, "WRITE_ONLY psn=9 ackreq va=0x1000 rkey=mem dmalen=8 len=8");
    t.tx(0, "NAK_PSN psn=8 msn=2");
}

/// SQD to SQD changes attributes that RTS cannot change.
#[test]
fn timeouts_retries_and_path_change_in_sqd() {
    let mut t = Script::reset(Link { rd_atomic: 1, ..rts_qp() }, |_| {});
    t.bring_to(QpState::Sqd);
    t.events();
    let attr = QpAttr {
        timeout: AckTimeout::new(1),
        retry_cnt: Some(1),
        rnr_retry: Some(0),
        max_rd_atomic: Some(2),
        max_dest_rd_atomic: Some(2),
        av: Some(AddressVector { hop_limit: 9, ..AddressVector::to(Gid::from(PEER)) }),
        ..QpAttr::default()
    };
    t.modify(attr).unwrap();
    t.modify(QpAttr::to(QpState::Rts)).unwrap();
    t.fetch_add(1, 1);
    t.fetch_add(2, 2);
    assert_eq!(t.all(0).len(), 2);
    t.rx(0, "FETCH_ADD psn=5 ackreq va=0x1000 rkey=mem add=0x1");
    t.rx(0, "FETCH_ADD psn=6 ackreq va=0x1000 rkey=mem add=0x1");
    t.tx(0, "ATOMIC_ACK psn=5 msn=1 value=0x0");
    t.tx(0, "ATOMIC_ACK psn=6 msn=2 value=0x1");
    // 8.192 µs, two times.
    assert_eq!(t.all(9).len(), 1);
    t.quiet(17);
    assert_eq!(t.sends(), [failed(1, WcStatus::RetryExcErr), failed(2, WcStatus::WrFlushErr)]);
}

// ---- ERR ----

/// QPS-04
#[test]
fn err_flushes_sends_and_receives_in_order() {
    let mut t = Script::requester(rts_qp());
    for _ in 0..3 {
        t.post_recv(512);
    }
    t.send(1, 8);
    t.post_flags(2, SendOp::Write { to: REMOTE }, 600, SendFlags::empty());
    t.read(3, 8);
    assert_eq!(t.all(0).len(), 5);
    t.fetch_add(4, 1);
    t.rx(0, "ACK psn=5 msn=1");
    assert_eq!(t.sends(), [ok(1, SEND, 8)]);
    // The first receive belongs to a message in progress.
    t.rx(0, "SEND_FIRST psn=5 len=256");
    t.modify(QpAttr::to(QpState::Err)).unwrap();
    let flushed = |ids: std::ops::RangeInclusive<u64>| -> Vec<_> {
        ids.map(|wr_id| failed(wr_id, WcStatus::WrFlushErr)).collect()
    };
    assert_eq!(t.sends(), flushed(2..=4), "unsignaled ones too");
    assert_eq!(t.recvs(), flushed(1..=3));
    assert_eq!(t.events(), []);
    t.quiet(1_000_000);
}

/// QPS-16
#[test]
fn err_by_the_program_stops_responses() {
    let mut t = in_state(QpState::Rts);
    t.rx(0, "READ_REQUEST psn=5 ackreq va=0x1000 rkey=mem dmalen=1000");
    t.rx(0, "SEND_ONLY psn=9 ackreq len=8");
    t.modify(QpAttr::to(QpState::Err)).unwrap();
    t.quiet(1_000_000);
}

/// QPS-05
#[test]
fn requests_posted_in_err_are_flushed() {
    let mut t = in_state(QpState::Err);
    t.send(1, 8);
    t.read(2, 8);
    t.post_recv(8);
    t.post_recv(8);
    let flushed = |wr_id| failed(wr_id, WcStatus::WrFlushErr);
    assert_eq!(t.sends(), [flushed(1), flushed(2)]);
    assert_eq!(t.recvs(), [flushed(1), flushed(2)]);
    t.quiet(1_000_000);
}

/// QPS-05: requests complete immediately, so the queue never fills up.
#[test]
fn queue_in_err_accepts_requests_forever() {
    let mut link = rts_qp();
    (link.cap.max_send_wr, link.cap.max_recv_wr) = (2, 2);
    let mut t = Script::requester(link);
    t.send(1, 8);
    t.send(2, 8);
    t.post_recv(8);
    t.modify(QpAttr::to(QpState::Err)).unwrap();
    for wr_id in 3..10 {
        t.send(wr_id, 8);
        t.post_recv(8);
    }
    assert_eq!((t.sends().len(), t.recvs().len()), (9, 8));
}

/// QPS-02, QPS-03: RESET leads out of ERR.
#[test]
fn queue_pair_in_err_is_usable_after_reset() {
    let mut t = in_state(QpState::Err);
    t.rx(0, "WRITE_ONLY psn=5 ackreq va=0x1000 rkey=mem dmalen=8 len=8");
    assert_eq!(t.dropped(DropReason::QpState), 1);
    t.modify(QpAttr::to(QpState::Reset)).unwrap();
    t.bring_to(QpState::Rts);
    t.rx(0, "WRITE_ONLY psn=5 ackreq va=0x1000 rkey=mem dmalen=8 len=8");
    t.tx(0, "ACK psn=5 msn=1");
    t.send(1, 8);
    t.tx(0, "SEND_ONLY psn=5 ackreq len=8");
}

/// CC-10: the overrun of a completion queue fails its queue pairs.
#[test]
fn overrun_of_either_cq_fails_the_queue_pair() {
    for cq in [SEND_CQ, RECV_CQ] {
        let mut t = in_state(QpState::Rts);
        t.send(1, 8);
        t.post_recv(8);
        t.tx(0, "SEND_ONLY psn=5 ackreq len=8");
        t.engine.handle_cq_overflow(softroce::time::Instant::ZERO, cq);
        assert_eq!(t.events(), [AsyncEvent::CqErr(cq)]);
        assert_eq!(t.state(), QpState::Err);
        assert_eq!(t.sends(), [failed(1, WcStatus::WrFlushErr)]);
        assert_eq!(t.recvs(), [failed(1, WcStatus::WrFlushErr)]);
        t.quiet(1_000_000);
    }
}

/// CC-10: RESET leads to INIT only.
#[test]
fn cq_overrun_does_not_affect_a_queue_pair_in_reset() {
    let mut t = in_state(QpState::Reset);
    t.engine.handle_cq_overflow(softroce::time::Instant::ZERO, SEND_CQ);
    assert_eq!((t.events(), t.state()), (vec![AsyncEvent::CqErr(SEND_CQ)], QpState::Reset));
}

/// All attributes can be queried.
#[test]
fn query_returns_the_attributes() {
    let t = in_state(QpState::Rts);
    let info = t.engine.query_qp(t.qpn).unwrap();
    assert_eq!(info.state, QpState::Rts);
    let mut expected = t.step(QpState::Init);
    let (rtr, rts) = (t.step(QpState::Rtr), t.step(QpState::Rts));
    assert_eq!(info.attr.av, Some(AddressVector::to(Gid::from(PEER))));
    assert_eq!(info.attr.dest_qpn, Some(PEER_QPN));
    (expected.state, expected.av, expected.dest_qpn) = (Some(QpState::Rts), rtr.av, rtr.dest_qpn);
    (expected.path_mtu, expected.rq_psn) = (rtr.path_mtu, rtr.rq_psn);
    (expected.max_dest_rd_atomic, expected.min_rnr_timer) =
        (rtr.max_dest_rd_atomic, rtr.min_rnr_timer);
    (expected.sq_psn, expected.timeout, expected.retry_cnt) =
        (rts.sq_psn, rts.timeout, rts.retry_cnt);
    (expected.rnr_retry, expected.max_rd_atomic) = (rts.rnr_retry, rts.max_rd_atomic);
    assert_eq!(info.attr, expected);
    assert_eq!(info.init, qp_init(&t.link));
    assert!(!info.sq_draining);
}

// ---- sending by state ----

/// Length of a message of 100 packets from PSN 5 on.
const LONG: usize = 25_600;

/// Returns whether a queue pair sends, after a change of its state, the rest of a message with a sent first burst,
/// and a message posted after it.
fn leaves_after(qp_type: QpType, has_started: bool, state: QpState) -> [bool; 2] {
    let mut t = Script::requester(rts_qp_of(qp_type));
    let region = t.region(LONG, 0x90_0000, full_access());
    let mut end = Psn::new(5);
    if has_started {
        let to = (qp_type == QpType::XrcIni).then_some(PEER_SRQN.into());
        t.post(SendRequest { to, ..request(1, SendOp::Send, &[sge(&region, 0, LONG)]) }).unwrap();
        let srqn = if qp_type == QpType::XrcIni { " srqn=0x000345" } else { "" };
        t.tx(0, &format!("SEND_FIRST psn=5{srqn} len=256"));
        end = Psn::new(105);
    }
    t.send(2, 8);
    match state {
        QpState::Rts => {}
        // Only a failed request leads to this state.
        QpState::Sqe => {
            t.memory.deregister(if has_started { &region } else { &t.data });
        }
        _ => t.modify(QpAttr::to(state)).unwrap(),
    }
    let later = t.all(0).into_iter().filter(|sent| !has_started || sent.burst > 1);
    let (new, old): (Vec<_>, Vec<_>) =
        later.map(|sent| sent.psn()).partition(|psn| !psn.is_before(end));
    assert_eq!(t.state(), state);
    t.leave();
    [!old.is_empty(), !new.is_empty()]
}

/// QPS-04, QPS-09, QPS-15: RTS sends all requests, SQD started ones only, and SQE and ERR none.
#[test]
fn state_determines_which_requests_are_sent() {
    use QpState::{Err, Rts, Sqd, Sqe};
    use QpType::{Rc, Uc, Ud, XrcIni};
    let (all, connected) = (&[Rc, XrcIni, Uc, Ud], &[Rc, XrcIni, Uc]);
    // Transport, whether a message has started, state; whether that message continues, and whether the next one
    // starts.
    let table: [(&[QpType], bool, QpState, [bool; 2]); 8] = [
        (connected, true, Rts, [true, true]),
        (connected, true, Sqd, [true, false]),
        (&[Uc], true, Sqe, [false, false]),
        (connected, true, Err, [false, false]),
        (all, false, Rts, [false, true]),
        (all, false, Sqd, [false, false]),
        (&[Uc, Ud], false, Sqe, [false, false]),
        (all, false, Err, [false, false]),
    ];
    for (services, has_started, state, leaves) in table {
        for service in services {
            let found = leaves_after(*service, has_started, state);
            assert_eq!(found, leaves, "{service} in {state}, started before: {has_started}");
        }
    }
}

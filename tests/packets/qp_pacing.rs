//! Rate limits of queue pairs.

#![allow(clippy::unwrap_used, clippy::cast_possible_truncation, reason = "test code")]

use crate::support::script::{Script, Sent, rts_qp_of};
use crate::support::{Link, QKEY, World, full_access, request, sge};
use softroce::engine::{AttrMask, ModifyError, QpAttr, QpState, QpType, RateLimit};
use softroce::ids::Gid;
use softroce::net::{AddressVector, Burst};
use softroce::time::Instant;
use softroce::transport::work::{SendOp, UdTarget};

/// One byte per microsecond.
const LIMIT: RateLimit = RateLimit::kbps(8_000);

/// Creates a queue pair in RTS with a long ACK timeout and this rate limit.
fn paced(qp_type: QpType, limit: RateLimit) -> Script {
    let mut t = Script::requester(Link { timeout: 16, ..rts_qp_of(qp_type) });
    set(&mut t, limit);
    t
}

fn set(t: &mut Script, limit: RateLimit) {
    t.modify(QpAttr { rate_limit: Some(limit), ..QpAttr::default() }).unwrap();
}

/// Returns the time and the length of each burst.
fn bursts(sent: &[Sent]) -> Vec<(Instant, usize)> {
    let bursts = sent.chunk_by(|a, b| a.burst == b.burst);
    bursts.map(|burst| (burst[0].at, burst.iter().map(|sent| sent.bytes.len()).sum())).collect()
}

#[test]
fn requests_leave_at_the_rate_limit() {
    for qp_type in [QpType::Rc, QpType::Uc, QpType::Ud] {
        let mut t = paced(qp_type, LIMIT);
        for wr_id in 0..20 {
            t.send(wr_id, 200);
        }
        let sent = t.all(20_000);
        assert_eq!(sent.len(), 20, "{qp_type}");
        let mut through = 0;
        for (at, bytes) in bursts(&sent) {
            assert!(bytes <= 1000, "{qp_type}: {bytes} bytes at once, and a millisecond has 1000");
            assert_eq!(at, Instant::from_micros(through as u64), "{qp_type}");
            through += bytes;
        }
        assert!(through > 4000, "{qp_type}: {through} bytes in all");
        t.sends();
    }
}

/// The limit counts the bytes of the queue pair's own burst, not those of the burst before.
#[test]
fn rate_limited_burst_is_short_behind_a_long_one() {
    for qp_type in [QpType::Rc, QpType::Uc, QpType::Ud] {
        let mut world = World::new(1, 2);
        let link = Link { qp_type, ..Link::default() };
        let [long, limited] = [world.pair(&link), world.pair(&link)];
        let attr = QpAttr { rate_limit: Some(LIMIT), ..QpAttr::default() };
        world.modify(0, limited[0], attr);
        let source = world.nodes[0].region(4096, 0x1000, full_access());
        let av = AddressVector::to(Gid::from(world.nodes[1].ip));
        for ([from, to], count, len) in [(long, 1, 4096), (limited, 20, 200)] {
            for wr_id in 0..count {
                let send = request(wr_id, SendOp::Send, &[sge(&source, 0, len)]);
                let send = match qp_type {
                    QpType::Ud => send.to(UdTarget { av, qpn: to, qkey: QKEY }),
                    _ => send,
                };
                world.post_send(0, from, send);
            }
        }
        let mut burst = Burst::new();
        let (now, engine) = (world.now, &mut world.nodes[0].engine);
        assert!(engine.poll_transmit(now, &mut burst) && burst.data().len() > 4096, "{qp_type}");
        assert!(engine.poll_transmit(now, &mut burst) && burst.data().len() <= 1000, "{qp_type}");
    }
}

#[test]
fn rate_limit_admits_a_packet_of_any_length() {
    let mut t = paced(QpType::Rc, RateLimit { max_burst: 1, ..LIMIT });
    t.write(1, 512);
    let (first, last) = (12 + 16 + 256 + 4, 12 + 256 + 4);
    let expected = vec![(Instant::ZERO, first), (Instant::from_micros(first as u64), last)];
    assert_eq!(bursts(&t.all(1000)), expected);
}

#[test]
fn rate_limit_does_not_delay_responses() {
    // One byte takes 8 ms.
    let mut t = paced(QpType::Rc, RateLimit::kbps(1));
    t.send(1, 8);
    t.send(2, 8);
    t.tx(0, "SEND_ONLY psn=5 ackreq len=8");
    t.rx(1, "READ_REQUEST psn=5 ackreq va=0x1000 rkey=mem dmalen=100");
    t.tx(1, "READ_RESPONSE_ONLY psn=5 msn=1 len=100");
    t.rx(2, "WRITE_ONLY psn=6 ackreq va=0x1000 rkey=mem dmalen=8 len=8");
    t.tx(2, "ACK psn=6 msn=2");
    t.rx(3, "ACK psn=5 msn=1");
    assert_eq!(t.sends().len(), 1);
    // 24 bytes at 8 ms.
    t.quiet(191_999);
    t.tx(192_000, "SEND_ONLY psn=6 ackreq len=8");
}

#[test]
fn new_rate_limit_applies_immediately() {
    let mut t = paced(QpType::Rc, RateLimit::kbps(1));
    for wr_id in 0..3 {
        t.send(wr_id, 8);
    }
    t.tx(0, "SEND_ONLY psn=5 ackreq len=8");
    t.quiet(10);
    set(&mut t, RateLimit { max_burst: 1, ..LIMIT });
    t.tx(10, "SEND_ONLY psn=6 ackreq len=8");
    t.quiet(33);
    set(&mut t, RateLimit::NONE);
    t.tx(33, "SEND_ONLY psn=7 ackreq len=8");
}

#[test]
fn reset_removes_the_rate_limit() {
    let mut t = paced(QpType::Rc, RateLimit::kbps(1));
    t.send(1, 8);
    t.send(2, 8);
    t.tx(0, "SEND_ONLY psn=5 ackreq len=8");
    t.modify(QpAttr::to(QpState::Reset)).unwrap();
    t.bring_to(QpState::Rts);
    t.send(3, 8);
    t.send(4, 8);
    t.tx(0, "SEND_ONLY psn=5 ackreq len=8");
    t.tx(0, "SEND_ONLY psn=6 ackreq len=8");
}

#[test]
fn rate_limit_before_rts_is_refused() {
    let mut t = Script::reset(rts_qp_of(QpType::Rc), |_| {});
    let attr = QpAttr { rate_limit: Some(LIMIT), ..t.step(QpState::Init) };
    let error = ModifyError::Attributes {
        from: QpState::Reset,
        to: QpState::Init,
        missing: AttrMask::empty(),
        surplus: AttrMask::RATE_LIMIT,
    };
    assert_eq!(t.modify(attr), Err(error));
    t.bring_to(QpState::Rtr);
    let attr = QpAttr { rate_limit: Some(LIMIT), ..t.step(QpState::Rts) };
    assert_eq!(t.modify(attr), Ok(()));
}

//! Counters, packet by packet: each queue pair counts its own events, and the device the sum.
//!
//! The first PSN is 5 in either direction, the path MTU is 256, and the ACK timeout is 1048.576 µs.

#![allow(clippy::unwrap_used, clippy::cast_possible_truncation, reason = "test code")]

use std::collections::BTreeSet;
use std::time::Duration;

use crate::support::script::{Script, rts_qp, rts_qp_of};
use crate::support::{Link, World, full_access, pattern, request, sge};
use softroce::engine::{QpAttr, QpState, QpType};
use softroce::ids::Lkey;
use softroce::net::{BurstToken, TransmitErrorKind};
use softroce::port::Datapath;
use softroce::port::sim::Conditions;
use softroce::time::Instant;
use softroce::transport::outputs::{Counters, DropReason};
use softroce::transport::work::{SendFlags, SendOp, Sge};

/// Returns the counters that are not 0, except packets and bytes, in the order of the table.
fn counted(counters: &Counters) -> Vec<(&'static str, u64)> {
    let every_packet = ["rx_packets", "rx_bytes", "tx_packets", "tx_bytes"];
    let counted = counters.iter().filter(|c| c.value > 0 && !every_packet.contains(&c.name));
    counted.map(|counter| (counter.name, counter.value)).collect()
}

/// Checks the counters of the queue pair and of the device, also after the destruction of the queue pair.
#[track_caller]
fn has_counted(mut t: Script, expected: &[(&str, u64)]) {
    let of_qp = t.engine.qp_counters(t.qpn).unwrap();
    assert_eq!(counted(&of_qp), expected);
    assert_eq!(t.engine.counters(), of_qp);
    t.engine.destroy_qp(Instant::ZERO, t.qpn);
    assert_eq!(t.engine.qp_counters(t.qpn), None);
    // Remaining requests end without completions, so they are not counted.
    assert_eq!(t.engine.counters(), of_qp);
    t.leave();
}

// ---- the requester ----

#[test]
fn counters_count_packets_bytes_and_successes_by_operation() {
    let mut t = Script::requester(rts_qp());
    t.post_flags(1, SendOp::Send, 300, SendFlags::empty());
    t.write(2, 8);
    t.read(3, 8);
    t.fetch_add(4, 1);
    t.flush_remote(5, 8);
    let sent = t.all(0);
    t.rx(1, "ACK psn=7 msn=2");
    t.rx(1, "READ_RESPONSE_ONLY psn=8 msn=3 len=8");
    t.rx(1, "ATOMIC_ACK psn=9 msn=4 value=0x0");
    t.rx(1, "READ_RESPONSE_ONLY psn=10 msn=5 len=0");
    assert_eq!(t.sends().len(), 4, "and one that was not signaled");
    let Counters { rx_packets, rx_bytes, tx_packets, tx_bytes, .. } = t.engine.counters();
    let bytes: usize = sent.iter().map(|sent| sent.bytes.len()).sum();
    assert_eq!((tx_packets, tx_bytes), (6, bytes as u64));
    // BTH and ICRC are 16 bytes, an AETH 4, the response of the atomic and the payload of the READ 8.
    assert_eq!((rx_packets, rx_bytes), (4, 4 * 20 + 8 + 8));
    has_counted(
        t,
        &[
            ("sends_completed", 1),
            ("writes_completed", 1),
            ("reads_completed", 1),
            ("atomics_completed", 1),
            ("flushes_completed", 1),
        ],
    );
}

#[test]
fn sequence_nak_counts_one_retry_and_each_retransmitted_packet() {
    let mut t = Script::requester(rts_qp());
    t.send(1, 600);
    t.all(0);
    t.rx(1, "NAK_PSN psn=6 msn=0");
    t.all(1);
    t.rx(2, "ACK psn=7 msn=1");
    t.sends();
    let expected =
        [("sends_completed", 1), ("retransmitted", 2), ("retries", 1), ("sequence_naks", 1)];
    has_counted(t, &expected);
}

#[test]
fn missing_response_counts_as_an_implied_nak() {
    let mut t = Script::requester(rts_qp());
    t.read(1, 8);
    t.send(2, 8);
    t.all(0);
    t.rx(1, "ACK psn=6 msn=2");
    t.all(1);
    t.rx(2, "READ_RESPONSE_ONLY psn=5 msn=1 len=8");
    t.sends();
    has_counted(
        t,
        &[
            ("sends_completed", 1),
            ("reads_completed", 1),
            ("retransmitted", 1),
            ("implied_naks", 1),
            ("kept_ahead", 1),
        ],
    );
}

#[test]
fn unanswered_request_counts_timeouts_and_retry_exceeded() {
    let mut t = Script::requester(Link { retry_cnt: 2, ..rts_qp() });
    t.send(1, 8);
    t.send(2, 8);
    t.all(4000);
    t.sends();
    has_counted(
        t,
        &[
            ("retransmitted", 2),
            ("retries", 2),
            ("timeouts", 3),
            ("retries_exceeded", 1),
            ("send_errors", 1),
            ("sends_flushed", 1),
        ],
    );
}

#[test]
fn rnr_naks_are_counted_and_rnr_retry_exceeded_too() {
    let mut t = Script::requester(Link { rnr_retry: 1, ..rts_qp() });
    t.send(1, 8);
    t.all(0);
    t.rx(0, "RNR_NAK psn=5 msn=0 timer=0.01ms");
    t.all(10);
    t.rx(10, "RNR_NAK psn=5 msn=0 timer=0.01ms");
    t.sends();
    has_counted(
        t,
        &[
            ("retransmitted", 1),
            ("rnr_naks_received", 2),
            ("rnr_retries_exceeded", 1),
            ("send_errors", 1),
        ],
    );
}

#[test]
fn naks_are_counted_by_their_code() {
    for (nak, counter) in [
        ("NAK_ACCESS", Some("remote_access_errors")),
        ("NAK_INV", Some("remote_invalid_requests")),
        ("NAK_OP", Some("remote_operation_errors")),
        ("NAK_RD", None),
    ] {
        let mut t = Script::requester(rts_qp());
        t.write(1, 8);
        t.write(2, 8);
        t.all(0);
        t.rx(1, &format!("{nak} psn=5 msn=0"));
        t.sends();
        let reason = counter.map(|name| (name, 1));
        let all = [("send_errors", 1), ("sends_flushed", 1)];
        has_counted(t, &reason.into_iter().chain(all).collect::<Vec<_>>());
    }
}

#[test]
fn unexpected_responses_count_as_dropped_by_the_queue_pair() {
    let mut t = Script::requester(rts_qp());
    t.read(1, 600);
    t.all(0);
    t.rx(1, "ACK psn=4 msn=0");
    t.rx(1, "READ_RESPONSE_MIDDLE psn=6 len=256");
    t.all(1);
    // After a timeout the packet is not buffered.
    t.all(1100);
    t.rx(1100, "READ_RESPONSE_MIDDLE psn=6 len=256");
    t.rx(1100, "READ_RESPONSE_LAST psn=7 msn=1 len=88");
    t.all(1100);
    t.rx(1101, "READ_RESPONSE_ONLY psn=5 msn=1 len=600");
    t.sends();
    t.modify(QpAttr::to(QpState::Reset)).unwrap();
    t.rx(1102, "ACK psn=5 msn=1");
    let counters = t.engine.qp_counters(t.qpn).unwrap();
    let drops =
        [DropReason::Ghost, DropReason::ResponseAhead, DropReason::QpState, DropReason::BadIcrc];
    // RESET keeps the counters.
    assert_eq!(drops.map(|reason| counters.dropped(reason)), [1, 1, 1, 0]);
}

#[test]
fn refused_burst_is_counted_at_its_queue_pair() {
    let mut t = Script::requester(rts_qp());
    let now = Instant::ZERO;
    let tokens = [u64::from(t.qpn.value()), 0x12_3456, u64::MAX];
    for token in tokens {
        let kind = TransmitErrorKind::Other;
        t.engine.handle_transmit_error(now, BurstToken(token), kind);
    }
    let [of_qp, of_device] = [t.engine.qp_counters(t.qpn).unwrap(), t.engine.counters()];
    assert_eq!([of_qp.transmit_errors, of_device.transmit_errors], [1, 3]);
    t.quiet(0);
}

// ---- the responder ----

#[test]
fn requests_are_counted_by_operation_and_duplicates_separately() {
    let mut t = Script::responder(rts_qp());
    t.post_recv(64);
    let requests = [
        "SEND_ONLY psn=5 ackreq len=8",
        "WRITE_ONLY psn=6 ackreq va=0x1000 rkey=mem dmalen=8 len=8",
        "READ_REQUEST psn=7 ackreq va=0x1000 rkey=mem dmalen=8",
        "FETCH_ADD psn=8 ackreq va=0x1000 rkey=mem add=0x1",
        "ATOMIC_WRITE psn=9 ackreq va=0x1000 rkey=mem dmalen=8 len=8",
        "FLUSH psn=10 ackreq placement=0x1 selectivity=0 va=0x1000 rkey=mem dmalen=8",
    ];
    for packet in requests.iter().chain(&requests) {
        t.rx(0, packet);
        t.all(0);
    }
    t.recvs();
    has_counted(
        t,
        &[
            ("receives_completed", 1),
            ("rx_write_requests", 1),
            ("rx_read_requests", 1),
            ("rx_atomic_requests", 2),
            ("rx_flush_requests", 1),
            ("duplicate_requests", 6),
        ],
    );
}

#[test]
fn psn_gap_is_counted_once_and_packets_behind_it_as_dropped() {
    let mut t = Script::dropping(rts_qp());
    for psn in 7..10 {
        t.rx(0, &format!("SEND_ONLY psn={psn} ackreq len=8"));
    }
    t.tx(0, "NAK_PSN psn=5 msn=0");
    has_counted(t, &[("out_of_sequence", 1), ("drop_out_of_sequence", 2)]);
}

#[test]
fn missing_receive_request_counts_an_rnr_nak() {
    let mut t = Script::responder(rts_qp());
    for us in [0, 700] {
        t.rx(us, "SEND_ONLY psn=5 ackreq len=8");
        t.tx(us, "RNR_NAK psn=5 msn=0 timer=0.64ms");
    }
    has_counted(t, &[("rnr_naks_sent", 2)]);
}

#[test]
fn refused_requests_are_counted_by_the_nak_sent() {
    let too_long = "SEND_ONLY psn=5 ackreq len=65";
    let no_key = "WRITE_ONLY psn=5 ackreq va=0x1000 rkey=0x00000001 dmalen=8 len=8";
    let cases: [(&str, &[(&str, u64)]); 3] = [
        (no_key, &[("receives_flushed", 2), ("access_naks_sent", 1)]),
        ("SEND_LAST psn=5 len=8", &[("receives_flushed", 2), ("invalid_naks_sent", 1)]),
        (
            too_long,
            &[
                ("receive_length_errors", 1),
                ("receive_errors", 1),
                ("receives_flushed", 1),
                ("invalid_naks_sent", 1),
            ],
        ),
    ];
    for (packet, expected) in cases {
        let mut t = Script::responder(rts_qp());
        t.post_recv(64);
        t.post_recv(64);
        t.rx(0, packet);
        t.all(0);
        t.recvs();
        t.events();
        has_counted(t, expected);
    }
}

/// The receive request has an invalid local key, so the error is the responder's.
#[test]
fn local_errors_of_the_responder_are_counted() {
    let mut t = Script::responder(rts_qp());
    t.post_recv_sges(&[Sge { lkey: Lkey(1), ..sge(&t.mem, 0, 64) }]).unwrap();
    t.rx(0, "SEND_ONLY psn=5 ackreq len=8");
    t.tx(0, "NAK_OP psn=5 msn=0");
    t.recvs();
    has_counted(t, &[("receive_errors", 1), ("operation_naks_sent", 1)]);
}

#[test]
fn ecn_marks_and_cnps_are_counted() {
    let mut t = Script::responder(rts_qp());
    t.post_recv(64);
    let packet = t.packet("SEND_ONLY psn=5 len=8");
    let packet = t.seal(packet);
    let meta = softroce::net::RxMeta { traffic_class: 3, ..t.meta() };
    t.rx_meta(0, &packet, meta);
    t.rx(0, "CNP psn=5 becn");
    t.recvs();
    has_counted(t, &[("receives_completed", 1), ("ecn_marked", 1), ("cnps_received", 1)]);
}

#[test]
fn uc_counts_gaps_duplicates_and_messages_without_a_receive() {
    let mut t = Script::responder(rts_qp_of(QpType::Uc));
    t.rx(0, "WRITE_ONLY psn=5 va=0x1000 rkey=mem dmalen=8 len=8");
    t.rx(0, "WRITE_ONLY psn=5 va=0x1000 rkey=mem dmalen=8 len=8");
    t.rx(0, "SEND_ONLY psn=8 len=8");
    t.rx(0, "SEND_LAST psn=9 len=8");
    t.send(1, 8);
    t.all(0);
    t.sends();
    has_counted(
        t,
        &[
            ("sends_completed", 1),
            ("rx_write_requests", 1),
            ("duplicate_requests", 1),
            ("out_of_sequence", 1),
            ("drop_out_of_sequence", 1),
            ("drop_stale_duplicate", 1),
            ("drop_no_receive", 1),
        ],
    );
}

// ---- device and queue pair ----

/// Packets without a queue pair count at the device; packets that a queue pair drops count there.
#[test]
fn packets_without_a_queue_pair_count_at_the_device() {
    let mut t = Script::responder(rts_qp());
    let mut to_nobody = t.packet("SEND_ONLY psn=5 len=8");
    to_nobody[5..8].copy_from_slice(&[0, 0, 2]);
    let to_nobody = t.seal(to_nobody);
    t.rx_bytes(0, &to_nobody);
    t.rx_bytes(0, &[0; 8]);
    let mut damaged = t.packet("SEND_ONLY psn=5 len=8");
    damaged[12] ^= 1;
    t.rx_bytes(0, &damaged);
    let of_qp = t.engine.qp_counters(t.qpn).unwrap();
    assert_eq!((of_qp.rx_packets, counted(&of_qp)), (1, vec![("drop_bad_icrc", 1)]));
    let of_device = t.engine.counters();
    let all = [("drop_malformed", 1), ("drop_unknown_qp", 1), ("drop_bad_icrc", 1)];
    assert_eq!((of_device.rx_packets, counted(&of_device)), (3, all.to_vec()));
}

#[test]
fn counters_of_destroyed_queue_pairs_are_kept_up_to_a_limit() {
    let mut t = Script::with(rts_qp(), |config| config.remembers_ended = 2);
    let first = t.qpn;
    t.rx(0, "ACK psn=5 msn=1");
    let init = crate::support::qp_init(&t.link);
    let more = [(); 3].map(|()| t.engine.create_qp(Instant::ZERO, init).unwrap());
    let listed = |t: &Script| -> Vec<_> {
        let by_qp = t.engine.counters_by_qp();
        by_qp.map(|(qpn, counters)| (qpn, counters.rx_packets)).collect()
    };
    assert_eq!(listed(&t), [(first, 1), (more[0], 0), (more[1], 0), (more[2], 0)]);
    for qpn in [more[2], first] {
        t.engine.destroy_qp(Instant::ZERO, qpn);
    }
    assert_eq!(listed(&t), [(more[2], 0), (first, 1), (more[0], 0), (more[1], 0)]);
    t.engine.destroy_qp(Instant::ZERO, more[0]);
    assert_eq!(listed(&t), [(first, 1), (more[0], 0), (more[1], 0)]);
    assert_eq!(t.engine.counters().rx_packets, 1);
}

/// The counters of both sides agree with each other and with the packets on the simulated network, including
/// retransmissions.
#[test]
fn counters_of_both_sides_agree_on_a_lossy_network() {
    let link = Link::default();
    let mut world = World::new(11, 2);
    world.network.set_conditions(Conditions { loss: 0.05, ..Conditions::default() });
    let [a, b] = world.pair(&link);
    let (source, target) = (
        world.nodes[0].region(1 << 16, 0x1000, full_access()),
        world.nodes[1].region(1 << 16, 0x1000, full_access()),
    );
    source.write_at(0, &pattern(1, 1 << 16)).unwrap();
    for wr_id in 0..20 {
        let to = crate::support::remote(&target, 0);
        let sges = [sge(&source, 0, 20_000)];
        world.post_send(0, a, request(wr_id, SendOp::Write { to }, &sges));
    }
    world.run(Duration::from_secs(10));
    let of = |node: usize, qpn| world.nodes[node].engine.qp_counters(qpn).unwrap();
    let (near, far) = (of(0, a), of(1, b));
    assert_eq!((near.writes_completed, far.rx_write_requests), (20, 20));
    // 20 packets each; all others are retransmissions.
    assert_eq!(near.tx_packets, 400 + near.retransmitted);
    assert!(near.retransmitted > 0 && near.retries >= near.timeouts, "{near:?}");
    assert_eq!(near.retries, near.timeouts + near.sequence_naks);
    assert!(far.out_of_sequence >= near.sequence_naks, "{far:?}");
    let [sent, arrived] = [0, 1].map(|node: usize| world.nodes[node].port.counters());
    assert_eq!((near.tx_packets, far.rx_packets), (sent.tx_datagrams, arrived.rx_datagrams));
    assert!(far.rx_packets < near.tx_packets);
    // 400 kB exceed a receive buffer of default size.
    assert!(near.window_waits > 0);
}

/// A driver's name corresponds to at most three counters, and never twice to one.
#[test]
fn driver_names_of_counters_are_plausible() {
    let mut seen = BTreeSet::new();
    for counter in Counters::default().iter() {
        for (driver, name) in counter.also {
            assert!(["rxe", "mlx5"].contains(driver), "{driver}");
            assert!(seen.insert((counter.name, *driver, *name)), "{name}");
        }
    }
    assert!(seen.len() > 25, "{seen:?}");
}

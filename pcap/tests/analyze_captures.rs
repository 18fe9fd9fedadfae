//! The analyzer on golden captures, compared with their manifest.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::fs::File;
use std::io::BufReader;
use std::path::Path;
use std::time::Duration;

use softroce::ids::Qpn;
use softroce::wire::Transport;
use softroce::wire::cm::Value;
use softroce_pcap::Reader;
use softroce_pcap::analyze::{
    Analysis, Analyzer, Certainty, Filter, Flow, Kind, Limits, Line, Nak, Phase, ReasonKind,
    Retransmissions, Stream,
};

fn analyze_with(name: &str, filter: Filter) -> Analysis {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("captures").join(name);
    let mut reader = Reader::new(BufReader::new(File::open(path).unwrap())).unwrap();
    let mut analyzer = Analyzer::new(Limits::default(), filter);
    while let Some(packet) = reader.next_packet().unwrap() {
        analyzer.packet(&packet);
    }
    analyzer.finish()
}

fn analyze(name: &str) -> Analysis {
    analyze_with(name, Filter::default())
}

/// Returns the only flow of a capture.
fn flow(name: &str) -> Flow {
    let mut flows = analyze(name).flows;
    assert_eq!(flows.len(), 1, "{name}");
    flows.remove(0)
}

/// Returns the only stream of the only flow.
fn stream(name: &str) -> Stream {
    let mut streams = flow(name).streams;
    assert_eq!(streams.len(), 1, "{name}");
    streams.remove(0)
}

#[test]
fn retransmissions_have_their_cause() {
    // Every fourth SEND_MIDDLE was dropped by its receiver. All SENDs have 64640 bytes in the capture.
    let sends = stream("rxe/loss_send_middle.pcap");
    let expected =
        Retransmissions { by_nak: 20, by_timeout: 15, bytes: 34_640, ..Retransmissions::default() };
    assert_eq!(sends.recovery.again, expected);
    assert_eq!((sends.recovery.missing.lost_behind, sends.recovery.missing.lost_before), (10, 0));
    assert_eq!(sends.recovery.naks[&Nak::Sequence], 10);
    assert_eq!((sends.recovery.timeouts.count, sends.recovery.rnr.count), (5, 0));
    let messages = &sends.operations[&Kind::Send];
    assert_eq!((messages.messages, messages.sizes[&5000]), (6, 6));
    assert_eq!((sends.traffic.bytes, sends.traffic.delivered), (30_000, 30_000));
    let timeouts = sends.spent(Phase::Timeout) as f64 / sends.duration() as f64;
    assert!(timeouts > 0.9, "{timeouts}");

    // Every fifth READ_RESPONSE_MIDDLE was dropped by the requester, behind the point of capture.
    let reads = stream("rxe/loss_readresp_mid.pcap");
    assert_eq!(
        (
            reads.recovery.again.by_timeout,
            reads.recovery.again.spurious,
            reads.recovery.again.responses
        ),
        (5, 5, 15)
    );
    assert_eq!(
        (reads.traffic.requests, reads.traffic.answers, reads.traffic.delivered),
        (11, 45, 30_000)
    );
}

#[test]
fn rnr_waits_are_the_main_cause() {
    let flow = flow("rxe/rc_rnr.pcap");
    let reasons = flow.reasons();
    let ReasonKind::NotReady(waits) = reasons[0].what else { panic!("{reasons:?}") };
    assert_eq!((waits.count, waits.ended), (6, 6));
    // The RNR NAKs ask for 20.48 ms.
    assert!(waits.total >= 6 * 20_480_000 && reasons[0].share > 0.95, "{waits:?}");
    assert_eq!(flow.streams[0].recovery.again.total(), flow.streams[0].recovery.again.by_rnr);
}

#[test]
fn failed_connection_has_its_reason() {
    let unanswered = flow("rxe/rc_retry_exceeded.pcap");
    assert_eq!(unanswered.certainty, Certainty::Alone);
    assert_eq!(unanswered.a.qp, None);
    assert_eq!(unanswered.reasons()[0].what, ReasonKind::Unanswered { requests: 1, again: 3 });
    let refused = flow("rxe/rc_acc_write_badrkey.pcap");
    let what = refused.reasons()[0].what;
    assert!(matches!(what, ReasonKind::Refused { nak: Nak::RemoteAccess, .. }), "{what:?}");
}

#[test]
fn flow_has_both_directions_and_the_cm_exchange() {
    let flow = flow("rxe/cm_rping.pcap");
    assert_eq!(flow.certainty, Certainty::Managers);
    assert_eq!((flow.a.qp, flow.b.qp), (Some(Qpn::new(0x5c)), Some(Qpn::new(0x5c))));
    let counts: Vec<_> =
        flow.streams.iter().map(|s| (s.traffic.requests, s.traffic.answers)).collect();
    assert_eq!(counts, [(6, 6), (12, 12)]);
    let cm_exchange = flow.cm_exchange.unwrap();
    let field = |name| cm_exchange.request.fields.iter().find(|field| field.0 == name).unwrap().1;
    assert_eq!(field("path_mtu"), Value::Number(4096));
    assert_eq!(field("ack_timeout"), Value::Number(19));
    assert!(cm_exchange.answered > cm_exchange.asked);

    let messages = flow.streams.iter().flat_map(|stream| &stream.operations);
    let messages: Vec<_> = messages.map(|(kind, of)| (*kind, of.messages)).collect();
    let expected = [(Kind::Send, 6), (Kind::Send, 6), (Kind::Write, 3), (Kind::Read, 3)];
    assert_eq!(messages, expected);
}

#[test]
fn datagrams_have_a_flow_for_each_pair() {
    let flow = flow("rxe/pp_ud.pcap");
    assert_eq!((flow.transport, flow.certainty), (Transport::Ud, Certainty::Named));
    let both: Vec<_> =
        flow.streams.iter().map(|s| (s.traffic.requests, s.traffic.delivered)).collect();
    assert_eq!(both, [(10, 5120), (10, 5120)]);
    assert!(flow.reasons().is_empty());
}

#[test]
fn psns_are_unwrapped() {
    let sends = stream("rxe/rc_send_psnwrap.pcap");
    let sent: Vec<_> = sends.trace(Line::Sent).cells().iter().map(|cell| cell.low).collect();
    let first = sent[0];
    assert_eq!(first % (1 << 24), 0xff_fffc);
    let expected: Vec<_> = (first..first + 13).collect();
    assert_eq!(sent, expected);
    assert_eq!(sends.trace(Line::Acknowledged).cells().last().unwrap().high, first + 13);
}

#[test]
fn read_takes_the_psns_of_its_response() {
    let reads = stream("rxe/rc_read_mtu256.pcap");
    let mtu = reads.mtu.unwrap();
    assert_eq!(mtu, 256);
    let read = reads.trace(Line::Read).cells();
    let (first, last) = (read.first().unwrap().low, read.last().unwrap().high);
    assert_eq!(last + 1 - first, reads.traffic.answers);
    assert_eq!(reads.operations[&Kind::Read].latency.count(), 8);
    assert_eq!(reads.recovery.unacknowledged, 0);
}

#[test]
fn atomic_carries_eight_bytes() {
    let atomics = stream("rxe/rc_atomic.pcap");
    assert_eq!(
        (atomics.traffic.bytes, atomics.traffic.delivered, atomics.in_flight.bytes.max()),
        (32, 32, 8)
    );
    assert_eq!(atomics.operations[&Kind::FetchAdd].sizes[&8], 2);
    assert_eq!(atomics.operations[&Kind::CompareSwap].latency.count(), 2);
}

#[test]
fn cnps_are_counted_without_their_flow() {
    let analysis = analyze("hardware/cx4lx_scapy_cnp.pcap");
    assert_eq!((analysis.counts.stray_cnps, analysis.counts.not_followed), (1, 0));
}

#[test]
fn filters_are_by_queue_pair_address_and_time() {
    let name = "rxe/rc_srq.pcap";
    let all = analyze(name);
    assert_eq!(all.flows.len(), 2);
    let qp = all.flows[1].b.qp.unwrap();
    let one = analyze_with(name, Filter { qps: vec![qp], ..Filter::default() });
    assert_eq!((one.flows.len(), one.flows[0].b.qp), (1, Some(qp)));
    let addresses = vec!["10.77.0.9".parse().unwrap()];
    let none = analyze_with(name, Filter { addresses, ..Filter::default() });
    assert_eq!((none.flows.len(), none.counts.packets), (0, all.counts.packets));

    let name = "rxe/rc_retry_exceeded.pcap";
    let from = Some(Duration::from_millis(100));
    let to = Some(Duration::from_millis(700));
    let some = analyze_with(name, Filter { from, to, ..Filter::default() });
    assert_eq!(some.flows[0].streams[0].traffic.requests, 2);
}

/// Every packet of a capture counts in one place, and so does the time of every stream.
#[test]
fn everything_adds_up() {
    let captures = Path::new(env!("CARGO_MANIFEST_DIR")).join("captures");
    let mut seen = 0;
    for dir in ["rxe", "hardware", "softroce"] {
        for file in std::fs::read_dir(captures.join(dir)).unwrap() {
            let name = format!("{dir}/{}", file.unwrap().file_name().to_str().unwrap());
            let analysis = analyze(&name);
            let of = analysis.counts;
            let followed: u64 = analysis
                .flows
                .iter()
                .map(|flow| flow.sum(|s| s.traffic.requests + s.traffic.answers + s.traffic.cnps))
                .sum();
            let placed = followed
                + of.management
                + of.not_followed
                + of.stray_cnps
                + of.icrc.bad
                + of.unsplit;
            assert_eq!(placed, of.roce_packets, "{name}");
            for stream in analysis.flows.iter().flat_map(|flow| &flow.streams) {
                let spent: u64 = Phase::ALL.iter().map(|phase| stream.spent(*phase)).sum();
                let expected = if stream.is_reliable() { stream.duration() } else { 0 };
                assert_eq!(spent, expected, "{name}");
                assert!(stream.traffic.delivered <= stream.traffic.bytes, "{name}");
            }
            seen += 1;
        }
    }
    assert!(seen > 80);
}

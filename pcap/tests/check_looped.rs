//! Captures of a device that sends to itself, with each packet as sent and as received.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

#[allow(dead_code, reason = "each test file uses a part of it")]
mod packets;

use std::time::Duration;

use packets::{P, ack, send};
use softroce::port::Direction::{self, Received, Sent};
use softroce::wire::Opcode::RcSendOnly;
use softroce_pcap::analyze::{Analyzer, Filter, Kind, Limits as AnalyzerLimits};
use softroce_pcap::check::{Checker, Counts};
use softroce_pcap::flow::Limits;
use softroce_pcap::{LinkType, Reader, Writer};

/// Returns a capture of these packets.
fn capture(packets: &[(Direction, P)]) -> Vec<u8> {
    let mut writer = Writer::new(Vec::new(), LinkType::Raw, "test").unwrap();
    for (at, (direction, packet)) in (0..).zip(packets) {
        writer.packet(Duration::from_millis(at), Some(*direction), &packet.build()).unwrap();
    }
    writer.into_inner()
}

/// Returns the findings as `packet severity rule`, and the counts.
fn check(packets: &[(Direction, P)]) -> (Vec<String>, Counts) {
    let file = capture(packets);
    let mut reader = Reader::new(&file[..]).unwrap();
    let mut checker = Checker::new(Limits::default());
    let mut findings = Vec::new();
    while let Some(packet) = reader.next_packet().unwrap() {
        let found = checker.packet(&packet).iter();
        findings.extend(found.map(|f| format!("{} {} {}", f.packet, f.severity, f.rule)));
    }
    (findings, checker.counts().clone())
}

#[test]
fn received_copies_of_sent_packets_are_no_retransmissions() {
    let [first, second] = [1, 2].map(|psn| send(RcSendOnly, psn, 8));
    let (findings, counts) = check(&[
        (Sent, first.clone()),
        (Sent, second.clone()),
        (Received, first),
        (Sent, ack(1, 1)),
        (Received, second),
        (Received, ack(1, 1)),
        (Sent, ack(2, 2)),
        (Received, ack(2, 2)),
    ]);
    assert!(findings.is_empty(), "{findings:?}");
    assert_eq!((counts.packets, counts.roce_packets, counts.icrc.good), (8, 8, 8));
}

#[test]
fn each_sent_packet_has_one_copy() {
    let only = send(RcSendOnly, 1, 8);
    // The second is a retransmission; the network duplicated the one before the last.
    let all = [Sent, Received, Sent, Received, Received].map(|direction| (direction, only.clone()));
    assert_eq!(
        check(&all).0,
        ["3 note rc.retransmission.timeout", "5 note rc.retransmission.timeout"]
    );
}

#[test]
fn packets_received_from_a_peer_are_checked() {
    let only = send(RcSendOnly, 1, 8);
    assert_eq!(
        check(&[(Received, only.clone()), (Received, only)]).0,
        ["2 note rc.retransmission.timeout"]
    );
}

#[test]
fn analyzer_counts_looped_packets_once() {
    let [first, second] = [1, 2].map(|psn| send(RcSendOnly, psn, 8));
    let file = capture(&[
        (Sent, first.clone()),
        (Received, first),
        (Sent, second.clone()),
        (Received, second),
        (Sent, ack(2, 2)),
        (Received, ack(2, 2)),
    ]);
    let mut reader = Reader::new(&file[..]).unwrap();
    let mut analyzer = Analyzer::new(AnalyzerLimits::default(), Filter::default());
    while let Some(packet) = reader.next_packet().unwrap() {
        analyzer.packet(&packet);
    }
    let analysis = analyzer.finish();
    let counts = analysis.counts;
    assert_eq!((counts.packets, counts.roce_packets, counts.icrc.good), (6, 3, 3));
    let streams: Vec<_> = analysis.flows.iter().flat_map(|flow| &flow.streams).collect();
    let [stream] = streams[..] else { panic!("{streams:?}") };
    let (traffic, again) = (&stream.traffic, &stream.recovery.again);
    assert_eq!((traffic.requests, traffic.bytes, traffic.delivered), (2, 16, 16));
    assert_eq!(stream.operations[&Kind::Send].messages, 2);
    assert_eq!((again.by_nak, again.by_timeout, again.spurious, again.bytes), (0, 0, 0, 0));
}

//! Captures of both ends of a path: clocks, losses on the way, and captures that do not belong together.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

#[allow(dead_code, reason = "each test file uses a part of it")]
mod packets;

use std::time::Duration;

use packets::{P, ack, nak, p, send};
use softroce::wire::{NakCode, Opcode::*};
use softroce_pcap::check::{Checker, Finding, Rule};
use softroce_pcap::flow::Limits;
use softroce_pcap::merge::{Alignment, Fate, MergeError, MergedPacket, Merger, PathCounts, Survey};
use softroce_pcap::{LinkType, Reader, Record, Writer};

/// A capture being made: IP packets with their times in microseconds.
#[derive(Clone, Default)]
struct Capture {
    packets: Vec<(f64, Vec<u8>)>,
}

impl Capture {
    fn add(&mut self, time: f64, packet: &P) {
        self.packets.push((time, packet.build()));
    }

    /// Returns a capture file. The clock is `offset` microseconds ahead and gains `ppm`; `snap` bytes are kept.
    fn file(mut self, offset: f64, ppm: f64, snap: usize) -> Vec<u8> {
        self.packets.sort_by(|a, b| a.0.total_cmp(&b.0));
        let mut writer = Writer::new(Vec::new(), LinkType::Raw, "test").unwrap();
        for (time, packet) in self.packets {
            let time = 1e9 + time * (1.0 + ppm / 1e6) + offset;
            let record = Record {
                time: Duration::from_secs_f64(time / 1e6),
                frame: &packet[..snap.min(packet.len())],
                original_len: u32::try_from(packet.len()).unwrap(),
                ..Record::default()
            };
            writer.record(&record).unwrap();
        }
        writer.into_inner()
    }
}

/// Fate of a packet on its way, in a test.
#[derive(Clone, Copy, PartialEq)]
enum Way {
    Arrives,
    Lost,
    MissedAtSender,
    Twice,
    Damaged,
}

/// Both ends of a path. Delays vary by a fixed series of numbers.
#[derive(Default)]
struct Ends {
    a: Capture,
    b: Capture,
    state: u32,
}

impl Ends {
    fn delay(&mut self) -> f64 {
        self.state = self.state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        20.0 + f64::from(self.state >> 16) / 65_536.0 * 30.0
    }

    fn carry(&mut self, time: f64, packet: &P, way: Way) {
        let delay = self.delay();
        let is_from_a = packet.source.to_string() == "10.0.0.1";
        let (sender, receiver) =
            if is_from_a { (&mut self.a, &mut self.b) } else { (&mut self.b, &mut self.a) };
        if way != Way::MissedAtSender {
            sender.add(time, packet);
        }
        match way {
            Way::Lost => {}
            Way::Damaged => receiver.add(time + delay, &packet.clone().with(|p| p.spoil = true)),
            _ => receiver.add(time + delay, packet),
        }
        if way == Way::Twice {
            receiver.add(time + delay + 3.0, packet);
        }
    }

    /// SENDs and their ACKs, a pair each `step` microseconds.
    fn exchange(&mut self, count: u32, step: f64, way: impl Fn(u32) -> Way) {
        for psn in 1..=count {
            let time = f64::from(psn) * step;
            self.carry(time, &send(RcSendOnly, psn, 100), way(psn));
            self.carry(time + 100.0, &ack(psn, psn), Way::Arrives);
        }
    }
}

fn survey(file: &[u8]) -> Survey {
    let mut reader = Reader::new(file).unwrap();
    let mut survey = Survey::default();
    while let Some(packet) = reader.next_packet().unwrap() {
        survey.packet(&packet);
    }
    survey
}

fn alignment(a: &[u8], b: &[u8]) -> Result<Alignment, MergeError> {
    Alignment::of(&survey(a), &survey(b))
}

/// Merges two captures; returns the packets, and the counts of each path.
fn merge(a: &[u8], b: &[u8]) -> (Vec<MergedPacket>, Vec<PathCounts>) {
    let mut merger = Merger::new(alignment(a, b).unwrap());
    let mut readers = [Reader::new(a).unwrap(), Reader::new(b).unwrap()];
    let mut packets = Vec::new();
    while let Some(end) = merger.wants() {
        match readers[end].next_packet().unwrap() {
            Some(packet) => merger.packet(end, &packet),
            None => merger.end(end),
        }
        packets.extend(std::iter::from_fn(|| merger.next_packet()));
    }
    let paths = merger.paths().map(|(_, counts)| *counts).collect();
    (packets, paths)
}

fn findings(packets: &[MergedPacket]) -> Vec<Finding> {
    let mut checker = Checker::new(Limits::default());
    packets.iter().flat_map(|packet| checker.merged(packet).to_vec()).collect()
}

#[test]
fn clocks_are_aligned_by_packets_in_both_captures() {
    for (offset, ppm) in [(-3_700_000.0, 40.0), (12.0, -15.0), (86_400e6, 0.0)] {
        let mut ends = Ends::default();
        ends.exchange(4000, 2500.0, |_| Way::Arrives);
        let a = ends.a.file(0.0, 0.0, 4096);
        let b = ends.b.file(offset, ppm, 4096);
        let alignment = alignment(&a, &b).unwrap();
        // The second clock at the first packet.
        let error = alignment.offset() as f64 / 1e3 - offset;
        assert!(error.abs() < 25.0, "offset {offset}: error of {error} µs");
        assert!((alignment.drift_ppm() - ppm).abs() < 1.0, "{} ppm", alignment.drift_ppm());
        assert!((15..=35).contains(&alignment.delay().as_micros()), "{:?}", alignment.delay());
        let hosts = [0, 1].map(|end| alignment.hosts(end)[0].to_string());
        assert_eq!(hosts, ["10.0.0.1", "10.0.0.2"]);
        // Captures in the other order have other ends.
        let swapped = Alignment::of(&survey(&b), &survey(&a)).unwrap();
        assert_eq!(swapped.hosts(0)[0].to_string(), "10.0.0.2");
    }
}

#[test]
fn losses_on_the_way_are_told_from_packets_that_a_capture_lacks() {
    let mut ends = Ends::default();
    ends.exchange(400, 1000.0, |psn| match psn {
        50 => Way::Lost,
        60 => Way::MissedAtSender,
        70 => Way::Twice,
        80 => Way::Damaged,
        _ => Way::Arrives,
    });
    let (packets, paths) = merge(&ends.a.file(0.0, 0.0, 4096), &ends.b.file(5e6, 20.0, 4096));
    let expected = PathCounts {
        arrived: 398,
        damaged: 1,
        lost: 1,
        missed_at_sender: 1,
        duplicated: 1,
        not_covered: 0,
    };
    let answers = PathCounts { arrived: 400, ..PathCounts::default() };
    assert_eq!(paths, [expected, answers]);
    let numbers: Vec<_> = packets.iter().map(|packet| packet.number).collect();
    assert!(numbers.iter().copied().eq(1..=801), "{numbers:?}");
    assert!(packets.is_sorted_by_key(|packet| packet.time));
    let found = findings(&packets);
    let [copy, damaged] = found.as_slice() else { panic!("{found:?}") };
    assert_eq!(
        (copy.rule, copy.expected.as_str()),
        (Rule::Retransmission, "a copy made on the way")
    );
    assert_eq!((damaged.rule, damaged.found.as_str()), (Rule::IcrcBad, "damaged on the way"));
}

/// A lost packet with the NAK and the retransmission that repair it, among regular packets.
fn repaired(way: Way) -> Vec<Finding> {
    let mut ends = Ends::default();
    ends.exchange(100, 1000.0, |_| Way::Arrives);
    let at = 101_000.0;
    ends.carry(at, &send(RcSendOnly, 101, 100), way);
    ends.carry(at + 10.0, &send(RcSendOnly, 102, 100), Way::Arrives);
    ends.carry(at + 100.0, &nak(101, 100, NakCode::PsnSequence), Way::Arrives);
    ends.carry(at + 200.0, &send(RcSendOnly, 101, 100), Way::Arrives);
    ends.carry(at + 210.0, &send(RcSendOnly, 102, 100), Way::Arrives);
    ends.carry(at + 300.0, &ack(102, 102), Way::Arrives);
    let (packets, _) = merge(&ends.a.file(0.0, 0.0, 4096), &ends.b.file(-1e6, 0.0, 4096));
    findings(&packets)
}

#[test]
fn findings_say_whether_a_packet_was_lost_on_the_way() {
    for (way, place) in
        [(Way::Lost, "was lost on the way"), (Way::Arrives, "arrived at the receiver's capture")]
    {
        let found = repaired(way);
        let nak = found.iter().find(|finding| finding.rule == Rule::SequenceNak).unwrap();
        assert_eq!(nak.expected, format!("packet 201 {place}"));
        let again = found.iter().find(|of| of.rule == Rule::FastRetransmission).unwrap();
        let comment = again.comment();
        assert!(comment.contains(&format!("packet 201 {place}; noticed by 10.0.0.2")), "{comment}");
    }
}

#[test]
fn message_of_uc_that_is_lost_on_the_way_is_noted() {
    let mut ends = Ends::default();
    ends.exchange(100, 1000.0, |_| Way::Arrives);
    for psn in 1..=3 {
        let way = if psn == 2 { Way::Lost } else { Way::Arrives };
        let packet = p(UcSendOnly, psn).len(8).with(|p| p.bth.dest_qp = softroce::ids::Qpn::new(9));
        ends.carry(50_500.0 + f64::from(psn), &packet, way);
    }
    let (packets, _) = merge(&ends.a.file(0.0, 0.0, 4096), &ends.b.file(0.0, 0.0, 4096));
    let found = findings(&packets);
    let [finding] = found.as_slice() else { panic!("{found:?}") };
    assert_eq!((finding.rule, finding.found.as_str()), (Rule::UcPsnGap, "lost on the way"));
}

#[test]
fn packets_outside_of_one_capture_are_not_lost() {
    let mut ends = Ends::default();
    ends.exchange(400, 1000.0, |_| Way::Arrives);
    // The second capture ends earlier.
    ends.b.packets.retain(|(time, _)| *time < 300_050.0);
    let (packets, paths) = merge(&ends.a.file(0.0, 0.0, 4096), &ends.b.file(0.0, 0.0, 4096));
    assert_eq!(packets.len(), 800);
    assert!(paths.iter().all(|counts| counts.lost + counts.missed_at_sender <= 1), "{paths:?}");
    assert!(paths.iter().all(|counts| counts.not_covered >= 99), "{paths:?}");
}

#[test]
fn captures_may_have_different_snap_lengths() {
    let mut ends = Ends::default();
    ends.exchange(400, 1000.0, |psn| if psn == 9 { Way::Lost } else { Way::Arrives });
    let (packets, paths) = merge(&ends.a.file(0.0, 0.0, 64), &ends.b.file(1e6, 0.0, 4096));
    assert_eq!((paths[0].arrived, paths[0].lost), (399, 1));
    // The longer copy of each packet is checked.
    assert_eq!(packets.iter().filter(|packet| packet.ip.len() == 64).count(), 1);
    assert!(packets.iter().all(|packet| packet.sighting.fate != Fate::Damaged));
    assert!(findings(&packets).is_empty(), "{:?}", findings(&packets));
}

#[test]
fn captures_that_do_not_belong_together_are_refused() {
    let mut ends = Ends::default();
    ends.exchange(300, 1000.0, |_| Way::Arrives);
    let a = ends.a.clone().file(0.0, 0.0, 4096);
    let refused = |b: &[u8]| alignment(&a, b).unwrap_err();
    assert_eq!(refused(&a), MergeError::SameEnd { matched: 600 });
    // The same end, by another clock.
    let again = ends.a.clone().file(77e6, 0.0, 4096);
    assert_eq!(refused(&again), MergeError::SameEnd { matched: 600 });
    let mut others = Capture::default();
    others.add(0.0, &send(RcSendOnly, 0x50_0000, 100));
    assert_eq!(refused(&others.file(0.0, 0.0, 4096)), MergeError::NothingInCommon);
    assert_eq!(refused(&Capture::default().file(0.0, 0.0, 4096)), MergeError::Empty { capture: 2 });
    // Address translation.
    let mut translated = Capture::default();
    for psn in 1..=300 {
        translated.add(
            f64::from(psn),
            &send(RcSendOnly, psn, 100).with(|p| p.source = "192.0.2.1".parse().unwrap()),
        );
    }
    let [from, to, seen] = ["10.0.0.1", "10.0.0.2", "192.0.2.1"].map(|ip| ip.parse().unwrap());
    assert_eq!(
        refused(&translated.file(0.0, 0.0, 4096)),
        MergeError::Translated(from, to, seen, to)
    );
    // One direction only.
    let mut there = Capture::default();
    for psn in 1..=300 {
        there.add(f64::from(psn) * 1000.0 + 30.0, &send(RcSendOnly, psn, 100));
    }
    assert_eq!(refused(&there.file(0.0, 0.0, 4096)), MergeError::OneDirection { matched: 300 });
}

#[test]
fn memory_is_bounded_when_no_packet_finds_its_copy() {
    let mut ends = Ends::default();
    ends.exchange(100, 1000.0, |_| Way::Arrives);
    let mut merger = {
        let (a, b) = (ends.a.file(0.0, 0.0, 4096), ends.b.file(0.0, 0.0, 4096));
        Merger::new(alignment(&a, &b).unwrap())
    };
    // The second capture is not read, so nothing is due.
    let mut flood = Capture::default();
    for psn in 0..20_000 {
        flood.add(f64::from(psn) * 0.01, &send(RcSendOnly, psn, 4096));
    }
    let flood = flood.file(0.0, 0.0, 8192);
    let mut reader = Reader::new(flood.as_slice()).unwrap();
    let mut released = 0;
    while let Some(packet) = reader.next_packet().unwrap() {
        merger.packet(0, &packet);
        released += std::iter::from_fn(|| merger.next_packet()).count();
    }
    let pending = 20_000 - released;
    assert!(pending * 4096 <= softroce_pcap::merge::MAX_PENDING_BYTES, "{pending} packets wait");
    assert!(pending > 10_000, "{pending} packets wait");
}

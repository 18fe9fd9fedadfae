//! The analyzer tells retransmissions from packets that the network has copied.
//!
//! IBTA vol 1, §9.7.6.1.3: a requester retransmits the oldest unacknowledged request when its ACK timer expires, also
//! while it sends other requests. The header of a retransmission is built again: a host that numbers its IPv4 packets
//! gives it another identification, and it may request an acknowledgement that the original did not.
//! A copy that the network makes is the same in every bit.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

#[allow(dead_code, reason = "each test file uses a part of it")]
mod packets;

use std::time::Duration;

use packets::{P, ack, send};
use softroce::wire::Opcode::RcSendOnly;
use softroce_pcap::analyze::{Analyzer, Filter, Limits};

/// ACK timer of `timeout` 8, in microseconds.
const ACK_TIMEOUT_US: u64 = 1049;

/// Repetitions in a stream, as the analyzer counts them.
#[derive(PartialEq, Eq, Debug)]
struct Repetitions {
    by_timeout: u64,
    unexplained: u64,
    by_network: u64,
    /// Number of timers that expired.
    timeouts: u64,
}

const NONE: Repetitions = Repetitions { by_timeout: 0, unexplained: 0, by_network: 0, timeouts: 0 };
const ONE_TIMEOUT: Repetitions = Repetitions { by_timeout: 1, timeouts: 1, ..NONE };
const ONE_COPY: Repetitions = Repetitions { by_network: 1, ..NONE };

fn repetitions(packets: &[P]) -> Repetitions {
    let mut analyzer = Analyzer::new(Limits::default(), Filter::default());
    let mut now = Duration::from_secs(1);
    for (number, packet) in (1..).zip(packets) {
        now += Duration::from_micros(packet.after);
        analyzer.ip_packet(number, Some(now), &packet.build());
    }
    let mut flows = analyzer.finish().flows;
    assert_eq!((flows.len(), flows[0].streams.len()), (1, 1));
    let stream = flows.remove(0).streams.remove(0);
    let again = stream.recovery.again;
    assert_eq!(again.by_timeout + again.unexplained, again.total());
    Repetitions {
        by_timeout: again.by_timeout,
        unexplained: again.unexplained,
        by_network: stream.traffic.duplicates,
        timeouts: stream.recovery.timeouts.count,
    }
}

fn only(psn: u32, id: u16) -> P {
    send(RcSendOnly, psn, 8).with(|p| p.id = id)
}

/// Returns SENDs every 100 µs with PSNs 1 to `count`; `id` numbers each of them.
fn steady(count: u32, id: impl Fn(u32) -> u16) -> Vec<P> {
    (1..=count).map(|psn| only(psn, id(psn)).after(100)).collect()
}

fn numbered(psn: u32) -> u16 {
    u16::try_from(40_000 + psn).unwrap()
}

#[test]
fn oldest_request_is_retransmitted_while_others_are_sent() {
    // The last of the others left 50 µs before.
    let identifications: [fn(u32) -> u16; 2] = [|_| 0, numbered];
    for id in identifications {
        let mut packets = steady(12, id);
        packets.push(only(1, id(13)).after(50));
        packets.push(ack(12, 12));
        assert_eq!(repetitions(&packets), ONE_TIMEOUT);
    }
}

#[test]
fn timer_of_the_oldest_request_starts_with_the_acknowledgement_before_it() {
    let again = |psns| {
        let mut packets = steady(psns, |_| 0);
        packets.insert(11, ack(1, 1).after(1));
        packets.push(only(2, 0).after(50));
        repetitions(&packets)
    };
    assert_eq!(again(12), ONE_COPY);
    assert_eq!(again(22), ONE_TIMEOUT);
}

#[test]
fn request_without_captured_loss_is_retransmitted_after_its_acknowledgement_was_lost() {
    let again = |psns: u32, id: fn(u32) -> u16| {
        let mut packets = steady(psns, id);
        packets.push(ack(1, 1));
        packets.push(only(1, id(psns + 1)).after(50));
        repetitions(&packets)
    };
    assert_eq!(again(12, numbered), ONE_TIMEOUT);
    // Without identifications, a copy that comes late looks the same, but none is overtaken by 200 packets.
    assert_eq!(again(12, |_| 0), ONE_COPY);
    assert_eq!(again(220, |_| 0), ONE_TIMEOUT);
}

#[test]
fn copy_by_the_network_has_the_identification_of_its_original() {
    for after in [1, 50, ACK_TIMEOUT_US, 100_000] {
        let mut packets = steady(12, numbered);
        packets.push(only(12, numbered(12)).after(after));
        assert_eq!(repetitions(&packets), ONE_COPY, "after {after} µs");
    }
}

#[test]
fn constant_identification_does_not_show_a_copy() {
    let mut packets = steady(2, |_| 40_000);
    packets.push(only(1, 40_000).after(ACK_TIMEOUT_US));
    assert_eq!(repetitions(&packets), ONE_TIMEOUT);
}

/// The kernel numbers the datagrams of each burst from 0.
#[test]
fn identification_within_a_burst_does_not_show_a_copy() {
    let mut packets: Vec<_> = (0..4).map(|at| only(1 + u32::from(at), at)).collect();
    packets.push(only(4, 3).after(ACK_TIMEOUT_US));
    assert_eq!(repetitions(&packets), ONE_TIMEOUT);
}

#[test]
fn packet_with_another_ack_req_is_no_copy() {
    let first = only(1, 0).with(|p| p.bth.ack_req = false);
    let packets = [first, only(2, 0), only(1, 0)];
    assert_eq!(repetitions(&packets), Repetitions { unexplained: 1, ..NONE });
}

//! One packet of a clean capture that breaks one rule: the checker names that rule for that packet,
//! and says the same as before of all others.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod clean;

use clean::{Captured, captures, check};
use softroce::wire::icrc;
use softroce_pcap::check::{Finding, Rule, Severity};

/// Where the BTH begins behind IPv4 and UDP headers.
const BTH: usize = 28;
const EXTENSION: usize = BTH + 12;

const SEND_FIRST: u8 = 0x00;
const SEND_ONLY: u8 = 0x04;
const WRITE_FIRST: u8 = 0x06;
const READ_REQUEST: u8 = 0x0c;
const ACKNOWLEDGE: u8 = 0x11;
const ATOMIC_ACKNOWLEDGE: u8 = 0x12;
const FETCH_ADD: u8 = 0x14;

/// A packet with an opcode, changed so that it breaks a rule.
struct Mutation {
    name: &'static str,
    rule: Rule,
    severity: Severity,
    opcode: u8,
    change: fn(&mut Vec<u8>),
}

const fn violation(
    name: &'static str,
    rule: Rule,
    opcode: u8,
    change: fn(&mut Vec<u8>),
) -> Mutation {
    Mutation { name, rule, severity: Severity::Violation, opcode, change }
}

fn mutations() -> Vec<Mutation> {
    let quirk = |name, change| {
        let severity = Severity::Quirk;
        Mutation { name, rule: Rule::Pkt15, severity, opcode: SEND_ONLY, change }
    };
    // The requests may be missing from the capture.
    let ahead = |name, change| {
        let severity = Severity::Note;
        Mutation { name, rule: Rule::Rsp12, severity, opcode: ACKNOWLEDGE, change }
    };
    vec![
        quirk("FECN", |p| p[BTH + 4] |= 0x80),
        quirk("BECN", |p| p[BTH + 4] |= 0x40),
        quirk("reserved bits without ICRC", |p| p[BTH + 4] |= 1),
        violation("reserved bits", Rule::Pkt15, SEND_ONLY, |p| p[BTH + 8] |= 1),
        violation("DF clear", Rule::Pkt03, SEND_ONLY, |p| p[6] &= !0x40),
        violation("transport version", Rule::Pkt08, ACKNOWLEDGE, |p| p[BTH + 1] |= 1),
        violation("AckReq of an ACK", Rule::Req06, ACKNOWLEDGE, |p| p[BTH + 8] |= 0x80),
        violation("solicited FIRST", Rule::Req41, SEND_FIRST, |p| p[BTH + 1] |= 0x80),
        violation("ACK with payload", Rule::Pkt07, ACKNOWLEDGE, append),
        violation("READ request with payload", Rule::Pkt07, READ_REQUEST, append),
        violation("atomic with payload", Rule::Pkt07, FETCH_ADD, append),
        violation("atomic ACK with payload", Rule::Pkt07, ATOMIC_ACKNOWLEDGE, append),
        violation("P_Key 0 in an ACK", Rule::Pkt12, ACKNOWLEDGE, |p| p[BTH + 2..BTH + 4].fill(0)),
        violation("another P_Key", Rule::Pkt12, SEND_ONLY, |p| p[BTH + 3] = 1),
        violation("UC in RC", Rule::Pkt11, SEND_ONLY, |p| {
            p[BTH] = 0x20 | SEND_ONLY;
            p[BTH + 8] &= 0x7f;
        }),
        violation("ACK to queue pair 1", Rule::Pkt10, ACKNOWLEDGE, |p| to_queue_pair(p, 1)),
        violation("ACK to 0xFFFFFF", Rule::Pkt10, ACKNOWLEDGE, |p| to_queue_pair(p, 0xff_ffff)),
        violation("WRITE beyond 2^64", Rule::Rsp28, WRITE_FIRST, |p| {
            p[EXTENSION..EXTENSION + 8].fill(0xff)
        }),
        violation("MSN", Rule::Rsp14, ACKNOWLEDGE, |p| p[EXTENSION + 2] ^= 0x40),
        ahead("ACK ahead by 200", |p| move_psn(p, 200)),
        ahead("ACK ahead by 1,200", |p| move_psn(p, 1200)),
        ahead("ACK ahead by 0x20000", |p| move_psn(p, 0x2_0000)),
        violation("NAK code", Rule::Req22, ACKNOWLEDGE, |p| p[EXTENSION] = 0x7f),
    ]
}

fn append(packet: &mut Vec<u8>) {
    let end = packet.len() - 4;
    packet.splice(end..end, [0x5a; 4]);
    for at in [2, 24] {
        let len = u16::from_be_bytes([packet[at], packet[at + 1]]) + 4;
        packet[at..at + 2].copy_from_slice(&len.to_be_bytes());
    }
}

fn to_queue_pair(packet: &mut [u8], qpn: u32) {
    packet[BTH + 1] |= 0x40;
    packet[BTH + 5..BTH + 8].copy_from_slice(&qpn.to_be_bytes()[1..]);
}

fn move_psn(packet: &mut [u8], by: u32) {
    let psn = &mut packet[BTH + 9..BTH + 12];
    let moved = u32::from_be_bytes([0, psn[0], psn[1], psn[2]]) + by;
    psn.copy_from_slice(&moved.to_be_bytes()[1..]);
}

fn seal(packet: &mut [u8]) {
    let (good, _) = icrc::of_ip_packet(packet).unwrap();
    let end = packet.len() - 4;
    packet[end..].copy_from_slice(&good.to_le_bytes());
}

/// The packet in the middle of those with an opcode.
fn victim(packets: &[Captured], opcode: u8) -> Option<usize> {
    let has =
        |p: &Captured| p.bytes[0] == 0x45 && p.bytes[9] == 17 && p.bytes.get(BTH) == Some(&opcode);
    let all: Vec<_> = (0..packets.len()).filter(|at| has(&packets[*at])).collect();
    // The bounds of the MSN are known from the second answer on.
    (all.len() > 2).then(|| all[all.len() / 2])
}

fn names(found: &[Finding]) -> Vec<(Rule, Severity)> {
    found.iter().map(|finding| (finding.rule, finding.severity)).collect()
}

#[test]
fn a_broken_rule_is_named_for_its_packet_alone() {
    let names_of_captures = [
        "rxe/rc_send.pcap",
        "rxe/rc_write.pcap",
        "rxe/rc_read.pcap",
        "rxe/perf_ib_atomic_bw.pcap",
        "rxe/rc_batch.pcap",
    ];
    let captures: Vec<_> = captures()
        .into_iter()
        .filter(|(name, _)| names_of_captures.contains(&name.as_str()))
        .collect();
    let mut wrong = Vec::new();
    for Mutation { name, rule, severity, opcode, change } in mutations() {
        let mut cases = 0;
        for (capture, packets) in &captures {
            let Some(at) = victim(packets, opcode) else { continue };
            cases += 1;
            let before = check(packets);
            let mut packets = packets.clone();
            change(&mut packets[at].bytes);
            seal(&mut packets[at].bytes);
            let after = check(&packets);
            let mut expected = names(&before[at]);
            expected.push((rule, severity));
            let mut found = names(&after[at]);
            expected.sort_unstable();
            found.sort_unstable();
            if found != expected {
                wrong.push(format!("{name} in {capture} {}: {:?}", at + 1, after[at]));
            }
            for other in (0..packets.len()).filter(|other| *other != at) {
                if before[other] != after[other] {
                    wrong.push(format!(
                        "{name} in {capture} {}: {:?} instead of {:?}",
                        at + 1,
                        after[other],
                        before[other]
                    ));
                }
            }
        }
        assert!(cases > 0, "{name}");
    }
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
}

#[test]
fn constant_msn_breaks_rsp_14() {
    let (_, mut packets) =
        captures().into_iter().find(|(name, _)| name == "rxe/rc_send.pcap").unwrap();
    for packet in &mut packets {
        if packet.bytes[BTH] == ACKNOWLEDGE {
            packet.bytes[EXTENSION + 1..EXTENSION + 4].copy_from_slice(&[0, 0, 1]);
            seal(&mut packet.bytes);
        }
    }
    let found = check(&packets);
    let count = found.iter().flatten().filter(|finding| finding.rule == Rule::Rsp14).count();
    let acks = packets.iter().filter(|packet| packet.bytes[BTH] == ACKNOWLEDGE).count();
    assert_eq!(count, acks - 1);
}

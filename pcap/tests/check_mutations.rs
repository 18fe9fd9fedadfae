//! One packet of a clean capture breaks one rule: the checker names that rule for that packet, and all other findings
//! stay.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod clean;

use clean::{Captured, captures, check};
use softroce::wire::icrc;
use softroce_pcap::check::{Finding, Rule, Severity};

/// Where the BTH begins behind IPv4 and UDP headers.
const BTH: usize = 28;
const EXTENSION: usize = BTH + 12;

const SEND_FIRST: u8 = 0x00;
const SEND_MIDDLE: u8 = 0x01;
const SEND_LAST: u8 = 0x02;
const SEND_ONLY: u8 = 0x04;
const WRITE_FIRST: u8 = 0x06;
const WRITE_LAST: u8 = 0x08;
const READ_REQUEST: u8 = 0x0c;
const READ_RESPONSE_FIRST: u8 = 0x0d;
const READ_RESPONSE_ONLY: u8 = 0x10;
const ACKNOWLEDGE: u8 = 0x11;
const ATOMIC_ACKNOWLEDGE: u8 = 0x12;
const FETCH_ADD: u8 = 0x14;
const ATOMIC_WRITE: u8 = 0x1d;
const UD_SEND_ONLY: u8 = 0x64;
const CNP: u8 = 0x81;

/// Captures of reliable connections without losses.
const RELIABLE: &[&str] = &[
    "rxe/rc_send.pcap",
    "rxe/rc_write.pcap",
    "rxe/rc_read.pcap",
    "rxe/perf_ib_atomic_bw.pcap",
    "rxe/rc_batch.pcap",
];
/// Captures with retransmissions.
const LOSSES: &[&str] = &["rxe/loss_send_middle.pcap", "rxe/loss_readresp_mid.pcap"];

/// Rules that no single packet of the clean captures can break, or only together with others, and the reason. Cases
/// of `check_rules` break them.
const NOT_BY_ONE_PACKET: &[(&[Rule], &str)] = &[
    (
        &[Rule::PsnGap, Rule::ReadResponseGap, Rule::UcPsnGap, Rule::ResponseOrder],
        "a note that packets are missing or have changed places",
    ),
    (
        &[
            Rule::FastRetransmission,
            Rule::FatalNak,
            Rule::TimeoutRetransmission,
            Rule::DuplicateReadResponse,
        ],
        "a note of the cause or effect of another packet",
    ),
    (&[Rule::RnrRetransmission], "the time between packets breaks it"),
    (
        &[Rule::OutstandingReads, Rule::DuplicateAtomic, Rule::CmDepth],
        "a limit or a value of earlier packets decides",
    ),
    (
        &[Rule::PsnInsideRead, Rule::RethLength],
        "the packet takes other PSNs, so that others have none",
    ),
    (
        &[
            Rule::SequenceNak,
            Rule::RnrNak,
            Rule::NakAfterRnr,
            Rule::AccessNak,
            Rule::ResponseAfterFatalNak,
        ],
        "a NAK stops the requester, which later packets show",
    ),
    (
        &[
            Rule::CmNoListener,
            Rule::CmRetransmission,
            Rule::CmSecondReply,
            Rule::CmStale,
            Rule::CmDelayed,
            Rule::CmRejected,
            Rule::CmDisconnect,
            Rule::CmService,
            Rule::CmMtu,
        ],
        "it concerns the answer to an earlier message",
    ),
    (&[Rule::CmAddresses], "the message in the middle of a conversation is no REQ"),
    (&[Rule::IcrcMethod], "a FLUSH of rxe has another ICRC"),
    (&[Rule::MulticastQp], "rxe breaks it in each datagram"),
];

/// A packet with an opcode, changed so that it breaks a rule.
struct Mutation {
    name: &'static str,
    rule: Rule,
    severity: Severity,
    opcode: u8,
    change: fn(&mut Vec<u8>),
    captures: &'static [&'static str],
    /// The packet is a retransmission.
    again: bool,
    /// The ICRC is made right.
    sealed: bool,
}

const fn violation(
    name: &'static str,
    rule: Rule,
    opcode: u8,
    change: fn(&mut Vec<u8>),
) -> Mutation {
    Mutation {
        name,
        rule,
        severity: Severity::Violation,
        opcode,
        change,
        captures: RELIABLE,
        again: false,
        sealed: true,
    }
}

impl Mutation {
    const fn of(self, severity: Severity) -> Self {
        Self { severity, ..self }
    }

    const fn among(self, captures: &'static [&'static str]) -> Self {
        Self { captures, ..self }
    }

    const fn again(self) -> Self {
        Self { again: true, captures: LOSSES, ..self }
    }
}

fn mutations() -> Vec<Mutation> {
    let quirk =
        |name, change| violation(name, Rule::ReservedBits, SEND_ONLY, change).of(Severity::Quirk);
    // The requests may be missing from the capture.
    let ahead =
        |name, change| violation(name, Rule::AckOfUnseen, ACKNOWLEDGE, change).of(Severity::Note);
    let cm = |name, rule, change| violation(name, rule, UD_SEND_ONLY, change).among(CM);
    let mut mutations = vec![
        quirk("FECN", |p| p[BTH + 4] |= 0x80),
        quirk("BECN", |p| p[BTH + 4] |= 0x40),
        quirk("reserved bits without ICRC", |p| p[BTH + 4] |= 1),
        violation("reserved bits", Rule::ReservedBits, SEND_ONLY, |p| p[BTH + 8] |= 1),
        violation("DF clear", Rule::Ipv4Header, SEND_ONLY, |p| p[6] &= !0x40),
        violation("transport version", Rule::TransportVersion, ACKNOWLEDGE, |p| p[BTH + 1] |= 1),
        violation("AckReq of an ACK", Rule::AckReq, ACKNOWLEDGE, |p| p[BTH + 8] |= 0x80),
        violation("solicited FIRST", Rule::Solicited, SEND_FIRST, |p| p[BTH + 1] |= 0x80),
        violation("ACK with payload", Rule::DatagramLength, ACKNOWLEDGE, append),
        violation("READ request with payload", Rule::DatagramLength, READ_REQUEST, append),
        violation("atomic with payload", Rule::DatagramLength, FETCH_ADD, append),
        violation("atomic ACK with payload", Rule::DatagramLength, ATOMIC_ACKNOWLEDGE, append),
        violation("P_Key 0 in an ACK", Rule::PKey, ACKNOWLEDGE, |p| p[BTH + 2..BTH + 4].fill(0)),
        violation("another P_Key", Rule::PKey, SEND_ONLY, |p| p[BTH + 3] = 1),
        violation("another P_Key in an ACK", Rule::PKey, ACKNOWLEDGE, |p| p[BTH + 3] = 1),
        violation("another P_Key in a READ response", Rule::PKey, READ_RESPONSE_ONLY, |p| {
            p[BTH + 3] = 1
        }),
        violation("UC in RC", Rule::TransportMismatch, SEND_ONLY, |p| {
            p[BTH] = 0x20 | SEND_ONLY;
            p[BTH + 8] &= 0x7f;
        }),
        violation("UD in RC", Rule::TransportMismatch, SEND_ONLY, |p| {
            p[BTH] = UD_SEND_ONLY;
            p[BTH + 8] &= 0x7f;
            p.splice(EXTENSION..EXTENSION, [0, 0, 0, 1, 0, 0, 0, 17]);
            set_lengths(p);
        }),
        violation("ACK to queue pair 1", Rule::DestinationQp, ACKNOWLEDGE, |p| to_queue_pair(p, 1)),
        violation("ACK to 0xFFFFFF", Rule::DestinationQp, ACKNOWLEDGE, |p| {
            to_queue_pair(p, 0xff_ffff)
        }),
        violation("WRITE beyond 2^64", Rule::AddressOverflow, WRITE_FIRST, |p| {
            p[EXTENSION..EXTENSION + 8].fill(0xff)
        }),
        violation("MSN", Rule::Msn, ACKNOWLEDGE, |p| p[EXTENSION + 2] ^= 0x40),
        ahead("ACK ahead by 200", |p| move_psn(p, 200)),
        ahead("ACK ahead by 1,200", |p| move_psn(p, 1200)),
        ahead("ACK ahead by 0x20000", |p| move_psn(p, 0x2_0000)),
        violation("NAK code", Rule::NakCode, ACKNOWLEDGE, |p| p[EXTENSION] = 0x7f),
        violation("source port", Rule::UdpSourcePort, SEND_ONLY, |p| p[20..22].fill(0x12))
            .of(Severity::Quirk),
        violation("opcode", Rule::UnassignedOpcode, ACKNOWLEDGE, |p| p[BTH] = 0x1f),
        violation("padding", Rule::Padding, SEND_ONLY, |p| {
            p[BTH + 1] |= 0x10;
            let last = p.len() - 5;
            p[last] = 0x5a;
        }),
        violation("FIRST beyond the path MTU", Rule::MtuMismatch, SEND_FIRST, append_zeros),
        violation("MIDDLE beyond the path MTU", Rule::MtuMismatch, SEND_MIDDLE, append_zeros)
            .among(&["rxe/rc_send_mtu256.pcap"]),
        Mutation {
            sealed: false,
            ..violation("ICRC", Rule::IcrcBad, ACKNOWLEDGE, |p| *p.last_mut().unwrap() ^= 1)
        },
        violation(
            "READ response of another position",
            Rule::ReadResponseShape,
            READ_RESPONSE_FIRST,
            |p| p[BTH] = READ_RESPONSE_ONLY,
        ),
        violation("READ response with a NAK", Rule::ResponseNotAck, READ_RESPONSE_FIRST, |p| {
            p[EXTENSION] = 0x62
        }),
        violation("older ACK", Rule::OldAck, ACKNOWLEDGE, |p| move_psn(p, 0xff_fffe))
            .of(Severity::Note)
            .among(&["rxe/rc_batch.pcap"]),
        violation("syndrome", Rule::Syndrome, ACKNOWLEDGE, |p| p[EXTENSION] = 0x5f),
        violation("LAST alone", Rule::MessageNotOpened, SEND_ONLY, |p| p[BTH] = SEND_LAST),
        violation("ONLY in a message", Rule::MessageNotFinished, SEND_LAST, |p| p[BTH] = SEND_ONLY),
        violation("WRITE_LAST in a SEND", Rule::MessageMixed, SEND_LAST, |p| p[BTH] = WRITE_LAST),
        violation("empty LAST", Rule::PayloadLength, SEND_LAST, |p| remove_payload(p, 0)),
        violation("LAST short of its RETH", Rule::WriteLength, WRITE_LAST, |p| {
            let end = p.len() - 4;
            p.drain(end - 4..end);
            set_lengths(p);
        }),
        violation("misaligned atomic", Rule::AtomicAlignment, FETCH_ADD, |p| p[EXTENSION + 7] |= 4),
    ];
    mutations.extend([
        violation("READ answered by an ACK", Rule::ImpliedNak, READ_RESPONSE_ONLY, |p| {
            p[BTH] = ACKNOWLEDGE;
            remove_payload(p, 4);
        }),
        violation("no AckReq again", Rule::RetransmissionWithoutAckReq, SEND_LAST, |p| {
            p[BTH + 8] &= 0x7f
        })
        .again(),
        violation("rest of other memory", Rule::ReadResumed, READ_REQUEST, |p| {
            p[EXTENSION + 6] ^= 0x10
        })
        .again(),
        violation("other payload again", Rule::Retransmission, SEND_LAST, |p| p[EXTENSION] ^= 1)
            .again(),
        violation("FLUSH answered by data", Rule::FlushResponse, READ_RESPONSE_ONLY, append)
            .among(&["rxe/k612_awrite.pcap", "rxe/k612_flush_global.pcap"]),
        violation("misaligned ATOMIC WRITE", Rule::AtomicWrite, ATOMIC_WRITE, |p| {
            p[EXTENSION + 7] |= 4
        })
        .among(&["rxe/k612_awrite.pcap"]),
        cm("Q_Key", Rule::GsiQKey, |p| p[EXTENSION] ^= 1),
        cm("version of a MAD", Rule::Mad, |p| p[EXTENSION + 8] = 9),
        cm("transaction", Rule::CmTransaction, |p| p[EXTENSION + 8 + 15] ^= 1),
        violation("CNP with a PSN", Rule::Cnp, CNP, |p| p[BTH + 11] = 1)
            .among(&["hardware/cx4lx_scapy_cnp.pcap"]),
    ]);
    mutations
}

/// The packet in the middle is the RTU, after which nothing else begins.
const CM: &[&str] = &["rxe/cm_rping.pcap"];

fn append(packet: &mut Vec<u8>) {
    let end = packet.len() - 4;
    packet.splice(end..end, [0x5a; 4]);
    set_lengths(packet);
}

fn append_zeros(packet: &mut Vec<u8>) {
    let end = packet.len() - 4;
    packet.splice(end..end, [0; 4]);
    set_lengths(packet);
}

/// Removes the payload behind extension headers of `len` bytes.
fn remove_payload(packet: &mut Vec<u8>, len: usize) {
    let end = packet.len() - 4;
    packet.drain(EXTENSION + len..end);
    packet[BTH + 1] &= 0xcf;
    set_lengths(packet);
}

fn set_lengths(packet: &mut [u8]) {
    for (at, before) in [(2, 0), (24, 20)] {
        let len = u16::try_from(packet.len() - before).unwrap();
        packet[at..at + 2].copy_from_slice(&len.to_be_bytes());
    }
}

fn to_queue_pair(packet: &mut [u8], qpn: u32) {
    packet[BTH + 1] |= 0x40;
    packet[BTH + 5..BTH + 8].copy_from_slice(&qpn.to_be_bytes()[1..]);
}

fn move_psn(packet: &mut [u8], by: u32) {
    let psn = &mut packet[BTH + 9..BTH + 12];
    let moved = (u32::from_be_bytes([0, psn[0], psn[1], psn[2]]) + by) & 0xff_ffff;
    psn.copy_from_slice(&moved.to_be_bytes()[1..]);
}

fn seal(packet: &mut [u8]) {
    let (good, _) = icrc::of_ip_packet(packet).unwrap();
    let end = packet.len() - 4;
    packet[end..].copy_from_slice(&good.to_le_bytes());
}

/// Returns the middle packet of those with an opcode, or of its retransmissions.
fn victim(packets: &[Captured], before: &[Vec<Finding>], mutation: &Mutation) -> Option<usize> {
    let is_again = |at: usize| {
        before[at].iter().any(|finding| {
            [Rule::FastRetransmission, Rule::TimeoutRetransmission].contains(&finding.rule)
        })
    };
    let may_be = |at: &usize| {
        let packet = &packets[*at].bytes;
        let has_opcode = packet.get(BTH) == Some(&mutation.opcode);
        packet[0] == 0x45 && packet[9] == 17 && has_opcode && mutation.again == is_again(*at)
    };
    let all: Vec<_> = (0..packets.len()).filter(may_be).collect();
    // The range of the MSN is known from the second response on.
    let is_enough = all.len() > 2 || mutation.captures.len() == 1;
    is_enough.then(|| all.get(all.len() / 2).copied()).flatten()
}

fn names(found: &[Finding]) -> Vec<(Rule, Severity)> {
    found.iter().map(|finding| (finding.rule, finding.severity)).collect()
}

#[test]
fn broken_rule_is_named_for_its_packet_alone() {
    let all = captures();
    let mut wrong = Vec::new();
    for mutation in mutations() {
        let Mutation { name, rule, severity, change, captures, sealed, .. } = mutation;
        let mut cases = 0;
        for (capture, packets) in all.iter().filter(|(of, _)| captures.contains(&of.as_str())) {
            let before = check(packets);
            let Some(at) = victim(packets, &before, &mutation) else { continue };
            cases += 1;
            let mut packets = packets.clone();
            change(&mut packets[at].bytes);
            if sealed {
                seal(&mut packets[at].bytes);
            }
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
        if cases == 0 {
            wrong.push(format!("{name}: no capture has such a packet"));
        }
    }
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
}

#[test]
fn every_rule_has_a_mutation_or_a_reason() {
    let mutations = mutations();
    for rule in Rule::ALL {
        let broken = mutations.iter().any(|mutation| mutation.rule == *rule);
        let excused = NOT_BY_ONE_PACKET.iter().any(|(rules, _)| rules.contains(rule));
        assert!(broken != excused, "{rule}: a mutation breaks it, or NOT_BY_ONE_PACKET has it");
    }
}

#[test]
fn each_ack_far_ahead_of_all_requests_is_noted() {
    let (_, mut packets) =
        captures().into_iter().find(|(name, _)| name == "rxe/rc_send.pcap").unwrap();
    for packet in packets.iter_mut().filter(|packet| packet.bytes[BTH] == ACKNOWLEDGE) {
        move_psn(&mut packet.bytes, 0x2_0000);
        seal(&mut packet.bytes);
    }
    for (packet, findings) in packets.iter().zip(check(&packets)) {
        let is_noted = names(&findings).contains(&(Rule::AckOfUnseen, Severity::Note));
        assert_eq!(is_noted, packet.bytes[BTH] == ACKNOWLEDGE, "{findings:?}");
    }
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
    let count = found.iter().flatten().filter(|finding| finding.rule == Rule::Msn).count();
    let acks = packets.iter().filter(|packet| packet.bytes[BTH] == ACKNOWLEDGE).count();
    assert_eq!(count, acks - 1);
}

#[test]
fn udp_length_beyond_the_ipv6_payload_breaks_pkt_07() {
    const UDP_LENGTH: usize = 40 + 4;
    let (_, mut packets) =
        captures().into_iter().find(|(name, _)| name == "rxe/rc_send_ipv6.pcap").unwrap();
    let is_of_udp = |packet: &Captured| packet.bytes[0] >> 4 == 6 && packet.bytes[6] == 17;
    let longer = packets.iter().position(is_of_udp).unwrap();
    packets[longer].bytes[UDP_LENGTH + 1] += 4;
    let found = names(&check(&packets)[longer]);
    assert!(found.contains(&(Rule::DatagramLength, Severity::Violation)), "{found:?}");
}

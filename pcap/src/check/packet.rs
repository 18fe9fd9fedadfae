//! The rules for single packets.

use softroce::ids::Qpn;
use softroce::net::ROCE_PORT;
use softroce::wire::cm::GSI_QKEY;
use softroce::wire::packet::{ICRC_LEN, padding};
use softroce::wire::{Bth, Cnp, Datagram, Mad, Operation, ParseError, Position, Reth, Transport};

use super::found::{RawFinding, Role};
use super::{Rule, Severity};
use crate::dissect::RocePacket;

const MIN_SOURCE_PORT: u16 = 0xc000;
const MULTICAST: Qpn = Qpn::new(0xff_ffff);
/// Length of the longest message.
const MAX_MESSAGE_BYTES: u32 = 1 << 31;
const IPV6_LEN: usize = 40;
/// Largest path MTU.
const LARGEST_MTU: usize = 4096;

/// Checks IP header, UDP header and BTH. `whole` packets were captured to their end.
pub(super) fn headers(roce: &RocePacket<'_>, datagram: &Datagram<'_>, found: &mut Vec<RawFinding>) {
    let port = roce.ip.source.port();
    if port < MIN_SOURCE_PORT {
        let seen = format!("UDP source port {port}");
        found.push(RawFinding::sender(
            Rule::UdpSourcePort,
            Severity::Quirk,
            seen,
            "0xc000 to 0xffff",
        ));
    }
    if roce.ip.ipv4.is_some_and(|ipv4| !ipv4.dont_fragment) {
        found.push(RawFinding::violation(Rule::Ipv4Header, "DF clear", "DF set"));
    }
    let bth = &datagram.bth;
    if bth.dest_qp == Qpn::new(0) {
        found.push(RawFinding::violation(
            Rule::DestinationQp,
            "destination queue pair 0",
            "any other",
        ));
    }
    let transport = bth.opcode.transport();
    if matches!(transport, Transport::Rc | Transport::Xrc | Transport::Uc)
        && [Qpn::GSI, MULTICAST].contains(&bth.dest_qp)
    {
        let seen = format!("{} to queue pair {}", bth.opcode, bth.dest_qp);
        found.push(RawFinding::violation(Rule::DestinationQp, seen, "a connected queue pair"));
    }
    if bth.pkey.partition() == 0 {
        let seen = format!("P_Key 0x{:04x}", bth.pkey.0);
        found.push(RawFinding::violation(Rule::PKey, seen, "a key with low 15 bits other than 0"));
    }
    if bth.opcode.operation() == Operation::Cnp {
        cnp(roce, bth, found);
        return;
    }
    flags(roce, bth, found);
    ack_req(bth, found);
    let ends_a_receive = match bth.opcode.operation() {
        Operation::Send => bth.opcode.position().is_end(),
        Operation::Write => bth.opcode.has_imm(),
        _ => false,
    };
    if bth.solicited && !ends_a_receive {
        let seen = format!("solicited event in {}", bth.opcode);
        found.push(RawFinding::violation(
            Rule::Solicited,
            seen,
            "in what ends a SEND, or in WRITE with imm",
        ));
    }
}

/// Checks flags and reserved bits of any packet but a CNP.
fn flags(roce: &RocePacket<'_>, bth: &Bth, found: &mut Vec<RawFinding>) {
    let bits = [4, 8].map(|at| roce.ip.payload.get(at).copied().unwrap_or_default());
    let reserved = [bits[0] & 0x3f, bits[1] & 0x7f];
    if reserved != [0, 0] {
        let seen = format!("reserved bits 0x{:02x} and 0x{:02x}", reserved[0], reserved[1]);
        // The ICRC covers the reserved bits of byte 8 only: a switch may have set the others.
        found.push(match reserved[1] {
            0 => {
                RawFinding::new(Rule::ReservedBits, Severity::Quirk, Role::Unknown, seen, "0 and 0")
            }
            _ => RawFinding::violation(Rule::ReservedBits, seen, "0 and 0"),
        });
    }
    if bth.fecn || bth.becn {
        let names = [(bth.fecn, "FECN"), (bth.becn, "BECN")];
        let set = names.iter().filter(|(set, _)| *set).map(|(_, name)| *name).collect::<Vec<_>>();
        let seen = format!("{} set in {}", set.join(" and "), bth.opcode);
        let expected = "clear: RoCEv2 uses IP's ECN bits";
        found.push(RawFinding::new(
            Rule::ReservedBits,
            Severity::Quirk,
            Role::Unknown,
            seen,
            expected,
        ));
    }
    // Only connections have a path to migrate.
    if !bth.migreq && bth.opcode.transport() != Transport::Ud {
        found.push(RawFinding::sender(
            Rule::ReservedBits,
            Severity::Quirk,
            "MigReq 0",
            "1, as adapters send",
        ));
    }
}

fn ack_req(bth: &Bth, found: &mut Vec<RawFinding>) {
    if !bth.ack_req {
        return;
    }
    let seen = format!("AckReq set in {}", bth.opcode);
    match bth.opcode.transport() {
        // rxe did so until 2024, in MADs too.
        Transport::Uc | Transport::Ud => {
            found.push(RawFinding::sender(Rule::AckReq, Severity::Quirk, seen, "clear"));
        }
        _ if !bth.opcode.is_request() => {
            found.push(RawFinding::violation(Rule::AckReq, seen, "clear"));
        }
        _ => {}
    }
}

fn cnp(roce: &RocePacket<'_>, bth: &Bth, found: &mut Vec<RawFinding>) {
    let mut wrong = Vec::new();
    for (is, what) in [
        (!bth.becn, "BECN clear"),
        (bth.fecn, "FECN set"),
        (bth.ack_req, "AckReq set"),
        (bth.solicited, "solicited event set"),
        (bth.psn.value() != 0, "a PSN"),
    ] {
        if is {
            wrong.push(what);
        }
    }
    let rest = roce.ip.payload.get(Bth::LEN..).unwrap_or_default();
    let rest = rest.split_last_chunk::<ICRC_LEN>().map_or(rest, |(rest, _)| rest);
    if rest.len() != Cnp::LEN || rest.iter().any(|byte| *byte != 0) {
        wrong.push("other than 16 zero bytes after the BTH");
    }
    if !wrong.is_empty() {
        let seen = format!("CNP with {}", wrong.join(", "));
        found.push(RawFinding::violation(Rule::Cnp, seen, "BECN alone, PSN 0, 16 zero bytes"));
    }
}

/// Checks lengths, padding and operands.
pub(super) fn content(
    roce: &RocePacket<'_>,
    datagram: &Datagram<'_>,
    whole: bool,
    found: &mut Vec<RawFinding>,
) {
    pad(roce, datagram, whole, found);
    let (opcode, len) = (datagram.bth.opcode, datagram.payload_len);
    if len > 0 && has_no_payload(opcode.operation()) {
        let seen = format!("{opcode} with {len} bytes of payload");
        found.push(RawFinding::violation(Rule::DatagramLength, seen, "none"));
    }
    if opcode.position() == Position::Last && len == 0 && opcode.is_request() {
        found.push(RawFinding::violation(
            Rule::PayloadLength,
            format!("{opcode} without payload"),
            "1 byte",
        ));
    }
    if len > LARGEST_MTU {
        let seen = format!("{len} bytes of payload");
        found.push(RawFinding::violation(
            Rule::PayloadLength,
            seen,
            "at most 4096, the largest path MTU",
        ));
    }
    if let Some(reth) = datagram.reth() {
        memory(&reth, found);
    }
    if let Some(atomic) = datagram.atomic_eth()
        && !atomic.addr.is_multiple_of(8)
    {
        let seen = format!("{opcode} at 0x{:x}", atomic.addr);
        found.push(RawFinding::violation(Rule::AtomicAlignment, seen, "a multiple of 8"));
    }
    if opcode.operation() == Operation::AtomicWrite {
        let reth = datagram.reth().unwrap_or_default();
        if len != 8 || reth.length != 8 || !reth.addr.is_multiple_of(8) {
            let seen = format!("{len} bytes at 0x{:x}, DMA length {}", reth.addr, reth.length);
            found.push(RawFinding::violation(
                Rule::AtomicWrite,
                seen,
                "8 bytes at a multiple of 8",
            ));
        }
    }
    if opcode.transport() == Transport::Ud {
        unreliable_datagram(roce, datagram, found);
    }
}

/// Returns whether packets of an operation end with their headers.
const fn has_no_payload(operation: Operation) -> bool {
    use Operation::{Acknowledge, AtomicAcknowledge, CompareSwap, FetchAdd, Flush, ReadRequest};
    matches!(
        operation,
        Acknowledge | AtomicAcknowledge | CompareSwap | FetchAdd | Flush | ReadRequest
    )
}

fn pad(roce: &RocePacket<'_>, datagram: &Datagram<'_>, whole: bool, found: &mut Vec<RawFinding>) {
    let (pad, len) = (usize::from(datagram.bth.pad), datagram.payload_len);
    if pad != padding(len) {
        let seen = format!("{pad} bytes of padding after {len}");
        found.push(RawFinding::violation(Rule::Padding, seen, padding(len).to_string()));
        return;
    }
    let end = roce.ip.payload.len() - ICRC_LEN;
    if whole && roce.ip.payload[end - pad..end].iter().any(|byte| *byte != 0) {
        found.push(RawFinding::violation(Rule::Padding, "padding that is not zero", "zeros"));
    }
}

fn memory(reth: &Reth, found: &mut Vec<RawFinding>) {
    if reth.length > MAX_MESSAGE_BYTES {
        let seen = format!("DMA length {}", reth.length);
        found.push(RawFinding::violation(Rule::RethLength, seen, "at most 2^31"));
    }
    let last = reth.length.checked_sub(1).map_or(0, u64::from);
    if reth.addr.checked_add(last).is_none() {
        let seen = format!("{} bytes at 0x{:x}", reth.length, reth.addr);
        found.push(RawFinding::violation(Rule::AddressOverflow, seen, "an end below 2^64"));
    }
}

fn unreliable_datagram(
    roce: &RocePacket<'_>,
    datagram: &Datagram<'_>,
    found: &mut Vec<RawFinding>,
) {
    let to = datagram.bth.dest_qp;
    // rxe sends to the queue pair of the work request.
    if roce.ip.destination.ip().is_multicast() && to != MULTICAST {
        let seen = format!("multicast to queue pair {to}");
        found.push(RawFinding::sender(Rule::MulticastQp, Severity::Quirk, seen, "0xffffff"));
    }
    if to != Qpn::GSI {
        return;
    }
    if let Some(deth) = datagram.deth()
        && deth.qkey != GSI_QKEY
    {
        let seen = format!("Q_Key {} to queue pair 1", deth.qkey);
        found.push(RawFinding::violation(Rule::GsiQKey, seen, GSI_QKEY.to_string()));
    }
    if datagram.payload_len != Mad::DATAGRAM_LEN {
        let seen = format!("{} bytes to queue pair 1", datagram.payload_len);
        found.push(RawFinding::violation(Rule::Mad, seen, "a MAD of 256"));
        return;
    }
    let Some(Mad { base_version, class, class_version, method, .. }) =
        datagram.payload.first_chunk().map(Mad::parse)
    else {
        return;
    };
    if class == Mad::CM && (base_version, class_version, method) != (1, 2, Mad::SEND) {
        let seen = format!("CM MAD of version {base_version}, {class_version}, method {method}");
        found.push(RawFinding::violation(Rule::Mad, seen, "version 1, 2, method 3"));
    }
}

/// Returns the finding of a datagram to the RoCE port that cannot be parsed.
pub(super) fn malformed(error: &ParseError) -> RawFinding {
    let seen = error.to_string();
    match error {
        ParseError::TransportVersion { .. } => {
            RawFinding::violation(Rule::TransportVersion, seen, "0")
        }
        ParseError::UnassignedOpcode { byte } if *byte >= 0xc0 => RawFinding::note(
            Rule::UnassignedOpcode,
            seen,
            "a manufacturer may use it among its own",
        ),
        ParseError::UnassignedOpcode { .. } => {
            RawFinding::violation(Rule::UnassignedOpcode, seen, "an assigned opcode")
        }
        ParseError::Fragment { .. } | ParseError::Ipv4HeaderLength { .. } => RawFinding::violation(
            Rule::Ipv4Header,
            seen,
            "an IPv4 header of 20 bytes, and no fragment",
        ),
        _ => RawFinding::violation(Rule::DatagramLength, seen, "headers, padding and ICRC whole"),
    }
}

/// Returns whether an IP packet that cannot be parsed goes to the RoCE port.
pub(super) fn is_roce_behind(ip_packet: &[u8]) -> bool {
    let (udp, protocol, offset) = match ip_packet.first() {
        Some(first) if first >> 4 == 4 => {
            let offset = field(ip_packet, 6).map_or(0, |at| at & 0x1fff);
            (usize::from(first & 0x0f) * 4, ip_packet.get(9), offset)
        }
        Some(first) if first >> 4 == 6 => (IPV6_LEN, ip_packet.get(6), 0),
        _ => return false,
    };
    let port = field(ip_packet, udp + 2);
    protocol == Some(&17) && offset == 0 && udp >= 20 && port == Some(ROCE_PORT)
}

/// Returns whether a capture has less of an IP packet than the length in its header.
pub(super) fn is_cut(ip_packet: &[u8]) -> bool {
    let len = match ip_packet.first().map(|first| first >> 4) {
        Some(4) => field(ip_packet, 2).map(usize::from),
        _ => field(ip_packet, 4).map(|len| usize::from(len) + IPV6_LEN),
    };
    len.is_none_or(|len| ip_packet.len() < len)
}

fn field(bytes: &[u8], at: usize) -> Option<u16> {
    bytes.get(at..at + 2).map(|field| u16::from_be_bytes([field[0], field[1]]))
}

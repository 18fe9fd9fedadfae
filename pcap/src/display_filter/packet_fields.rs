//! Fields of frame, IP, UDP and the headers of a packet, under Wireshark's names.

use std::net::IpAddr;

use softroce::net::ROCE_PORT;
use softroce::wire::Datagram;

use super::field::{Field, Kind, Subject, Value, Values, none, one};

fn number<T: Into<u64>>(value: T) -> Values {
    one(Some(Value::Number(value.into())))
}

fn length(value: usize) -> Values {
    one(u64::try_from(value).ok().map(Value::Number))
}

fn header(is_present: bool) -> Values {
    one(is_present.then_some(Value::Header))
}

fn datagram<'a>(subject: &Subject<'a>) -> Option<&'a Datagram<'a>> {
    subject.roce.datagram.as_ref().ok()
}

/// Returns a number of the base header or an extension header, if the packet has it.
fn of<T: Into<u64>>(subject: &Subject<'_>, get: impl FnOnce(&Datagram<'_>) -> Option<T>) -> Values {
    one(datagram(subject).and_then(get).map(|value| Value::Number(value.into())))
}

fn has(subject: &Subject<'_>, get: impl FnOnce(&Datagram<'_>) -> bool) -> Values {
    header(datagram(subject).is_some_and(get))
}

fn addresses(subject: &Subject<'_>, is_v4: bool, source: bool, destination: bool) -> Values {
    let ip = &subject.roce.ip;
    let of = |address: IpAddr, wanted: bool| {
        (wanted && address.is_ipv4() == is_v4).then_some(Value::Address(address))
    };
    [of(ip.source.ip(), source), of(ip.destination.ip(), destination)]
}

fn is_v4(subject: &Subject<'_>) -> bool {
    subject.roce.ip.source.is_ipv4()
}

/// Returns a number of the IPv4 header, if the packet has one.
fn v4<T: Into<u64>>(subject: &Subject<'_>, value: T) -> Values {
    if is_v4(subject) { number(value) } else { none() }
}

fn v6<T: Into<u64>>(subject: &Subject<'_>, value: T) -> Values {
    if is_v4(subject) { none() } else { number(value) }
}

/// Returns the lower five bits of a syndrome, if its opcode (bits 5 and 6) is the wanted one.
fn syndrome(subject: &Subject<'_>, opcode: u8) -> Values {
    of(subject, |datagram| {
        let byte = datagram.aeth()?.syndrome.byte();
        (byte >> 5 & 3 == opcode).then_some(byte & 0x1f)
    })
}

const ACK: u8 = 0;
const RNR_NAK: u8 = 1;
const NAK: u8 = 3;

const fn field(name: &'static str, kind: Kind, get: fn(&Subject<'_>) -> Values) -> Field {
    Field::new(name, kind, get)
}

/// Fields of the frame, of IP and UDP, and of the headers of a packet.
pub(super) const PACKET_FIELDS: &[Field] = &[
    field("frame.number", Kind::Decimal(32), |s| number(s.frame.number)),
    field("frame.len", Kind::Decimal(32), |s| number(s.frame.original_len)),
    field("frame.cap_len", Kind::Decimal(32), |s| length(s.frame.frame.len())),
    field("frame.time_relative", Kind::Time, |s| one(Some(Value::Time(s.since_start)))),
    field("frame.time_epoch", Kind::Time, |s| one(s.frame.time.map(Value::Time))),
    field("ip", Kind::Header, |s| header(is_v4(s))),
    field("ip.src", Kind::V4, |s| addresses(s, true, true, false)),
    field("ip.dst", Kind::V4, |s| addresses(s, true, false, true)),
    field("ip.addr", Kind::V4, |s| addresses(s, true, true, true)),
    field("ip.ttl", Kind::Decimal(8), |s| v4(s, s.roce.ip.hop_limit)),
    field("ip.id", Kind::Hex(16), |s| one(s.roce.ip.ipv4.map(|v4| Value::Number(v4.id.into())))),
    field("ip.dsfield", Kind::Hex(8), |s| v4(s, s.roce.ip.traffic_class)),
    field("ip.dsfield.dscp", Kind::Decimal(6), |s| v4(s, s.roce.ip.traffic_class >> 2)),
    field("ip.dsfield.ecn", Kind::Decimal(2), |s| v4(s, s.roce.ip.traffic_class & 3)),
    field("ipv6", Kind::Header, |s| header(!is_v4(s))),
    field("ipv6.src", Kind::V6, |s| addresses(s, false, true, false)),
    field("ipv6.dst", Kind::V6, |s| addresses(s, false, false, true)),
    field("ipv6.addr", Kind::V6, |s| addresses(s, false, true, true)),
    field("ipv6.hlim", Kind::Decimal(8), |s| v6(s, s.roce.ip.hop_limit)),
    field("ipv6.tclass", Kind::Hex(8), |s| v6(s, s.roce.ip.traffic_class)),
    field("udp", Kind::Header, |_| header(true)),
    field("udp.srcport", Kind::Decimal(16), |s| number(s.roce.ip.source.port())),
    field("udp.dstport", Kind::Decimal(16), |_| number(ROCE_PORT)),
    field("udp.port", Kind::Decimal(16), |s| {
        let ports = [s.roce.ip.source.port(), s.roce.ip.destination.port()];
        ports.map(|port| Some(Value::Number(port.into())))
    }),
    field("udp.length", Kind::Decimal(16), |s| length(s.roce.udp_len + UDP_HEADER_LEN)),
    field("infiniband", Kind::Header, |s| header(datagram(s).is_some())),
    field("infiniband.bth", Kind::Header, |s| header(datagram(s).is_some())),
    field("infiniband.bth.opcode", Kind::Decimal(8), |s| of(s, |d| Some(d.bth.opcode.byte()))),
    field("infiniband.bth.se", Kind::Flag, |s| of(s, |d| Some(d.bth.solicited))),
    field("infiniband.bth.m", Kind::Flag, |s| of(s, |d| Some(d.bth.migreq))),
    field("infiniband.bth.padcnt", Kind::Decimal(2), |s| of(s, |d| Some(d.bth.pad))),
    field("infiniband.bth.p_key", Kind::Decimal(16), |s| of(s, |d| Some(d.bth.pkey.0))),
    field("infiniband.bth.destqp", Kind::Hex(24), |s| of(s, |d| Some(d.bth.dest_qp.value()))),
    field("infiniband.bth.a", Kind::Flag, |s| of(s, |d| Some(d.bth.ack_req))),
    field("infiniband.bth.psn", Kind::Decimal(24), |s| of(s, |d| Some(d.bth.psn.value()))),
    field("infiniband.deth", Kind::Header, |s| has(s, |d| d.deth().is_some())),
    field("infiniband.deth.q_key", Kind::Hex(64), |s| of(s, |d| Some(d.deth()?.qkey.0))),
    field("infiniband.deth.srcqp", Kind::Hex(32), |s| of(s, |d| Some(d.deth()?.source_qp.value()))),
    field("infiniband.reth", Kind::Header, |s| has(s, |d| d.reth().is_some())),
    // Wireshark shows address and key of an atomic under these names too.
    field("infiniband.reth.va", Kind::Hex(64), |s| {
        of(s, |d| d.reth().map(|reth| reth.addr).or_else(|| Some(d.atomic_eth()?.addr)))
    }),
    field("infiniband.reth.r_key", Kind::Hex(32), |s| {
        of(s, |d| d.reth().map(|reth| reth.rkey.0).or_else(|| Some(d.atomic_eth()?.rkey.0)))
    }),
    field("infiniband.reth.dmalen", Kind::Decimal(32), |s| of(s, |d| Some(d.reth()?.length))),
    field("infiniband.atomiceth", Kind::Header, |s| has(s, |d| d.atomic_eth().is_some())),
    field("infiniband.atomiceth.swapdt", Kind::Decimal(64), |s| {
        of(s, |d| Some(d.atomic_eth()?.swap))
    }),
    field("infiniband.atomiceth.cmpdt", Kind::Decimal(64), |s| {
        of(s, |d| Some(d.atomic_eth()?.compare))
    }),
    field("infiniband.aeth", Kind::Header, |s| has(s, |d| d.aeth().is_some())),
    field("infiniband.aeth.syndrome", Kind::Decimal(8), |s| {
        of(s, |d| Some(d.aeth()?.syndrome.byte()))
    }),
    field("infiniband.aeth.syndrome.opcode", Kind::Decimal(2), |s| {
        of(s, |d| Some(d.aeth()?.syndrome.byte() >> 5 & 3))
    }),
    field("infiniband.aeth.syndrome.credit_count", Kind::Decimal(5), |s| syndrome(s, ACK)),
    field("infiniband.aeth.syndrome.timer", Kind::Decimal(5), |s| syndrome(s, RNR_NAK)),
    field("infiniband.aeth.syndrome.error_code", Kind::Decimal(5), |s| syndrome(s, NAK)),
    field("infiniband.aeth.msn", Kind::Decimal(24), |s| of(s, |d| Some(d.aeth()?.msn))),
    field("infiniband.atomicacketh", Kind::Header, |s| has(s, |d| d.atomic_ack_eth().is_some())),
    field("infiniband.atomicacketh.origremdt", Kind::Decimal(64), |s| {
        of(s, |d| Some(d.atomic_ack_eth()?.original))
    }),
    field("infiniband.immdt", Kind::Bytes, |s| {
        one(datagram(s).and_then(|d| Some(Value::Bytes(d.imm()?.0.to_be_bytes()))))
    }),
    field("infiniband.ieth", Kind::Bytes, |s| {
        one(datagram(s).and_then(|d| Some(Value::Bytes(d.ieth()?.0.0.to_be_bytes()))))
    }),
    field("infiniband.invariant.crc", Kind::Hex(32), |s| of(s, |d| d.icrc.map(u32::swap_bytes))),
];

const UDP_HEADER_LEN: usize = 8;

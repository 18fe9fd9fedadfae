//! The same packets in every capture format, and malformed files.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::time::Duration;

use proptest::prelude::*;
use softroce::port::Direction;
use softroce_pcap::{LinkType, NotIp, ReadError, Reader, Record, Writer};

const PACKET: [u8; 5] = [0x45, 1, 2, 3, 4];

/// Numbers in one byte order.
#[derive(Clone, Copy)]
enum Order {
    Little,
    Big,
}

impl Order {
    fn u16(self, n: u16) -> Vec<u8> {
        match self {
            Self::Little => n.to_le_bytes().to_vec(),
            Self::Big => n.to_be_bytes().to_vec(),
        }
    }

    fn u32(self, n: u32) -> Vec<u8> {
        match self {
            Self::Little => n.to_le_bytes().to_vec(),
            Self::Big => n.to_be_bytes().to_vec(),
        }
    }

    fn u64(self, n: u64) -> Vec<u8> {
        match self {
            Self::Little => n.to_le_bytes().to_vec(),
            Self::Big => n.to_be_bytes().to_vec(),
        }
    }
}

fn pcap(order: Order, magic: u32, link: u32, records: &[(u32, u32, &[u8])]) -> Vec<u8> {
    let mut file = order.u32(magic);
    file.extend(order.u32(0x0004_0002));
    for field in [0, 0, 65535, link] {
        file.extend(order.u32(field));
    }
    for (seconds, fraction, frame) in records {
        let len = u32::try_from(frame.len()).unwrap();
        for field in [*seconds, *fraction, len, len] {
            file.extend(order.u32(field));
        }
        file.extend(*frame);
    }
    file
}

fn block(order: Order, kind: u32, body: &[Vec<u8>]) -> Vec<u8> {
    let mut body = body.concat();
    body.resize(body.len().next_multiple_of(4), 0);
    let len = order.u32(u32::try_from(body.len() + 12).unwrap());
    [order.u32(kind), len.clone(), body, len].concat()
}

fn section(order: Order) -> Vec<u8> {
    let version = [order.u16(1), order.u16(0)].concat();
    block(order, 0x0a0d_0d0a, &[order.u32(0x1a2b_3c4d), version, order.u64(u64::MAX)])
}

fn interface(order: Order, link: u16, options: &[Vec<u8>]) -> Vec<u8> {
    let mut body = vec![order.u16(link), order.u16(0), order.u32(0)];
    body.extend_from_slice(options);
    block(order, 1, &body)
}

fn resolution(order: Order, exponent: u8) -> Vec<u8> {
    [order.u16(9), order.u16(1), vec![exponent, 0, 0, 0]].concat()
}

fn offset(order: Order, seconds: i64) -> Vec<u8> {
    [order.u16(14), order.u16(8), order.u64(seconds.cast_unsigned())].concat()
}

fn enhanced(order: Order, interface: u32, ticks: u64, frame: &[u8]) -> Vec<u8> {
    let len = u32::try_from(frame.len()).unwrap();
    let (high, low) = (ticks >> 32, ticks & 0xffff_ffff);
    let words = [u64::from(interface), high, low, len.into(), len.into()];
    let mut body: Vec<_> = words.map(|w| order.u32(u32::try_from(w).unwrap())).to_vec();
    body.push(frame.to_vec());
    block(order, 6, &body)
}

/// Times and IP packets of a file.
type Contents = Vec<(Option<Duration>, Result<Vec<u8>, NotIp>)>;

/// Returns the readable part, and how it ended.
fn read(file: &[u8]) -> (Contents, Result<(), ReadError>) {
    let mut packets = Vec::new();
    let mut reader = match Reader::new(file) {
        Ok(reader) => reader,
        Err(e) => return (packets, Err(e)),
    };
    loop {
        match reader.next_packet() {
            Ok(Some(packet)) => {
                packets.push((packet.time, packet.ip.map(<[u8]>::to_vec)));
                assert_eq!(packet.number, packets.len() as u64);
            }
            Ok(None) => return (packets, Ok(())),
            Err(e) => return (packets, Err(e)),
        }
    }
}

fn read_whole(file: &[u8]) -> Contents {
    let (packets, end) = read(file);
    end.unwrap();
    packets
}

#[test]
fn pcap_of_either_byte_order_and_resolution() {
    let time = Duration::new(7, 123_456_000);
    let expected = [(Some(time), Ok(PACKET.to_vec()))];
    for order in [Order::Little, Order::Big] {
        let micro = pcap(order, 0xa1b2_c3d4, 101, &[(7, 123_456, &PACKET)]);
        assert_eq!(read_whole(&micro), expected);
        let nano = pcap(order, 0xa1b2_3c4d, 101, &[(7, 123_456_000, &PACKET)]);
        assert_eq!(read_whole(&nano), expected);
        // Four bytes of frame check sequence, as the upper half of the link type says.
        let with_fcs = pcap(order, 0xa1b2_3c4d, 0x2400_0000 | 101, &[(7, 123_456_000, &PACKET)]);
        assert_eq!(read_whole(&with_fcs), expected);
    }
}

#[test]
fn pcapng_clocks_of_every_unit() {
    for order in [Order::Little, Order::Big] {
        let file = [
            section(order),
            interface(order, 101, &[]),
            interface(order, 101, &[resolution(order, 9), offset(order, 100)]),
            interface(order, 101, &[resolution(order, 0x80 | 10)]),
            interface(order, 101, &[offset(order, -5)]),
            enhanced(order, 0, 3_000_001, &PACKET),
            enhanced(order, 1, 3 << 32, &PACKET),
            enhanced(order, 2, 1536, &PACKET),
            enhanced(order, 3, 6_000_000, &PACKET),
        ]
        .concat();
        let times: Vec<_> = read_whole(&file).into_iter().map(|(time, _)| time.unwrap()).collect();
        let expected = [
            Duration::from_nanos(3_000_001_000),
            Duration::from_nanos((3 << 32) + 100_000_000_000),
            Duration::from_millis(1500),
            Duration::from_secs(1),
        ];
        assert_eq!(times, expected);
    }
}

#[test]
fn sections_of_different_byte_order_and_blocks_that_are_no_packets() {
    let (little, big) = (Order::Little, Order::Big);
    let snapped = |order: Order| {
        let body = [order.u16(101), order.u16(0), order.u32(4)];
        block(order, 1, &body)
    };
    let file = [
        section(little),
        interface(little, 101, &[]),
        block(little, 5, &[little.u32(0), little.u64(0)]),
        block(little, 0x8000_1234, &[vec![1, 2, 3, 4]]),
        enhanced(little, 0, 1_000_000, &PACKET),
        section(big),
        snapped(big),
        block(big, 3, &[big.u32(5), PACKET[..4].to_vec()]),
        enhanced(big, 0, 2_000_000, &PACKET),
    ]
    .concat();
    let expected = [
        (Some(Duration::from_secs(1)), Ok(PACKET.to_vec())),
        (None, Ok(PACKET[..4].to_vec())),
        (Some(Duration::from_secs(2)), Ok(PACKET.to_vec())),
    ];
    assert_eq!(read_whole(&file), expected);
}

#[test]
fn obsolete_packet_blocks() {
    for order in [Order::Little, Order::Big] {
        let obsolete = |interface: u16, len: u32| {
            let head = [order.u16(interface), order.u16(7)].concat();
            let words = [0, 1_000_000, len, 9].map(|word| order.u32(word)).concat();
            block(order, 2, &[head, words, PACKET.to_vec()])
        };
        let file = |packet: Vec<u8>| [section(order), interface(order, 101, &[]), packet].concat();
        let expected = [(Some(Duration::from_secs(1)), Ok(PACKET.to_vec()))];
        assert_eq!(read_whole(&file(obsolete(0, 5))), expected);
        let end = |file: &[u8]| read(file).1.unwrap_err().to_string();
        let what = "malformed record after packet 0: ";
        let other = format!("{what}it names an interface that was not described");
        assert_eq!(end(&file(obsolete(1, 5))), other);
        let long = format!("{what}its lengths contradict each other");
        assert_eq!(end(&file(obsolete(0, 9))), long);
    }
}

#[test]
fn section_has_at_most_65536_interfaces() {
    let order = Order::Little;
    let many = |n: usize| [section(order), interface(order, 101, &[]).repeat(n)].concat();
    assert!(read(&many(65536)).1.is_ok());
    let error = read(&many(65537)).1.unwrap_err().to_string();
    let what = "malformed record after packet 0: it is one interface more than 65536";
    assert_eq!(error, what);
    // The next section starts anew.
    assert!(read(&[many(65536), many(1)].concat()).1.is_ok());
}

#[test]
fn written_records_keep_interface_length_and_comment() {
    let mut writer = Writer::new(Vec::new(), LinkType::Raw, "test").unwrap();
    assert_eq!(writer.interface(LinkType::Loop).unwrap(), 1);
    let frame = [[0, 0, 0, 2].as_slice(), &PACKET].concat();
    let comment = "what tshark does not say".repeat(20);
    let record = Record {
        interface: 1,
        time: Duration::from_secs(3),
        frame: &frame,
        original_len: 100,
        comment: &comment,
        ..Record::default()
    };
    writer.record(&record).unwrap();
    let too_long = "x".repeat(65536);
    assert!(writer.record(&Record { comment: &too_long, ..record }).is_err());
    let file = writer.into_inner();
    assert!(file.windows(comment.len()).any(|window| window == comment.as_bytes()));
    let mut reader = Reader::new(file.as_slice()).unwrap();
    let packet = reader.next_packet().unwrap().unwrap();
    assert_eq!((packet.link, packet.ip), (Ok(LinkType::Loop), Ok(PACKET.as_slice())));
    assert_eq!((packet.time, packet.original_len), (Some(Duration::from_secs(3)), 100));
    assert!(reader.next_packet().unwrap().is_none());
}

#[test]
fn frames_without_ip_have_a_reason() {
    let arp = [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 8, 6];
    let file = pcap(Order::Little, 0xa1b2_c3d4, 1, &[(0, 0, &arp)]);
    assert_eq!(read_whole(&file)[0].1, Err(NotIp::EtherType(0x0806)));
    let wifi = pcap(Order::Little, 0xa1b2_c3d4, 105, &[(0, 0, &PACKET)]);
    assert_eq!(read_whole(&wifi)[0].1, Err(NotIp::LinkType(105)));
}

#[test]
fn errors_of_other_files_name_what_was_found() {
    let text = |file: &[u8]| Reader::new(file).unwrap_err().to_string();
    let expected = "not a capture file (magic 0x23212f62): expected pcap or pcapng";
    assert!(text(b"#!/bin/sh\n").starts_with(expected));
    assert!(text(b"").starts_with("the file is empty: expected a pcap or pcapng capture"));
    assert!(text(&[0xd4, 0xc3, 0xb2, 0xa1, 2, 0]).starts_with("cut short in the file header: "));
}

#[test]
fn contradictory_records_are_malformed() {
    let order = Order::Little;
    let end = |file: &[u8]| read(file).1.unwrap_err().to_string();
    let mut long = pcap(order, 0xa1b2_c3d4, 101, &[(0, 0, &PACKET)]);
    long[32..36].copy_from_slice(&u32::MAX.to_le_bytes());
    assert_eq!(end(&long), "malformed record after packet 0: longer than 16 MiB");

    let unknown = [section(order), enhanced(order, 0, 0, &PACKET)].concat();
    let what = "malformed record after packet 0: it names an interface that was not described";
    assert_eq!(end(&unknown), what);

    let clock = [section(order), interface(order, 101, &[resolution(order, 20)])].concat();
    assert_eq!(end(&clock), "malformed record after packet 0: its clock has no unit of ours");

    let mut odd = [section(order), interface(order, 101, &[])].concat();
    odd[32] = 13;
    assert_eq!(end(&odd), "malformed record after packet 0: its length is not one of a block");
}

#[test]
fn packet_flags_give_the_direction() {
    for order in [Order::Little, Order::Big] {
        for (flags, direction) in
            [(1, Some(Direction::Received)), (2, Some(Direction::Sent)), (0x1c, None)]
        {
            let comment = [order.u16(1), order.u16(5), b"hello\0\0\0".to_vec()].concat();
            let flags = [order.u16(2), order.u16(4), order.u32(flags), order.u32(0)].concat();
            let words = [0, 0, 0, 5, 5].map(|word| order.u32(word)).concat();
            let packet = [&PACKET[..], &[0; 3]].concat();
            let packet = block(order, 6, &[words, packet, comment, flags]);
            let file = [section(order), interface(order, 101, &[]), packet].concat();
            let mut reader = Reader::new(&file[..]).unwrap();
            let packet = reader.next_packet().unwrap().unwrap();
            assert_eq!((packet.direction, packet.ip), (direction, Ok(&PACKET[..])));
        }
    }
}

#[test]
fn truncated_file_has_its_whole_packets() {
    let mut writer = Writer::new(Vec::new(), LinkType::Raw, "test").unwrap();
    let mut ends = vec![writer.clone().into_inner().len()];
    for i in 0..3 {
        writer.packet(Duration::from_secs(i), Some(Direction::Sent), &PACKET).unwrap();
        ends.push(writer.clone().into_inner().len());
    }
    let file = writer.into_inner();
    for len in 4..=file.len() {
        let (packets, end) = read(&file[..len]);
        let whole = ends.iter().filter(|end| **end <= len).count().saturating_sub(1);
        assert_eq!(packets.len(), whole, "cut at {len}");
        // The section header alone is a file too.
        let at_boundary = ends.contains(&len) || len == 40;
        assert_eq!(end.is_ok(), at_boundary, "cut at {len}: {end:?}");
    }
}

proptest! {
    #[test]
    fn what_was_written_is_read(
        packets in prop::collection::vec((any::<u32>(), 0..1_000_000_000u32, 0..2000usize), 0..20),
    ) {
        let mut writer = Writer::new(Vec::new(), LinkType::Raw, "test").unwrap();
        let mut expected = Vec::new();
        for (seconds, ns, len) in packets {
            let time = Duration::new(seconds.into(), ns);
            let mut packet = vec![0x60];
            packet.resize(len + 1, 7);
            writer.packet(time, None, &packet).unwrap();
            expected.push((Some(time), Ok(packet)));
        }
        prop_assert_eq!(read_whole(&writer.into_inner()), expected);
    }

    #[test]
    fn no_bytes_make_the_reader_panic(
        which in 0..4usize,
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..8),
    ) {
        let order = [Order::Little, Order::Big][which % 2];
        let mut file = if which < 2 {
            pcap(order, 0xa1b2_c3d4, 1, &[(0, 0, &PACKET), (1, 1, &[0; 40])])
        } else {
            let options = [resolution(order, 9), offset(order, 1)];
            let first = interface(order, 1, &options);
            let simple = block(order, 3, &[order.u32(5), PACKET.to_vec()]);
            let packet = enhanced(order, 0, 1, &[0; 40]);
            [section(order), first, packet.clone(), simple, packet].concat()
        };
        for (at, byte) in changes {
            let at = at.index(file.len());
            file[at] = byte;
        }
        let _ = read(&file);
    }
}

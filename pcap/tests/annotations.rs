//! Copies of captures with comments: what a copy keeps, and what it adds.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use proptest::prelude::*;
use softroce_pcap::{Annotator, Block, Reader, SummaryPlace, decompressed};

const FRAME: [u8; 5] = [0x45, 1, 2, 3, 4];
const COMMENT: &str = "RSP-31: später";

/// Numbers in one byte order.
#[derive(Clone, Copy, Debug)]
struct Order {
    big_endian: bool,
}

const ORDERS: [Order; 2] = [Order { big_endian: false }, Order { big_endian: true }];

impl Order {
    fn half(self, n: u16) -> Vec<u8> {
        if self.big_endian { n.to_be_bytes().to_vec() } else { n.to_le_bytes().to_vec() }
    }

    fn word(self, n: u32) -> Vec<u8> {
        if self.big_endian { n.to_be_bytes().to_vec() } else { n.to_le_bytes().to_vec() }
    }

    fn long(self, n: u64) -> Vec<u8> {
        if self.big_endian { n.to_be_bytes().to_vec() } else { n.to_le_bytes().to_vec() }
    }

    fn block(self, kind: u32, body: &[Vec<u8>]) -> Vec<u8> {
        let mut body = body.concat();
        body.resize(body.len().next_multiple_of(4), 0);
        let len = self.word(u32::try_from(body.len() + 12).unwrap());
        [self.word(kind), len.clone(), body, len].concat()
    }

    fn option(self, code: u16, value: &[u8]) -> Vec<u8> {
        let mut option = [self.half(code), self.half(u16::try_from(value.len()).unwrap())].concat();
        option.extend(value);
        option.resize(option.len().next_multiple_of(4), 0);
        option
    }

    fn section(self, len: u64, options: &[Vec<u8>]) -> Vec<u8> {
        let magic = self.word(0x1a2b_3c4d);
        let version = [self.half(1), self.half(0)].concat();
        self.block(0x0a0d_0d0a, &[&[magic, version, self.long(len)], options].concat())
    }

    fn interface(self, options: &[Vec<u8>]) -> Vec<u8> {
        let head = [self.half(101), self.half(0), self.word(0)];
        self.block(1, &[&head, options].concat())
    }

    fn packet(self, kind: u32, interface: u32, ticks: u32, options: &[Vec<u8>]) -> Vec<u8> {
        let len = u32::try_from(FRAME.len()).unwrap();
        let mut body = [interface, 0, ticks, len, len].map(|field| self.word(field)).to_vec();
        body.push([&FRAME[..], &[0; 3]].concat());
        body.extend_from_slice(options);
        self.block(kind, &body)
    }

    fn simple(self) -> Vec<u8> {
        self.block(3, &[self.word(5), FRAME.to_vec()])
    }
}

/// Copies a capture, with a comment for each packet of which `is_commented` is true.
fn copy(file: &[u8], place: SummaryPlace, is_commented: impl Fn(u64) -> bool) -> Vec<u8> {
    let mut reader = Reader::new(decompressed(file).unwrap()).unwrap();
    let mut annotator = Annotator::new(Vec::new(), "a test", place);
    while let Ok(Some(block)) = reader.next_block() {
        let comments = match block.packet() {
            Some(packet) if is_commented(packet.number) => vec![COMMENT],
            _ => Vec::new(),
        };
        annotator.block(&block, &comments).unwrap();
    }
    let (mut out, patch) = annotator.finish("the summary").unwrap();
    if let Some(patch) = patch {
        let at = usize::try_from(patch.offset).unwrap();
        out[at..at + patch.bytes.len()].copy_from_slice(&patch.bytes);
    }
    out
}

/// A frame, with everything that a copy must keep.
type Frame = (Option<Duration>, Vec<u8>, u32, Result<u16, u32>);

fn frames(file: &[u8]) -> Vec<Frame> {
    let mut reader = Reader::new(decompressed(file).unwrap()).unwrap();
    let mut frames = Vec::new();
    while let Ok(Some(packet)) = reader.next_packet() {
        let link = packet.link.map(softroce_pcap::LinkType::number);
        frames.push((packet.time, packet.frame.to_vec(), packet.original_len, link));
    }
    frames
}

/// Returns the blocks of a pcapng file.
fn blocks(file: &[u8]) -> Vec<Vec<u8>> {
    let mut reader = Reader::new(file).unwrap();
    let mut blocks = Vec::new();
    while let Ok(Some(Block::PcapNg { bytes, .. })) = reader.next_block() {
        blocks.push(bytes.to_vec());
    }
    blocks
}

fn count(haystack: &[u8], needle: &str) -> usize {
    haystack.windows(needle.len()).filter(|bytes| *bytes == needle.as_bytes()).count()
}

fn goldens() -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("captures");
    let folders =
        ["rxe", "hardware", "softroce"].map(|dir| fs::read_dir(folder.join(dir)).unwrap());
    folders.into_iter().flatten().map(|entry| entry.unwrap().path()).collect()
}

#[test]
fn copy_of_a_golden_capture_has_the_same_frames() {
    let files = goldens();
    assert!(files.len() > 90);
    for path in files {
        let file = fs::read(&path).unwrap();
        let expected = frames(&file);
        for place in [SummaryPlace::FirstSection, SummaryPlace::LastSection] {
            let copied = copy(&file, place, |packet| packet % 3 == 0);
            assert_eq!(frames(&copied), expected, "{}", path.display());
            assert_eq!(count(&copied, COMMENT), expected.len() / 3, "{}", path.display());
            assert_eq!(count(&copied, "the summary"), 1, "{}", path.display());
        }
    }
}

/// A capture with everything that the format has, in one byte order.
fn everything(order: Order) -> Vec<Vec<u8>> {
    let old_comment = order.option(1, b"an old comment");
    let flags = order.option(2, &order.word(2));
    let end = order.option(0, &[]);
    vec![
        order.section(4242, &[order.option(1, b"of the section"), end.clone()]),
        // Blocks of names, of statistics, and of an unassigned type.
        order.block(4, &[order.word(0)]),
        order.interface(&[order.option(9, &[9]), end.clone()]),
        order.interface(&[order.option(9, &[0x80 | 10]), order.option(0x0bad, b"?"), end.clone()]),
        order.packet(6, 0, 7, &[old_comment, flags, end.clone()]),
        order.block(0x0bad_cafe, &[b"anything".to_vec()]),
        order.packet(6, 1, 8, &[]),
        order.packet(2, if order.big_endian { 1 << 16 } else { 1 }, 9, &[]),
        order.simple(),
        order.block(5, &[order.word(0), order.word(0), order.word(9)]),
        order.section(u64::MAX, &[]),
        order.interface(&[]),
        order.packet(6, 0, 10, &[order.option(0x8001, b"local"), end]),
    ]
}

#[test]
fn copy_changes_only_the_first_section_and_packets_with_comments() {
    for order in ORDERS {
        let file = everything(order);
        let copied = blocks(&copy(&file.concat(), SummaryPlace::FirstSection, |_| false));
        assert_eq!(copied[1..], file[1..]);
        let section = &copied[0];
        // The length of the section is not known any more.
        assert_eq!(section[16..24], [0xff; 8]);
        assert_eq!((count(section, "the summary"), count(section, "of the section")), (1, 1));
        let at_the_end = blocks(&copy(&file.concat(), SummaryPlace::LastSection, |_| false));
        assert_eq!(at_the_end[..file.len()], file);
        assert_eq!(at_the_end.len(), file.len() + 1);

        let commented = blocks(&copy(&file.concat(), SummaryPlace::FirstSection, |_| true));
        assert_eq!(commented.len(), file.len());
        for (before, after) in file.iter().zip(&commented).skip(1) {
            let is_packet = count(before, "\u{45}\u{1}\u{2}\u{3}\u{4}") == 1;
            assert_eq!(before != after, is_packet, "{before:?}");
        }
        for (at, kept) in [(4, "an old comment"), (12, "local")] {
            let block = &commented[at];
            assert_eq!((count(block, COMMENT), count(block, kept)), (1, 1));
        }
        assert_eq!(frames(&commented.concat()).len(), 5);
    }
}

#[test]
fn simple_packet_with_a_comment_becomes_an_enhanced_one_with_time_zero() {
    for order in ORDERS {
        let file = [order.section(u64::MAX, &[]), order.interface(&[]), order.simple()].concat();
        let copied = copy(&file, SummaryPlace::FirstSection, |_| true);
        assert_eq!(frames(&copied), [(Some(Duration::ZERO), FRAME.to_vec(), 5, Ok(101))]);
    }
}

#[test]
fn copy_of_pcap_keeps_the_resolution_of_its_clock() {
    for (magic, exponent) in [(0xa1b2_c3d4u32, 6), (0xa1b2_3c4d, 9)] {
        for order in ORDERS {
            let mut file: Vec<_> =
                [magic, 0, 0, 0, 65535, 101].iter().flat_map(|field| order.word(*field)).collect();
            file[4..8].copy_from_slice(&[order.half(2), order.half(4)].concat());
            file.extend([7, 1234, 5, 9].iter().flat_map(|field| order.word(*field)));
            file.extend(FRAME);
            let copied = copy(&file, SummaryPlace::FirstSection, |_| true);
            assert_eq!(frames(&copied), frames(&file));
            let interface = &blocks(&copied)[1];
            assert_eq!(interface[16..21], [9, 0, 1, 0, exponent]);
        }
    }
}

#[test]
fn comments_beyond_the_limits_are_cut_and_counted() {
    let order = ORDERS[0];
    let file =
        [order.section(u64::MAX, &[]), order.interface(&[]), order.packet(6, 0, 1, &[])].concat();
    let mut reader = Reader::new(file.as_slice()).unwrap();
    let mut annotator = Annotator::new(Vec::new(), "a test", SummaryPlace::FirstSection);
    let comments = vec!["ü".repeat(40_000); 70];
    while let Some(block) = reader.next_block().unwrap() {
        annotator.block(&block, &comments).unwrap();
    }
    let (copied, patch) = annotator.finish(&"ü".repeat(2000)).unwrap();
    assert_eq!(patch.unwrap().bytes.len(), 1024);
    assert_eq!(count(&copied, "7 more findings"), 1);
    assert_eq!(count(&copied, "ü"), 63 * 32_767);
    assert_eq!(frames(&copied).len(), 1);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]

    /// A capture that is damaged or cut short has a copy with the frames before the damage.
    #[test]
    fn copy_of_a_damaged_capture_has_the_frames_before_the_damage(
        big_endian: bool, at in 52usize..600, byte: u8, is_cut: bool, commented: bool,
    ) {
        let mut file = everything(Order { big_endian }).concat();
        let at = at.min(file.len() - 1);
        if is_cut { file.truncate(at) } else { file[at] = byte }
        let copied = copy(&file, SummaryPlace::FirstSection, |_| commented);
        let with_time = |frames: Vec<Frame>| -> Vec<_> {
            frames.into_iter().map(|(time, frame, len, _)| (time.unwrap_or_default(), frame, len)).collect()
        };
        prop_assert_eq!(with_time(frames(&copied)), with_time(frames(&file)));
    }
}

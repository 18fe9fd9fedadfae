//! Captures that were damaged, by chance or on purpose: the reader does not crash, run on, or exceed its memory
//! limits.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod support;

use std::io::{Cursor, Read, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use peak_alloc::PeakAlloc;
use proptest::prelude::Rng;
use proptest::test_runner::{RngAlgorithm, TestRng};
use softroce::wire::cm::Message;
use softroce::wire::text::PacketLine;
use softroce_pcap::{LinkType, Reader, Record, Writer, decompressed, dissect};
use support::{gzip, zstd};

#[global_allocator]
static MEMORY: PeakAlloc = PeakAlloc;

const MIB: usize = 1 << 20;
/// The limit in the documentation of `Reader`, and buffers around it.
const READER: usize = 20 * MIB + MIB;
/// The limit of `decompressed`, because a damaged header may ask for any window.
const WINDOW: usize = 128 * MIB;

fn captures() -> Vec<PathBuf> {
    let captures = Path::new(env!("CARGO_MANIFEST_DIR")).join("captures");
    let dirs =
        ["rxe", "hardware", "softroce"].map(|dir| std::fs::read_dir(captures.join(dir)).unwrap());
    let mut files: Vec<_> = dirs.into_iter().flatten().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    files
}

/// Reads and dissects as much as possible; returns the number of frames.
fn read(file: impl Read) -> usize {
    let Ok(input) = decompressed(file) else { return 0 };
    let Ok(mut reader) = Reader::new(input) else { return 0 };
    let mut frames = 0;
    let mut line = Vec::new();
    while let Ok(Some(packet)) = reader.next_packet() {
        frames += 1;
        let Some(roce) = packet.ip.ok().and_then(|ip| dissect(ip).ok()).flatten() else { continue };
        for segment in roce.segments() {
            let Ok(datagram) = &segment.datagram else { continue };
            line.clear();
            write!(line, "{:#}", PacketLine(datagram)).unwrap();
            if let Some(Ok(message)) = Message::of(datagram) {
                write!(line, "{message}").unwrap();
            }
        }
    }
    frames
}

/// Returns the same packets as pcapng, with comments.
fn as_pcapng(file: &[u8]) -> Vec<u8> {
    let mut reader = Reader::new(file).unwrap();
    let mut writer = Writer::new(Vec::new(), LinkType::Ethernet, "test").unwrap();
    while let Some(packet) = reader.next_packet().unwrap() {
        let time = packet.time.unwrap_or(Duration::ZERO);
        let frame = packet.frame;
        writer.record(&Record { time, frame, comment: "a packet", ..Record::default() }).unwrap();
    }
    writer.into_inner()
}

struct Damage(TestRng);

impl Damage {
    fn below(&mut self, limit: usize) -> usize {
        usize::try_from(self.0.next_u64() % u64::try_from(limit.max(1)).unwrap()).unwrap()
    }

    /// Returns a range of the file, more often short than long.
    fn range(&mut self, len: usize) -> std::ops::Range<usize> {
        let start = self.below(len);
        let longest = [4, 16, 100, 2000][self.below(4)];
        start..(start + 1 + self.below(longest)).min(len)
    }

    fn apply(&mut self, file: &mut Vec<u8>) {
        let range = self.range(file.len());
        match self.below(6) {
            0 => file[range.start] ^= 1 << self.below(8),
            1 => file.truncate(range.start),
            2 => drop(file.drain(range)),
            3 => self.0.fill_bytes(&mut file[range]),
            4 => file[range].fill(0xff),
            _ => {
                let piece: Vec<_> = file.drain(range).collect();
                let at = self.below(file.len());
                file.splice(at..at, piece);
            }
        }
    }
}

#[test]
fn damaged_captures_are_read_up_to_the_damage() {
    let seed = *b"captures that were damaged: 0001";
    let mut damage = Damage(TestRng::from_seed(RngAlgorithm::ChaCha, &seed));
    for path in captures() {
        let pcap = std::fs::read(&path).unwrap();
        // Each form with its memory limit, and its maximum expansion.
        let forms = [
            (pcap.clone(), READER, 1),
            (as_pcapng(&pcap), READER, 1),
            (gzip(&pcap), READER, 1032),
            (zstd(&pcap), READER + WINDOW, 1 << 15),
        ];
        for (whole, bound, expansion) in forms {
            assert!(read(whole.as_slice()) > 0, "{}", path.display());
            for _ in 0..8 {
                let mut file = whole.clone();
                for _ in 0..=damage.below(4) {
                    if !file.is_empty() {
                        damage.apply(&mut file);
                    }
                }
                MEMORY.reset_peak_usage();
                let before = MEMORY.current_usage();
                let frames = read(file.as_slice());
                let taken = MEMORY.peak_usage() - before;
                // Every frame takes at least a header.
                let most = expansion * file.len() / 16;
                assert!(frames <= most, "{frames} frames in {}", path.display());
                assert!(taken <= bound, "{taken} bytes for {}", path.display());
            }
        }
    }

    // Files with the largest records and the most interfaces.
    let taken = |file: &mut dyn Read| {
        MEMORY.reset_peak_usage();
        let before = MEMORY.current_usage();
        read(file);
        MEMORY.peak_usage() - before
    };
    let header = |len: u32| {
        let mut file = as_pcapng(&std::fs::read(&captures()[0]).unwrap());
        file.extend([[6, 0, 0, 0], len.to_le_bytes()].concat());
        file
    };
    for len in [16 << 20, (16 << 20) + 4, u32::MAX - 3] {
        let mut file = Cursor::new(header(len)).chain(std::io::repeat(0).take(40 << 20));
        let taken = taken(&mut file);
        assert!(taken <= READER, "{taken} bytes for a record of {len}");
    }
    let interface = [1, 0, 0, 0, 20, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 20, 0, 0, 0].repeat(200_000);
    let taken = taken(&mut Cursor::new(header(0)[..40].to_vec()).chain(interface.as_slice()));
    assert!((MIB..=READER).contains(&taken), "{taken} bytes for many interfaces");
}

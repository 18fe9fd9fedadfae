//! Compressed captures that are whole, cut off, damaged, or made to fill the memory.
//!
//! RFC 8878 (zstd) and RFC 1952 (gzip) define the formats.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod support;

use std::io::{Read, Write};
use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};

use flate2::Compression;
use flate2::write::GzEncoder;
use peak_alloc::PeakAlloc;
use softroce_pcap::{Reader, decompressed};
use support::{gzip, zstd};

#[global_allocator]
static MEMORY: PeakAlloc = PeakAlloc;

const MIB: usize = 1 << 20;
/// Limit of `Reader` and `decompressed` in bytes, without the window of zstd.
const MAX_MEMORY: usize = 21 * MIB;

const ZSTD_MAGIC: [u8; 4] = [0x28, 0xb5, 0x2f, 0xfd];
const GZIP_MAGIC: [u8; 3] = [0x1f, 0x8b, 8];

fn capture() -> Vec<u8> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("captures/rxe/loss_send_middle.pcap");
    std::fs::read(path).unwrap()
}

/// Reads all packets; returns their number, and the error at which the capture ends.
fn read(file: impl Read) -> (usize, Option<String>) {
    let input = match decompressed(file) {
        Ok(input) => input,
        Err(error) => return (0, Some(error.to_string())),
    };
    let mut reader = match Reader::new(input) {
        Ok(reader) => reader,
        Err(error) => return (0, Some(error.to_string())),
    };
    let mut packets = 0;
    loop {
        match reader.next_packet() {
            Ok(Some(_)) => packets += 1,
            Ok(None) => return (packets, None),
            Err(error) => return (packets, Some(error.to_string())),
        }
    }
}

/// Waits until no other test allocates: the peak is that of the process.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Returns the largest amount of memory allocated during a call, in bytes.
fn peak_of(call: impl FnOnce()) -> usize {
    MEMORY.reset_peak_usage();
    let before = MEMORY.current_usage();
    call();
    MEMORY.peak_usage() - before
}

/// Builds a zstd frame with a window of 128 KiB.
struct Frame(Vec<u8>);

impl Frame {
    const MAX_BLOCK: u32 = 128 << 10;

    fn new() -> Self {
        // No checksum and no content size; the window descriptor has exponent 7: 2^(10 + 7) bytes.
        Self([&ZSTD_MAGIC[..], &[0, 7 << 3]].concat())
    }

    fn block(&mut self, kind: u32, size: u32, content: &[u8]) {
        let header = (size << 3) | (kind << 1);
        self.0.extend(&header.to_le_bytes()[..3]);
        self.0.extend(content);
    }

    fn raw(&mut self, content: &[u8]) {
        self.block(0, u32::try_from(content.len()).unwrap(), content);
    }

    /// Adds a block that repeats a zero byte.
    fn zeros(&mut self, count: u32) {
        self.block(1, count, &[0]);
    }

    fn finish(mut self) -> Vec<u8> {
        self.0.extend([1, 0, 0]);
        self.0
    }
}

/// Returns the header of a pcap file with frames of Ethernet.
fn pcap_header() -> [u8; 24] {
    let mut header = [0; 24];
    header[..8].copy_from_slice(&[0xd4, 0xc3, 0xb2, 0xa1, 2, 0, 4, 0]);
    header[16..20].copy_from_slice(&(256_u32 << 10).to_le_bytes());
    header[20] = 1;
    header
}

fn record_header(len: u32) -> [u8; 16] {
    let mut header = [0; 16];
    header[8..12].copy_from_slice(&len.to_le_bytes());
    header[12..].copy_from_slice(&len.to_le_bytes());
    header
}

/// Returns a zstd file that expands to `records` records of 256 KiB.
fn bomb(records: usize) -> Vec<u8> {
    let mut frame = Frame::new();
    frame.raw(&pcap_header());
    for _ in 0..records {
        frame.raw(&record_header(2 * Frame::MAX_BLOCK));
        frame.zeros(Frame::MAX_BLOCK);
        frame.zeros(Frame::MAX_BLOCK);
    }
    frame.finish()
}

#[test]
fn compressed_captures_have_the_packets_of_the_original() {
    let _alone = alone();
    let capture = capture();
    let whole = read(capture.as_slice());
    assert_eq!(whole, (81, None));
    assert_eq!(read(gzip(&capture).as_slice()), whole);
    assert_eq!(read(zstd(&capture).as_slice()), whole);
    let mut stored = Frame::new();
    stored.raw(&capture);
    assert_eq!(read(stored.finish().as_slice()), whole);
}

#[test]
fn cut_off_captures_have_the_packets_before_the_cut_and_an_error() {
    let _alone = alone();
    let capture = capture();
    for compressed in [gzip(&capture), zstd(&capture)] {
        for cut in (0..compressed.len()).step_by(97).skip(1).chain([compressed.len() - 1]) {
            let (packets, error) = read(&compressed[..cut]);
            assert!(packets <= 81 && error.is_some(), "{packets} packets in {cut} bytes");
        }
    }
    let file = bomb(100);
    let (packets, error) = read(&file[..file.len() / 2]);
    assert!((49..=50).contains(&packets) && error.is_some(), "{packets} packets, {error:?}");
}

#[test]
fn garbage_behind_the_magic_is_an_error() {
    let _alone = alone();
    for magic in [&ZSTD_MAGIC[..], &GZIP_MAGIC] {
        for byte in 0..=255 {
            let file = [magic, &[byte; 300]].concat();
            let mut found = (0, None);
            // A zstd header may ask for a window of 128 MiB.
            let peak = peak_of(|| found = read(file.as_slice()));
            assert!(peak <= MAX_MEMORY + 128 * MIB, "{peak} bytes");
            assert!(found.0 == 0 && found.1.is_some(), "{found:?} of {byte}");
        }
        assert!(read(magic).1.is_some());
    }
}

#[test]
fn small_file_with_gigabytes_of_content_is_read_in_bounded_memory() {
    let _alone = alone();
    let file = bomb(4096);
    assert!(file.len() < 128 << 10, "{} bytes expand to a GiB", file.len());
    let mut found = (0, None);
    let peak = peak_of(|| found = read(file.as_slice()));
    assert_eq!(found, (4096, None));
    assert!(peak <= MAX_MEMORY, "{peak} bytes");

    // As gzip with its maximum ratio of 1000, and as gzip of zstd, which is no capture.
    let zeros = [&pcap_header()[..], &record_header(200 << 10), &[0; 200 << 10]].concat();
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(&zeros).unwrap();
    for _ in 0..500 {
        encoder.write_all(&zeros[24..]).unwrap();
    }
    let file = encoder.finish().unwrap();
    let peak = peak_of(|| found = read(file.as_slice()));
    assert_eq!(found, (501, None));
    assert!(peak <= MAX_MEMORY, "{peak} bytes");
    let peak = peak_of(|| found = read(gzip(&bomb(1000)).as_slice()));
    assert!(found.0 == 0 && found.1.is_some(), "{found:?}");
    assert!(peak <= MAX_MEMORY, "{peak} bytes");
}

#[test]
fn record_that_expands_beyond_the_limit_is_an_error() {
    let _alone = alone();
    let mut frame = Frame::new();
    frame.raw(&pcap_header());
    frame.raw(&record_header(u32::MAX));
    (0..32 << 10).for_each(|_| frame.zeros(Frame::MAX_BLOCK));
    let file = frame.finish();
    let mut found = (0, None);
    let peak = peak_of(|| found = read(file.as_slice()));
    assert!(found.0 == 0 && found.1.is_some(), "{found:?}");
    assert!(peak <= MAX_MEMORY, "{peak} bytes");
}

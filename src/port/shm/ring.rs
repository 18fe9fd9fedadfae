//! Bursts in a ring of shared memory ([`spsc`]) from one process to another.
//!
//! The header of a record describes the burst, whose bytes are its data:
//!
//! ```text
//!  0     2             4             6               7           8
//!  | len | segment_len | source_port | traffic_class | hop_limit |
//! ```
//!
//! No burst is empty, so no header is 0.
//!
//! [`spsc`]: crate::sync::spsc

use std::num::NonZeroU64;
use std::sync::atomic::AtomicU64;

use crate::mem::Segment;
use crate::net::{Burst, MAX_BURST_BYTES, MAX_BURST_SEGMENTS, Path};
use crate::sync::spsc::{Consumer, Producer, RECORDS, SharedMemory};

pub(super) use crate::sync::spsc::{Broken, PutOutcome};

/// Length of the segment of a ring. The records fit a CPU cache: a larger ring would go through memory.
pub(super) const SEGMENT_BYTES: usize = RECORDS + (1 << 20);

impl SharedMemory for Segment {
    const RECORD_BYTES: u64 = (SEGMENT_BYTES - RECORDS) as u64;

    #[inline]
    fn word(&self, at: usize) -> Option<&AtomicU64> {
        self.word(at)
    }

    #[inline]
    fn write(&self, at: usize, from: &[u8]) -> Option<()> {
        self.write(at, from)
    }

    #[inline]
    fn read(&self, at: usize, to: &mut [u8]) -> Option<()> {
        self.read(at, to)
    }
}

/// Fields of a burst besides its bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct BurstHeader {
    pub(super) len: u16,
    pub(super) segment_len: u16,
    pub(super) source_port: u16,
    pub(super) traffic_class: u8,
    pub(super) hop_limit: u8,
}

impl BurstHeader {
    /// Returns the fields of a burst; `None` if it is empty or too long.
    fn of(burst: &Burst) -> Option<Self> {
        let Path { source_port, traffic_class, hop_limit, .. } = burst.path;
        let len = u16::try_from(burst.byte_len()).ok().filter(|len| *len > 0)?;
        let segment_len = u16::try_from(burst.segment_len()).ok()?.min(len);
        Some(Self { len, segment_len, source_port, traffic_class, hop_limit })
    }

    fn header(self) -> Option<NonZeroU64> {
        let [l0, l1] = self.len.to_le_bytes();
        let [s0, s1] = self.segment_len.to_le_bytes();
        let [p0, p1] = self.source_port.to_le_bytes();
        let bytes = [l0, l1, s0, s1, p0, p1, self.traffic_class, self.hop_limit];
        NonZeroU64::new(u64::from_le_bytes(bytes))
    }

    /// Parses a header; an error if it describes no burst.
    fn parse(header: NonZeroU64) -> Result<Self, Broken> {
        let [l0, l1, s0, s1, p0, p1, traffic_class, hop_limit] = header.get().to_le_bytes();
        let [len, segment_len, source_port] =
            [[l0, l1], [s0, s1], [p0, p1]].map(u16::from_le_bytes);
        let is_burst = usize::from(len) <= MAX_BURST_BYTES
            && (1..=len).contains(&segment_len)
            && usize::from(len.div_ceil(segment_len)) <= MAX_BURST_SEGMENTS;
        let head = Self { len, segment_len, source_port, traffic_class, hop_limit };
        if is_burst { Ok(head) } else { Err(Broken) }
    }
}

/// The sending end of a ring.
#[derive(Debug)]
pub(super) struct Writer(Producer<Segment>);

impl Writer {
    /// Returns the sending end of a new ring.
    pub(super) fn new(segment: Segment) -> Self {
        Self(Producer::new(segment))
    }

    /// Appends a burst, if there is room.
    #[inline]
    pub(super) fn put(&mut self, burst: &Burst) -> Result<PutOutcome, Broken> {
        let Some(header) = BurstHeader::of(burst).and_then(BurstHeader::header) else {
            return Ok(PutOutcome::In);
        };
        self.0.put(header, burst.data())
    }

    /// Returns the number of bytes taken out so far.
    pub(super) fn taken(&mut self) -> Result<u64, Broken> {
        self.0.taken()
    }

    /// Returns the number of bytes in the ring.
    pub(super) fn waiting(&mut self) -> Result<u64, Broken> {
        self.0.waiting()
    }

    /// Returns whether the reader sleeps and must be woken for the new bursts: true once for each sleep.
    #[inline]
    pub(super) fn wakes(&self) -> Result<bool, Broken> {
        self.0.wakes()
    }
}

/// The receiving end of a ring.
#[derive(Debug)]
pub(super) struct Reader(Consumer<Segment>);

impl Reader {
    /// Returns the receiving end of a new ring.
    pub(super) fn new(segment: Segment) -> Self {
        Self(Consumer::new(segment))
    }

    /// Returns whether the ring is empty.
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Removes a burst and copies its bytes to the beginning of `to`, which has room for any.
    #[inline]
    pub(super) fn take(&mut self, to: &mut [u8]) -> Result<Option<BurstHeader>, Broken> {
        self.0.take(to, |header| BurstHeader::parse(header).map(|head| (head, head.len.into())))
    }

    /// Requests a wake-up by the next burst. Returns false if one is there already.
    pub(super) fn arm(&self) -> Result<bool, Broken> {
        self.0.arm()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::Ordering;

    use proptest::prelude::*;

    use super::*;
    use crate::net::BurstToken;
    use crate::sync::spsc::{LINE, TAKEN, place};

    fn ring() -> (Writer, Reader) {
        let (writer, reader, _) = ring_and_segment();
        (writer, reader)
    }

    /// Returns a ring, and its segment as another process sees it.
    fn ring_and_segment() -> (Writer, Reader, Segment) {
        let (ours, descriptor) = Segment::create(SEGMENT_BYTES).unwrap();
        let other = Segment::open(descriptor.try_clone().unwrap(), SEGMENT_BYTES).unwrap();
        (Writer::new(ours), Reader::new(Segment::open(descriptor, SEGMENT_BYTES).unwrap()), other)
    }

    /// Returns a burst with segments of these lengths, filled with `first`, `first + 1`, ...
    fn burst(lens: &[usize], first: u8) -> Burst {
        let [source, destination] = [[127, 0, 0, 1], [127, 0, 0, 2]].map(Into::into);
        let path =
            Path { source, destination, source_port: 0xc123, traffic_class: 2, hop_limit: 64 };
        let mut burst = Burst::new();
        burst.reset(path, BurstToken(0));
        for (number, len) in (first..).zip(lens) {
            burst.push(*len).fill(number);
        }
        burst
    }

    fn taken(reader: &mut Reader) -> Option<(BurstHeader, Vec<u8>)> {
        let mut to = vec![0; MAX_BURST_BYTES];
        let head = reader.take(&mut to).unwrap()?;
        to.truncate(head.len.into());
        Some((head, to))
    }

    #[test]
    fn bursts_leave_the_ring_unchanged_and_in_order() {
        let (mut writer, mut reader) = ring();
        assert_eq!(taken(&mut reader), None);
        // Several laps around the ring, with varying ends.
        for round in 0..200_u8 {
            let bursts = [
                burst(&[4112; 15], round),
                burst(&[usize::from(round) + 1], round),
                burst(&[1040, 1040, 20], round),
            ];
            for burst in &bursts {
                assert_eq!(writer.put(burst), Ok(PutOutcome::In));
            }
            for burst in &bursts {
                let (head, data) = taken(&mut reader).unwrap();
                assert_eq!(data, burst.data());
                assert_eq!(usize::from(head.segment_len), burst.segment_len().min(data.len()));
                assert_eq!((head.source_port, head.traffic_class, head.hop_limit), (0xc123, 2, 64));
            }
            assert_eq!(taken(&mut reader), None);
        }
    }

    #[test]
    fn a_full_ring_takes_nothing_until_there_is_room() {
        let (mut writer, mut reader) = ring();
        let large = burst(&[4112; 15], 0);
        let mut put = 0;
        while writer.put(&large) == Ok(PutOutcome::In) {
            put += 1;
        }
        assert_eq!(put, 16, "of 61,688 bytes with their word, in a mebibyte");
        assert_eq!(writer.waiting(), Ok(16 * 61_696));
        assert_eq!(writer.put(&large), Ok(PutOutcome::Full));
        assert!(taken(&mut reader).is_some());
        assert_eq!(writer.put(&large), Ok(PutOutcome::In));
        while taken(&mut reader).is_some() {}
        assert_eq!(writer.waiting(), Ok(0));
    }

    #[test]
    fn the_longest_burst_there_is_goes_through() {
        let (mut writer, mut reader) = ring();
        let longest = burst(&[MAX_BURST_BYTES], 9);
        for _ in 0..40 {
            assert_eq!(writer.put(&longest), Ok(PutOutcome::In));
            assert_eq!(taken(&mut reader).unwrap().1, longest.data());
        }
    }

    #[test]
    fn sleeping_reader_is_woken_once_and_only_if_the_ring_was_empty() {
        let (mut writer, mut reader) = ring();
        let small = burst(&[64], 0);
        writer.put(&small).unwrap();
        assert_eq!(writer.wakes(), Ok(false), "nobody sleeps");
        assert_eq!(reader.arm(), Ok(false), "there is something");
        assert!(taken(&mut reader).is_some());
        assert_eq!(reader.arm(), Ok(true));
        writer.put(&small).unwrap();
        assert_eq!([writer.wakes(), writer.wakes()], [Ok(true), Ok(false)]);
    }

    #[test]
    fn writer_rejects_invalid_counts_of_the_reader() {
        for nonsense in [1, u64::MAX] {
            let (mut writer, _reader, segment) = ring_and_segment();
            segment.word(TAKEN).unwrap().store(nonsense, Ordering::Relaxed);
            assert_eq!(writer.waiting(), Err(Broken), "more than there was");
        }
        let (mut writer, mut reader, segment) = ring_and_segment();
        writer.put(&burst(&[64], 0)).unwrap();
        taken(&mut reader).unwrap();
        assert_eq!(writer.waiting(), Ok(0));
        segment.word(TAKEN).unwrap().store(0, Ordering::Relaxed);
        assert_eq!(writer.waiting(), Err(Broken), "less than before");
    }

    proptest! {
        /// Returned bursts are valid and the ring ends, whatever another process writes into it.
        #[test]
        fn invalid_records_are_errors_or_valid_bursts(words in proptest::collection::vec((0..512_u64, any::<u64>()), 1..64)) {
            let (_writer, mut reader, segment) = ring_and_segment();
            for (line, value) in &words {
                segment.word(place::<Segment>(line * LINE)).unwrap().store(*value, Ordering::Relaxed);
            }
            let mut to = vec![0; MAX_BURST_BYTES];
            for _ in 0..1024 {
                match reader.take(&mut to) {
                    Ok(None) | Err(Broken) => break,
                    Ok(Some(head)) => {
                        prop_assert!(head.segment_len > 0 && head.segment_len <= head.len);
                        prop_assert!(usize::from(head.len) <= MAX_BURST_BYTES);
                    }
                }
            }
        }
    }
}

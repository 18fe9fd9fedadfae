//! A ring of bursts in a segment: one process puts in, another takes out.
//!
//! ```text
//!     0   taken    bytes that were taken out so far: whoever takes out writes it
//!   128   asleep   1 while who takes out sleeps, and wants to be woken
//!  4096   1 MiB of records, around and around
//! ```
//!
//! A record begins with a word, and takes a multiple of 64 bytes, so that a small packet is in the same line of
//! the cache as what says that it is there:
//!
//! ```text
//!  0     2             4             6               7           8
//!  | len | segment_len | source_port | traffic_class | hop_limit | bytes …
//! ```
//!
//! No burst is of no bytes, so a word of 0 says that there is no record yet. Who puts one in writes its bytes first,
//! then 0 to where the next one will begin, and the word last.

use std::sync::atomic::{AtomicU64, Ordering, fence};

use thiserror::Error;

use crate::mem::Segment;
use crate::net::{Burst, MAX_BURST_BYTES, MAX_BURST_SEGMENTS, Path};

/// Bytes of the segment of a ring.
pub(super) const SEGMENT: usize = RECORDS + (1 << 20);

/// Where in the segment what is.
const TAKEN: usize = 0;
const ASLEEP: usize = 128;
const RECORDS: usize = 4096;

/// Bytes of records. As much as a cache holds: a larger one would be written to and read from memory.
const BYTES: u64 = (SEGMENT - RECORDS) as u64;

/// What a record takes a multiple of.
const LINE: u64 = 64;

/// Bytes of the word in front of a burst.
const WORD: u64 = 8;

/// The other process does not keep to what a ring is.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
#[error("the ring is broken")]
pub(super) struct Broken;

/// What is known of a burst beside its bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Head {
    pub(super) len: u16,
    pub(super) segment_len: u16,
    pub(super) source_port: u16,
    pub(super) traffic_class: u8,
    pub(super) hop_limit: u8,
}

impl Head {
    /// Of a burst; `None` for one that is empty, or no burst.
    fn of(burst: &Burst) -> Option<Self> {
        let Path { source_port, traffic_class, hop_limit, .. } = burst.path;
        let len = u16::try_from(burst.data().len()).ok().filter(|len| *len > 0)?;
        let segment_len = u16::try_from(burst.segment_len()).ok()?.min(len);
        Some(Self { len, segment_len, source_port, traffic_class, hop_limit })
    }

    fn word(self) -> u64 {
        let [l0, l1] = self.len.to_le_bytes();
        let [s0, s1] = self.segment_len.to_le_bytes();
        let [p0, p1] = self.source_port.to_le_bytes();
        u64::from_le_bytes([l0, l1, s0, s1, p0, p1, self.traffic_class, self.hop_limit])
    }

    /// What a word that is not 0 says, unless that is no burst.
    fn from_word(word: u64) -> Result<Self, Broken> {
        let [l0, l1, s0, s1, p0, p1, traffic_class, hop_limit] = word.to_le_bytes();
        let [len, segment_len, source_port] =
            [[l0, l1], [s0, s1], [p0, p1]].map(u16::from_le_bytes);
        let is_burst = usize::from(len) <= MAX_BURST_BYTES
            && (1..=len).contains(&segment_len)
            && usize::from(len.div_ceil(segment_len)) <= MAX_BURST_SEGMENTS;
        let head = Self { len, segment_len, source_port, traffic_class, hop_limit };
        if is_burst { Ok(head) } else { Err(Broken) }
    }

    /// What its record takes of the ring.
    fn record(self) -> u64 {
        (WORD + u64::from(self.len)).next_multiple_of(LINE)
    }
}

/// Where in the segment a place of the ring is.
fn place(at: u64) -> usize {
    // Less than a mebibyte.
    RECORDS + usize::try_from(at % BYTES).unwrap_or_default()
}

/// The bytes of a burst that fit before the ring begins anew.
fn before_the_end(at: u64, len: usize) -> usize {
    len.min(SEGMENT - place(at))
}

fn word(segment: &Segment, at: usize) -> Result<&AtomicU64, Broken> {
    segment.word(at).ok_or(Broken)
}

/// What became of a burst that was to be put in.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Put {
    /// It is there.
    In,
    /// There is no room.
    Full,
}

/// The end where bursts are put in.
#[derive(Debug)]
pub(super) struct Writer {
    segment: Segment,
    /// Bytes put in so far.
    written: u64,
    /// Bytes taken out, when that was last looked at.
    taken: u64,
}

impl Writer {
    /// That of a new ring.
    pub(super) fn new(segment: Segment) -> Self {
        Self { segment, written: 0, taken: 0 }
    }

    /// Puts a burst in, if there is room.
    #[inline]
    pub(super) fn put(&mut self, burst: &Burst) -> Result<Put, Broken> {
        let Some(head) = Head::of(burst) else { return Ok(Put::In) };
        let record = head.record();
        // The word behind it is written as well.
        if self.room() < record + LINE {
            self.look()?;
            if self.room() < record + LINE {
                return Ok(Put::Full);
            }
        }
        let (at, data) = (self.written, burst.data());
        let (front, back) = data.split_at(before_the_end(at + WORD, data.len()));
        self.segment.write(place(at + WORD), front).ok_or(Broken)?;
        if !back.is_empty() {
            self.segment.write(RECORDS, back).ok_or(Broken)?;
        }
        word(&self.segment, place(at + record))?.store(0, Ordering::Relaxed);
        word(&self.segment, place(at))?.store(head.word(), Ordering::Release);
        self.written += record;
        Ok(Put::In)
    }

    fn room(&self) -> u64 {
        BYTES.saturating_sub(self.written - self.taken)
    }

    /// Looks how much was taken out.
    fn look(&mut self) -> Result<(), Broken> {
        let taken = word(&self.segment, TAKEN)?.load(Ordering::Acquire);
        if !(self.taken..=self.written).contains(&taken) {
            return Err(Broken);
        }
        self.taken = taken;
        Ok(())
    }

    /// Bytes that were taken out so far.
    pub(super) fn taken(&mut self) -> Result<u64, Broken> {
        self.look().map(|()| self.taken)
    }

    /// Bytes that wait to be taken out.
    pub(super) fn waiting(&mut self) -> Result<u64, Broken> {
        self.look().map(|()| self.written - self.taken)
    }

    /// Whether who takes out is to be woken for what was put in. Says so once.
    #[inline]
    pub(super) fn wakes(&self) -> Result<bool, Broken> {
        let asleep = word(&self.segment, ASLEEP)?;
        // Either this sees that he sleeps, or he sees what was put in: see `Reader::arm`.
        fence(Ordering::SeqCst);
        Ok(asleep.load(Ordering::Relaxed) != 0 && asleep.swap(0, Ordering::Relaxed) != 0)
    }
}

/// The end where bursts are taken out.
#[derive(Debug)]
pub(super) struct Reader {
    segment: Segment,
    /// Bytes taken out so far.
    taken: u64,
}

impl Reader {
    /// That of a ring of which nothing was taken yet.
    pub(super) fn new(segment: Segment) -> Self {
        Self { segment, taken: 0 }
    }

    /// Whether there is nothing to be taken out.
    pub(super) fn is_empty(&self) -> bool {
        self.next().is_ok_and(|word| word == 0)
    }

    /// The word of the record that is next, or 0.
    #[inline]
    fn next(&self) -> Result<u64, Broken> {
        Ok(word(&self.segment, place(self.taken))?.load(Ordering::Acquire))
    }

    /// Takes a burst out, its bytes to the beginning of `to`, which has room for any.
    #[inline]
    pub(super) fn take(&mut self, to: &mut [u8]) -> Result<Option<Head>, Broken> {
        let found = self.next()?;
        if found == 0 {
            return Ok(None);
        }
        let head = Head::from_word(found)?;
        let to = to.get_mut(..head.len.into()).ok_or(Broken)?;
        let (front, back) = to.split_at_mut(before_the_end(self.taken + WORD, to.len()));
        self.segment.read(place(self.taken + WORD), front).ok_or(Broken)?;
        if !back.is_empty() {
            self.segment.read(RECORDS, back).ok_or(Broken)?;
        }
        self.taken += head.record();
        word(&self.segment, TAKEN)?.store(self.taken, Ordering::Release);
        Ok(Some(head))
    }

    /// Asks to be woken for what is put in from now on. False when there is something already.
    pub(super) fn arm(&self) -> Result<bool, Broken> {
        word(&self.segment, ASLEEP)?.store(1, Ordering::Relaxed);
        // Either this sees what was put in, or who puts in sees that we sleep: see `Writer::wakes`.
        fence(Ordering::SeqCst);
        Ok(self.next()? == 0)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::net::BurstToken;

    fn ring() -> (Writer, Reader) {
        let (ours, descriptor) = Segment::create(SEGMENT).unwrap();
        (Writer::new(ours), Reader::new(Segment::open(descriptor, SEGMENT).unwrap()))
    }

    /// A burst of segments of these lengths, each filled with its own number after `first`.
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

    fn taken(reader: &mut Reader) -> Option<(Head, Vec<u8>)> {
        let mut to = vec![0; MAX_BURST_BYTES];
        let head = reader.take(&mut to).unwrap()?;
        to.truncate(head.len.into());
        Some((head, to))
    }

    #[test]
    fn what_is_put_in_comes_out_in_order_and_as_it_was() {
        let (mut writer, mut reader) = ring();
        assert_eq!(taken(&mut reader), None);
        // Several times around, with ends that fall everywhere.
        for round in 0..200_u8 {
            let bursts = [
                burst(&[4112; 15], round),
                burst(&[usize::from(round) + 1], round),
                burst(&[1040, 1040, 20], round),
            ];
            for burst in &bursts {
                assert_eq!(writer.put(burst), Ok(Put::In));
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
        while writer.put(&large) == Ok(Put::In) {
            put += 1;
        }
        assert_eq!(put, 16, "of 61,688 bytes with their word, in a mebibyte");
        assert_eq!(writer.waiting(), Ok(16 * 61_696));
        assert_eq!(writer.put(&large), Ok(Put::Full));
        assert!(taken(&mut reader).is_some());
        assert_eq!(writer.put(&large), Ok(Put::In));
        while taken(&mut reader).is_some() {}
        assert_eq!(writer.waiting(), Ok(0));
    }

    #[test]
    fn the_longest_burst_there_is_goes_through() {
        let (mut writer, mut reader) = ring();
        let longest = burst(&[MAX_BURST_BYTES], 9);
        for _ in 0..40 {
            assert_eq!(writer.put(&longest), Ok(Put::In));
            assert_eq!(taken(&mut reader).unwrap().1, longest.data());
        }
    }

    #[test]
    fn who_sleeps_is_woken_once_and_not_when_there_is_something() {
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
    fn a_reader_that_says_nonsense_is_no_reader() {
        for nonsense in [1, u64::MAX] {
            let (mut writer, reader) = ring();
            reader.segment.word(TAKEN).unwrap().store(nonsense, Ordering::Relaxed);
            assert_eq!(writer.waiting(), Err(Broken), "more than there was");
        }
        let (mut writer, mut reader) = ring();
        writer.put(&burst(&[64], 0)).unwrap();
        taken(&mut reader).unwrap();
        assert_eq!(writer.waiting(), Ok(0));
        reader.segment.word(TAKEN).unwrap().store(0, Ordering::Relaxed);
        assert_eq!(writer.waiting(), Err(Broken), "less than before");
    }

    proptest! {
        /// Whatever another process writes into the ring, what is taken out is a burst, and the end is reached.
        #[test]
        fn nonsense_is_broken_or_a_burst(words in proptest::collection::vec((0..512_u64, any::<u64>()), 1..64)) {
            let (writer, mut reader) = ring();
            for (line, value) in &words {
                writer.segment.word(place(line * LINE)).unwrap().store(*value, Ordering::Relaxed);
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

//! A ring of records in memory that two processes share: one producer, one consumer.
//!
//! ```text
//!     0   taken    bytes taken out so far: the consumer writes it
//!   128   asleep   1 while the consumer sleeps, and asks for a wake-up
//!  4096   records, around and around
//! ```
//!
//! A record is a header of 8 bytes that is not 0, and its data. It takes a multiple of 64 bytes, so that a short
//! record is in the same cache line as its header. A header of 0 ends the records.
//!
//! # Orderings
//!
//! ```text
//! producer                             consumer
//! taken?                  (acquire)    header?              (acquire)
//! data                                 data
//! header behind it = 0    (relaxed)    taken = …            (release)
//! header = …              (release)
//! ```
//!
//! A consumer that reads a header has the data and the 0 behind it. A producer that reads `taken` overwrites only
//! bytes that the consumer has read. The header at the consumer's place is never left over from the last round: the
//! producer writes 0 there before the header in front of it.
//!
//! ```text
//! producer                             consumer
//! header = …              (release)    asleep = 1           (relaxed)
//! fence                   (SeqCst)     fence                (SeqCst)
//! asleep?                 (relaxed)    header?              (acquire)
//!   1: asleep = 0, wake                  0: sleep
//! ```
//!
//! One of the two fences comes first. If it is the producer's, the consumer reads the header, else the producer
//! reads 1. So no record waits for a consumer that sleeps.
//!
//! Either process may write anything at any time. Every word from the other one is checked, and no reference into
//! the memory exists.

use std::num::NonZeroU64;
use std::sync::atomic::Ordering;

use thiserror::Error;

use super::primitives::{AtomicU64, fence};

/// Offset of the number of bytes that were taken out.
pub(crate) const TAKEN: usize = 0;

/// Offset of the consumer's request for a wake-up.
pub(crate) const ASLEEP: usize = 128;

/// Offset of the first record.
pub(crate) const RECORDS: usize = 4096;

/// Bytes of a cache line, of which a record takes a multiple.
pub(crate) const LINE: u64 = 64;

/// Bytes of a record's header.
const HEADER: u64 = 8;

/// Memory that two processes share. Offsets are in bytes. A result of `None` says that a range is outside, or that a
/// word is not aligned.
pub(crate) trait SharedMemory {
    /// Bytes of records: the memory is that much longer than [`RECORDS`]. A multiple of [`LINE`].
    const RECORD_BYTES: u64;

    /// The word at an offset.
    fn word(&self, at: usize) -> Option<&AtomicU64>;

    /// Copies bytes to an offset.
    fn write(&self, at: usize, from: &[u8]) -> Option<()>;

    /// Copies bytes from an offset.
    fn read(&self, at: usize, to: &mut [u8]) -> Option<()>;
}

/// The other process does not keep to the rules of the ring.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
#[error("the ring is broken")]
pub(crate) struct Broken;

/// The result of putting a record in.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum PutOutcome {
    /// The record is in the ring.
    In,
    /// The ring has no room for it.
    Full,
}

/// Offset of a place of the ring, given as the number of bytes before it since the start.
pub(crate) fn place<M: SharedMemory>(at: u64) -> usize {
    // Less than the bytes of records, which fit an offset.
    RECORDS + usize::try_from(at % M::RECORD_BYTES).unwrap_or_default()
}

/// How many of `len` bytes fit before the end of the ring.
fn before_the_end<M: SharedMemory>(at: u64, len: usize) -> usize {
    let left = M::RECORD_BYTES - at % M::RECORD_BYTES;
    usize::try_from(left).map_or(len, |left| len.min(left))
}

/// Bytes that a record with so much data takes.
fn record(len: usize) -> u64 {
    (HEADER + len as u64).next_multiple_of(LINE)
}

fn word<M: SharedMemory>(memory: &M, at: usize) -> Result<&AtomicU64, Broken> {
    memory.word(at).ok_or(Broken)
}

/// The end that puts records in.
#[derive(Debug)]
pub(crate) struct Producer<M> {
    memory: M,
    /// Bytes put in so far.
    written: u64,
    /// Bytes taken out, by the last look.
    taken: u64,
}

impl<M: SharedMemory> Producer<M> {
    /// Makes the producer of a new ring. The memory is zero.
    pub(crate) fn new(memory: M) -> Self {
        Self { memory, written: 0, taken: 0 }
    }

    /// Puts a record in, if there is room.
    #[inline]
    pub(crate) fn put(&mut self, header: NonZeroU64, data: &[u8]) -> Result<PutOutcome, Broken> {
        let record = record(data.len());
        // The header behind it is written as well.
        if self.room() < record + LINE {
            self.look()?;
            if self.room() < record + LINE {
                return Ok(PutOutcome::Full);
            }
        }
        let at = self.written;
        let (front, back) = data.split_at(before_the_end::<M>(at + HEADER, data.len()));
        self.memory.write(place::<M>(at + HEADER), front).ok_or(Broken)?;
        if !back.is_empty() {
            self.memory.write(RECORDS, back).ok_or(Broken)?;
        }
        word(&self.memory, place::<M>(at + record))?.store(0, Ordering::Relaxed);
        word(&self.memory, place::<M>(at))?.store(header.get(), Ordering::Release);
        self.written += record;
        Ok(PutOutcome::In)
    }

    fn room(&self) -> u64 {
        M::RECORD_BYTES.saturating_sub(self.written - self.taken)
    }

    /// Reads how much was taken out.
    fn look(&mut self) -> Result<(), Broken> {
        let taken = word(&self.memory, TAKEN)?.load(Ordering::Acquire);
        if !(self.taken..=self.written).contains(&taken) {
            return Err(Broken);
        }
        self.taken = taken;
        Ok(())
    }

    /// Bytes taken out so far.
    pub(crate) fn taken(&mut self) -> Result<u64, Broken> {
        self.look().map(|()| self.taken)
    }

    /// Bytes that wait in the ring.
    pub(crate) fn waiting(&mut self) -> Result<u64, Broken> {
        self.look().map(|()| self.written - self.taken)
    }

    /// Whether the consumer sleeps and is to be woken for the records put in. Returns true once for each sleep.
    #[inline]
    pub(crate) fn wakes(&self) -> Result<bool, Broken> {
        let asleep = word(&self.memory, ASLEEP)?;
        fence(Ordering::SeqCst);
        Ok(asleep.load(Ordering::Relaxed) != 0 && asleep.swap(0, Ordering::Relaxed) != 0)
    }
}

/// The end that takes records out.
#[derive(Debug)]
pub(crate) struct Consumer<M> {
    memory: M,
    /// Bytes taken out so far.
    taken: u64,
}

impl<M: SharedMemory> Consumer<M> {
    /// That of a ring of which nothing was taken yet.
    pub(crate) fn new(memory: M) -> Self {
        Self { memory, taken: 0 }
    }

    /// Whether no record waits.
    pub(crate) fn is_empty(&self) -> bool {
        self.next().is_ok_and(|header| header.is_none())
    }

    /// The header of the next record.
    #[inline]
    fn next(&self) -> Result<Option<NonZeroU64>, Broken> {
        let header = word(&self.memory, place::<M>(self.taken))?.load(Ordering::Acquire);
        Ok(NonZeroU64::new(header))
    }

    /// Takes a record out, its data to the beginning of `to`. `parse` says what a header means and how many bytes
    /// of data follow it.
    #[inline]
    pub(crate) fn take<H>(
        &mut self,
        to: &mut [u8],
        parse: impl FnOnce(NonZeroU64) -> Result<(H, usize), Broken>,
    ) -> Result<Option<H>, Broken> {
        let Some(header) = self.next()? else { return Ok(None) };
        let (parsed, len) = parse(header)?;
        let to = to.get_mut(..len).ok_or(Broken)?;
        let at = self.taken + HEADER;
        let (front, back) = to.split_at_mut(before_the_end::<M>(at, len));
        self.memory.read(place::<M>(at), front).ok_or(Broken)?;
        if !back.is_empty() {
            self.memory.read(RECORDS, back).ok_or(Broken)?;
        }
        self.taken += record(len);
        word(&self.memory, TAKEN)?.store(self.taken, Ordering::Release);
        Ok(Some(parsed))
    }

    /// Asks for a wake-up by the next record. Returns false when one is there already.
    pub(crate) fn arm(&self) -> Result<bool, Broken> {
        word(&self.memory, ASLEEP)?.store(1, Ordering::Relaxed);
        fence(Ordering::SeqCst);
        Ok(self.next()?.is_none())
    }
}

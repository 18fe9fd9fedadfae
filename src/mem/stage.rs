//! Bytes on their way between packets and memory that only the system copies.
//!
//! A call takes the system longer than the bytes of a packet take it. So what the packets of a message
//! read one behind the other is read ahead by one call, and what they bring is held back, to be
//! written by one:
//!
//! | | begins with | ends with |
//! |---|---|---|
//! | reading ahead | the packet that goes on where the one before ended | the epoch, or something that is written |
//! | holding back | any packet but the last of a message | that last one, any other use of memory, or the epoch |
//!
//! The processor copies the bytes once more than without, which takes a fraction of the calls' time.

use std::cell::{Cell, RefCell};
use std::sync::Arc;
use std::sync::atomic::{Ordering, fence};

use super::backing::Backing;
use super::placement::{Placement, TAIL};

/// How many bytes are read ahead or held back at most: a few packets, which stay in the nearest cache.
const MOST: usize = 16 << 10;

/// What an engine has read ahead and holds back.
#[derive(Debug, Default)]
pub(super) struct Stage {
    ahead: RefCell<Ahead>,
    behind: RefCell<Behind>,
    /// Whether something is held back.
    holds: Cell<bool>,
}

impl Stage {
    /// An epoch begins: memory may have changed since the one before.
    #[inline]
    pub(super) fn begin(&mut self) {
        self.ahead.get_mut().len = 0;
    }

    /// Copies `to.len()` bytes from offset `at`. The `behind` bytes after them are likely to be asked
    /// for next.
    pub(super) fn read(
        &self,
        backing: &Arc<dyn Backing>,
        at: usize,
        to: &mut [u8],
        behind: usize,
    ) -> Option<()> {
        self.ahead.borrow_mut().read(backing, at, to, behind)
    }

    /// Copies `from` to offset `at`, now or later.
    pub(super) fn write(
        &self,
        backing: &Arc<dyn Backing>,
        at: usize,
        from: &[u8],
        placement: Placement,
    ) -> Option<()> {
        self.ahead.borrow_mut().len = 0;
        let mut behind = self.behind.borrow_mut();
        if !behind.takes(backing, at, from.len()) {
            behind.write_out()?;
        }
        match placement {
            Placement::Plain => behind.hold(backing, at, from),
            Placement::Final => {
                let (front, tail) = from.split_at(from.len().saturating_sub(TAIL));
                behind.write_with(backing, at, front)?;
                fence(Ordering::Release);
                backing.write_last(at + front.len(), tail)?;
            }
        }
        self.holds.set(placement == Placement::Plain);
        Some(())
    }

    /// Writes what is held back.
    #[inline]
    pub(super) fn write_out(&self) -> Option<()> {
        if self.holds.take() { self.behind.borrow_mut().write_out() } else { Some(()) }
    }
}

/// Bytes of a backing that were read ahead.
#[derive(Debug, Default)]
struct Ahead {
    /// Which backing, by where it is.
    of: usize,
    /// The offset of the first byte of `bytes`, of which `len` are from there.
    start: usize,
    bytes: Vec<u8>,
    len: usize,
    /// The offset behind what was asked for last.
    next: usize,
}

impl Ahead {
    fn read(
        &mut self,
        backing: &Arc<dyn Backing>,
        at: usize,
        to: &mut [u8],
        behind: usize,
    ) -> Option<()> {
        let of = Arc::as_ptr(backing).addr();
        let goes_on = self.of == of && self.next == at;
        (self.of, self.next) = (of, at.checked_add(to.len())?);
        if goes_on && let Some(bytes) = self.has(at, to.len()) {
            to.copy_from_slice(bytes);
            return Some(());
        }
        self.len = 0;
        let want = to.len().saturating_add(behind).min(MOST);
        if !goes_on || want <= to.len() {
            return backing.read(at, to);
        }
        self.bytes.resize(MOST, 0);
        self.start = at;
        self.len = backing.read_some(at, self.bytes.get_mut(..want)?);
        to.copy_from_slice(self.has(at, to.len())?);
        Some(())
    }

    fn has(&self, at: usize, len: usize) -> Option<&[u8]> {
        let from = at.checked_sub(self.start)?;
        self.bytes.get(..self.len)?.get(from..from.checked_add(len)?)
    }
}

/// Bytes that are not written yet.
#[derive(Debug, Default)]
struct Behind {
    to: Option<Arc<dyn Backing>>,
    /// The offset of the first.
    start: usize,
    bytes: Vec<u8>,
}

impl Behind {
    /// Whether so many bytes for offset `at` can be put to those that are there.
    fn takes(&self, backing: &Arc<dyn Backing>, at: usize, len: usize) -> bool {
        self.to.as_ref().is_some_and(|to| Arc::ptr_eq(to, backing))
            && self.start.checked_add(self.bytes.len()) == Some(at)
            && self.bytes.len() + len <= MOST
    }

    /// Holds bytes back, which are [taken](Self::takes) or the first.
    fn hold(&mut self, backing: &Arc<dyn Backing>, at: usize, from: &[u8]) {
        if self.to.is_none() {
            (self.to, self.start) = (Some(Arc::clone(backing)), at);
        }
        self.bytes.extend_from_slice(from);
    }

    /// Writes what is held back and these behind it.
    fn write_with(&mut self, backing: &Arc<dyn Backing>, at: usize, from: &[u8]) -> Option<()> {
        if self.to.is_none() {
            return backing.write(at, from);
        }
        self.bytes.extend_from_slice(from);
        self.write_out()
    }

    fn write_out(&mut self) -> Option<()> {
        let Some(to) = self.to.take() else { return Some(()) };
        let written = to.write(self.start, &self.bytes);
        self.bytes.clear();
        written
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::super::backing::{Misaligned, WordOp};
    use super::*;

    /// Memory that lists the calls for it, of which the bytes from `end` on are not there.
    #[derive(Debug)]
    struct Slow {
        bytes: Mutex<Vec<u8>>,
        calls: Mutex<Vec<String>>,
        end: usize,
    }

    impl Slow {
        fn new(end: usize) -> Arc<Self> {
            let bytes = (0..=255).cycle().take(1 << 18).collect();
            Arc::new(Self { bytes: Mutex::new(bytes), calls: Mutex::default(), end })
        }

        fn calls(&self) -> Vec<String> {
            std::mem::take(&mut self.calls.lock().unwrap())
        }
    }

    impl Backing for Slow {
        fn read_some(&self, at: usize, to: &mut [u8]) -> usize {
            self.calls.lock().unwrap().push(format!("read {at} {}", to.len()));
            let there = to.len().min(self.end.saturating_sub(at));
            to[..there].copy_from_slice(&self.bytes.lock().unwrap()[at..at + there]);
            there
        }

        fn write(&self, at: usize, from: &[u8]) -> Option<()> {
            self.calls.lock().unwrap().push(format!("write {at} {}", from.len()));
            (at + from.len() <= self.end).then_some(())?;
            self.bytes.lock().unwrap()[at..at + from.len()].copy_from_slice(from);
            Some(())
        }

        fn takes_calls(&self) -> bool {
            true
        }

        fn word(&self, _: usize, _: WordOp<'_>) -> Option<Result<(), Misaligned>> {
            None
        }

        fn has_whole_words(&self) -> bool {
            false
        }

        fn is_callers(&self) -> bool {
            true
        }
    }

    const ALL: usize = 1 << 18;

    /// Reads packets of a message of `len` bytes, one behind the other, and says whether each was there.
    fn read(stage: &Stage, memory: &Arc<Slow>, len: usize, packets: usize) -> Vec<bool> {
        let backing: Arc<dyn Backing> = memory.clone();
        let one = |n: usize| {
            let mut packet = [0; 4096];
            let read = stage.read(&backing, n * 4096, &mut packet, len - (n + 1) * 4096);
            read.is_some() && packet[..] == memory.bytes.lock().unwrap()[n * 4096..][..4096]
        };
        (0..packets).map(one).collect()
    }

    fn write(stage: &Stage, memory: &Arc<Slow>, at: usize, last: bool) -> Option<()> {
        let backing: Arc<dyn Backing> = memory.clone();
        let placement = if last { Placement::Final } else { Placement::Plain };
        stage.write(&backing, at, &[7; 100], placement)
    }

    #[test]
    fn what_packets_take_one_behind_the_other_is_read_by_few_calls() {
        let (stage, memory) = (Stage::default(), Slow::new(ALL));
        assert_eq!(read(&stage, &memory, 40_960, 10), [true; 10]);
        // The first alone, for nobody knows that there will be a second; the last are what the message has left.
        let calls = ["read 0 4096", "read 4096 16384", "read 20480 16384", "read 36864 4096"];
        assert_eq!(memory.calls(), calls);
    }

    #[test]
    fn what_was_read_ahead_is_good_for_one_turn() {
        let (mut stage, memory) = (Stage::default(), Slow::new(ALL));
        let backing: Arc<dyn Backing> = memory.clone();
        assert_eq!(read(&stage, &memory, 40_960, 2), [true; 2]);
        memory.bytes.lock().unwrap()[8192..12_288].fill(1);
        let mut packet = [0; 4096];
        stage.begin();
        stage.read(&backing, 8192, &mut packet, 0).unwrap();
        assert_eq!(packet, [1; 4096]);

        assert_eq!(read(&stage, &memory, 40_960, 2), [true; 2]);
        write(&stage, &memory, 8192, true).unwrap();
        stage.read(&backing, 8192, &mut packet, 0).unwrap();
        assert_eq!(packet[..101], [[7; 100].as_slice(), &[1]].concat());
    }

    #[test]
    fn where_pages_are_missing_what_is_before_them_is_read() {
        let (stage, memory) = (Stage::default(), Slow::new(3 * 4096 + 10));
        assert_eq!(read(&stage, &memory, 40_960, 5), [true, true, true, false, false]);
    }

    #[test]
    fn what_packets_bring_is_written_with_the_last_of_them() {
        let (stage, memory) = (Stage::default(), Slow::new(ALL));
        for at in [0, 100, 200] {
            write(&stage, &memory, at, false).unwrap();
        }
        assert_eq!(memory.calls(), [""; 0]);
        write(&stage, &memory, 300, true).unwrap();
        assert_eq!(memory.calls(), ["write 0 392", "write 392 8"]);
        assert_eq!(memory.bytes.lock().unwrap()[..401], [[7; 400].as_slice(), &[144]].concat());
        stage.write_out().unwrap();
        assert_eq!(memory.calls(), [""; 0]);
    }

    #[test]
    fn what_does_not_go_on_where_the_last_ended_is_behind_it() {
        let (stage, memory) = (Stage::default(), Slow::new(ALL));
        let other = Slow::new(ALL);
        write(&stage, &memory, 0, false).unwrap();
        write(&stage, &memory, 50, false).unwrap();
        assert_eq!(memory.calls(), ["write 0 100"]);
        write(&stage, &other, 150, false).unwrap();
        assert_eq!(memory.calls(), ["write 50 100"]);
        stage.write_out().unwrap();
        assert_eq!(other.calls(), ["write 150 100"]);
    }

    #[test]
    fn what_cannot_be_written_is_told_once() {
        let (stage, memory) = (Stage::default(), Slow::new(50));
        write(&stage, &memory, 0, false).unwrap();
        assert_eq!((stage.write_out(), stage.write_out()), (None, Some(())));
        write(&stage, &memory, 0, false).unwrap();
        assert_eq!(write(&stage, &memory, 100, true), None);
        assert_eq!(stage.write_out(), Some(()));
    }

    #[test]
    fn no_more_is_held_back_than_a_few_packets() {
        let (stage, memory) = (Stage::default(), Slow::new(ALL));
        let backing: Arc<dyn Backing> = memory.clone();
        for n in 0..5 {
            stage.write(&backing, n * 4096, &[0; 4096], Placement::Plain).unwrap();
        }
        assert_eq!(memory.calls(), ["write 0 16384"]);
    }
}

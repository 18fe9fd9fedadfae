//! Staging buffers between packets and memory that only system calls copy.
//!
//! A system call takes longer than the copy of a packet. So one call reads ahead for several consecutive packets of a
//! message, and one call writes the payloads of several packets:
//!
//! | | starts with | ends with |
//! |---|---|---|
//! | read-ahead | a packet that continues the one before | the epoch, or a write |
//! | write-behind | any packet except the last of a message | the last packet, another access to memory, or the epoch |
//!
//! The additional copy by the CPU costs a fraction of the saved calls.

use std::cell::{Cell, RefCell};
use std::sync::Arc;
use std::sync::atomic::{Ordering, fence};

use super::backing::Backing;
use super::placement::{Placement, TAIL};

/// Maximum number of bytes read ahead or written behind: a few packets, which fit the L1 cache.
const MAX_STAGED_BYTES: usize = 16 << 10;

/// Read-ahead and write-behind buffers of an engine.
#[derive(Debug, Default)]
pub(super) struct StagingBuffer {
    ahead: RefCell<ReadAhead>,
    behind: RefCell<WriteBehind>,
    /// Whether bytes wait to be written.
    has_pending_writes: Cell<bool>,
}

impl StagingBuffer {
    /// Discards bytes that an earlier epoch has read ahead, because the memory may have changed.
    #[inline]
    pub(super) fn begin(&mut self) {
        self.ahead.get_mut().len = 0;
    }

    /// Copies `to.len()` bytes from offset `at`. The caller expects to read the `behind` bytes after them next.
    pub(super) fn read(
        &self,
        backing: &Arc<dyn Backing>,
        at: usize,
        to: &mut [u8],
        behind: usize,
    ) -> Option<()> {
        self.ahead.borrow_mut().read(backing, at, to, behind)
    }

    /// Copies `from` to offset `at`, immediately or later.
    pub(super) fn write(
        &self,
        backing: &Arc<dyn Backing>,
        at: usize,
        from: &[u8],
        placement: Placement,
    ) -> Option<()> {
        self.ahead.borrow_mut().len = 0;
        let mut behind = self.behind.borrow_mut();
        if !behind.can_append(backing, at, from.len()) {
            behind.write_out()?;
        }
        match placement {
            Placement::Plain => behind.append(backing, at, from),
            Placement::Final => {
                let (front, tail) = from.split_at(from.len().saturating_sub(TAIL));
                behind.write_with(backing, at, front)?;
                fence(Ordering::Release);
                backing.write_last(at + front.len(), tail)?;
            }
        }
        self.has_pending_writes.set(placement == Placement::Plain);
        Some(())
    }

    /// Writes the waiting bytes.
    #[inline]
    pub(super) fn write_out(&self) -> Option<()> {
        if self.has_pending_writes.get() { self.write_pending() } else { Some(()) }
    }

    // Not inlined, so that packets to memory of this process only pay for the check.
    #[inline(never)]
    fn write_pending(&self) -> Option<()> {
        self.has_pending_writes.set(false);
        self.behind.borrow_mut().write_out()
    }
}

/// Bytes of a backing that were read ahead.
#[derive(Debug, Default)]
struct ReadAhead {
    /// Address of the backing, which identifies it.
    of: usize,
    /// Offset of the first byte of `bytes`, of which `len` are valid.
    start: usize,
    bytes: Vec<u8>,
    len: usize,
    /// Offset after the last requested byte.
    next: usize,
}

impl ReadAhead {
    fn read(
        &mut self,
        backing: &Arc<dyn Backing>,
        at: usize,
        to: &mut [u8],
        behind: usize,
    ) -> Option<()> {
        let of = Arc::as_ptr(backing).addr();
        let is_sequential = self.of == of && self.next == at;
        (self.of, self.next) = (of, at.checked_add(to.len())?);
        if is_sequential && let Some(bytes) = self.get(at, to.len()) {
            to.copy_from_slice(bytes);
            return Some(());
        }
        self.len = 0;
        let want = to.len().saturating_add(behind).min(MAX_STAGED_BYTES);
        if !is_sequential || want <= to.len() {
            return backing.read(at, to);
        }
        self.bytes.resize(MAX_STAGED_BYTES, 0);
        self.start = at;
        self.len = backing.read_some(at, self.bytes.get_mut(..want)?);
        to.copy_from_slice(self.get(at, to.len())?);
        Some(())
    }

    fn get(&self, at: usize, len: usize) -> Option<&[u8]> {
        let from = at.checked_sub(self.start)?;
        self.bytes.get(..self.len)?.get(from..from.checked_add(len)?)
    }
}

/// Bytes that wait to be written.
#[derive(Debug, Default)]
struct WriteBehind {
    to: Option<Arc<dyn Backing>>,
    /// Offset of the first byte.
    start: usize,
    bytes: Vec<u8>,
}

impl WriteBehind {
    /// Returns whether `len` bytes for offset `at` can be appended.
    fn can_append(&self, backing: &Arc<dyn Backing>, at: usize, len: usize) -> bool {
        self.to.as_ref().is_some_and(|to| Arc::ptr_eq(to, backing))
            && self.start.checked_add(self.bytes.len()) == Some(at)
            && self.bytes.len() + len <= MAX_STAGED_BYTES
    }

    /// Appends bytes, after [a check](Self::can_append), or starts with them.
    fn append(&mut self, backing: &Arc<dyn Backing>, at: usize, from: &[u8]) {
        if self.to.is_none() {
            (self.to, self.start) = (Some(Arc::clone(backing)), at);
        }
        self.bytes.extend_from_slice(from);
    }

    /// Writes the waiting bytes followed by these.
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

    /// Memory that records the calls to it. Its bytes from `end` on are not accessible.
    #[derive(Debug)]
    struct CallLog {
        bytes: Mutex<Vec<u8>>,
        calls: Mutex<Vec<String>>,
        end: usize,
    }

    impl CallLog {
        fn new(end: usize) -> Arc<Self> {
            let bytes = (0..=255).cycle().take(1 << 18).collect();
            Arc::new(Self { bytes: Mutex::new(bytes), calls: Mutex::default(), end })
        }

        fn calls(&self) -> Vec<String> {
            std::mem::take(&mut self.calls.lock().unwrap())
        }
    }

    impl Backing for CallLog {
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

        fn uses_syscalls(&self) -> bool {
            true
        }

        fn word(&self, _: usize, _: WordOp<'_>) -> Option<Result<(), Misaligned>> {
            None
        }

        fn has_atomic_words(&self) -> bool {
            false
        }

        fn belongs_to_caller(&self) -> bool {
            true
        }
    }

    const ALL: usize = 1 << 18;

    /// Reads consecutive packets of a message of `len` bytes, and returns for each whether it succeeded.
    fn read(stage: &StagingBuffer, memory: &Arc<CallLog>, len: usize, packets: usize) -> Vec<bool> {
        let backing: Arc<dyn Backing> = memory.clone();
        let one = |n: usize| {
            let mut packet = [0; 4096];
            let read = stage.read(&backing, n * 4096, &mut packet, len - (n + 1) * 4096);
            read.is_some() && packet[..] == memory.bytes.lock().unwrap()[n * 4096..][..4096]
        };
        (0..packets).map(one).collect()
    }

    fn write(stage: &StagingBuffer, memory: &Arc<CallLog>, at: usize, last: bool) -> Option<()> {
        let backing: Arc<dyn Backing> = memory.clone();
        let placement = if last { Placement::Final } else { Placement::Plain };
        stage.write(&backing, at, &[7; 100], placement)
    }

    #[test]
    fn consecutive_reads_share_system_calls() {
        let (stage, memory) = (StagingBuffer::default(), CallLog::new(ALL));
        assert_eq!(read(&stage, &memory, 40_960, 10), [true; 10]);
        // The first packet is read alone, because it has no predecessor; the last call reads the remainder of the
        // message.
        let calls = ["read 0 4096", "read 4096 16384", "read 20480 16384", "read 36864 4096"];
        assert_eq!(memory.calls(), calls);
    }

    #[test]
    fn read_ahead_lasts_one_epoch() {
        let (mut stage, memory) = (StagingBuffer::default(), CallLog::new(ALL));
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
    fn read_ahead_stops_at_a_missing_page() {
        let (stage, memory) = (StagingBuffer::default(), CallLog::new(3 * 4096 + 10));
        assert_eq!(read(&stage, &memory, 40_960, 5), [true, true, true, false, false]);
    }

    #[test]
    fn last_packet_writes_the_staged_ones() {
        let (stage, memory) = (StagingBuffer::default(), CallLog::new(ALL));
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
    fn nonconsecutive_write_flushes_the_staged_one() {
        let (stage, memory) = (StagingBuffer::default(), CallLog::new(ALL));
        let other = CallLog::new(ALL);
        write(&stage, &memory, 0, false).unwrap();
        write(&stage, &memory, 50, false).unwrap();
        assert_eq!(memory.calls(), ["write 0 100"]);
        write(&stage, &other, 150, false).unwrap();
        assert_eq!(memory.calls(), ["write 50 100"]);
        stage.write_out().unwrap();
        assert_eq!(other.calls(), ["write 150 100"]);
    }

    #[test]
    fn failed_write_is_reported_once() {
        let (stage, memory) = (StagingBuffer::default(), CallLog::new(50));
        write(&stage, &memory, 0, false).unwrap();
        assert_eq!((stage.write_out(), stage.write_out()), (None, Some(())));
        write(&stage, &memory, 0, false).unwrap();
        assert_eq!(write(&stage, &memory, 100, true), None);
        assert_eq!(stage.write_out(), Some(()));
    }

    #[test]
    fn staged_bytes_are_bounded() {
        let (stage, memory) = (StagingBuffer::default(), CallLog::new(ALL));
        let backing: Arc<dyn Backing> = memory.clone();
        for n in 0..5 {
            stage.write(&backing, n * 4096, &[0; 4096], Placement::Plain).unwrap();
        }
        assert_eq!(memory.calls(), ["write 0 16384"]);
    }
}

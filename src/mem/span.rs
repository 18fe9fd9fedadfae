//! Checked ranges of regions from which and to which messages are copied.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering, fence};

use smallvec::SmallVec;

use super::backing::Misaligned;
use super::binding::Binding;
use super::error::{AtomicError, FlushError, Revoked};
use super::guard::EpochGuard;
use super::placement::Placement;
use super::region::Region;

/// Bytes of one region that have passed the checks of key, protection domain, access rights and bounds.
///
/// [`Memory::local`](super::Memory::local) and [`Memory::remote`](super::Memory::remote) create one per message. It
/// keeps the region allocated, and each copy checks whether the region was deregistered or the window unbound.
#[derive(Clone, Debug, Default)]
pub struct Span {
    source: Source,
    /// Offset in the region.
    offset: usize,
    len: usize,
}

/// Origin of the bytes of a span.
#[derive(Clone, Debug, Default)]
pub(super) enum Source {
    /// No bytes, and no key.
    #[default]
    Empty,
    /// The bytes are no longer accessible.
    Faulted,
    Region(Arc<Region>),
    Window(Arc<Binding>),
}

impl Source {
    /// Returns the region, as long as it is accessible through this source.
    #[inline]
    fn region(&self) -> Option<&Region> {
        match self {
            Self::Empty | Self::Faulted => None,
            Self::Region(region) => Some(region),
            Self::Window(binding) => binding.region(),
        }
    }
}

impl From<Arc<Region>> for Source {
    fn from(region: Arc<Region>) -> Self {
        Self::Region(region)
    }
}

impl From<Arc<Binding>> for Source {
    fn from(binding: Arc<Binding>) -> Self {
        Self::Window(binding)
    }
}

impl Span {
    /// Empty span, which is always live: the key of an empty READ or WRITE is not checked (C9-88).
    pub const EMPTY: Self = Self { source: Source::Empty, offset: 0, len: 0 };

    /// Creates a span. The caller has checked the bounds of the region, and of the window if there is one.
    pub(super) fn new(source: impl Into<Source>, offset: usize, len: u32) -> Self {
        // The length of memory fits `usize`.
        Self::of_all(source, offset, usize::try_from(len).unwrap_or(usize::MAX))
    }

    /// Creates a span that may be longer than a message.
    pub(super) fn of_all(source: impl Into<Source>, offset: usize, len: usize) -> Self {
        Self { source: source.into(), offset, len }
    }

    /// Returns the region, if it is accessible.
    pub(super) fn region(&self) -> Option<&Region> {
        self.source.region()
    }

    /// Returns the source, the offset in the region, and the length.
    pub(super) fn into_parts(self) -> (Source, usize, usize) {
        (self.source, self.offset, self.len)
    }

    /// Copies `to.len()` bytes from offset `at`.
    ///
    /// # Errors
    /// [`Revoked`] when the region was deregistered or the window unbound, or the bytes are not within the span; `to`
    /// does not change.
    #[inline]
    pub fn copy_out(
        &self,
        guard: &EpochGuard<'_>,
        at: usize,
        to: &mut [u8],
    ) -> Result<(), Revoked> {
        let behind = self.len.saturating_sub(at.saturating_add(to.len()));
        self.run(at, to.len(), |region, offset| {
            region.memory.copy_out(&guard.epoch, offset, to, behind)
        })
    }

    /// Copies `from` to offset `at`.
    ///
    /// # Errors
    /// [`Revoked`] when the region was deregistered or the window unbound, or the bytes are not within the span; no
    /// byte is written.
    #[inline]
    pub fn place(
        &self,
        guard: &EpochGuard<'_>,
        at: usize,
        from: &[u8],
        placement: Placement,
    ) -> Result<(), Revoked> {
        self.run(at, from.len(), |region, offset| {
            region.memory.place(&guard.epoch, offset, from, placement)
        })
    }

    /// Stores `swap` if the 8 bytes of this span equal `expect`, and returns their previous value. The operation is
    /// atomic for all threads, engines and peers of this host. Values are in host byte order.
    ///
    /// # Errors
    /// See [`AtomicError`]; the bytes do not change.
    pub fn compare_swap(
        &self,
        guard: &EpochGuard<'_>,
        expect: u64,
        swap: u64,
    ) -> Result<u64, AtomicError> {
        self.atomic(guard, |word| {
            match word.compare_exchange(expect, swap, Ordering::SeqCst, Ordering::SeqCst) {
                Ok(old) | Err(old) => old,
            }
        })
    }

    /// Adds `add` to the 8 bytes of this span, modulo 2^64, and returns their previous value. The operation is
    /// atomic, as [`compare_swap`](Self::compare_swap).
    ///
    /// # Errors
    /// See [`AtomicError`]; the bytes do not change.
    pub fn fetch_add(&self, guard: &EpochGuard<'_>, add: u64) -> Result<u64, AtomicError> {
        self.atomic(guard, |word| word.fetch_add(add, Ordering::SeqCst))
    }

    /// Stores `value` in the 8 bytes of this span, in host byte order. Readers see either the old or the new value;
    /// with the new value they see all bytes placed before.
    ///
    /// # Errors
    /// See [`AtomicError`]; the bytes do not change.
    pub fn store(&self, guard: &EpochGuard<'_>, value: u64) -> Result<(), AtomicError> {
        if let Some(region) = self.source.region()
            && !region.memory.memory().has_atomic_words()
        {
            return Err(AtomicError::Torn);
        }
        self.atomic(guard, |word| word.swap(value, Ordering::SeqCst)).map(drop)
    }

    /// Makes the bytes of this span visible to every reader and, with `persist`, waits until they are persistent.
    ///
    /// # Errors
    /// See [`FlushError`].
    pub fn flush(&self, guard: &EpochGuard<'_>, persist: bool) -> Result<(), FlushError> {
        fence(Ordering::SeqCst);
        if self.is_empty() {
            return Ok(());
        }
        let region = self.source.region().ok_or(FlushError::Revoked)?;
        let pinned = region.memory.pin(&guard.epoch).ok_or(FlushError::Revoked)?;
        if persist {
            pinned.persist(self.offset, self.len).map_err(|_| FlushError::Storage)?;
        }
        Ok(())
    }

    /// Returns whether the region is registered and the window bound. The result remains true only within an epoch.
    #[inline]
    pub fn is_live(&self) -> bool {
        matches!(self.source, Source::Empty) || self.source.region().is_some_and(Region::is_live)
    }

    /// Returns whether any of `len` bytes from offset `at` is a byte of `other` too, which may be of another region of
    /// the same memory.
    pub(crate) fn overlaps(&self, at: usize, len: usize, other: &Self) -> bool {
        let (Some(own), Some(others)) = (self.address(), other.address()) else { return false };
        let own = own.saturating_add(at);
        own < others.saturating_add(other.len) && others < own.saturating_add(len)
    }

    /// Returns the address of the first byte in this process. `None` if the span has no region.
    fn address(&self) -> Option<usize> {
        let region = self.source.region()?;
        Some(region.as_ptr().addr().saturating_add(self.offset))
    }

    /// Makes all later copies fail, after a failed copy.
    pub(crate) fn mark_faulted(&mut self) {
        self.source = Source::Faulted;
    }

    /// Returns the length in bytes.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Returns whether the length is zero.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    #[inline]
    fn run(
        &self,
        at: usize,
        len: usize,
        copy: impl FnOnce(&Region, usize) -> Option<()>,
    ) -> Result<(), Revoked> {
        let within = at.checked_add(len).is_some_and(|end| end <= self.len);
        debug_assert!(within, "{len} bytes at {at} are not within a span of {}", self.len);
        match self.source.region() {
            Some(region) if within => copy(region, self.offset + at).ok_or(Revoked),
            None if within && self.is_empty() => Ok(()),
            _ => Err(Revoked),
        }
    }

    fn atomic(
        &self,
        guard: &EpochGuard<'_>,
        op: impl FnOnce(&AtomicU64) -> u64,
    ) -> Result<u64, AtomicError> {
        if self.len != size_of::<u64>() {
            return Err(AtomicError::Length { len: self.len });
        }
        let region = self.source.region().ok_or(AtomicError::Revoked)?;
        let pinned = region.memory.pin(&guard.epoch).ok_or(AtomicError::Revoked)?;
        match pinned.word(self.offset, op) {
            None => Err(AtomicError::Revoked),
            Some(Err(Misaligned)) => Err(AtomicError::Misaligned),
            Some(Ok(old)) => Ok(old),
        }
    }
}

/// A checked scatter/gather list, addressed as one sequence of bytes.
#[derive(Clone, Debug, Default)]
pub struct Spans {
    pieces: SmallVec<[Span; 2]>,
    len: usize,
}

impl Spans {
    /// Appends a span. An empty span has no effect.
    pub(super) fn push(&mut self, span: Span) {
        if !span.is_empty() {
            self.len += span.len();
            self.pieces.push(span);
        }
    }

    /// Copies `to.len()` bytes from offset `at`.
    ///
    /// # Errors
    /// [`Revoked`] when a necessary region was deregistered, or the bytes are not within the list; the contents of
    /// `to` are undefined.
    #[inline]
    pub fn copy_out(
        &self,
        guard: &EpochGuard<'_>,
        at: usize,
        to: &mut [u8],
    ) -> Result<(), Revoked> {
        if let [piece] = &self.pieces[..] {
            return piece.copy_out(guard, at, to);
        }
        let mut rest = to;
        for (span, at, len) in self.runs(at, rest.len())? {
            let (head, tail) = rest.split_at_mut(len);
            span.copy_out(guard, at, head)?;
            rest = tail;
        }
        Ok(())
    }

    /// Copies `from` to offset `at`. With [`Placement::Final`] the last 8 bytes in the last region that it touches
    /// are stored after all others.
    ///
    /// # Errors
    /// [`Revoked`] when a necessary region was deregistered, or the bytes are not within the list; earlier regions
    /// may have been written.
    #[inline]
    pub fn place(
        &self,
        guard: &EpochGuard<'_>,
        at: usize,
        from: &[u8],
        placement: Placement,
    ) -> Result<(), Revoked> {
        if let [piece] = &self.pieces[..] {
            return piece.place(guard, at, from, placement);
        }
        let mut rest = from;
        for (span, at, len) in self.runs(at, rest.len())? {
            let (head, tail) = rest.split_at(len);
            let placement = if tail.is_empty() { placement } else { Placement::Plain };
            span.place(guard, at, head, placement)?;
            rest = tail;
        }
        Ok(())
    }

    /// Marks all spans as by [`Span::mark_faulted`].
    pub(crate) fn mark_faulted(&mut self) {
        self.pieces.iter_mut().for_each(Span::mark_faulted);
    }

    /// Returns whether all regions are accessible.
    pub fn is_live(&self) -> bool {
        self.pieces.iter().all(Span::is_live)
    }

    /// Returns the total length in bytes.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Returns whether the length is zero.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Returns the parts of spans that contain the `len` bytes at `at`: span, offset in it, length.
    fn runs(
        &self,
        at: usize,
        len: usize,
    ) -> Result<impl Iterator<Item = (&Span, usize, usize)>, Revoked> {
        let within = at.checked_add(len).is_some_and(|end| end <= self.len);
        debug_assert!(within, "{len} bytes at {at} are not within {}", self.len);
        if !within {
            return Err(Revoked);
        }
        let (mut skip, mut left) = (at, len);
        Ok(self.pieces.iter().filter_map(move |piece| {
            let start = skip.min(piece.len());
            let here = left.min(piece.len() - start);
            skip -= start;
            left -= here;
            (here > 0).then_some((piece, start, here))
        }))
    }
}

impl From<Span> for Spans {
    fn from(span: Span) -> Self {
        let mut spans = Self { len: span.len(), ..Self::default() };
        spans.pieces.push(span);
        spans
    }
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::super::{Access, AccessError, HostMemory, LocalAccess, Memory};
    use super::*;
    use crate::ids::{Lkey, PdId};
    use crate::sync::epoch::wait_until;

    const PD: PdId = PdId(1);

    #[cfg(feature = "runtime")]
    #[test]
    fn spans_overlap_where_they_have_the_same_memory() {
        use super::super::raw::of_tests;

        let memory = Memory::new([1; 32]);
        let mut bytes = vec![0_u8; 64];
        let start = bytes.as_mut_ptr();
        let regions = [0, 1].map(|_| {
            let host = of_tests::from_raw(start, 64);
            memory.register(PD, host, Some(0), Access::empty()).unwrap()
        });
        let [a, b] = regions.each_ref().map(|region| Span::new(Arc::clone(region), 16, 16));
        let other = Span::new(region(&memory, 64), 16, 16);
        assert!(a.overlaps(0, 16, &b) && a.overlaps(15, 1, &b));
        let behind = Span::new(Arc::clone(&regions[1]), 24, 8);
        let overlapping = [(0, 8), (0, 9), (15, 1)].map(|(at, len)| a.overlaps(at, len, &behind));
        assert_eq!(overlapping, [false, true, true]);
        assert!(!behind.overlaps(0, 8, &Span::new(Arc::clone(&regions[0]), 16, 8)));
        assert!(!a.overlaps(0, 16, &other) && !a.overlaps(0, 16, &Span::EMPTY));
        regions.iter().for_each(|region| memory.deregister(region));
    }

    fn region(memory: &Memory, len: usize) -> Arc<Region> {
        let host = HostMemory::alloc(len).unwrap();
        memory.register(PD, host, Some(0), Access::LOCAL_WRITE | Access::REMOTE_ATOMIC).unwrap()
    }

    fn contents(region: &Region) -> Vec<u8> {
        let mut bytes = vec![0; region.len()];
        region.read_at(0, &mut bytes).unwrap();
        bytes
    }

    fn word(memory: &Memory, region: &Region, addr: u64) -> Span {
        memory.remote(PD, region.rkey(), addr, 8, Access::REMOTE_ATOMIC).unwrap()
    }

    #[test]
    fn both_placements_write_every_byte_and_no_other() {
        let memory = Memory::new([0; 32]);
        let mut handle = memory.epoch_handle();
        let message: Vec<u8> = (1..=40).collect();
        for placement in [Placement::Plain, Placement::Final] {
            for (start, len) in (0..16).flat_map(|at| (0..=40).map(move |len| (at, len))) {
                let region = region(&memory, 64);
                let addr = u64::try_from(start).unwrap();
                let span = memory.local(PD, region.lkey(), addr, 48, LocalAccess::Write).unwrap();
                span.place(&handle.enter(), 0, &message[..len], placement).unwrap();
                let mut expected = vec![0; 64];
                expected[start..start + len].copy_from_slice(&message[..len]);
                assert_eq!(contents(&region), expected, "{placement:?}, {len} bytes at {start}");
                let mut back = vec![0; len];
                span.copy_out(&handle.enter(), 0, &mut back).unwrap();
                assert_eq!(back, message[..len]);
                memory.deregister(&region);
            }
        }
    }

    #[test]
    fn list_of_spans_is_one_sequence_of_bytes() {
        let memory = Memory::new([0; 32]);
        let mut handle = memory.epoch_handle();
        let [a, b] = [region(&memory, 16), region(&memory, 16)];
        let pieces = [(a.lkey(), 12, 4), (Lkey(0), 99, 0), (b.lkey(), 0, 3), (a.lkey(), 0, 5)];
        let spans = Spans::resolve(&memory, PD, pieces, LocalAccess::Write).unwrap();
        assert_eq!(spans.len(), 12);
        for (at, end) in (0..=12).flat_map(|at| (at..=12).map(move |end| (at, end))) {
            let guard = handle.enter();
            let message: Vec<u8> = (1..=12).collect();
            spans.place(&guard, 0, &[0; 12], Placement::Plain).unwrap();
            spans.place(&guard, at, &message[at..end], Placement::Final).unwrap();
            let mut expected = vec![0; 12];
            expected[at..end].copy_from_slice(&message[at..end]);
            let mut seen = vec![0; 12];
            spans.copy_out(&guard, 0, &mut seen).unwrap();
            assert_eq!(seen, expected);
            spans.copy_out(&guard, at, &mut seen[..end - at]).unwrap();
            assert_eq!(seen[..end - at], message[at..end]);
        }
        let guard = handle.enter();
        spans.place(&guard, 0, b"abcdEFGhijkl", Placement::Final).unwrap();
        assert_eq!(contents(&a), b"hijkl\0\0\0\0\0\0\0abcd");
        assert_eq!(contents(&b)[..4], *b"EFG\0");
    }

    #[test]
    fn list_reports_its_first_invalid_element() {
        let memory = Memory::new([0; 32]);
        let good = region(&memory, 16);
        let pieces = [(good.lkey(), 0, 16), (Lkey(1), 0, 1), (good.lkey(), 0, 17)];
        let refused = Spans::resolve(&memory, PD, pieces, LocalAccess::Read).unwrap_err();
        assert_eq!(refused, AccessError::UnknownKey { key: 1 });
    }

    #[test]
    fn deregistered_region_is_not_accessed() {
        let memory = Memory::new([0; 32]);
        let mut handle = memory.epoch_handle();
        let region = region(&memory, 16);
        let span = word(&memory, &region, 0);
        let spans = Spans::from(span.clone());
        memory.deregister(&region);
        let guard = handle.enter();
        assert!(!span.is_live() && !spans.is_live());
        assert_eq!(span.place(&guard, 0, b"x", Placement::Plain), Err(Revoked));
        assert_eq!(spans.place(&guard, 0, b"x", Placement::Final), Err(Revoked));
        assert_eq!(span.fetch_add(&guard, 1), Err(AtomicError::Revoked));
        let mut to = [7];
        assert_eq!((span.copy_out(&guard, 0, &mut to), to), (Err(Revoked), [7]));
        assert_eq!(contents(&region), [0; 16], "our own memory stays readable");
    }

    #[test]
    fn epoch_of_another_table_grants_no_access() {
        let [ours, theirs] = [Memory::new([0; 32]), Memory::new([1; 32])];
        let region = region(&ours, 16);
        let span = word(&ours, &region, 0);
        let mut handle = theirs.epoch_handle();
        assert_eq!(span.place(&handle.enter(), 0, b"x", Placement::Plain), Err(Revoked));
    }

    #[test]
    fn compare_swap_stores_only_when_equal_and_returns_the_old_value() {
        let memory = Memory::new([0; 32]);
        let mut handle = memory.epoch_handle();
        let region = region(&memory, 16);
        let span = word(&memory, &region, 8);
        let guard = handle.enter();
        assert_eq!(span.compare_swap(&guard, 0, 5), Ok(0));
        assert_eq!(span.compare_swap(&guard, 0, 6), Ok(5));
        assert_eq!(region.load_u64(8), Ok(5));
    }

    #[test]
    fn fetch_add_wraps() {
        let memory = Memory::new([0; 32]);
        let mut handle = memory.epoch_handle();
        let region = region(&memory, 16);
        region.store_u64(8, u64::MAX).unwrap();
        let span = word(&memory, &region, 8);
        let guard = handle.enter();
        assert_eq!(span.fetch_add(&guard, 3), Ok(u64::MAX));
        assert_eq!(region.load_u64(8), Ok(2));
    }

    #[test]
    fn atomic_requires_eight_bytes_aligned_in_the_host() {
        let memory = Memory::new([0; 32]);
        let mut handle = memory.epoch_handle();
        let host = HostMemory::alloc(32).unwrap();
        let access = Access::LOCAL_WRITE | Access::REMOTE_ATOMIC;
        let shifted = memory.register(PD, host, Some(4), access).unwrap();
        let guard = handle.enter();
        assert_eq!(word(&memory, &shifted, 8).fetch_add(&guard, 1), Err(AtomicError::Misaligned));
        assert_eq!(word(&memory, &shifted, 12).fetch_add(&guard, 1), Ok(0));
        let short = memory.local(PD, shifted.lkey(), 4, 4, LocalAccess::Write).unwrap();
        assert_eq!(short.fetch_add(&guard, 1), Err(AtomicError::Length { len: 4 }));
        assert_eq!(Span::EMPTY.fetch_add(&guard, 1), Err(AtomicError::Length { len: 0 }));
    }

    /// One thread places numbered messages, alternately with both placements; another polls the last word of each, as
    /// programs do, and then checks the rest.
    ///
    /// With plain placement, the end of about one message in ten becomes visible first when both threads have a CPU,
    /// and none when they share one. This shows the purpose of [`Placement::Final`], and how hard the test has tried:
    /// it ends after enough plain copies were caught.
    #[test]
    fn final_placement_makes_the_end_of_a_message_visible_last() {
        const LEN: usize = 1024;
        const ROUNDS: u64 = 100_000;
        let placement_of = |round| if round % 2 == 0 { Placement::Plain } else { Placement::Final };
        let memory = Memory::new([0; 32]);
        let mut handle = memory.epoch_handle();
        let region = region(&memory, LEN);
        let span = memory.local(PD, region.lkey(), 0, 1024, LocalAccess::Write).unwrap();
        let checked = AtomicU64::new(0);
        let (mut plain_early, mut final_early) = (0, 0);
        thread::scope(|scope| {
            scope.spawn(|| {
                for round in 1..=ROUNDS {
                    let message = round.to_ne_bytes().repeat(LEN / 8);
                    span.place(&handle.enter(), 0, &message, placement_of(round)).unwrap();
                    wait_until(|| checked.load(Ordering::Acquire) >= round);
                    if checked.load(Ordering::Acquire) == u64::MAX {
                        break;
                    }
                }
            });
            for round in 1..=ROUNDS {
                wait_until(|| region.load_u64(LEN - 8) == Ok(round));
                let whole = (0..LEN).step_by(8).all(|at| region.load_u64(at) == Ok(round));
                match placement_of(round) {
                    Placement::Plain => plain_early += u32::from(!whole),
                    Placement::Final => final_early += u32::from(!whole),
                }
                let enough = plain_early == 100;
                checked.store(if enough { u64::MAX } else { round }, Ordering::Release);
                if enough {
                    break;
                }
            }
        });
        println!("{plain_early} plain copies were seen end first");
        assert_eq!(final_early, 0);
    }
}

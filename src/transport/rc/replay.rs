//! Replay cache: executed requests with a response of their own (READ, atomic, FLUSH, ATOMIC
//! WRITE).
//!
//! An entry records the response packets still to send, and the data to answer a duplicate of its
//! request (IBTA vol 1, §9.7.5.1.2). PSNs repeat after 2^24 packets, but entries stay until newer
//! ones replace them. An entry is therefore found by its *position*: the number of request PSNs
//! that the responder executed before it, which never wraps. A duplicate is less than half of the
//! PSN space behind the expected PSN, so its position is unique.

use std::collections::VecDeque;

use crate::mem::{EpochGuard, Span};
use crate::psn::Psn;
use crate::transport::rc::read_source::{MAX_SAVED, ReadSource};
use crate::wire::Reth;

/// The most recent requests with a response, in order: up to `max_dest_rd_atomic` counted ones, and
/// up to [`MAX_FLUSHES`] FLUSHes.
#[derive(Debug, Default)]
pub(crate) struct ReplayCache {
    entries: VecDeque<ReplayEntry>,
    /// Number of entries that are FLUSHes.
    flushes: u32,
    /// Index of the first entry that has packets to send; the number of entries if none has.
    next: u32,
}

/// Maximum number of FLUSHes in the cache. Kernel rxe does not count them against `max_rd_atomic`,
/// and has at most this many packets unacknowledged.
const MAX_FLUSHES: usize = 128;

/// The limit that applies to an entry.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Class {
    /// READs, atomics and ATOMIC WRITEs: `max_dest_rd_atomic`.
    Counted,
    /// FLUSHes: [`MAX_FLUSHES`].
    Flush,
}

/// An executed request and its response.
#[derive(Debug)]
pub(crate) struct ReplayEntry {
    /// PSN of the request, and of the first response packet.
    pub(crate) first: Psn,
    /// Number of request PSNs executed before this one, which does not wrap.
    position: u64,
    /// Number of response packets.
    pub(crate) packets: u32,
    /// Number of messages completed, this one included: the MSN in every AETH of the response.
    pub(crate) msn: u32,
    pub(crate) kind: Kind,
    /// The response packets `next..end` are to be sent.
    next: u32,
    end: u32,
    /// Index of the packet that begins the current response, with FIRST or ONLY.
    opened_at: u32,
    /// A response has been sent completely.
    answered: bool,
    /// A duplicate has requested the response again.
    repeated: bool,
}

#[derive(Debug)]
pub(crate) enum Kind {
    /// A READ, with the RETH of its first request.
    Read {
        reth: Reth,
        /// The memory of the response packets to send. `None` if there are none, or if they have no
        /// payload: an answered READ keeps no deregistered region allocated.
        source: Option<ReadSource>,
    },
    /// An atomic, with the original value.
    Atomic { original: u64 },
    /// A FLUSH.
    Flush,
    /// An ATOMIC WRITE.
    AtomicWrite,
}

impl Kind {
    fn class(&self) -> Class {
        match self {
            Self::Read { .. } | Self::Atomic { .. } | Self::AtomicWrite => Class::Counted,
            Self::Flush => Class::Flush,
        }
    }
}

/// The next response packet of an entry.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Due {
    pub(crate) index: u32,
    /// Whether it begins a response.
    pub(crate) opens: bool,
    /// Whether it ends one.
    pub(crate) closes: bool,
    /// Whether a duplicate has requested it.
    pub(crate) repeated: bool,
    /// Whether a response has been sent completely before.
    pub(crate) answered: bool,
    /// Number of packets between this one and the last packet of the response.
    pub(crate) middles: u32,
}

impl Class {
    /// Maximum number of entries of this class, with `limit` for counted ones.
    fn capacity(self, limit: usize) -> usize {
        match self {
            Self::Counted => limit.max(1),
            Self::Flush => MAX_FLUSHES,
        }
    }
}

impl ReplayEntry {
    /// Returns an entry for the request with the PSN `first`, without any packet sent.
    pub(crate) fn new(first: Psn, position: u64, packets: u32, msn: u32, kind: Kind) -> Self {
        let (next, end) = (0, packets);
        let (opened_at, answered, repeated) = (0, false, false);
        Self { first, position, packets, msn, kind, next, end, opened_at, answered, repeated }
    }

    fn is_pending(&self) -> bool {
        self.next < self.end
    }

    fn contains(&self, position: u64) -> bool {
        (self.position..self.end_position()).contains(&position)
    }

    fn end_position(&self) -> u64 {
        self.position + u64::from(self.packets)
    }

    /// Returns the packet to send now.
    pub(crate) fn due(&self) -> Due {
        Due {
            index: self.next,
            opens: self.next == self.opened_at,
            closes: self.next + 1 == self.end,
            repeated: self.repeated,
            answered: self.answered,
            middles: (self.end - self.next).saturating_sub(2),
        }
    }

    /// Returns the offsets within the message between which the payload to be sent is.
    fn rest(&self, mtu: u32) -> (usize, usize) {
        let Kind::Read { reth, .. } = &self.kind else { return (0, 0) };
        let [from, to] = [self.next, self.end].map(|packet| packet.saturating_mul(mtu));
        (from as usize, to.min(reth.length) as usize)
    }

    fn saved_len(&self) -> usize {
        match &self.kind {
            Kind::Read { source: Some(source), .. } => source.saved_len(),
            _ => 0,
        }
    }

    /// Stops sending until the next duplicate, and releases the memory of the response.
    fn finish(&mut self) {
        self.next = self.end;
        if let Kind::Read { source, .. } = &mut self.kind {
            *source = None;
        }
    }
}

impl ReplayCache {
    /// Whether an entry may be added, with `limit` for counted ones: there is a free slot, or the
    /// oldest of its class has been answered once. (A late duplicate may have made that entry
    /// pending again, which is not an error of the requester.)
    pub(crate) fn has_room(&self, limit: usize, class: Class) -> bool {
        let answered = |e: &ReplayEntry| e.repeated || !e.is_pending();
        let oldest = || self.entries.iter().find(|e| e.kind.class() == class);
        self.count(class) < class.capacity(limit) || oldest().is_some_and(answered)
    }

    /// Adds an entry. If its class is full, the oldest of the class and all older entries are
    /// removed; they have been answered too. Returns the PSN after the last removed entry: the
    /// requester has received every response before it.
    pub(crate) fn push(&mut self, limit: usize, entry: ReplayEntry) -> Option<Psn> {
        let class = entry.kind.class();
        let mut end = None;
        while self.count(class) >= class.capacity(limit) {
            let Some(oldest) = self.entries.pop_front() else { break };
            self.next = self.next.saturating_sub(1);
            self.flushes -= u32::from(oldest.kind.class() == Class::Flush);
            end = Some(oldest.first.plus(oldest.packets));
        }
        self.flushes += u32::from(class == Class::Flush);
        self.entries.push_back(entry);
        self.skip_answered();
        end
    }

    fn count(&self, class: Class) -> usize {
        match class {
            Class::Counted => self.entries.len() - self.flushes as usize,
            Class::Flush => self.flushes as usize,
        }
    }

    /// Whether there are packets to send.
    pub(crate) fn is_pending(&self) -> bool {
        (self.next as usize) < self.entries.len()
    }

    /// Whether no entry follows the oldest one that has packets to send.
    pub(crate) fn is_last_pending(&self) -> bool {
        self.next as usize + 1 == self.entries.len()
    }

    /// Returns the oldest entry that has packets to send.
    pub(crate) fn next_pending(&self) -> Option<&ReplayEntry> {
        self.entries.get(self.next as usize)
    }

    /// Records that the next `packets` packets of [`next_pending`](Self::next_pending) have been built.
    pub(crate) fn advance(&mut self, packets: u32) {
        if let Some(entry) = self.entries.get_mut(self.next as usize) {
            entry.next += packets;
            if !entry.is_pending() {
                entry.answered = true;
                entry.finish();
                self.skip_answered();
            }
        }
    }

    /// Copies what pending READs have not sent yet of `written`, before a request writes to it.
    #[cold]
    pub(crate) fn save_before_write(&mut self, guard: &EpochGuard<'_>, mtu: u32, written: &Span) {
        // Those of later READs too, which an earlier write may have made save.
        let saved: usize = self.entries.iter().map(ReplayEntry::saved_len).sum();
        let mut room = MAX_SAVED.saturating_sub(saved);
        for entry in self.entries.iter_mut().skip(self.next as usize) {
            let rest = entry.rest(mtu);
            if let Kind::Read { source: Some(source), .. } = &mut entry.kind {
                room -= source.save(guard, rest, written, room);
            }
        }
    }

    /// Drops the rest of the response of [`next_pending`](Self::next_pending).
    pub(crate) fn abandon(&mut self) {
        if let Some(entry) = self.entries.get_mut(self.next as usize) {
            entry.finish();
            self.skip_answered();
        }
    }

    fn skip_answered(&mut self) {
        while self.entries.get(self.next as usize).is_some_and(|entry| !entry.is_pending()) {
            self.next += 1;
        }
    }

    /// Returns the index of the entry that includes a position in its response.
    fn index(&self, position: u64) -> Option<usize> {
        let index = self.entries.partition_point(|e| e.end_position() <= position);
        self.entries.get(index).filter(|e| e.contains(position)).map(|_| index)
    }

    /// Returns the entry that includes a position in its response.
    pub(crate) fn find(&self, position: u64) -> Option<&ReplayEntry> {
        self.entries.get(self.index(position)?)
    }

    /// Returns the PSN of the first in the contiguous run of requests with a response that ends at
    /// the position `end`, if there is one.
    pub(crate) fn first_before(&self, end: u64) -> Option<Psn> {
        let (mut first, mut from) = (None, end);
        for entry in self.entries.iter().rev() {
            if entry.end_position() != from {
                break;
            }
            (first, from) = (Some(entry.first), entry.position);
        }
        first
    }

    /// Sends `packets` response packets again from a position on; those of a READ from `source`.
    pub(crate) fn repeat(&mut self, position: u64, packets: u32, source: Option<ReadSource>) {
        let Some(index) = self.index(position) else { return };
        let Some(entry) = self.entries.get_mut(index) else { return };
        // The position is within the entry, which has fewer than 2^24 packets.
        let from = u32::try_from(position - entry.position).unwrap_or(0);
        entry.opened_at = from;
        entry.next = from;
        entry.end = entry.packets.min(from.saturating_add(packets));
        entry.repeated = true;
        if let Kind::Read { source: memory, .. } = &mut entry.kind {
            *memory = source;
        }
        // There are fewer than 2^9 entries.
        self.next = self.next.min(u32::try_from(index).unwrap_or(u32::MAX));
        self.skip_answered();
    }

    /// Removes all entries.
    pub(crate) fn clear(&mut self) {
        *self = Self::default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(psn: u32, packets: u32, kind: Kind) -> ReplayEntry {
        ReplayEntry::new(Psn::new(psn), psn.into(), packets, 1, kind)
    }

    fn atomic(psn: u32) -> ReplayEntry {
        entry(psn, 1, Kind::Atomic { original: psn.into() })
    }

    fn read(psn: u32, packets: u32) -> ReplayEntry {
        entry(psn, packets, Kind::Read { reth: Reth::default(), source: None })
    }

    #[test]
    fn responses_leave_in_psn_order_even_when_an_older_one_is_repeated() {
        let mut cache = ReplayCache::default();
        cache.push(4, read(10, 3));
        cache.push(4, atomic(13));
        cache.advance(3);
        cache.repeat(11, 2, None);
        let mut order = Vec::new();
        while let Some(entry) = cache.next_pending() {
            let due = entry.due();
            let psn = entry.first.plus(due.index).value();
            order.push((psn, due.opens, due.closes, due.answered));
            cache.advance(1);
        }
        let expected = [(11, true, false, true), (12, false, true, true), (13, true, true, false)];
        assert_eq!(order, expected);
        assert!(!cache.is_pending());
    }

    #[test]
    fn only_an_answered_entry_makes_room() {
        let mut cache = ReplayCache::default();
        cache.push(1, atomic(1));
        assert!(!cache.has_room(1, Class::Counted));
        cache.advance(1);
        assert!(cache.has_room(1, Class::Counted));
        cache.push(1, atomic(2));
        assert!(cache.find(1).is_none());
        assert!(cache.find(2).is_some());
    }

    #[test]
    fn flushes_have_places_of_their_own() {
        let flush = |psn| entry(psn, 1, Kind::Flush);
        let mut cache = ReplayCache::default();
        cache.push(1, atomic(0));
        (1..=128).for_each(|psn| _ = cache.push(1, flush(psn)));
        assert!(!cache.has_room(1, Class::Flush) && !cache.has_room(1, Class::Counted));
        cache.advance(1);
        assert!(!cache.has_room(1, Class::Flush) && cache.has_room(1, Class::Counted));
        cache.advance(1);
        assert!(cache.has_room(1, Class::Flush));
        cache.push(1, flush(129));
        assert!(cache.find(0).is_none(), "older than the FLUSH that went");
        assert!(cache.find(1).is_none() && cache.find(2).is_some());
        assert_eq!(cache.next_pending().map(|e| e.first), Some(Psn::new(2)));
    }

    #[test]
    fn flushes_take_no_places_of_others() {
        let mut cache = ReplayCache::default();
        cache.push(2, atomic(0));
        cache.push(2, entry(1, 1, Kind::Flush));
        assert!(cache.has_room(2, Class::Counted));
        cache.push(2, atomic(2));
        assert!(!cache.has_room(2, Class::Counted));
        assert!([0, 1, 2].iter().all(|position| cache.find(*position).is_some()));
    }

    #[test]
    fn requests_with_responses_directly_before_the_end_are_skipped() {
        let mut cache = ReplayCache::default();
        assert_eq!(cache.first_before(7), None);
        // Positions 8 and 13 are SENDs.
        cache.push(9, atomic(7));
        cache.push(9, read(9, 3));
        cache.push(9, atomic(12));
        assert_eq!(cache.first_before(13), Some(Psn::new(9)));
        assert_eq!(cache.first_before(14), None);
    }

    #[test]
    fn entries_of_an_earlier_lap_are_not_found() {
        let lap = u64::from(Psn::MODULUS);
        let mut cache = ReplayCache::default();
        cache.push(9, read(5, 4));
        cache.advance(4);
        assert!(cache.find(lap + 5).is_none());
        assert_eq!(cache.first_before(lap + 9), None);
        cache.push(9, ReplayEntry::new(Psn::new(6), lap + 6, 1, 1, Kind::Flush));
        assert!(matches!(cache.find(lap + 6), Some(ReplayEntry { kind: Kind::Flush, .. })));
        assert!(matches!(cache.find(6), Some(ReplayEntry { kind: Kind::Read { .. }, .. })));
    }
}

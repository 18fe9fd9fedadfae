//! The requests of one direction that are remembered, by PSN.

use std::collections::VecDeque;

use softroce::psn::Psn;
use softroce::wire::{Opcode, Operation};

/// A request packet.
#[derive(Clone, Copy, Debug)]
pub(super) struct Record {
    pub(super) psn: Psn,
    /// PSNs it takes: those of its answer, for a READ.
    pub(super) count: u32,
    pub(super) opcode: Opcode,
    /// Bytes of payload.
    pub(super) len: usize,
    /// Of extension headers and payload, when all was captured.
    pub(super) digest: Option<u32>,
    /// The packet of the capture.
    pub(super) number: u64,
    /// The IPv4 identification.
    pub(super) id: Option<u16>,
    /// Messages that ended with it or before.
    pub(super) ends: Ends,
    /// The answer of a READ or atomic was captured, or its absence was told.
    pub(super) answered: bool,
    /// The capture has an acknowledgement of each request before it that is answered by one.
    pub(super) is_first_unacknowledged: bool,
    /// Number of READs and atomics up to this one, from any start.
    pub(super) asked: u32,
}

impl Record {
    /// Whether its answer is data, and no acknowledgement will do.
    pub(super) const fn wants_answer(&self) -> bool {
        matches!(
            self.opcode.operation(),
            Operation::ReadRequest
                | Operation::CompareSwap
                | Operation::FetchAdd
                | Operation::Flush
                | Operation::AtomicWrite
        )
    }

    /// Whether it counts towards the READs and atomics that a responder takes at once.
    const fn is_limited(&self) -> bool {
        matches!(
            self.opcode.operation(),
            Operation::ReadRequest | Operation::CompareSwap | Operation::FetchAdd
        )
    }

    /// Messages that ended before it.
    pub(super) const fn ends_before(&self) -> Ends {
        let own = self.opcode.position().is_end() as u32;
        Ends { min: self.ends.min - own, max: self.ends.max - own }
    }
}

/// How many messages ended: not known exactly where requests were not captured.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Ends {
    pub(super) min: u32,
    pub(super) max: u32,
}

/// Largest number of newer requests among which the place of an older one is still found. More than an
/// adapter has outstanding.
const MAX_NEWER_REQUESTS: usize = 1024;
/// Largest number of READs and atomics in a row among which one with an acknowledgement is looked for.
const MAX_ROW: usize = 256;

/// Requests in the order of their PSNs, with holes, the newest so many of them.
#[derive(Debug, Default)]
pub(super) struct Records {
    records: VecDeque<Record>,
}

impl Records {
    pub(super) fn len(&self) -> usize {
        self.records.len()
    }

    /// The oldest.
    pub(super) fn first(&self) -> Option<&Record> {
        self.records.front()
    }

    /// Appends what has the newest PSN, and forgets the oldest when there are more than `limit`.
    pub(super) fn push(&mut self, mut record: Record, limit: usize) {
        let asked = self.records.back().map_or(0, |record| record.asked);
        record.asked = asked.wrapping_add(u32::from(record.is_limited()));
        // First out, then in: a list that is longer for a moment takes twice the memory for good.
        if self.records.len() >= limit {
            self.records.pop_front();
        }
        self.records.push_back(record);
    }

    /// Returns the request with this PSN, or the READ with this PSN in its answer.
    pub(super) fn covering(&mut self, psn: Psn) -> Option<&mut Record> {
        let at = self.position(psn)?;
        let record = self.records.get_mut(at)?;
        psn.is_within(record.psn, record.count).then_some(record)
    }

    /// Messages that ended before `psn`, when something before it is remembered.
    pub(super) fn ends_before(&self, psn: Psn) -> Option<Ends> {
        let record = self.records.get(self.position(psn)?)?;
        if record.psn == psn {
            return Some(record.ends_before());
        }
        // Each PSN of a hole may have ended a message.
        let Ends { min, max } = record.ends;
        Some(Ends { min, max: max + psn.since(record.psn).saturating_sub(record.count) })
    }

    /// Shortens the READ at `psn` to `count` PSNs. The PSNs behind it are of requests that were not
    /// captured, if others come after. Returns how many.
    pub(super) fn shorten(&mut self, psn: Psn, count: u32) -> u32 {
        let Some(at) = self.position(psn) else { return 0 };
        let Some(read) = self.records.get_mut(at).filter(|read| read.psn == psn) else { return 0 };
        let freed = read.count.saturating_sub(count);
        read.count = count;
        if freed == 0 || at + 1 == self.records.len() {
            return 0;
        }
        for later in self.records.iter_mut().skip(at + 1) {
            later.ends.max += freed;
        }
        freed
    }

    /// The first that begins within the `count` PSNs from `psn` on.
    pub(super) fn within(&self, psn: Psn, count: u32) -> Option<Record> {
        let after = self.position(psn).map_or(0, |at| at + 1);
        self.records.get(after).filter(|record| record.psn.is_within(psn, count)).copied()
    }

    /// Forgets `psn` and what comes after it. Gives the messages that ended before, if known.
    pub(super) fn truncate(&mut self, psn: Psn) -> Option<Ends> {
        while self.records.back().is_some_and(|record| !record.psn.is_before(psn)) {
            self.records.pop_back();
        }
        self.records.back().map(|record| record.ends)
    }

    /// Puts a request into the hole it belongs in, of which it takes `taken` PSNs. `false` when it is
    /// older than all, or than [`MAX_NEWER_REQUESTS`].
    pub(super) fn fill(&mut self, mut record: Record, taken: u32, limit: usize) -> bool {
        let Some(before) = self.position(record.psn) else { return false };
        if self.records.len() - before > MAX_NEWER_REQUESTS {
            return false;
        }
        let Some(known) = self.records.get(before) else { return false };
        let limited = u32::from(record.is_limited());
        record.asked = known.asked.wrapping_add(limited);
        let own = u32::from(record.opcode.position().is_end());
        // The hole may have ended as many messages as it has PSNs; now it is known of these.
        let less = taken.saturating_sub(own);
        let hole = record.psn.since(known.psn).saturating_sub(known.count);
        record.ends = Ends { min: known.ends.min + own, max: known.ends.max + hole + own };
        for later in self.records.iter_mut().skip(before + 1) {
            later.asked = later.asked.wrapping_add(limited);
            later.ends.min += own;
            later.ends.max = later.ends.max.saturating_sub(less).max(later.ends.min);
        }
        self.records.insert(before + 1, record);
        if self.records.len() > limit {
            self.records.pop_front();
        }
        true
    }

    /// Whether an acknowledgement is what answers any of the requests from `first` to `last`, or may be,
    /// because not all of them were captured.
    pub(super) fn acknowledges(&self, first: Psn, last: Psn) -> bool {
        let mut next = last.next();
        let until = self.position(last).map_or(0, |at| at + 1);
        for record in self.records.range(..until).rev().take(MAX_ROW) {
            if next == first {
                return false;
            }
            if !record.wants_answer() || record.psn.plus(record.count) != next {
                return true;
            }
            if record.psn.is_before(first) {
                return false;
            }
            next = record.psn;
        }
        next != first
    }

    /// The READs and atomics without an answer that end before `psn`, newest first; `seen` is what
    /// was asked about before.
    pub(super) fn unanswered(&mut self, seen: Psn, psn: Psn) -> Vec<Record> {
        let Some(last) = self.position(psn.previous()) else { return Vec::new() };
        let mut found = Vec::new();
        for at in (0..=last).rev() {
            let Some(record) = self.records.get_mut(at) else { break };
            if record.psn.is_before(seen) && !seen.is_within(record.psn, record.count) {
                break;
            }
            let over = record.psn.plus(record.count);
            let ends_before = over == psn || over.is_before(psn);
            if record.wants_answer() && !record.answered && ends_before {
                record.answered = true;
                found.push(*record);
            }
        }
        found
    }

    /// READs and atomics that were asked after `psn`, whether they were answered or not.
    pub(super) fn asked_after(&self, psn: Psn) -> usize {
        let record = self.position(psn).and_then(|at| self.records.get(at));
        let newest = self.records.back();
        let count =
            newest.zip(record).map(|(newest, record)| newest.asked.wrapping_sub(record.asked));
        count.and_then(|count| usize::try_from(count).ok()).unwrap_or_default()
    }

    /// READs and atomics from `psn` on of which no answer was captured, that at `psn` not counted,
    /// and the packet with the newest of them.
    pub(super) fn outstanding_after(&self, psn: Psn) -> (usize, u64) {
        let after = self.position(psn).map_or(0, |at| at + 1);
        let asked = self.records.iter().skip(after);
        let asked = asked.filter(|record| record.is_limited() && !record.answered);
        asked.fold((0, 0), |(count, newest), record| (count + 1, newest.max(record.number)))
    }

    /// The newest that does not come after `psn`.
    fn position(&self, psn: Psn) -> Option<usize> {
        // Most that is asked about is the newest.
        let last = self.records.len().checked_sub(1)?;
        if !psn.is_before(self.records.get(last)?.psn) {
            return Some(last);
        }
        let first = self.records.front()?.psn;
        if psn.is_before(first) {
            return None;
        }
        let behind = psn.since(first);
        self.records.partition_point(|record| record.psn.since(first) <= behind).checked_sub(1)
    }
}

/// Whether a receive request is used up by the packet or by its message's beginning.
pub(super) fn takes_receive(opcode: Opcode) -> bool {
    match opcode.operation() {
        Operation::Send => opcode.position().is_start(),
        Operation::Write => opcode.has_imm(),
        _ => false,
    }
}

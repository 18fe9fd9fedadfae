//! What a responder remembers of the requests that have a response (READ, atomic, FLUSH, ATOMIC
//! WRITE): what it still has to answer, and what it must be able to answer again.

use std::collections::VecDeque;
use std::ops::ControlFlow;

use crate::mem::Span;
use crate::psn::Psn;
use crate::wire::Reth;

/// The most recent requests with a response, in PSN order: `max_dest_rd_atomic` of those that this
/// counts, and [`FLUSHES`] besides.
#[derive(Debug, Default)]
pub(crate) struct Resources {
    entries: VecDeque<Resource>,
    /// How many of them are FLUSHes.
    flushes: usize,
    /// Entries that still have packets to send.
    pending: usize,
}

/// FLUSHes that are remembered. Kernel rxe does not count them in `max_rd_atomic`, and has so many
/// packets unacknowledged at most.
const FLUSHES: usize = 128;

/// In whose number a request is remembered.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Class {
    /// READs, atomics and ATOMIC WRITEs: `max_dest_rd_atomic`.
    Counted,
    /// FLUSHes: [`FLUSHES`].
    Flush,
}

/// A request that was executed.
#[derive(Debug)]
pub(crate) struct Resource {
    pub(crate) first: Psn,
    /// Response packets in all.
    pub(crate) packets: u32,
    /// Count of messages completed, this one included: goes into every AETH of the answer.
    pub(crate) msn: u32,
    pub(crate) kind: Kind,
    /// What is to be sent: packets `next` to `end`. Nothing when they are equal.
    next: u32,
    end: u32,
    /// Where the current answer opened: that packet is FIRST or ONLY.
    opened_at: u32,
    /// The answer has been asked for again.
    repeated: bool,
}

#[derive(Debug)]
pub(crate) enum Kind {
    /// A READ with the RETH of its first request, and its memory; no bytes need none.
    Read { reth: Reth, span: Option<Span> },
    /// An atomic with the value it found.
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

/// The next response packet of a resource.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Due {
    pub(crate) index: u32,
    /// Whether it begins an answer.
    pub(crate) opens: bool,
    /// Whether it ends one.
    pub(crate) closes: bool,
    /// Whether it may have been sent before.
    pub(crate) repeated: bool,
    /// How many packets come between this one and the one that ends the answer.
    pub(crate) middles: u32,
}

impl Class {
    /// How many of it are remembered, where `limit` are counted.
    fn most(self, limit: usize) -> usize {
        match self {
            Self::Counted => limit.max(1),
            Self::Flush => FLUSHES,
        }
    }
}

impl Resource {
    pub(crate) fn new(first: Psn, packets: u32, msn: u32, kind: Kind) -> Self {
        Self { first, packets, msn, kind, next: 0, end: packets, opened_at: 0, repeated: false }
    }

    fn is_pending(&self) -> bool {
        self.next < self.end
    }

    /// The packet to send now.
    pub(crate) fn due(&self) -> Due {
        Due {
            index: self.next,
            opens: self.next == self.opened_at,
            closes: self.next + 1 == self.end,
            repeated: self.repeated,
            middles: (self.end - self.next).saturating_sub(2),
        }
    }
}

impl Resources {
    /// Whether one more may be remembered, where `limit` are counted: there is a free place, or the
    /// oldest of its class has been answered once. (A late copy of its request may have made it
    /// pending again; that is not the fault of the requester.)
    pub(crate) fn has_room(&self, limit: usize, class: Class) -> bool {
        let answered = |e: &Resource| e.repeated || !e.is_pending();
        let oldest = || self.entries.iter().find(|e| e.kind.class() == class);
        self.count(class) < class.most(limit) || oldest().is_some_and(answered)
    }

    /// Remembers a new one, in place of the oldest of its class if there are as many as may be. What
    /// is older than that has been answered too, and goes with it: the requester has everything before
    /// the PSN that is returned then.
    pub(crate) fn push(&mut self, limit: usize, resource: Resource) -> Option<Psn> {
        let class = resource.kind.class();
        let mut end = None;
        while self.count(class) >= class.most(limit) {
            let Some(oldest) = self.entries.pop_front() else { break };
            self.pending -= usize::from(oldest.is_pending());
            self.flushes -= usize::from(oldest.kind.class() == Class::Flush);
            end = Some(oldest.first.plus(oldest.packets));
        }
        self.pending += usize::from(resource.is_pending());
        self.flushes += usize::from(class == Class::Flush);
        self.entries.push_back(resource);
        end
    }

    fn count(&self, class: Class) -> usize {
        match class {
            Class::Counted => self.entries.len() - self.flushes,
            Class::Flush => self.flushes,
        }
    }

    /// Whether anything is to be sent.
    pub(crate) fn is_pending(&self) -> bool {
        self.pending > 0
    }

    /// The oldest that has something to send.
    pub(crate) fn next_pending(&self) -> Option<&Resource> {
        if self.pending == 0 {
            return None;
        }
        self.entries.iter().find(|e| e.is_pending())
    }

    /// So many packets of [`next_pending`](Self::next_pending) have been built, from the one on that was due.
    pub(crate) fn advance(&mut self, packets: u32) {
        if let Some(entry) = self.entries.iter_mut().find(|e| e.is_pending()) {
            entry.next += packets;
            self.pending -= usize::from(!entry.is_pending());
        }
    }

    /// The one that answered the request with this PSN, if it is remembered.
    pub(crate) fn find(&self, psn: Psn) -> Option<&Resource> {
        self.entries.iter().find(|e| psn.is_within(e.first, e.packets))
    }

    /// Where the requests begin that are remembered, follow each other and end before `end`; `end` if
    /// the one before it has no response.
    pub(crate) fn answered_up_to(&self, end: Psn) -> Psn {
        let extend = |from: Psn, e: &Resource| match e.first.plus(e.packets) == from {
            true => ControlFlow::Continue(e.first),
            false => ControlFlow::Break(from),
        };
        match self.entries.iter().rev().try_fold(end, extend) {
            ControlFlow::Continue(from) | ControlFlow::Break(from) => from,
        }
    }

    /// Answers `packets` packets from `psn` on again.
    pub(crate) fn repeat(&mut self, psn: Psn, packets: u32) {
        let found = self.entries.iter_mut().find(|e| psn.is_within(e.first, e.packets));
        let Some(entry) = found else { return };
        self.pending -= usize::from(entry.is_pending());
        let from = psn.since(entry.first);
        entry.opened_at = from;
        entry.next = from;
        entry.end = entry.packets.min(from.saturating_add(packets));
        entry.repeated = true;
        self.pending += usize::from(entry.is_pending());
    }

    /// Forgets everything.
    pub(crate) fn clear(&mut self) {
        self.entries.clear();
        (self.pending, self.flushes) = (0, 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn atomic(psn: u32) -> Resource {
        Resource::new(Psn::new(psn), 1, 1, Kind::Atomic { original: psn.into() })
    }

    fn read(psn: u32, packets: u32) -> Resource {
        let kind = Kind::Read { reth: Reth::default(), span: None };
        Resource::new(Psn::new(psn), packets, 1, kind)
    }

    #[test]
    fn answers_leave_in_psn_order_even_when_an_older_one_is_repeated() {
        let mut resources = Resources::default();
        resources.push(4, read(10, 3));
        resources.push(4, atomic(13));
        resources.advance(3);
        resources.repeat(Psn::new(11), 2);
        let mut order = Vec::new();
        while let Some(entry) = resources.next_pending() {
            let due = entry.due();
            order.push((entry.first.plus(due.index).value(), due.opens, due.closes));
            resources.advance(1);
        }
        assert_eq!(order, [(11, true, false), (12, false, true), (13, true, true)]);
        assert!(!resources.is_pending());
    }

    #[test]
    fn only_an_answered_one_makes_place() {
        let mut resources = Resources::default();
        resources.push(1, atomic(1));
        assert!(!resources.has_room(1, Class::Counted));
        resources.advance(1);
        assert!(resources.has_room(1, Class::Counted));
        resources.push(1, atomic(2));
        assert!(resources.find(Psn::new(1)).is_none());
        assert!(resources.find(Psn::new(2)).is_some());
    }

    #[test]
    fn flushes_have_places_of_their_own() {
        let flush = |psn| Resource::new(Psn::new(psn), 1, 1, Kind::Flush);
        let mut resources = Resources::default();
        resources.push(1, atomic(0));
        (1..=128).for_each(|psn| _ = resources.push(1, flush(psn)));
        assert!(!resources.has_room(1, Class::Flush) && !resources.has_room(1, Class::Counted));
        resources.advance(1);
        assert!(!resources.has_room(1, Class::Flush) && resources.has_room(1, Class::Counted));
        resources.advance(1);
        assert!(resources.has_room(1, Class::Flush));
        resources.push(1, flush(129));
        assert!(resources.find(Psn::new(0)).is_none(), "older than the FLUSH that went");
        assert!(resources.find(Psn::new(1)).is_none() && resources.find(Psn::new(2)).is_some());
    }

    #[test]
    fn what_has_answers_of_its_own_is_passed_over_from_the_end() {
        let mut resources = Resources::default();
        let up_to = |resources: &Resources, end| resources.answered_up_to(Psn::new(end)).value();
        assert_eq!(up_to(&resources, 7), 7);
        // 0xfffffe is a SEND, and 3.
        resources.push(9, atomic(0xff_fffd));
        resources.push(9, read(0xff_ffff, 3));
        resources.push(9, atomic(2));
        assert_eq!(up_to(&resources, 3), 0xff_ffff);
        assert_eq!(up_to(&resources, 4), 4);
    }
}

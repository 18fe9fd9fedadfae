//! A READ, and how its answer comes.

use softroce::psn::Psn;
use softroce::wire::{Position, Reth};

use super::{Event, ReadResponse, SeenPacket};

/// Places remembered at which a READ was resumed; when there are more, it may have been at any.
const MAX_RESUMED_READS: usize = 16;

/// A READ that may still be answered.
#[derive(Debug)]
pub(super) struct Read {
    pub(super) psn: Psn,
    pub(super) count: u32,
    pub(super) reth: Reth,
    /// The response PSN that comes next.
    pub(super) next: Psn,
    /// The newest response PSN was this one's predecessor.
    newest: Psn,
    /// Asked for again from here on, and nothing of it was answered since.
    again: Option<Psn>,
    /// Times it was asked for again, less those it was answered again.
    due: u32,
    /// The PSNs in its middle from which it was repeated.
    resumed: Vec<Psn>,
    /// A request right before it was not captured: it may be the rest of an earlier READ.
    pub(super) may_be_rest: bool,
    /// Some of the answer was not captured, and not asked for again.
    pub(super) has_holes: bool,
    /// The packet that answered something later, before any of this was.
    pub(super) overtaken: Option<u64>,
}

impl Read {
    pub(super) const fn new(psn: Psn, count: u32, reth: Reth) -> Self {
        Self {
            psn,
            count,
            reth,
            next: psn,
            newest: psn,
            again: None,
            due: 0,
            resumed: Vec::new(),
            may_be_rest: false,
            has_holes: false,
            overtaken: None,
        }
    }

    /// Whether some of it was requested again.
    pub(super) fn was_repeated(&self) -> bool {
        self.due > 0 || self.again.is_some() || !self.resumed.is_empty()
    }

    /// It was asked for again, from a PSN on.
    pub(super) fn ask_again(&mut self, from: Psn) {
        self.again = Some(from);
        self.due = self.due.saturating_add(1);
        self.has_holes = false;
        self.overtaken = None;
        if from != self.psn
            && !self.resumed.contains(&from)
            && self.resumed.len() < MAX_RESUMED_READS
        {
            self.resumed.push(from);
        }
    }

    /// Whether an answer may begin with `psn`.
    fn may_begin_at(&self, psn: Psn) -> bool {
        psn == self.psn || self.resumed.contains(&psn) || self.resumed.len() == MAX_RESUMED_READS
    }

    /// Whether this part of the answer, or a later one, was captured before.
    pub(super) fn has_come(&self, psn: Psn) -> bool {
        psn.is_before(self.newest)
    }

    /// Bytes of the whole answer.
    fn len(&self) -> u64 {
        u64::from(self.reth.length)
    }

    /// Whether this position belongs to this PSN.
    pub(super) fn position(&mut self, found: Position, psn: Psn, out: &mut Vec<Event>) {
        let expected = position(psn.since(self.psn), self.count);
        let anew = position(0, self.psn.plus(self.count).since(psn));
        let asked = self.again.take() == Some(psn) && psn != self.psn;
        // rxe answers the rest of a READ without a FIRST.
        let is_rest = self.may_be_rest
            && psn == self.psn
            && found.is_end() == expected.is_end()
            && matches!(found, Position::Middle | Position::Last);
        if found != expected && !is_rest && !(found == anew && self.may_begin_at(psn)) {
            let expected = if asked { anew } else { expected };
            out.push(ReadResponse::Position { expected }.into());
        } else if asked && found != anew && psn != self.next && psn.is_before(self.newest) {
            // It came before, and is the first since it was asked for again: the answer to that.
            out.push(ReadResponse::ResumedWithoutFirst.into());
        }
    }

    /// Whether it is as long as is due. FIRST and MIDDLE have shown the path MTU.
    pub(super) fn measure(&self, seen: &SeenPacket<'_>, mtu: Option<usize>, out: &mut Vec<Event>) {
        let last = seen.datagram.bth.psn.next() == self.psn.plus(self.count);
        let ends = seen.datagram.bth.opcode.position().is_end();
        let before = match (mtu, self.count) {
            (_, 1) => 0,
            (Some(mtu), count) => u64::from(count - 1) * u64::try_from(mtu).unwrap_or(u64::MAX),
            (None, _) => return,
        };
        let Some(expected) = self.len().checked_sub(before).and_then(|n| usize::try_from(n).ok())
        else {
            return;
        };
        if last && ends && seen.datagram.payload_len != expected {
            out.push(ReadResponse::Length { expected }.into());
        }
    }

    /// Whether it comes in its turn. Gives what is missing before it.
    pub(super) fn advance(&mut self, psn: Psn, out: &mut Vec<Event>) -> Option<Psn> {
        let missing = self.next.is_before(psn).then_some(self.next);
        if missing.is_some() {
            out.push(ReadResponse::Hole { first: self.next, count: psn.since(self.next) }.into());
            self.has_holes = true;
        } else if psn != self.next {
            match self.due.checked_sub(1) {
                Some(due) => self.due = due,
                None => out.push(ReadResponse::Again.into()),
            }
        }
        self.next = psn.next();
        if self.newest.is_before(self.next) {
            self.newest = self.next;
        }
        missing
    }
}

/// The position of packet `at` in an answer of `count` packets.
const fn position(at: u32, count: u32) -> Position {
    match (at, count) {
        (0, 1) => Position::Only,
        (0, _) => Position::First,
        (at, count) if at + 1 == count => Position::Last,
        _ => Position::Middle,
    }
}

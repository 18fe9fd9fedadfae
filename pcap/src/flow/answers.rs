//! The state of the responder, as its answers show it.

use std::collections::VecDeque;
use std::time::Duration;

use softroce::psn::Psn;

use super::SeenPacket;
use super::record::Ends;

/// Answers to atomics remembered: as many as any adapter keeps for repeated requests.
const MAX_ATOMICS: usize = 128;

/// READ responses remembered, to compare those that come again.
const MAX_RESPONSES: usize = 256;

/// How far the answers to the requests of one direction have come.
#[derive(Debug, Default)]
pub(super) struct Answers {
    /// The first PSN that no answer acknowledged.
    pub(super) una: Option<Psn>,
    /// Time of the answer that acknowledged the PSN before `una`.
    pub(super) progress: Option<Duration>,
    pub(super) base: Option<Base>,
    /// The base that the last answer had if its MSN did not fit. Another answer has to confirm it.
    pub(super) other_base: Option<Base>,
    pub(super) nak: Option<Nak>,
    /// Why the next retransmission comes, when an answer gave the reason.
    pub(super) reason: Option<(Psn, Reason)>,
    pub(super) refused: Option<Refused>,
    atomics: VecDeque<(Psn, u64, u64)>,
    /// The newest READ responses.
    responses: VecDeque<Response>,
    /// A packet was retransmitted although it was acknowledged.
    pub(super) duplicate: bool,
    /// The last message for which there is a receive request, when the responder counts them.
    pub(super) limit: Option<u32>,
    /// The last answer was ahead of all requests. A second one shows that requests are missing from
    /// the capture; one alone may be wrong.
    pub(super) is_ahead: bool,
    /// More READs and atomics were outstanding than may be, and that was told.
    pub(super) is_beyond: bool,
}

/// A READ response that was captured whole.
#[derive(Clone, Copy, Debug)]
struct Response {
    psn: Psn,
    /// Of its payload.
    digest: u32,
    packet: u64,
}

/// A NAK that ended the connection.
#[derive(Clone, Copy, Debug)]
pub(super) struct Refused {
    pub(super) psn: Psn,
    pub(super) packet: u64,
    /// Something was asked again after it: the requester has not heard of it, or there is a new
    /// connection with the same numbers.
    pub(super) asked_on: bool,
}

/// The MSN less the messages that ended: from `low` up to `width` more.
#[derive(Clone, Copy, Debug)]
pub(super) struct Base {
    pub(super) low: u32,
    pub(super) width: u32,
}

/// The last NAK for a missing packet, or RNR NAK.
#[derive(Clone, Copy, Debug)]
pub(super) struct Nak {
    pub(super) psn: Psn,
    pub(super) packet: u64,
    pub(super) time: Option<Duration>,
    pub(super) rnr: bool,
    /// Packets were retransmitted since, also those that the NAK requests, and the capture lacks them.
    pub(super) is_heeded: bool,
}

impl Nak {
    pub(super) const fn new(seen: &SeenPacket<'_>, rnr: bool) -> Self {
        let psn = seen.datagram.bth.psn;
        Self { psn, packet: seen.number, time: seen.time, rnr, is_heeded: false }
    }
}

/// What made a requester send again.
#[derive(Clone, Copy, Debug)]
pub(super) struct Reason {
    pub(super) packet: u64,
    pub(super) time: Option<Duration>,
    /// It was an RNR NAK with this timer.
    pub(super) timer: Option<Duration>,
    /// It was an answer to something later.
    pub(super) implied: bool,
    /// The request that an RNR NAK refused, when the capture has it before the NAK.
    pub(super) refused: Option<Psn>,
}

impl Reason {
    /// Whether a requester that heeds it may do so only now.
    pub(super) fn is_fresh(&self, now: Option<Duration>) -> bool {
        let waited = self.time.zip(now).and_then(|(then, now)| now.checked_sub(then));
        waited.is_none_or(|waited| waited <= MAX_PROMPT_RESPONSE)
    }
}

/// An MSN has 24 bits.
pub(super) const MSN_MASK: u32 = 0xff_ffff;

/// A requester that has not gone back this long after a NAK did not heed it: its timer ran out.
const MAX_PROMPT_RESPONSE: Duration = Duration::from_millis(20);

impl Answers {
    /// The connection begins: nothing is answered and the MSN is 0.
    pub(super) fn begin(&mut self, first: Psn) {
        self.una = Some(first);
        self.base = Some(Base { low: 0, width: 0 });
    }

    /// The first request that was captured.
    pub(super) fn expect_from(&mut self, psn: Psn) {
        self.una.get_or_insert(psn);
    }

    pub(super) fn has_acknowledged(&self, psn: Psn) -> bool {
        self.una.is_some_and(|una| psn.is_before(una))
    }

    /// A request came again.
    pub(super) fn asked_again(&mut self, psn: Psn, acknowledged: bool) {
        self.duplicate |= acknowledged;
        match &mut self.nak {
            Some(nak) if nak.psn == psn => self.nak = None,
            Some(nak) => nak.is_heeded = true,
            None => {}
        }
    }

    /// Cause of the retransmission of `psn`, if a response requested it. A requester that `goes_on` with a row of
    /// retransmissions has not yet heard of it.
    pub(super) fn take_reason(&mut self, psn: Psn, goes_on: bool) -> Option<Reason> {
        let (from, _) = self.reason?;
        let applies = from == psn || (!goes_on && from.is_before(psn));
        applies.then(|| self.reason.take())?.map(|(_, reason)| reason)
    }

    /// A NAK has ended the connection.
    pub(super) const fn is_refused(&self) -> bool {
        self.refused.is_some()
    }

    /// Something was asked that was asked before.
    pub(super) fn asked_on(&mut self) {
        if let Some(refused) = &mut self.refused {
            refused.asked_on = true;
        }
    }

    /// A new atomic has this PSN. The answer to one a lap of PSNs ago is no longer of interest.
    pub(super) fn forget_atomic(&mut self, psn: Psn) {
        self.atomics.retain(|(known, _, _)| *known != psn);
    }

    /// Remembers a READ response. Gives the packet that had another payload, if it `is_repeated`.
    pub(super) fn compare_response(
        &mut self,
        seen: &SeenPacket<'_>,
        is_repeated: bool,
    ) -> Option<u64> {
        let (psn, packet) = (seen.datagram.bth.psn, seen.number);
        let digest = seen.digest?;
        let known = self.responses.iter_mut().rev().filter(|_| is_repeated);
        if let Some(known) = known.into_iter().find(|known| known.psn == psn) {
            let before = std::mem::replace(known, Response { psn, digest, packet });
            return (before.digest != digest).then_some(before.packet);
        }
        if self.responses.len() == MAX_RESPONSES {
            self.responses.pop_front();
        }
        self.responses.push_back(Response { psn, digest, packet });
        None
    }

    /// Remembers the answer to an atomic. Returns the packet and the value of the first answer, if
    /// that had another value.
    pub(super) fn compare_atomic(
        &mut self,
        psn: Psn,
        value: u64,
        packet: u64,
    ) -> Option<(u64, u64)> {
        if let Some(&(_, before, first)) = self.atomics.iter().find(|(known, _, _)| *known == psn) {
            return (before != value).then_some((first, before));
        }
        if self.atomics.len() == MAX_ATOMICS {
            self.atomics.pop_front();
        }
        self.atomics.push_back((psn, value, packet));
        None
    }

    /// How many messages were complete before is not known any more.
    pub(super) fn forget_msn(&mut self) {
        (self.base, self.other_base) = (None, None);
    }

    /// Records that an answer of this time acknowledges everything before `psn`.
    pub(super) fn acknowledge(&mut self, psn: Psn, time: Option<Duration>) {
        if self.una.is_none_or(|una| una.is_before(psn)) {
            self.una = Some(psn);
            self.progress = time;
        }
        if self.nak.is_some_and(|nak| nak.psn.is_before(psn)) {
            self.nak = None;
        }
        if self.reason.is_some_and(|(from, reason)| from.is_before(psn) && !reason.implied) {
            self.reason = None;
        }
    }

    /// By how many messages the one after `ends` is beyond what the responder has receive requests
    /// for. One may be: it asks for news.
    pub(super) fn beyond_credits(&self, ends: Ends) -> Option<u32> {
        let (limit, base) = self.limit.zip(self.base)?;
        if base.width != 0 || ends.min != ends.max {
            return None;
        }
        let by = base.low.wrapping_add(ends.min + 1).wrapping_sub(limit) & MSN_MASK;
        (by > 1 && by < MSN_MASK / 2).then_some(by)
    }

    /// Whether `msn` fits `ends` messages, which are some more or less.
    pub(super) fn fits(&mut self, msn: u32, ends: Ends) -> Result<(), (u32, u32)> {
        let found = Base { low: msn.wrapping_sub(ends.max) & MSN_MASK, width: ends.max - ends.min };
        let Some(base) = self.base else {
            self.base = Some(found);
            return Ok(());
        };
        if let Some(base) = base.and(found) {
            self.base = Some(base);
            self.other_base = None;
            return Ok(());
        }
        let low = base.low.wrapping_add(ends.min) & MSN_MASK;
        let high = base.low.wrapping_add(base.width).wrapping_add(ends.max) & MSN_MASK;
        match self.other_base.and_then(|other| other.and(found)) {
            Some(confirmed) => (self.base, self.other_base) = (Some(confirmed), None),
            None => self.other_base = Some(found),
        }
        Err((low, high))
    }
}

impl Base {
    /// The bases that are both in `self` and in `found`.
    fn and(self, found: Self) -> Option<Self> {
        let base = self;
        // Where `found` begins, seen from where `base` begins; the circle is cut opposite.
        let from = found.low.wrapping_sub(base.low) & MSN_MASK;
        let before = base.low.wrapping_sub(found.low) & MSN_MASK;
        let (skip, reach) = match from <= before {
            true => (from, from.saturating_add(found.width)),
            false if before <= found.width => (0, found.width - before),
            false => (1, 0),
        };
        let width = reach.min(base.width).checked_sub(skip)?;
        Some(Self { low: base.low.wrapping_add(skip) & MSN_MASK, width })
    }
}

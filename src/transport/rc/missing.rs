//! Answers that are missing while others behind them have come.
//!
//! Answers come in the order of their requests, so one that comes ahead tells that those before it are lost. A
//! requester may go back to the first that is missing and ask for everything from there on again. This one keeps
//! what has come, and asks again only for what is missing: of each request that lacks some of its answer, for the
//! rest of that. No peer can tell this from a READ that was interrupted.
//!
//! ```text
//!   una                                          known            sent
//!    │ missing  kept  kept │ missing  missing kept │ still to come │
//!    └─ asked again ───────┴─ asked again ─────────┘
//!       to the end of the request
//! ```
//!
//! What is lost once more is found out by the ACK timer, and then everything is asked for again; so it is while
//! that is under way, or where there is no room to keep anything.

use std::collections::VecDeque;

use crate::net::Burst;
use crate::psn::Psn;
use crate::transport::build;
use crate::transport::connection::{Connection, Context};
use crate::transport::rc::ahead::Ahead;
use crate::transport::rc::requester::Requester;
use crate::transport::work::WcStatus;
use crate::transport::wqe::Wqe;
use crate::wire::packet::datagram_len;
use crate::wire::{Datagram, Operation};

/// What a requester knows of answers that it lacks.
#[derive(Debug, Default)]
pub(super) struct Missing {
    /// Answers and acknowledgements that came ahead of a missing answer.
    kept: Ahead,
    /// Every answer before this PSN has come, is kept, or was asked for again.
    known: Psn,
    /// Where answers are to be asked for again from.
    asks: VecDeque<Psn>,
}

impl Missing {
    /// Nothing is missing, and the next answer is that with the PSN `first`.
    pub(super) fn reset(&mut self, first: Psn) {
        *self = Self { known: first, ..Self::default() };
    }

    /// Brings what is known up to date. While nothing is missing nobody does, and what was known before half of all
    /// PSNs went by looks as if it lay ahead.
    fn look(&mut self, una: Psn, sent: Psn) {
        if self.known.since(una) > sent.since(una) {
            self.known = una;
        }
    }

    /// Whether nothing has come that waits for its turn.
    pub(super) fn is_none(&self) -> bool {
        self.kept.is_empty()
    }
}

impl Requester {
    /// Whether answers are to be asked for again.
    pub(crate) fn asks_again(&self) -> bool {
        !self.missing.asks.is_empty()
    }

    /// An answer or an acknowledgement has come ahead of a `missing` answer.
    pub(super) fn on_ahead(
        &mut self,
        cx: &mut Context<'_>,
        connection: &Connection,
        missing: Psn,
        (packet, bytes): (&Datagram<'_>, &[u8]),
    ) -> Result<(), WcStatus> {
        if self.probe.is_some() || self.cursor_psn() != self.sent {
            return self.on_implied_nak(cx, connection, missing);
        }
        let psn = packet.bth.psn;
        // To acknowledge a request that has an answer says no more than that this is missing too.
        let says_no_more = packet.bth.opcode.operation() == Operation::Acknowledge
            && self.with_psn(psn).is_some_and(|(_, wqe)| wqe.op.has_response());
        let mut end = psn.next();
        if !says_no_more {
            let is_kept = self.missing.kept.keep(cx.reorder, self.una, psn, bytes);
            if !is_kept && self.missing.kept.is_full() {
                return self.on_implied_nak(cx, connection, missing);
            }
            cx.counters().kept_ahead += u64::from(is_kept);
            end = psn;
        }
        self.retry.heard(cx.now);
        self.bursts.acknowledged(psn.next());
        self.missing.look(self.una, self.sent);
        if self.miss_until(end) {
            cx.counters().implied_naks += 1;
        }
        if self.missing.known.is_before(psn.next()) {
            self.missing.known = psn.next();
        }
        Ok(())
    }

    /// Every answer before `end` should have come. Whether one is missing that was not known to be.
    fn miss_until(&mut self, end: Psn) -> bool {
        let mut any = false;
        while self.missing.known.is_before(end) {
            let known = self.missing.known;
            let Some((_, wqe)) = self.with_psn(known) else { break };
            if !wqe.op.has_response() {
                self.missing.known = wqe.end();
                continue;
            }
            let part = self.reads.end(known.since(wqe.first), wqe.packets);
            self.missing.known = wqe.first.plus(part);
            self.missing.asks.push_back(known);
            any = true;
        }
        any
    }

    /// The requests that have PSNs, oldest first.
    fn started(&self) -> impl Iterator<Item = &Wqe> {
        (0..).map_while(|at| self.queue.get(at).filter(|wqe| wqe.is_started()))
    }

    /// The request that has this PSN, and its place in the queue.
    fn with_psn(&self, psn: Psn) -> Option<(usize, &Wqe)> {
        self.started().enumerate().find(|(_, wqe)| psn.is_within(wqe.first, wqe.packets))
    }

    /// What was kept and whose turn it is now.
    pub(super) fn take_kept(&mut self) -> Option<Box<[u8]>> {
        if self.missing.is_none() {
            return None;
        }
        let first = self.started().find(|wqe| wqe.op.has_response());
        let awaited = first.map_or(self.sent, Wqe::awaited);
        self.missing.kept.take_until(self.una, awaited)
    }

    /// Asks again for answers that are missing. False when `out` takes no more of that. Adds what
    /// it takes to `cost`.
    pub(super) fn ask_again(
        &mut self,
        cx: &mut Context<'_>,
        connection: &Connection,
        out: &mut Burst,
        cost: &mut u64,
    ) -> bool {
        while let Some(psn) = self.missing.asks.front().copied() {
            let found = self.with_psn(psn).filter(|_| !psn.is_before(self.una));
            let Some((place, wqe)) = found else {
                // It has come after all.
                self.missing.asks.pop_front();
                continue;
            };
            let index = psn.since(wqe.first);
            let (header, payload) = self.question(connection, wqe, index);
            let len = datagram_len(header.opcode, payload.len as usize);
            let alone = !self.bursts.get_through();
            if !out.has_room(len) || (alone && !out.is_empty()) {
                return false;
            }
            let takes = cx.windows.allowance(connection.window, cx.now).takes(len, !out.is_empty());
            self.missing.asks.pop_front();
            let Some(wqe) = self.queue.get_mut(place) else { continue };
            wqe.resumed_at = wqe.resumed_at.min(index);
            let fill = |to: &mut [u8]| wqe.copy_out(cx, connection.id.pd, payload.offset, to);
            if build::push(out, connection, header, payload.len as usize, fill).is_err() {
                wqe.failure = Some(WcStatus::LocProtErr);
                return false;
            }
            *cost += takes;
            cx.counters().retransmitted += 1;
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_known_long_ago_is_not_taken_for_news() {
        let known_at = |known, una, sent| {
            let [known, una, sent] = [known, una, sent].map(Psn::new);
            let mut missing = Missing { known, ..Missing::default() };
            missing.look(una, sent);
            missing.known.value()
        };
        // Between the two, at either end, before, and more than half of the circle before.
        assert_eq!(known_at(7, 5, 9), 7);
        assert_eq!([known_at(5, 5, 9), known_at(9, 5, 9)], [5, 9]);
        assert_eq!(known_at(4, 5, 9), 5);
        assert_eq!(known_at(7, 0x90_0000, 0x90_0005), 0x90_0000);
        assert_eq!(known_at(0xff_ffff, 0xff_fffe, 3), 0xff_ffff);
    }
}

//! How a requester asks again for responses that [were lost](crate::transport::rc::gaps).

use bytes::Bytes;

use crate::net::Burst;
use crate::psn::Psn;
use crate::transport::build;
use crate::transport::connection::{Connection, Context};
use crate::transport::fault::TransportError;
use crate::transport::rc::requester::Requester;
use crate::transport::send_budget::SendBudget;
use crate::transport::wqe::Wqe;
use crate::wire::packet::datagram_len;
use crate::wire::{Datagram, Operation};

impl Requester {
    /// Whether answers are to be asked for again.
    pub(crate) fn has_rerequests(&self) -> bool {
        !self.pending.gaps.pending_rerequests.is_empty()
    }

    /// An answer or an acknowledgement has come ahead of a `missing` answer.
    pub(super) fn on_ahead(
        &mut self,
        cx: &mut Context<'_>,
        connection: &Connection,
        missing: Psn,
        (packet, bytes): (&Datagram<'_>, &[u8]),
    ) -> Result<(), TransportError> {
        if self.recovery.is_probing() || self.snd_nxt() != self.snd_max {
            return self.on_implied_nak(cx, connection, missing);
        }
        let psn = packet.bth.psn;
        // To acknowledge a request that has an answer says no more than that this is missing too.
        let says_no_more = packet.info.operation == Operation::Acknowledge
            && self.with_psn(psn).is_some_and(|(_, wqe)| wqe.op.has_response());
        let mut end = psn.next();
        if !says_no_more {
            let is_kept = self.pending.gaps.kept.keep(cx.reorder, self.snd_una, psn, bytes);
            if !is_kept && self.pending.gaps.kept.is_full() {
                return self.on_implied_nak(cx, connection, missing);
            }
            cx.counters().kept_ahead += u64::from(is_kept);
            end = psn;
        }
        self.recovery.restart_ack_timer(cx.now);
        self.peer.bursts.acknowledged(psn.next());
        self.pending.gaps.look(self.snd_una, self.snd_max);
        if self.miss_until(end) {
            cx.counters().implied_naks += 1;
        }
        if self.pending.gaps.known.is_before(psn.next()) {
            self.pending.gaps.known = psn.next();
        }
        Ok(())
    }

    /// Every answer before `end` should have come. Whether one is missing that was not known to be.
    fn miss_until(&mut self, end: Psn) -> bool {
        let mut any = false;
        while self.pending.gaps.known.is_before(end) {
            let known = self.pending.gaps.known;
            let Some((_, wqe)) = self.with_psn(known) else { break };
            if !wqe.op.has_response() {
                self.pending.gaps.known = wqe.end();
                continue;
            }
            let part = self.pending.plan.end(known.since(wqe.first), wqe.packets);
            self.pending.gaps.known = wqe.first.plus(part);
            self.pending.gaps.pending_rerequests.push_back(known);
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

    /// Takes the next packet in order out of those that arrived ahead.
    pub(super) fn take_kept(&mut self) -> Option<Bytes> {
        if self.pending.gaps.is_none() {
            return None;
        }
        let first = self.started().find(|wqe| wqe.op.has_response());
        let awaited = first.map_or(self.snd_max, Wqe::awaited);
        self.pending.gaps.kept.take_until(self.snd_una, awaited)
    }

    /// Asks again for answers that are missing. False when `out` takes no more of that. It waits for no window: the
    /// room was taken when they were asked for first.
    pub(super) fn rerequest_reads(
        &mut self,
        cx: &mut Context<'_>,
        connection: &Connection,
        out: &mut Burst,
        budget: &mut SendBudget,
    ) -> bool {
        while let Some(psn) = self.pending.gaps.pending_rerequests.front().copied() {
            let found = self.with_psn(psn).filter(|_| !psn.is_before(self.snd_una));
            let Some((place, wqe)) = found else {
                // It has come after all.
                self.pending.gaps.pending_rerequests.pop_front();
                continue;
            };
            let index = psn.since(wqe.first);
            let (header, payload) = self.build_request(connection, wqe, index);
            let len = datagram_len(header.opcode, payload.len as usize);
            let alone = !self.peer.bursts.get_through();
            if !out.has_room(len) || (alone && !out.is_empty()) {
                return false;
            }
            let takes = budget.takes(out, len);
            self.pending.gaps.pending_rerequests.pop_front();
            let Some(wqe) = self.queue.get_mut(place) else { continue };
            wqe.resumed_at = wqe.resumed_at.min(index);
            let fill = |to: &mut [u8]| wqe.copy_out(cx, connection.id.pd, payload.offset, to);
            if build::push(out, connection, header, payload.len as usize, fill).is_err() {
                wqe.failure = Some(TransportError::SendProtection);
                return false;
            }
            budget.spend(takes);
            cx.counters().retransmitted += 1;
        }
        true
    }
}

//! Repeated requests for [lost responses](crate::transport::rc::gaps).

use bytes::Bytes;

use crate::net::Burst;
use crate::psn::Psn;
use crate::transport::build;
use crate::transport::connection::Connection;
use crate::transport::context::Context;
use crate::transport::fault::TransportError;
use crate::transport::rc::gaps::ReadGaps;
use crate::transport::rc::requester::Requester;
use crate::transport::send_budget::SendBudget;
use crate::transport::wqe::Wqe;
use crate::wire::packet::datagram_len;
use crate::wire::{Datagram, Operation};

impl Requester {
    /// Whether any responses must be requested again.
    pub(crate) fn has_rerequests(&self) -> bool {
        self.pending.next_rerequest().is_some()
    }

    /// Handles a response or an acknowledgement that arrived ahead of a `missing` response.
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
        // An acknowledgement of a request with a response only implies that this response is
        // missing too.
        let says_no_more = packet.info.operation == Operation::Acknowledge
            && self.with_psn(psn).is_some_and(|(_, wqe)| wqe.op.has_response());
        let mut end = psn.next();
        let una = self.snd_una;
        let gaps = self.pending.gaps.get_or_insert_with(|| Box::new(ReadGaps::new(una)));
        if !says_no_more {
            let is_kept = gaps.kept.keep(&cx.shared.reorder, una, psn, bytes);
            if !is_kept && gaps.kept.is_full() {
                return self.on_implied_nak(cx, connection, missing);
            }
            cx.counters().kept_ahead += u64::from(is_kept);
            end = psn;
        }
        gaps.look(una, self.snd_max);
        let known = gaps.known;
        self.recovery.restart_timers(cx.now);
        self.peer.bursts.acknowledged(psn.next());
        let (mut known, lost) = self.lost_before(end, known);
        if !lost.is_empty() {
            cx.counters().implied_naks += 1;
            self.recovery.on_gap(self.oldest_round_trip(cx));
        }
        if known.is_before(psn.next()) {
            known = psn.next();
        }
        if let Some(gaps) = &mut self.pending.gaps {
            gaps.known = known;
            gaps.pending_rerequests.extend(lost);
        }
        Ok(())
    }

    /// Returns the PSNs from which on responses are lost, between `known` and `end`, and the new
    /// value of `known`.
    fn lost_before(&self, end: Psn, mut known: Psn) -> (Psn, Vec<Psn>) {
        let mut lost = Vec::new();
        while known.is_before(end) {
            let Some((_, wqe)) = self.with_psn(known) else { break };
            if !wqe.op.has_response() {
                known = wqe.end();
                continue;
            }
            lost.push(known);
            let part = self.pending.plan.end(known.since(wqe.first), wqe.packets);
            known = wqe.first.plus(part);
        }
        (known, lost)
    }

    /// Returns the requests that have PSNs, oldest first.
    fn started(&self) -> impl Iterator<Item = &Wqe> {
        (0..).map_while(|at| self.queue.get(at).filter(|wqe| wqe.is_started()))
    }

    /// Returns the request with this PSN, and its index in the queue.
    fn with_psn(&self, psn: Psn) -> Option<(usize, &Wqe)> {
        self.started().enumerate().find(|(_, wqe)| psn.is_within(wqe.first, wqe.packets))
    }

    /// Whether the response with the PSN `una` is known to be lost.
    pub(super) fn has_gap(&self) -> bool {
        let gaps = self.pending.gaps.as_ref();
        gaps.is_some_and(|gaps| gaps.begins_at(self.snd_una, self.snd_max))
    }

    /// Requests the response with the PSN `una` once more.
    pub(super) fn rerequest_oldest(&mut self) {
        if let Some(gaps) = &mut self.pending.gaps
            && gaps.pending_rerequests.is_empty()
        {
            gaps.pending_rerequests.push_back(self.snd_una);
        }
    }

    /// Removes and returns the next kept packet in order.
    pub(super) fn take_kept(&mut self) -> Option<Bytes> {
        if !self.pending.keeps_responses() {
            return None;
        }
        let first = self.started().find(|wqe| wqe.op.has_response());
        let awaited = first.map_or(self.snd_max, Wqe::awaited);
        self.pending.gaps.as_mut()?.kept.take_until(self.snd_una, awaited)
    }

    /// Requests missing responses again. Returns false when `out` is full. No window is checked,
    /// because the first request has already reserved the space.
    pub(super) fn rerequest_reads(
        &mut self,
        cx: &mut Context<'_>,
        connection: &Connection,
        out: &mut Burst,
        budget: &mut SendBudget,
    ) -> bool {
        while let Some(psn) = self.pending.next_rerequest() {
            let found = self.with_psn(psn).filter(|_| !psn.is_before(self.snd_una));
            let Some((place, wqe)) = found else {
                // The response has arrived since.
                self.pending.pop_rerequest();
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
            self.pending.pop_rerequest();
            let Some(wqe) = self.queue.get_mut(place) else { continue };
            wqe.resumed_at = wqe.resumed_at.min(index);
            let fill = |to: &mut [u8]| wqe.copy_out(cx, connection.id.pd, payload.offset, to);
            if build::push(out, connection, &header, payload.len as usize, fill).is_err() {
                wqe.failure = Some(TransportError::SendProtection);
                return false;
            }
            budget.spend(takes);
            cx.counters().retransmitted += 1;
        }
        true
    }
}

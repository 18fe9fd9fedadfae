//! The requester: handles response packets and completes requests.
//!
//! An acknowledgement covers all earlier requests, so one packet may complete many of them. It does
//! not cover the response to a READ, atomic, FLUSH or ATOMIC WRITE. If that is missing, it was
//! lost, and the request is retransmitted from there ("implied NAK").

use crate::mem::Placement;
use crate::psn::Psn;
use crate::time::RnrTimer;
use crate::transport::connection::Connection;
use crate::transport::context::Context;
use crate::transport::fault::TransportError;
use crate::transport::in_flight::Acked;
use crate::transport::outputs::DropReason;
use crate::transport::rc::congestion::{Ack, CongestionControl, Loss};
use crate::transport::rc::reads::ReadPlan;
use crate::transport::rc::requester::{Cursor, Requester};
use crate::transport::work::{SendFlags, SendOp};
use crate::transport::wqe::Wqe;
use crate::wire::{Datagram, NakCode, Operation, Position, Syndrome};

/// Result of an acknowledgement.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Acknowledged {
    Whole,
    /// The response with this PSN should have arrived before it.
    Missing(Psn),
}

impl Requester {
    /// Handles a response packet. Fails if the oldest request fails.
    pub(crate) fn handle_response(
        &mut self,
        cx: &mut Context<'_>,
        connection: &Connection,
        arrived: (&Datagram<'_>, &[u8]),
    ) -> Result<(), TransportError> {
        self.take_response(cx, connection, arrived)?;
        while let Some(bytes) = self.take_kept() {
            if let Ok(packet) = Datagram::parse(&bytes) {
                self.take_response(cx, connection, (&packet, &bytes))?;
            }
        }
        Ok(())
    }

    fn take_response(
        &mut self,
        cx: &mut Context<'_>,
        connection: &Connection,
        arrived: (&Datagram<'_>, &[u8]),
    ) -> Result<(), TransportError> {
        let packet = arrived.0;
        let psn = packet.bth.psn;
        if !psn.is_within(self.snd_una, self.snd_max.since(self.snd_una)) {
            cx.counters().drop(DropReason::Ghost);
            return Ok(());
        }
        let syndrome = packet.aeth().map(|aeth| aeth.syndrome);
        match (packet.info.operation, syndrome) {
            (Operation::Acknowledge, Some(Syndrome::Ack { .. })) => {
                self.on_ack(cx, connection, arrived)
            }
            (Operation::Acknowledge, Some(Syndrome::Rnr { timer })) => {
                self.on_rnr(cx, connection, psn, timer)
            }
            (Operation::Acknowledge, Some(Syndrome::Nak(NakCode::PsnSequence))) => {
                self.on_sequence_nak(cx, connection, psn)
            }
            (Operation::Acknowledge, Some(Syndrome::Nak(code))) => {
                self.on_terminal_nak(cx, connection, psn, code)
            }
            (Operation::ReadResponse, None | Some(Syndrome::Ack { .. })) => {
                self.on_read_response(cx, connection, arrived)
            }
            (Operation::AtomicAcknowledge, Some(Syndrome::Ack { .. })) => {
                self.on_atomic_ack(cx, connection, arrived)
            }
            (Operation::Acknowledge, _) => {
                cx.counters().drop(DropReason::Ghost);
                Ok(())
            }
            // An unsuccessful response applies to its own request only; the earlier ones have
            // arrived.
            _ => match self.reach(cx, connection, arrived)? {
                Some(_) => Err(TransportError::BadResponse),
                None => Ok(()),
            },
        }
    }

    /// Marks the memory of the oldest request as faulted after a failed write of its response.
    pub(crate) fn mark_faulted(&mut self) {
        if let Some(wqe) = self.queue.front_mut().filter(|wqe| wqe.op.has_result()) {
            wqe.mark_faulted();
        }
    }

    /// Updates all state that depends on `una`.
    fn after_una_advance(&mut self, cx: &mut Context<'_>, connection: &Connection, before: Psn) {
        if self.snd_una == before {
            return;
        }
        self.peer.bursts.acknowledged(self.snd_una);
        let snd_nxt = self.snd_nxt();
        if snd_nxt.next().is_before(self.snd_una) {
            // Two packets in a row have arrived, the second of them in the same burst as the first.
            self.peer.bursts.arrived();
        }
        if snd_nxt.is_before(self.snd_una) && self.queue.front().is_some_and(Wqe::is_started) {
            // The acknowledgement was late: packets from here on have arrived without
            // retransmission.
            self.place_cursor();
        }
        let Acked { cost, round_trip } = self.charges.on_ack(cx, connection, self.snd_una);
        self.congestion.on_ack(cx.now, Ack { bytes: cost, round_trip });
        let is_outstanding = self.snd_una.is_before(snd_nxt);
        self.recovery.on_ack(cx.now, self.snd_una, is_outstanding, self.has_gap());
    }

    /// Moves the cursor to `una`.
    pub(super) fn place_cursor(&mut self) {
        let packet = self.queue.front().map_or(0, |wqe| self.snd_una.since(wqe.first));
        self.cursor = Cursor { wqe: 0, packet };
        if let Some(wqe) = self.queue.front_mut() {
            wqe.resumed_at = packet;
        }
    }

    /// Acknowledges everything before `end`, and completes requests in order.
    fn acknowledge(
        &mut self,
        cx: &mut Context<'_>,
        connection: &Connection,
        end: Psn,
    ) -> Acknowledged {
        let before = self.snd_una;
        let sent_again = self.recovery.is_probing().then(|| self.snd_nxt());
        let hole = self.advance(cx, connection, end);
        if sent_again.is_some_and(|psn| psn.is_before(self.snd_una)) {
            self.recovery.on_kept_data();
        }
        self.after_una_advance(cx, connection, before);
        hole
    }

    #[inline]
    fn advance(&mut self, cx: &mut Context<'_>, connection: &Connection, end: Psn) -> Acknowledged {
        while let Some(front) = self.queue.front().filter(|wqe| wqe.is_started()) {
            if front.op.has_response() {
                // Only its response acknowledges it and the later requests.
                self.snd_una = front.awaited();
                return match self.snd_una.is_before(end) {
                    true => Acknowledged::Missing(self.snd_una),
                    false => Acknowledged::Whole,
                };
            }
            if end.is_before(front.end()) {
                if self.snd_una.is_before(end) {
                    self.snd_una = end;
                }
                break;
            }
            self.snd_una = front.end();
            self.complete_oldest(cx, connection);
        }
        Acknowledged::Whole
    }

    /// Completes the oldest request and the local requests directly after it.
    pub(super) fn complete_oldest(&mut self, cx: &mut Context<'_>, connection: &Connection) {
        self.complete(cx, connection);
        while self.queue.front().is_some_and(Wqe::is_done) {
            self.complete(cx, connection);
        }
    }

    fn complete(&mut self, cx: &mut Context<'_>, connection: &Connection) {
        let Some(wqe) = self.queue.front() else { return };
        if let Some(behind) = self.cursor.wqe.checked_sub(1) {
            self.cursor.wqe = behind;
            self.pending.fence_count =
                self.pending.fence_count.saturating_sub(u32::from(wqe.op.has_response()));
        } else {
            self.cursor.packet = 0;
        }
        cx.succeed(&connection.id, &wqe.end_of(), wqe.flags.contains(SendFlags::SIGNALED));
        self.queue.pop_front();
    }

    fn on_ack(
        &mut self,
        cx: &mut Context<'_>,
        connection: &Connection,
        arrived: (&Datagram<'_>, &[u8]),
    ) -> Result<(), TransportError> {
        match self.acknowledge(cx, connection, arrived.0.bth.psn.next()) {
            Acknowledged::Whole => Ok(()),
            Acknowledged::Missing(missing) => self.on_ahead(cx, connection, missing, arrived),
        }
    }

    pub(super) fn on_implied_nak(
        &mut self,
        cx: &mut Context<'_>,
        connection: &Connection,
        missing: Psn,
    ) -> Result<(), TransportError> {
        if !self.recovery.starts_new_recovery(missing) {
            cx.counters().drop(DropReason::ResponseAhead);
            self.recovery.restart_timers(cx.now);
            return Ok(());
        }
        cx.counters().implied_naks += 1;
        if !self.recovery.on_implied_nak(missing, self.oldest_round_trip(cx)) {
            return Err(TransportError::RetriesExhausted);
        }
        cx.counters().retries += 1;
        self.rewind_to_una(cx, connection);
        Ok(())
    }

    fn on_sequence_nak(
        &mut self,
        cx: &mut Context<'_>,
        connection: &Connection,
        psn: Psn,
    ) -> Result<(), TransportError> {
        cx.counters().sequence_naks += 1;
        if let Acknowledged::Missing(missing) = self.acknowledge(cx, connection, psn) {
            return self.on_implied_nak(cx, connection, missing);
        }
        // Kernel rxe also sends one for the PSN of an RNR NAK; the RNR timer then decides.
        if !self.recovery.starts_new_recovery(psn) {
            return Ok(());
        }
        self.miss_flush();
        self.miss_burst(cx);
        let round_trip = self.oldest_round_trip(cx);
        if !self.recovery.on_sequence_nak(psn, self.outstanding(), round_trip) {
            return Err(TransportError::RetriesExhausted);
        }
        cx.counters().retries += 1;
        let requests = self.charges.requests();
        if let Some(round_trip) = requests.oldest_round_trip(cx.now) {
            let in_flight = requests.total();
            let peer_keeps_data = self.recovery.peer_keeps_data();
            self.congestion.on_loss(cx.now, Loss { in_flight, round_trip, peer_keeps_data });
        }
        self.rewind_to_una(cx, connection);
        Ok(())
    }

    fn on_rnr(
        &mut self,
        cx: &mut Context<'_>,
        connection: &Connection,
        psn: Psn,
        timer: RnrTimer,
    ) -> Result<(), TransportError> {
        cx.counters().rnr_naks_received += 1;
        if let Acknowledged::Missing(missing) = self.acknowledge(cx, connection, psn) {
            return self.on_implied_nak(cx, connection, missing);
        }
        if self.recovery.is_waiting() {
            return Ok(());
        }
        if !self.recovery.on_rnr_nak(cx.now, timer) {
            return Err(TransportError::RnrRetriesExhausted);
        }
        self.rewind_to_una(cx, connection);
        Ok(())
    }

    fn on_terminal_nak(
        &mut self,
        cx: &mut Context<'_>,
        connection: &Connection,
        psn: Psn,
        code: NakCode,
    ) -> Result<(), TransportError> {
        let hole = self.acknowledge(cx, connection, psn);
        let Some(front) = self.queue.front().filter(|wqe| wqe.is_started()) else { return Ok(()) };
        // A NAK within the response to a READ applies to that READ, even if earlier response
        // packets were lost, because no more of them will arrive.
        if psn.is_within(front.first, front.packets) {
            return Err(TransportError::Nak(code));
        }
        match hole {
            Acknowledged::Missing(missing) => self.on_implied_nak(cx, connection, missing),
            Acknowledged::Whole => Ok(()),
        }
    }

    /// Acknowledges all requests before the one with `psn`, and returns it as the oldest one.
    /// Returns `None` if an earlier response is missing.
    fn reach(
        &mut self,
        cx: &mut Context<'_>,
        connection: &Connection,
        arrived: (&Datagram<'_>, &[u8]),
    ) -> Result<Option<&mut Wqe>, TransportError> {
        let psn = arrived.0.bth.psn;
        if let Acknowledged::Missing(missing) = self.acknowledge(cx, connection, psn) {
            self.on_ahead(cx, connection, missing, arrived)?;
            return Ok(None);
        }
        match self.queue.front_mut() {
            Some(wqe) if wqe.is_started() && wqe.op.has_response() => Ok(Some(wqe)),
            _ => Err(TransportError::BadResponse),
        }
    }

    fn on_read_response(
        &mut self,
        cx: &mut Context<'_>,
        connection: &Connection,
        arrived: (&Datagram<'_>, &[u8]),
    ) -> Result<(), TransportError> {
        let (packet, reads) = (arrived.0, self.pending.plan);
        let psn = packet.bth.psn;
        let Some(wqe) = self.reach(cx, connection, arrived)? else { return Ok(()) };
        if wqe.op.is_placement() {
            return self.on_placement_response(cx, connection, packet);
        }
        let (index, packets) = (wqe.received, wqe.packets);
        let position = packet.info.position;
        take_piece(cx, reads, wqe, connection.mtu, (position, packet.payload))?;
        self.snd_una = psn.next();
        let ends_request = index + 1 == reads.end(index, packets);
        if ends_request && psn.is_before(self.snd_nxt()) {
            self.pending.outstanding = self.pending.outstanding.saturating_sub(1);
        }
        if index + 1 == packets {
            self.complete_oldest(cx, connection);
        }
        self.after_una_advance(cx, connection, psn);
        Ok(())
    }

    /// Handles a MIDDLE packet of the response to the oldest request if it is valid and the next in
    /// order. Otherwise returns false and changes nothing.
    ///
    /// The last packet of the response, which is in the same buffer, updates timers and windows: no
    /// request ends here.
    pub(crate) fn handle_middle(
        &mut self,
        cx: &Context<'_>,
        connection: &Connection,
        packet: &Datagram<'_>,
    ) -> bool {
        let psn = packet.bth.psn;
        let is_due = psn == self.snd_una && psn.is_before(self.snd_nxt());
        let is_alone = !self.recovery.is_probing() && !self.pending.keeps_responses();
        if !is_due || !is_alone || packet.info.operation != Operation::ReadResponse {
            return false;
        }
        let is_answered = |wqe: &&mut Wqe| wqe.is_started() && wqe.awaited() == psn;
        let Some(wqe) = self.queue.front_mut().filter(is_answered) else { return false };
        let piece = (Position::Middle, packet.payload);
        let taken = take_piece(cx, self.pending.plan, wqe, connection.mtu, piece).is_ok();
        if taken {
            self.snd_una = psn.next();
        }
        taken
    }

    /// Handles the response to the oldest request, a FLUSH or ATOMIC WRITE.
    fn on_placement_response(
        &mut self,
        cx: &mut Context<'_>,
        connection: &Connection,
        packet: &Datagram<'_>,
    ) -> Result<(), TransportError> {
        if packet.info.position != Position::Only || !packet.payload.is_empty() {
            return Err(TransportError::BadResponse);
        }
        if self.queue.front().is_some_and(|wqe| matches!(wqe.op, SendOp::Flush { .. })) {
            self.peer.flush_icrc.answered();
        }
        self.complete_answered(cx, connection, packet.bth.psn);
        Ok(())
    }

    fn on_atomic_ack(
        &mut self,
        cx: &mut Context<'_>,
        connection: &Connection,
        arrived: (&Datagram<'_>, &[u8]),
    ) -> Result<(), TransportError> {
        let packet = arrived.0;
        let psn = packet.bth.psn;
        let Some(wqe) = self.reach(cx, connection, arrived)? else { return Ok(()) };
        let Some(answer) = packet.atomic_ack_eth().filter(|_| wqe.op.is_atomic()) else {
            return Err(TransportError::BadResponse);
        };
        let spans = wqe.answer().ok_or(TransportError::SendProtection)?;
        spans
            .place(cx.turn, 0, &answer.original.to_ne_bytes(), Placement::Final)
            .map_err(|_| TransportError::SendProtection)?;
        self.complete_answered(cx, connection, psn);
        Ok(())
    }

    /// Completes the oldest request, which has received its only response packet.
    fn complete_answered(&mut self, cx: &mut Context<'_>, connection: &Connection, psn: Psn) {
        let cursor = self.snd_nxt();
        self.snd_una = psn.next();
        if psn.is_before(cursor) {
            self.pending.outstanding = self.pending.outstanding.saturating_sub(1);
        }
        self.complete_oldest(cx, connection);
        self.after_una_advance(cx, connection, psn);
    }
}

/// Stores the next packet of the response to a READ, given its position and payload.
fn take_piece(
    cx: &Context<'_>,
    reads: ReadPlan,
    wqe: &mut Wqe,
    mtu: u32,
    (position, payload): (Position, &[u8]),
) -> Result<(), TransportError> {
    let index = wqe.received;
    let segment = wqe.segmentation(mtu).segment(index);
    if !wqe.op.is_read()
        || !reads.accepts(position, index, wqe.packets, wqe.resumed_at)
        || payload.len() != segment.len as usize
    {
        return Err(TransportError::BadResponse);
    }
    let order = match segment.position {
        Position::Last | Position::Only => Placement::Final,
        Position::First | Position::Middle => Placement::Plain,
    };
    let spans = wqe.answer().ok_or(TransportError::SendProtection)?;
    let placed = spans.place(cx.turn, segment.offset as usize, payload, order);
    placed.map_err(|_| TransportError::SendProtection)?;
    wqe.received += 1;
    Ok(())
}

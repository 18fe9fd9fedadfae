//! The requester, other direction: response packets into completions.
//!
//! An acknowledgement covers everything before it, so one packet may complete many requests. What
//! it does not cover is the answer to a READ, atomic, FLUSH or ATOMIC WRITE: if that is missing, it
//! was lost, and the request is sent again from there ("implied NAK").

use crate::mem::Placement;
use crate::psn::Psn;
use crate::time::RnrTimer;
use crate::transport::connection::{Connection, Context};
use crate::transport::fault::status_of_nak;
use crate::transport::outputs::DropReason;
use crate::transport::rc::reads::ReadPlan;
use crate::transport::rc::requester::{Cursor, Probe, Requester};
use crate::transport::window::Landed;
use crate::transport::work::{SendFlags, SendOp, WcStatus};
use crate::transport::wqe::Wqe;
use crate::wire::{Datagram, NakCode, Operation, Position, Syndrome};

/// Whether an acknowledgement left a hole.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Acknowledged {
    Whole,
    /// The answer with this PSN should have come before it.
    Missing(Psn),
}

impl Requester {
    /// Takes a response packet. Fails when the oldest request has failed with it.
    pub(crate) fn handle_response(
        &mut self,
        cx: &mut Context<'_>,
        connection: &Connection,
        arrived: (&Datagram<'_>, &[u8]),
    ) -> Result<(), WcStatus> {
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
    ) -> Result<(), WcStatus> {
        let packet = arrived.0;
        let psn = packet.bth.psn;
        if !psn.is_within(self.una, self.sent.since(self.una)) {
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
            // An answer that says no. It is about its own request; those before it have arrived.
            _ => match self.reach(cx, connection, arrived)? {
                Some(_) => Err(WcStatus::BadRespErr),
                None => Ok(()),
            },
        }
    }

    /// What the oldest request was answered could not be written.
    pub(crate) fn lose_memory(&mut self) {
        if let Some(wqe) = self.queue.front_mut().filter(|wqe| wqe.op.has_result()) {
            wqe.lose_memory();
        }
    }

    /// Everything that follows from `una` having moved.
    fn settle(&mut self, cx: &mut Context<'_>, connection: &Connection, before: Psn) {
        if self.una == before {
            return;
        }
        // After a timeout it is not known which of two packets has been acknowledged.
        let ambiguous = self.probe.is_some();
        self.bursts.acknowledged(self.una);
        let cursor = self.cursor_psn();
        if cursor.next().is_before(self.una) {
            // Two packets in a row have got through, one of them behind the other.
            self.bursts.arrived();
        }
        self.probe = self
            .probe
            .filter(|probe| self.una.is_before(probe.until))
            .map(|probe| Probe { allowance: probe.allowance + 1, repeats: false, ..probe });
        if self.probe.is_none() {
            self.repair.ends();
        }
        if cursor.is_before(self.una) && self.queue.front().is_some_and(Wqe::is_started) {
            // Late news: what was to be sent again from here has arrived after all.
            self.place_cursor();
        }
        let Landed { cost, departed } = self.flights.landed(self.una);
        cx.windows.release(connection.window, cost);
        cx.windows.release(cx.read_window, self.read_flights.landed(self.una).cost);
        let round_trip = departed.filter(|_| !ambiguous).map(|departed| cx.now - departed);
        self.leash.landed(cx.now, cost, round_trip);
        self.retry.progress(cx.now, self.una.is_before(self.cursor_psn()));
    }

    pub(super) fn place_cursor(&mut self) {
        let Some(front) = self.queue.front_mut() else { return };
        let packet = self.una.since(front.first);
        front.resumed_at = packet;
        self.cursor = Cursor { wqe: 0, packet };
    }

    /// Acknowledges everything before `end`: completes what is complete, in order.
    fn acknowledge(
        &mut self,
        cx: &mut Context<'_>,
        connection: &Connection,
        end: Psn,
    ) -> Acknowledged {
        let before = self.una;
        let sent_again = self.probe.map(|_| self.cursor_psn());
        let hole = self.advance(cx, connection, end);
        if sent_again.is_some_and(|psn| psn.is_before(self.una)) {
            self.repair.jumped();
        }
        self.settle(cx, connection, before);
        hole
    }

    fn advance(&mut self, cx: &mut Context<'_>, connection: &Connection, end: Psn) -> Acknowledged {
        while let Some(front) = self.queue.front().filter(|wqe| wqe.is_started()) {
            if front.op.has_response() {
                // Only its answer acknowledges it, and the requests behind it.
                self.una = front.awaited();
                return match self.una.is_before(end) {
                    true => Acknowledged::Missing(self.una),
                    false => Acknowledged::Whole,
                };
            }
            if end.is_before(front.end()) {
                if self.una.is_before(end) {
                    self.una = end;
                }
                break;
            }
            self.una = front.end();
            self.complete_oldest(cx, connection);
        }
        Acknowledged::Whole
    }

    /// The oldest request is complete, and with it what was done here right behind it.
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
            self.unanswered = self.unanswered.saturating_sub(u32::from(wqe.op.has_response()));
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
    ) -> Result<(), WcStatus> {
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
    ) -> Result<(), WcStatus> {
        if !self.retry.is_news(missing) {
            cx.counters().drop(DropReason::ResponseAhead);
            self.retry.heard(cx.now);
            return Ok(());
        }
        cx.counters().implied_naks += 1;
        self.retry_from(cx, connection, missing)
    }

    fn on_sequence_nak(
        &mut self,
        cx: &mut Context<'_>,
        connection: &Connection,
        psn: Psn,
    ) -> Result<(), WcStatus> {
        cx.counters().sequence_naks += 1;
        if let Acknowledged::Missing(missing) = self.acknowledge(cx, connection, psn) {
            return self.on_implied_nak(cx, connection, missing);
        }
        // Kernel rxe sends one for the PSN of an RNR NAK too: the RNR timer decides.
        if !self.retry.is_news(psn) {
            return Ok(());
        }
        self.miss_flush();
        self.miss_burst(cx);
        self.repair.ends();
        if let Some(departed) = self.flights.first_departed() {
            let kept = self.repair.is_selective();
            self.leash.lost(self.flights.total(), cx.now - departed, kept);
        }
        self.retry_from(cx, connection, psn)?;
        if self.repair.begins() {
            self.ask();
        }
        Ok(())
    }

    fn retry_from(
        &mut self,
        cx: &mut Context<'_>,
        connection: &Connection,
        missing: Psn,
    ) -> Result<(), WcStatus> {
        if !self.retry.retry_from(missing) {
            return Err(WcStatus::RetryExcErr);
        }
        cx.counters().retries += 1;
        self.go_back(cx, connection);
        Ok(())
    }

    fn on_rnr(
        &mut self,
        cx: &mut Context<'_>,
        connection: &Connection,
        psn: Psn,
        timer: RnrTimer,
    ) -> Result<(), WcStatus> {
        cx.counters().rnr_naks_received += 1;
        if let Acknowledged::Missing(missing) = self.acknowledge(cx, connection, psn) {
            return self.on_implied_nak(cx, connection, missing);
        }
        if self.retry.is_waiting() {
            return Ok(());
        }
        if !self.retry.wait(cx.now, timer) {
            return Err(WcStatus::RnrRetryExcErr);
        }
        self.go_back(cx, connection);
        Ok(())
    }

    fn on_terminal_nak(
        &mut self,
        cx: &mut Context<'_>,
        connection: &Connection,
        psn: Psn,
        code: NakCode,
    ) -> Result<(), WcStatus> {
        let hole = self.acknowledge(cx, connection, psn);
        let Some(front) = self.queue.front().filter(|wqe| wqe.is_started()) else { return Ok(()) };
        // A NAK in the middle of a READ's answer is about that READ, even if packets of the answer
        // were lost before it: no more of them will come.
        if psn.is_within(front.first, front.packets) {
            return Err(status_of_nak(code));
        }
        match hole {
            Acknowledged::Missing(missing) => self.on_implied_nak(cx, connection, missing),
            Acknowledged::Whole => Ok(()),
        }
    }

    /// Makes the request that a response with `psn` answers the oldest one, or finds that another
    /// answer is missing before it.
    fn reach(
        &mut self,
        cx: &mut Context<'_>,
        connection: &Connection,
        arrived: (&Datagram<'_>, &[u8]),
    ) -> Result<Option<&mut Wqe>, WcStatus> {
        let psn = arrived.0.bth.psn;
        if let Acknowledged::Missing(missing) = self.acknowledge(cx, connection, psn) {
            self.on_ahead(cx, connection, missing, arrived)?;
            return Ok(None);
        }
        match self.queue.front_mut() {
            Some(wqe) if wqe.is_started() && wqe.op.has_response() => Ok(Some(wqe)),
            _ => Err(WcStatus::BadRespErr),
        }
    }

    fn on_read_response(
        &mut self,
        cx: &mut Context<'_>,
        connection: &Connection,
        arrived: (&Datagram<'_>, &[u8]),
    ) -> Result<(), WcStatus> {
        let (packet, reads) = (arrived.0, self.reads);
        let psn = packet.bth.psn;
        let Some(wqe) = self.reach(cx, connection, arrived)? else { return Ok(()) };
        if wqe.op.is_placement() {
            return self.on_placement_response(cx, connection, packet);
        }
        let (index, packets) = (wqe.received, wqe.packets);
        let position = packet.info.position;
        take_piece(cx, reads, wqe, connection.mtu, (position, packet.payload))?;
        self.una = psn.next();
        let ends_request = index + 1 == reads.end(index, packets);
        if ends_request && psn.is_before(self.cursor_psn()) {
            self.outstanding = self.outstanding.saturating_sub(1);
        }
        if index + 1 == packets {
            self.complete_oldest(cx, connection);
        }
        self.settle(cx, connection, psn);
        Ok(())
    }

    /// Takes a packet in the middle of the answer to the oldest request, if it is the next one and nothing
    /// is wrong with it. Else nothing has changed.
    ///
    /// What follows from `una` having moved it leaves to the packet that ends the answer: the one before has
    /// come at the same time, and no request ends here.
    pub(crate) fn handle_middle(
        &mut self,
        cx: &Context<'_>,
        connection: &Connection,
        packet: &Datagram<'_>,
    ) -> bool {
        let psn = packet.bth.psn;
        let is_due = psn == self.una && psn.is_before(self.cursor_psn());
        let is_alone = self.probe.is_none() && self.missing.is_none();
        if !is_due || !is_alone || packet.info.operation != Operation::ReadResponse {
            return false;
        }
        let is_answered = |wqe: &&mut Wqe| wqe.is_started() && wqe.awaited() == psn;
        let Some(wqe) = self.queue.front_mut().filter(is_answered) else { return false };
        let piece = (Position::Middle, packet.payload);
        let taken = take_piece(cx, self.reads, wqe, connection.mtu, piece).is_ok();
        if taken {
            self.una = psn.next();
        }
        taken
    }

    /// The response to the FLUSH or ATOMIC WRITE that is the oldest request.
    fn on_placement_response(
        &mut self,
        cx: &mut Context<'_>,
        connection: &Connection,
        packet: &Datagram<'_>,
    ) -> Result<(), WcStatus> {
        if packet.info.position != Position::Only || !packet.payload.is_empty() {
            return Err(WcStatus::BadRespErr);
        }
        if self.queue.front().is_some_and(|wqe| matches!(wqe.op, SendOp::Flush { .. })) {
            self.flush_icrc.answered();
        }
        self.complete_answered(cx, connection, packet.bth.psn);
        Ok(())
    }

    fn on_atomic_ack(
        &mut self,
        cx: &mut Context<'_>,
        connection: &Connection,
        arrived: (&Datagram<'_>, &[u8]),
    ) -> Result<(), WcStatus> {
        let packet = arrived.0;
        let psn = packet.bth.psn;
        let Some(wqe) = self.reach(cx, connection, arrived)? else { return Ok(()) };
        let Some(answer) = packet.atomic_ack_eth().filter(|_| wqe.op.is_atomic()) else {
            return Err(WcStatus::BadRespErr);
        };
        let spans = wqe.answer().ok_or(WcStatus::LocProtErr)?;
        spans
            .place(cx.turn, 0, &answer.original.to_ne_bytes(), Placement::Final)
            .map_err(|_| WcStatus::LocProtErr)?;
        self.complete_answered(cx, connection, psn);
        Ok(())
    }

    /// The oldest request has had its one response.
    fn complete_answered(&mut self, cx: &mut Context<'_>, connection: &Connection, psn: Psn) {
        let cursor = self.cursor_psn();
        self.una = psn.next();
        if psn.is_before(cursor) {
            self.outstanding = self.outstanding.saturating_sub(1);
        }
        self.complete_oldest(cx, connection);
        self.settle(cx, connection, psn);
    }
}

/// Takes the next packet of the answer to a READ: its position, and its bytes.
fn take_piece(
    cx: &Context<'_>,
    reads: ReadPlan,
    wqe: &mut Wqe,
    mtu: u32,
    (position, payload): (Position, &[u8]),
) -> Result<(), WcStatus> {
    let index = wqe.received;
    let piece = wqe.segmentation(mtu).piece(index);
    if !wqe.op.is_read()
        || !reads.accepts(position, index, wqe.packets, wqe.resumed_at)
        || payload.len() != piece.len as usize
    {
        return Err(WcStatus::BadRespErr);
    }
    let order = match piece.position {
        Position::Last | Position::Only => Placement::Final,
        Position::First | Position::Middle => Placement::Plain,
    };
    let spans = wqe.answer().ok_or(WcStatus::LocProtErr)?;
    let placed = spans.place(cx.turn, piece.offset as usize, payload, order);
    placed.map_err(|_| WcStatus::LocProtErr)?;
    wqe.received += 1;
    Ok(())
}

//! Unreliable connection: messages as in RC, without acknowledgements.
//!
//! A message arrives completely or not at all: a missing packet ends it, and the receiver drops the
//! rest until the next message begins (IBTA vol 1, §9.8.2.2). The receiver also drops packets that
//! the network duplicated, because it would take them for new messages.

use crate::ids::Qpn;
use crate::net::Burst;
use crate::psn::Psn;
use crate::transport::build::{self, Progress};
use crate::transport::connection::{Connection, Identity};
use crate::transport::context::Context;
use crate::transport::fault::{PacketError, TransportError, Unreliable};
use crate::transport::inbound::{Inbound, permit};
use crate::transport::message;
use crate::transport::outputs::DropReason;
use crate::transport::recv::RecvQueue;
use crate::transport::send_budget::{Candidate, SendBudget};
use crate::transport::send_queue::SendQueue;
use crate::transport::send_state::SendState;
use crate::transport::work::{SendFlags, SendRequest, WcStatus};
use crate::transport::wqe::Wqe;
use crate::wire::packet::datagram_len;
use crate::wire::{Datagram, OpcodeFlags, Position, Sequence, Transport};

/// The sending half of a UC queue pair.
#[derive(Debug)]
pub(crate) struct UcSender {
    /// Requests that are not sent yet, oldest first.
    queue: SendQueue,
    next_psn: Psn,
    /// Number of packets sent of the oldest request.
    packet: u32,
}

impl UcSender {
    pub(crate) fn new(capacity: usize) -> Self {
        let queue = SendQueue::new(capacity);
        Self { queue, next_psn: Psn::default(), packet: 0 }
    }

    /// RTR → RTS: the first request will have the PSN `first`.
    pub(crate) fn start(&mut self, first: Psn) {
        self.next_psn = first;
    }

    pub(crate) fn queue(&self) -> &SendQueue {
        &self.queue
    }

    pub(crate) fn post(&mut self, request: &mut SendRequest, length: u32) {
        self.queue.post(request, length);
    }

    /// Whether no started request is unfinished.
    pub(crate) fn is_drained(&self) -> bool {
        !self.queue.front().is_some_and(Wqe::is_started)
    }

    pub(crate) fn may_transmit(&self, state: SendState) -> bool {
        self.queue.front().is_some_and(|wqe| state.admits(|| wqe.is_started()))
    }

    /// Appends packets to `out`. A request is complete when its last packet is built.
    ///
    /// # Errors
    ///
    /// The memory of the oldest request cannot be read.
    pub(crate) fn transmit(
        &mut self,
        cx: &mut Context<'_>,
        connection: &Connection,
        state: SendState,
        out: &mut Burst,
    ) -> Result<Progress, TransportError> {
        let mut budget = SendBudget::new(cx, connection.window);
        let result = self.fill(cx, connection, state, out, &mut budget);
        cx.shared.windows.charge_unacknowledged(connection.window, cx.now, budget.spent());
        result
    }

    /// Appends packets, and takes their cost from `budget`.
    fn fill(
        &mut self,
        cx: &mut Context<'_>,
        connection: &Connection,
        state: SendState,
        out: &mut Burst,
        budget: &mut SendBudget,
    ) -> Result<Progress, TransportError> {
        while self.may_transmit(state) {
            let Some(wqe) = self.queue.front_mut() else { break };
            if wqe.op.is_local() {
                wqe.run(self.next_psn, &connection.id, &cx.shared.memory);
                match wqe.failure {
                    Some(error) => return Err(error),
                    None => self.complete_oldest(cx, &connection.id),
                }
                continue;
            }
            if !wqe.is_started() {
                wqe.start(self.next_psn, connection.id.pd, connection.mtu, &cx.shared.memory);
                self.next_psn = wqe.end();
            }
            if let Some(error) = wqe.failure {
                return Err(error);
            }
            let segment = wqe.segmentation(connection.mtu).segment(self.packet);
            let psn = wqe.first.plus(self.packet);
            let header = message::header(Transport::Uc, wqe, psn, segment);
            let len = datagram_len(header.opcode, segment.len as usize);
            if !out.has_room(len) {
                return Ok(Progress::More);
            }
            let packets = wqe.packets - self.packet;
            let takes = match budget.admit(out, Candidate { len, packets, is_retransmitted: false })
            {
                Ok(takes) => takes,
                Err(progress) => return Ok(progress),
            };
            let pd = connection.id.pd;
            let fill = |to: &mut [u8]| wqe.copy_out(cx, pd, segment.offset, to);
            build::push(out, connection, &header, segment.len as usize, fill)
                .map_err(|_| TransportError::SendProtection)?;
            budget.spend(takes);
            self.packet += 1;
            if segment.position == Position::Middle {
                let (fit, takes) = budget.packets_behind(out);
                let count = fit.min(wqe.packets - self.packet - 1);
                let (first, mtu, psn) = (self.packet, connection.mtu, psn.next());
                let fill = |index, _: &mut [u8], to: &mut [u8]| {
                    wqe.copy_out(cx, pd, (first + index) * mtu, to).is_ok()
                };
                let count = build::repeat(out, connection, header.opcode, psn, count, fill);
                budget.spend(u64::from(count) * takes);
                self.packet += count;
            }
            if self.packet == wqe.packets {
                self.complete_oldest(cx, &connection.id);
            }
        }
        Ok(Progress::Idle)
    }

    fn complete_oldest(&mut self, cx: &mut Context<'_>, id: &Identity) {
        self.packet = 0;
        let Some(wqe) = self.queue.front() else { return };
        cx.succeed(id, &wqe.end_of(), wqe.flags.contains(SendFlags::SIGNALED));
        self.queue.pop_front();
    }

    /// Completes the oldest request with `status`.
    pub(crate) fn fail_oldest(&mut self, cx: &mut Context<'_>, id: &Identity, status: WcStatus) {
        self.packet = 0;
        if let Some(wqe) = self.queue.front() {
            cx.complete_send(id, &wqe.end_of(), status);
            self.queue.pop_front();
        }
    }
}

/// The receiving half of a UC queue pair.
#[derive(Debug, Default)]
pub(crate) struct UcReceiver {
    expected: Psn,
    recent: Recent,
    sequence: Sequence,
    message: Inbound,
}

impl UcReceiver {
    /// INIT → RTR: the first packet should have the PSN `expected`.
    pub(crate) fn start(&mut self, expected: Psn) {
        *self = Self { expected, ..Self::default() };
    }

    /// Handles a packet. A packet that cannot be executed is dropped together with its message. No
    /// packet can make the queue pair fail, but a fault of local memory can.
    pub(crate) fn handle_packet(
        &mut self,
        cx: &mut Context<'_>,
        connection: &Connection,
        receives: &mut RecvQueue,
        packet: &Datagram<'_>,
    ) -> Result<(), PacketError> {
        let psn = packet.bth.psn;
        if !self.recent.note(psn) {
            cx.counters().duplicate_requests += 1;
            return Err(DropReason::StaleDuplicate.into());
        }
        let qpn = connection.id.qpn;
        if psn != self.expected {
            cx.counters().out_of_sequence += 1;
            self.abandon(cx, qpn, receives, TransportError::Sequence);
        }
        self.expected = psn.next();
        if packet.info.has(OpcodeFlags::START) && self.sequence != Sequence::Idle {
            self.abandon(cx, qpn, receives, TransportError::Sequence);
        }
        let Err(error) = self.execute(cx, connection, receives, packet) else { return Ok(()) };
        match error.consequence().unreliable {
            Unreliable::Fail | Unreliable::FailSend => {
                // If the request were put back, it would fail every later message without a
                // completion.
                self.message.end(cx, qpn, receives, error.consequence().status);
                Err(error.into())
            }
            Unreliable::Drop(reason) => {
                self.abandon(cx, qpn, receives, error);
                Err(reason.into())
            }
        }
    }

    /// Executes a packet that is not a duplicate.
    fn execute(
        &mut self,
        cx: &mut Context<'_>,
        connection: &Connection,
        receives: &mut RecvQueue,
        packet: &Datagram<'_>,
    ) -> Result<(), TransportError> {
        let next = self.sequence.after(packet.info).map_err(|_| TransportError::Sequence)?;
        permit(connection, packet)?;
        if packet.info.has(OpcodeFlags::WRITE) {
            let ended = self.message.write(cx, connection, receives, packet)?;
            cx.counters().rx_write_requests += u64::from(ended);
        } else {
            self.message.send(cx, connection, receives, packet)?;
        }
        self.sequence = next;
        Ok(())
    }

    /// Handles a MIDDLE packet of the current message if it is valid and the next in order.
    /// Otherwise returns false and changes nothing.
    pub(crate) fn handle_middle(
        &mut self,
        cx: &Context<'_>,
        connection: &Connection,
        packet: &Datagram<'_>,
    ) -> bool {
        let psn = packet.bth.psn;
        let taken = psn == self.expected
            && self.recent.is_new(psn)
            && self.sequence.after(packet.info) == Ok(self.sequence)
            && self.message.append_middle(cx, connection, packet.payload);
        if taken {
            self.recent.note(psn);
            self.expected = psn.next();
        }
        taken
    }

    /// Drops the current message because of `error`. Its later packets are dropped because they
    /// lack a FIRST.
    fn abandon(
        &mut self,
        cx: &mut Context<'_>,
        qpn: Qpn,
        receives: &mut RecvQueue,
        error: TransportError,
    ) {
        self.message.abandon(cx, qpn, receives, error);
        self.sequence = Sequence::Idle;
    }

    /// Returns the message that is being received.
    pub(crate) fn message(&mut self) -> &mut Inbound {
        &mut self.message
    }
}

/// Replay window: the most recent PSNs that arrived.
#[derive(Debug, Default)]
struct Recent {
    /// The newest PSN in circular order, which need not be the last that arrived.
    newest: Psn,
    /// Bit `i` is set if the packet with PSN `newest - i` has arrived.
    came: u64,
}

impl Recent {
    /// Whether no duplicate of this packet is recorded.
    fn is_new(&self, psn: Psn) -> bool {
        let behind = self.newest.since(psn);
        behind >= u64::BITS || self.came & 1 << behind == 0
    }

    /// Records a packet. Returns false if it is a duplicate.
    ///
    /// A PSN far from the newest belongs to a peer that has reconnected.
    fn note(&mut self, psn: Psn) -> bool {
        let (ahead, behind) = (psn.since(self.newest), self.newest.since(psn));
        if behind < u64::BITS && self.came != 0 {
            let bit = 1 << behind;
            let is_new = self.came & bit == 0;
            self.came |= bit;
            return is_new;
        }
        self.came = self.came.checked_shl(ahead).unwrap_or(0) | 1;
        self.newest = psn;
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_packet_is_new_once_unless_the_peer_begins_anew() {
        let mut recent = Recent::default();
        let mut note = |psn: u32| recent.note(Psn::new(psn));
        assert_eq!([5, 5, 4, 4, 7, 6, 6, 5].map(&mut note).map(u8::from), [1, 0, 1, 0, 1, 1, 0, 0]);
        // The window covers 64 PSNs.
        assert_eq!([68, 5, 69, 6, 5].map(&mut note), [true, false, true, false, true]);
        // 5 is far from the newest PSN, so a new window starts there.
        assert_eq!([68, 5, 6].map(&mut note), [true, false, true]);
        assert_eq!([0xff_ffff, 0, 0xff_ffff, 0].map(&mut note), [true, true, false, false]);
    }
}

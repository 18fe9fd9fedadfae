//! Unreliable connection: messages as in RC, and nobody answers.
//!
//! A message arrives whole or not at all: the first packet that is missing ends it, and what belongs
//! to it is dropped until the next message begins (IBTA vol 1, §9.8.2.2). Copies that the network
//! makes of a packet are dropped: they would be messages of their own.

use crate::ids::Qpn;
use crate::net::Burst;
use crate::psn::Psn;
use crate::transport::build::{self, Progress};
use crate::transport::connection::{Connection, Context, Identity};
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
    /// Packets of the oldest request that are sent.
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

    /// Whether nothing that was started is unfinished.
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
        cx.windows.charge_unacknowledged(connection.window, cx.now, budget.spent());
        result
    }

    /// `budget` is spent for the packets.
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
                wqe.run(self.next_psn, &connection.id, cx.memory);
                match wqe.failure {
                    Some(error) => return Err(error),
                    None => self.complete_oldest(cx, &connection.id),
                }
                continue;
            }
            if !wqe.is_started() {
                wqe.start(self.next_psn, connection.id.pd, connection.mtu, cx.memory);
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

    /// Ends the oldest request with `status`.
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

    /// Takes a packet. What cannot be executed is dropped, and the message with it: nothing in a
    /// packet can make the queue pair fail, but our own memory can.
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
                // Put back it would swallow every message to come, and nobody would hear of it.
                self.message.end(cx, qpn, receives, error.consequence().status);
                Err(error.into())
            }
            Unreliable::Drop(reason) => {
                self.abandon(cx, qpn, receives, error);
                Err(reason.into())
            }
        }
    }

    /// Executes a packet that has come for the first time.
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

    /// Takes a packet in the middle of the message under way, if it is the next one and nothing is wrong
    /// with it. Else nothing has changed.
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

    /// Gives the message up that was arriving, for this reason. The rest of it finds no FIRST before
    /// it.
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

    /// Returns the message that is arriving.
    pub(crate) fn message(&mut self) -> &mut Inbound {
        &mut self.message
    }
}

/// Which of the newest packets have come.
#[derive(Debug, Default)]
struct Recent {
    /// The newest of them: the farthest on the circle, not the last to come.
    newest: Psn,
    /// Bit `i` says that the packet `i` before the newest has come.
    came: u64,
}

impl Recent {
    /// Whether a packet is not known to have come before.
    fn is_new(&self, psn: Psn) -> bool {
        let behind = self.newest.since(psn);
        behind >= u64::BITS || self.came & 1 << behind == 0
    }

    /// Takes note of a packet. False when it is known to have come before.
    ///
    /// A PSN too far from the newest is from a peer that has reconnected.
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
        // 64 are remembered.
        assert_eq!([68, 5, 69, 6, 5].map(&mut note), [true, false, true, false, true]);
        // With 5 something new has begun, and what was before is forgotten.
        assert_eq!([68, 5, 6].map(&mut note), [true, false, true]);
        assert_eq!([0xff_ffff, 0, 0xff_ffff, 0].map(&mut note), [true, true, false, false]);
    }
}

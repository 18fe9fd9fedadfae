//! The responder: executes request packets, completes receive requests and builds responses.
//!
//! A request packet passes the checks in the order of IBTA vol 1, §9.7.4.1: sequence number, opcode
//! sequence, rights of the queue pair, resources, length, key. The first failing check determines
//! the result. [`Responder::accept`] performs the first three, and no other function compares PSNs
//! or the order of opcodes:
//!
//! ```text
//!   PSN        gap        opcode, rights      decision     result
//!   ─────────  ─────────  ──────────────────  ───────────  ──────────────────────────────────────────────
//!   expected   any        in order            Next         executed; the gap, if any, is closed
//!              any        not in order        Refused      NAK, ERR
//!   before it  any        any                 Duplicate    acknowledged or answered again
//!   ahead      None       any                 Ahead        NAK; kept, if SEND or WRITE and there is room
//!              NakSent    SEND or WRITE       Ahead        kept, if there is room
//!              NakSent    other, or no room   Ignored      dropped before its ICRC is checked
//!              RnrNakSent any                 Ignored      dropped before its ICRC is checked
//! ```
//!
//! The gap is the responder's state between packets. `Next` without a required receive request
//! leads to an RNR NAK:
//!
//! ```text
//!                      a packet ahead
//!               ┌────────────────────────▶ NakSent ───┐ a packet ahead
//!               │      the expected one       │  ▲    │ (kept or dropped)
//!      ┌────── None ◀─────────────────────────┤  └────┘
//!      │ the    ▲ │                           │
//!      │ expected │ expected, no receive      │ expected, no receive
//!      └────────┘ │                           ▼
//!               │ └───────────────────────▶ RnrNakSent ───┐ a packet ahead (dropped),
//!               │      the expected one       │  ▲        │ or expected, no receive
//!               └─────────────────────────────┘  └────────┘
//!
//!   An error of the expected packet leads from each state to ERR. `docs/design/core.md` names the tests.
//! ```
//!
//! Responses are not queued. They follow from three items: the READs and other requests that still
//! have packets to send ([`ReplayCache`]), one final acknowledgement or NAK, and the expected PSN.

use bytes::Bytes;

use crate::mem::{Access, AtomicError, FlushError, Span};
use crate::net::Burst;
use crate::psn::Psn;
use crate::transport::build::{self, Extension, Header};
use crate::transport::connection::{self, Connection};
use crate::transport::context::Context;
use crate::transport::fault::{Failure, Reliable, TransportError};
use crate::transport::inbound::{Inbound, execute_single, open_remote, permit, remote, to_flush};
use crate::transport::outputs::DropReason;
use crate::transport::rc::ahead::ReorderQueue;
use crate::transport::rc::bursts::BurstDelivery;
use crate::transport::rc::read_source::ReadSource;
use crate::transport::rc::replay::{Class, Kind, ReplayCache, ReplayEntry};
use crate::transport::recv::RecvQueue;
use crate::transport::segment::Segmentation;
use crate::transport::work::FlushPlacement;
use crate::wire::feth::Selectivity;
use crate::wire::packet::datagram_len;
use crate::wire::{
    Aeth, AtomicAckEth, AtomicEth, Datagram, FlushEth, NakCode, OpcodeFlags, Operation, Position,
    Reth, Sequence, Suffix, Syndrome,
};

/// The receiving half of an RC queue pair.
#[derive(Debug, Default)]
pub(crate) struct Responder {
    /// The PSN of the next request packet.
    expected: Psn,
    /// Number of request PSNs executed since RTR, which does not wrap: the position of `expected`.
    position: u64,
    /// Messages completed, modulo 2^24.
    msn: u32,
    sequence: Sequence,
    gap: Gap,
    ahead: ReorderQueue,
    message: Inbound,
    replay: ReplayCache,
    /// Whether responses arrive in bursts.
    bursts: BurstDelivery,
    pending_ack: Option<PendingAck>,
}

/// Whether the responder has already reported that the expected packet is missing.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
enum Gap {
    #[default]
    None,
    /// A NAK for the expected PSN was sent or is pending; each gap has only one.
    NakSent,
    /// An RNR NAK for the expected PSN was sent or is pending.
    RnrNakSent,
}

/// The acknowledgement after the responses to READs and atomics.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum PendingAck {
    /// All packets before the expected PSN have arrived.
    Ack,
    /// The expected PSN is missing.
    SequenceNak,
    /// No receive request for the expected PSN.
    RnrNak,
    /// The request with this PSN failed permanently.
    TerminalNak(Psn, NakCode),
}

/// Response to a duplicate.
#[derive(Debug)]
struct Repetition {
    position: u64,
    /// Number of response packets.
    packets: u32,
    /// The memory of a READ.
    source: Option<ReadSource>,
}

/// Treatment of a request packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Acceptance {
    /// Execute it. The opcode sequence is in this state afterwards.
    Next(Sequence),
    /// Answer it again, without execution.
    Duplicate,
    /// Keep it until the missing packet arrives, if there is room. Report the gap if it is the
    /// `first` packet after it.
    Ahead { first: bool },
    /// Drop it: the requester knows of the gap and will retransmit the packet.
    Ignored,
    /// Refuse it with a terminal NAK.
    Refused(TransportError),
}

impl Responder {
    /// INIT → RTR: the first request packet will have the PSN `expected`.
    pub(crate) fn start(&mut self, expected: Psn) {
        *self = Self { expected, ..Self::default() };
    }

    /// Handles a request packet with its datagram. `addressed`: whether the packet is for
    /// `receives`. An XRC request carries a queue number, which may be invalid; that matters only
    /// for a new packet. An error is terminal: the queue pair must fail, and the NAK for the peer
    /// is pending.
    pub(crate) fn handle_request(
        &mut self,
        cx: &mut Context<'_>,
        connection: &Connection,
        receives: &mut RecvQueue,
        (packet, bytes): (&Datagram<'_>, &[u8]),
        addressed: Result<(), TransportError>,
    ) -> Result<(), Failure> {
        match self.accept(connection, packet, addressed) {
            Acceptance::Next(next) => match self.execute(cx, connection, receives, packet) {
                Ok(()) => self.sequence = next,
                Err(error) => return self.refuse(cx, connection, receives, packet, error),
            },
            Acceptance::Refused(error) => {
                return self.refuse(cx, connection, receives, packet, error);
            }
            Acceptance::Duplicate => self.on_duplicate(cx, connection, packet),
            Acceptance::Ahead { first } => self.on_gap(cx, first, packet, bytes),
            Acceptance::Ignored => cx.counters().drop(DropReason::OutOfSequence),
        }
        Ok(())
    }

    /// Decides how to treat a packet before any part of it is executed. This is the only function
    /// that compares PSNs, the order of opcodes and the rights of the queue pair. `addressed` as in
    /// [`handle_request`](Self::handle_request).
    ///
    /// The execution performs the remaining checks in the order of the specification: resources,
    /// length, key.
    #[inline]
    fn accept(
        &self,
        connection: &Connection,
        packet: &Datagram<'_>,
        addressed: Result<(), TransportError>,
    ) -> Acceptance {
        let psn = packet.bth.psn;
        if psn != self.expected {
            let may_be_kept = packet.info.has(OpcodeFlags::MESSAGE) && !self.ahead.is_full();
            return match self.gap {
                _ if psn.is_before(self.expected) => Acceptance::Duplicate,
                Gap::None => Acceptance::Ahead { first: true },
                Gap::NakSent if may_be_kept => Acceptance::Ahead { first: false },
                Gap::NakSent | Gap::RnrNakSent => Acceptance::Ignored,
            };
        }
        let Ok(next) = self.sequence.after(packet.info) else {
            return Acceptance::Refused(addressed.err().unwrap_or(TransportError::Sequence));
        };
        match addressed.and_then(|()| permit(connection, packet)) {
            Ok(()) => Acceptance::Next(next),
            Err(error) => Acceptance::Refused(error),
        }
    }

    /// Whether a packet would be dropped in any case, so that its ICRC need not be checked.
    pub(crate) fn ignores(&self, connection: &Connection, packet: &Datagram<'_>) -> bool {
        packet.bth.psn != self.expected
            && self.accept(connection, packet, Ok(())) == Acceptance::Ignored
    }

    /// Queues the NAK for an error of the packet with the expected PSN. A terminal error ends the
    /// current message.
    #[cold]
    fn refuse(
        &mut self,
        cx: &mut Context<'_>,
        connection: &Connection,
        receives: &mut RecvQueue,
        packet: &Datagram<'_>,
        error: TransportError,
    ) -> Result<(), Failure> {
        let consequence = error.consequence();
        match consequence.reliable {
            Reliable::RnrNak => {
                self.gap = Gap::RnrNakSent;
                self.ahead.clear();
                self.pending_ack = Some(PendingAck::RnrNak);
                cx.counters().rnr_naks_sent += 1;
                Ok(())
            }
            Reliable::Fail { nak, .. } => {
                self.pending_ack = Some(PendingAck::TerminalNak(packet.bth.psn, nak));
                let qpn = connection.id.qpn;
                self.drop_kept();
                let recv_completed = self.message.end(cx, qpn, receives, consequence.status)
                    || Inbound::end_notice(cx, qpn, receives, packet, error);
                Err(Failure { error, recv_completed })
            }
            // Request packets cannot cause such an error.
            Reliable::FailSend => Err(error.into()),
        }
    }

    /// Keeps a packet ahead of the expected one, if there is room, and reports a new gap.
    fn on_gap(&mut self, cx: &mut Context<'_>, first: bool, packet: &Datagram<'_>, bytes: &[u8]) {
        if first {
            cx.counters().out_of_sequence += 1;
            self.gap = Gap::NakSent;
            self.pending_ack = Some(PendingAck::SequenceNak);
        }
        let psn = packet.bth.psn;
        if packet.info.has(OpcodeFlags::MESSAGE)
            && self.ahead.keep(&cx.shared.reorder, self.expected, psn, bytes)
        {
            cx.counters().kept_ahead += 1;
        } else if !first {
            cx.counters().drop(DropReason::OutOfSequence);
        }
    }

    /// Whether any packets are kept.
    pub(crate) fn keeps(&self) -> bool {
        !self.ahead.is_empty()
    }

    /// Removes and returns the kept packet with the expected PSN.
    pub(crate) fn take_kept(&mut self) -> Option<Bytes> {
        self.ahead.take(self.expected)
    }

    /// Executes the accepted request with the expected PSN.
    fn execute(
        &mut self,
        cx: &mut Context<'_>,
        connection: &Connection,
        receives: &mut RecvQueue,
        packet: &Datagram<'_>,
    ) -> Result<(), TransportError> {
        let info = packet.info;
        self.save_reads(cx, connection, packet);
        let psns = match info.operation {
            Operation::Send => {
                let ended = self.message.send(cx, connection, receives, packet)?;
                self.count_message(ended);
                1
            }
            Operation::Write => {
                let ended = self.message.write(cx, connection, receives, packet)?;
                cx.counters().rx_write_requests += u64::from(ended);
                self.count_message(ended);
                1
            }
            Operation::ReadRequest => self.execute_read(cx, connection, packet)?,
            Operation::CompareSwap | Operation::FetchAdd => {
                self.execute_atomic(cx, connection, packet)?
            }
            Operation::Flush => self.execute_flush(cx, connection, packet)?,
            Operation::AtomicWrite => self.execute_atomic_write(cx, connection, packet)?,
            _ => return Err(TransportError::Unsupported),
        };
        // A response or an ACK replaces the pending report of a gap.
        let is_message = info.has(OpcodeFlags::MESSAGE);
        let pending_ack = if is_message { self.acknowledgement(packet) } else { None };
        self.advance_psn(psns, pending_ack);
        Ok(())
    }

    /// Advances the expected PSN by `psns` executed requests.
    fn advance_psn(&mut self, psns: u32, pending_ack: Option<PendingAck>) {
        self.expected = self.expected.plus(psns);
        self.position += u64::from(psns);
        self.gap = Gap::None;
        self.pending_ack = pending_ack;
    }

    /// Returns the pending acknowledgement after a packet of a SEND or WRITE.
    fn acknowledgement(&self, packet: &Datagram<'_>) -> Option<PendingAck> {
        let owed = packet.bth.ack_req || self.pending_ack == Some(PendingAck::Ack);
        owed.then_some(PendingAck::Ack)
    }

    /// Handles a MIDDLE packet of the current message if it is valid and the next in order.
    /// Otherwise returns false and changes nothing.
    pub(crate) fn handle_middle(
        &mut self,
        cx: &Context<'_>,
        connection: &Connection,
        packet: &Datagram<'_>,
    ) -> bool {
        let taken = self.follows(connection, packet)
            && self.message.append_middle(cx, connection, packet.payload);
        if taken {
            self.advance_psn(1, self.acknowledgement(packet));
        }
        taken
    }

    /// Handles a single-packet SEND or WRITE after one of the same kind, if it is valid and the
    /// next in order. Otherwise returns false and changes nothing.
    pub(crate) fn handle_only(
        &mut self,
        cx: &mut Context<'_>,
        connection: &Connection,
        receives: &mut RecvQueue,
        packet: &Datagram<'_>,
    ) -> bool {
        if !self.follows(connection, packet) {
            return false;
        }
        self.save_reads(cx, connection, packet);
        let taken = execute_single(cx, connection, receives, packet);
        if taken {
            let is_write = packet.info.has(OpcodeFlags::WRITE);
            cx.counters().rx_write_requests += u64::from(is_write);
            self.count_message(true);
            self.advance_psn(1, self.acknowledgement(packet));
        }
        taken
    }

    /// Whether a packet is accepted without a change of the opcode sequence, and no kept packets
    /// follow it.
    #[inline]
    fn follows(&self, connection: &Connection, packet: &Datagram<'_>) -> bool {
        self.ahead.is_empty()
            && self.accept(connection, packet, Ok(())) == Acceptance::Next(self.sequence)
    }

    fn count_message(&mut self, ended: bool) {
        self.msn = (self.msn + u32::from(ended)) & 0xff_ffff;
    }

    fn execute_read(
        &mut self,
        cx: &mut Context<'_>,
        connection: &Connection,
        packet: &Datagram<'_>,
    ) -> Result<u32, TransportError> {
        let reth =
            packet.reth().filter(|_| packet.payload.is_empty()).ok_or(TransportError::Length)?;
        self.admit_response(connection, Class::Counted)?;
        let span = open_remote(cx, connection, reth, Access::REMOTE_READ)?;
        let source = span.map(|span| ReadSource::new(span, 0));
        let packets = Segmentation { length: reth.length, mtu: connection.mtu }.packets();
        cx.counters().rx_read_requests += 1;
        Ok(self.queue_response(connection, packet, packets, Kind::Read { reth, source }))
    }

    fn execute_atomic(
        &mut self,
        cx: &mut Context<'_>,
        connection: &Connection,
        packet: &Datagram<'_>,
    ) -> Result<u32, TransportError> {
        let atomic = packet.atomic_eth().filter(|_| packet.payload.is_empty());
        let AtomicEth { addr, rkey, swap, compare } = atomic.ok_or(TransportError::Length)?;
        self.admit_response(connection, Class::Counted)?;
        if !addr.is_multiple_of(8) {
            return Err(TransportError::Misaligned);
        }
        let span = remote(cx, connection, rkey, addr, 8, Access::REMOTE_ATOMIC)?;
        let original = match packet.info.operation {
            Operation::CompareSwap => span.compare_swap(cx.turn, compare, swap),
            _ => span.fetch_add(cx.turn, swap),
        };
        let original = original.map_err(|_| TransportError::RemoteAccess)?;
        cx.counters().rx_atomic_requests += 1;
        Ok(self.queue_response(connection, packet, 1, Kind::Atomic { original }))
    }

    /// Executes a FLUSH. All earlier requests have been executed, and their stores are visible to
    /// every thread that has synchronized with the engine since. Only the persistence of the data
    /// remains.
    ///
    /// C9-88 exempts a READ or WRITE of 0 bytes from the key check, and no other operation.
    fn execute_flush(
        &mut self,
        cx: &mut Context<'_>,
        connection: &Connection,
        packet: &Datagram<'_>,
    ) -> Result<u32, TransportError> {
        let headers = packet.feth().zip(packet.reth()).filter(|_| packet.payload.is_empty());
        let (FlushEth { placement, selectivity }, reth) = headers.ok_or(TransportError::Length)?;
        self.admit_response(connection, Class::Flush)?;
        if placement.is_empty() || !FlushPlacement::all().contains(placement) {
            return Err(TransportError::Unsupported);
        }
        let need = to_flush(placement);
        let whole = cx.shared.memory.remote_whole(&connection.id, reth.rkey, need);
        let whole = whole.map_err(|_| TransportError::RemoteAccess)?;
        let span = match selectivity {
            Selectivity::Region => whole,
            Selectivity::Range => open_remote(cx, connection, reth, need)?.unwrap_or_default(),
            Selectivity::Reserved(_) => return Err(TransportError::Unsupported),
        };
        let persist = placement.contains(FlushPlacement::PERSISTENCE);
        span.flush(cx.turn, persist).map_err(|error| match error {
            FlushError::Revoked => TransportError::RemoteAccess,
            FlushError::Storage => TransportError::Storage,
        })?;
        cx.counters().rx_flush_requests += 1;
        Ok(self.queue_response(connection, packet, 1, Kind::Flush))
    }

    fn execute_atomic_write(
        &mut self,
        cx: &mut Context<'_>,
        connection: &Connection,
        packet: &Datagram<'_>,
    ) -> Result<u32, TransportError> {
        let reth = packet.reth().filter(|reth| reth.length == 8).ok_or(TransportError::Length)?;
        let word = packet.payload.try_into().map_err(|_| TransportError::Length)?;
        self.admit_response(connection, Class::Counted)?;
        if !reth.addr.is_multiple_of(8) {
            return Err(TransportError::Misaligned);
        }
        let span = remote(cx, connection, reth.rkey, reth.addr, 8, Access::REMOTE_WRITE)?;
        span.store(cx.turn, u64::from_ne_bytes(word)).map_err(|error| match error {
            AtomicError::Torn => TransportError::Unsupported,
            _ => TransportError::RemoteAccess,
        })?;
        cx.counters().rx_atomic_requests += 1;
        Ok(self.queue_response(connection, packet, 1, Kind::AtomicWrite))
    }

    /// Checks that one more response is allowed: the requester must respect `max_dest_rd_atomic`.
    fn admit_response(&self, connection: &Connection, class: Class) -> Result<(), TransportError> {
        let limit = usize::from(connection.max_dest_rd_atomic);
        if limit == 0 || !self.replay.has_room(limit, class) {
            return Err(TransportError::TooManyReads);
        }
        Ok(())
    }

    /// Lets READs that have not been sent keep the memory that a packet is about to write to.
    #[inline]
    fn save_reads(&mut self, cx: &Context<'_>, connection: &Connection, packet: &Datagram<'_>) {
        if self.replay.is_pending()
            && let Some(written) = written_by(cx, connection, packet)
        {
            self.replay.save_before_write(cx.turn, connection.mtu, &written);
        }
    }

    /// Adds an executed request to the replay cache, with a response of `packets` packets.
    fn queue_response(
        &mut self,
        connection: &Connection,
        packet: &Datagram<'_>,
        packets: u32,
        kind: Kind,
    ) -> u32 {
        self.count_message(true);
        let entry = ReplayEntry::new(packet.bth.psn, self.position, packets, self.msn, kind);
        if let Some(end) = self.replay.push(connection.max_dest_rd_atomic.into(), entry) {
            self.bursts.acknowledged(end);
        }
        packets
    }

    fn on_duplicate(
        &mut self,
        cx: &mut Context<'_>,
        connection: &Connection,
        packet: &Datagram<'_>,
    ) {
        cx.counters().duplicate_requests += 1;
        let repeated = match packet.info.operation {
            Operation::Send | Operation::Write => {
                if self.pending_ack.is_none() {
                    self.pending_ack = Some(PendingAck::Ack);
                }
                return;
            }
            Operation::ReadRequest => self.repeated_read(cx, connection, packet),
            Operation::CompareSwap | Operation::FetchAdd => {
                self.remembered(packet, |kind| matches!(kind, Kind::Atomic { .. }))
            }
            Operation::Flush => self.remembered(packet, |kind| matches!(kind, Kind::Flush)),
            Operation::AtomicWrite => {
                self.remembered(packet, |kind| matches!(kind, Kind::AtomicWrite))
            }
            _ => None,
        };
        match repeated {
            Some(Repetition { position, packets, source }) => {
                // The requester has all packets before this one, and no more.
                self.bursts.acknowledged(packet.bth.psn);
                cx.counters().bursts_given_up += u64::from(self.bursts.lost());
                self.replay.repeat(position, packets, source);
            }
            None => cx.counters().drop(DropReason::StaleDuplicate),
        }
    }

    /// Returns the position of a duplicate. `None` if its PSN was never executed.
    fn position_of(&self, duplicate: Psn) -> Option<u64> {
        self.position.checked_sub(self.expected.since(duplicate).into())
    }

    /// Returns a response of one packet to a duplicate, if the cache has the request with this
    /// kind. The request is not executed again.
    fn remembered(&self, packet: &Datagram<'_>, is_kind: fn(&Kind) -> bool) -> Option<Repetition> {
        let position = self.position_of(packet.bth.psn)?;
        let entry = self.replay.find(position)?;
        is_kind(&entry.kind).then_some(Repetition { position, packets: 1, source: None })
    }

    /// Returns the response to a duplicate READ request. It must request a part of a READ in the
    /// cache, with the key of that READ, and the memory must still be readable. Any other duplicate
    /// is dropped: it may be a late copy from the network, which is not an error.
    fn repeated_read(
        &self,
        cx: &Context<'_>,
        connection: &Connection,
        packet: &Datagram<'_>,
    ) -> Option<Repetition> {
        let again = packet.reth().filter(|_| packet.payload.is_empty())?;
        let position = self.position_of(packet.bth.psn)?;
        let entry = self.replay.find(position)?;
        let Kind::Read { reth, .. } = &entry.kind else { return None };
        let from = packet.bth.psn.since(entry.first);
        let skipped = from.checked_mul(connection.mtu)?;
        let length = reth.length.checked_sub(skipped)?;
        let fits = again.rkey == reth.rkey
            && again.addr == reth.addr.wrapping_add(skipped.into())
            && again.length <= length
            && (again.length == length || again.length.is_multiple_of(connection.mtu));
        if !fits {
            return None;
        }
        let span = open_remote(cx, connection, again, Access::REMOTE_READ).ok()?;
        let source = span.map(|span| ReadSource::new(span, skipped as usize));
        let packets = Segmentation { length: again.length, mtu: connection.mtu }.packets();
        Some(Repetition { position, packets, source })
    }

    /// Whether a response or an acknowledgement is pending.
    pub(crate) fn has_pending_tx(&self) -> bool {
        self.pending_ack.is_some() || self.replay.is_pending()
    }

    /// Whether only an acknowledgement is pending: no response and no NAK.
    pub(crate) fn has_only_ack_pending(&self) -> bool {
        matches!(self.pending_ack, Some(PendingAck::Ack)) && !self.replay.is_pending()
    }

    /// Appends responses to READs, atomics, FLUSHes and ATOMIC WRITEs to `out`, as many as fit.
    ///
    /// # Errors
    ///
    /// The memory of a READ was deregistered: the queue pair must fail, and the NAK is pending.
    pub(crate) fn push_responses(
        &mut self,
        connection: &Connection,
        cx: &mut Context<'_>,
        out: &mut Burst,
    ) -> Result<(), Failure> {
        while let Some(entry) = self.replay.next_pending() {
            let due = entry.due();
            let psn = entry.first.plus(due.index);
            let aeth = ack(entry.msn);
            let (opcode, extension, payload, offset) = match &entry.kind {
                Kind::Atomic { original } => {
                    let original = AtomicAckEth { original: *original };
                    let opcode = connection.opcode(Operation::AtomicAcknowledge);
                    (opcode, Extension::AtomicAck(aeth, original), 0, 0)
                }
                Kind::Flush | Kind::AtomicWrite => {
                    (connection.opcode(Operation::ReadResponse), Extension::Aeth(aeth), 0, 0)
                }
                Kind::Read { reth, .. } => {
                    let message = Segmentation { length: reth.length, mtu: connection.mtu };
                    let segment = message.segment(due.index);
                    if build::is_long(reth.length)
                        && out.is_empty()
                        && self.replay.is_last_pending()
                    {
                        build::limit_first_bursts(out, segment.offset);
                    }
                    let position = Position::new(due.opens, due.closes);
                    let (transport, operation) = (connection.transport, Operation::ReadResponse);
                    let opcode = connection::opcode(transport, operation, position, Suffix::None);
                    let extension = match position {
                        Position::Middle => Extension::None,
                        Position::First | Position::Last | Position::Only => Extension::Aeth(aeth),
                    };
                    (opcode, extension, segment.len as usize, segment.offset as usize)
                }
            };
            let goes_alone =
                (due.repeated && !self.bursts.get_through()) || self.bursts.are_given_up();
            if (goes_alone && !out.is_empty()) || !out.has_room(datagram_len(opcode, payload)) {
                return Ok(());
            }
            let header =
                Header { opcode, psn, ack_req: false, solicited: false, srqn: None, extension };
            let fill = |to: &mut [u8]| match &entry.kind {
                Kind::Read { source: Some(source), .. } => source.copy_out(cx.turn, offset, to),
                _ => Ok(()),
            };
            if build::push(out, connection, &header, payload, fill).is_err() {
                if due.answered {
                    // The duplicate may be a copy from the network, and the requester has its
                    // response.
                    self.replay.abandon();
                    cx.counters().drop(DropReason::StaleDuplicate);
                    continue;
                }
                return Err(self.fail_response(psn));
            }
            if out.len() > 1 {
                self.bursts.followed(psn);
            }
            let more =
                if goes_alone { 0 } else { more_middles(cx, connection, entry, &header, out) };
            if more > 0 {
                self.bursts.followed(psn.next());
            }
            self.replay.advance(1 + more);
            if goes_alone {
                return Ok(());
            }
        }
        Ok(())
    }

    /// Drops all responses after the memory of one was deregistered. Queues the NAK for its PSN
    /// unless another one is pending.
    fn fail_response(&mut self, psn: Psn) -> Failure {
        self.replay.clear();
        let error = TransportError::RemoteAccess;
        if !matches!(self.pending_ack, Some(PendingAck::TerminalNak(..)))
            && let Reliable::Fail { nak, .. } = error.consequence().reliable
        {
            self.pending_ack = Some(PendingAck::TerminalNak(psn, nak));
        }
        Failure { error, recv_completed: false }
    }

    /// Appends the final acknowledgement or NAK to `out`, if one is pending and fits. It follows
    /// the pending responses, because it must not overtake them.
    pub(crate) fn push_ack(&mut self, connection: &Connection, out: &mut Burst) {
        let Some(pending_ack) = self.pending_ack.filter(|_| !self.replay.is_pending()) else {
            return;
        };
        let opcode = connection.opcode(Operation::Acknowledge);
        if !out.has_room(datagram_len(opcode, 0)) {
            return;
        }
        let nak = |code| Syndrome::Nak(code);
        let (psn, syndrome) = match pending_ack {
            PendingAck::Ack => (self.acknowledged(), ack(0).syndrome),
            PendingAck::SequenceNak => (self.expected, nak(NakCode::PsnSequence)),
            PendingAck::RnrNak => {
                (self.expected, Syndrome::Rnr { timer: connection.min_rnr_timer })
            }
            PendingAck::TerminalNak(psn, code) => (psn, nak(code)),
        };
        let header = Header {
            opcode,
            psn,
            ack_req: false,
            solicited: false,
            srqn: None,
            extension: Extension::Aeth(Aeth { syndrome, msn: self.msn }),
        };
        if build::push(out, connection, &header, 0, |_| Ok(())).is_ok() {
            self.pending_ack = None;
        }
    }

    /// Returns the PSN for an acknowledgement: the last executed one before the trailing requests
    /// with a response. Their responses may have been lost, and a requester may take the
    /// acknowledgement of a retransmitted request for the completion of an atomic that lacks its
    /// result (kernel rxe does).
    fn acknowledged(&self) -> Psn {
        self.replay.first_before(self.position).unwrap_or(self.expected).previous()
    }

    /// Drops the kept packets, because the missing one will not arrive.
    pub(crate) fn drop_kept(&mut self) {
        self.ahead.clear();
    }

    /// Whether a message has begun and not ended.
    pub(crate) fn is_within_message(&self) -> bool {
        self.sequence != Sequence::Idle
    }

    /// Returns the message that is being received.
    pub(crate) fn message(&mut self) -> &mut Inbound {
        &mut self.message
    }

    /// Drops all pending responses and acknowledgements, because the queue pair stops.
    pub(crate) fn clear(&mut self) {
        self.replay.clear();
        self.ahead.clear();
        self.pending_ack = None;
    }
}

/// Returns the memory that a WRITE or atomic names in this packet, its first, if it may be written.
fn written_by(cx: &Context<'_>, connection: &Connection, packet: &Datagram<'_>) -> Option<Span> {
    let (to, access) = match packet.info.operation {
        Operation::Write | Operation::AtomicWrite => (packet.reth()?, Access::REMOTE_WRITE),
        Operation::CompareSwap | Operation::FetchAdd => {
            let AtomicEth { addr, rkey, .. } = packet.atomic_eth()?;
            (Reth { addr, rkey, length: 8 }, Access::REMOTE_ATOMIC)
        }
        _ => return None,
    };
    open_remote(cx, connection, to, access).ok()?
}

/// Appends further MIDDLE packets of a READ response after one, as many as there are and fit.
/// Returns their number.
fn more_middles(
    cx: &Context<'_>,
    connection: &Connection,
    entry: &ReplayEntry,
    before: &Header,
    out: &mut Burst,
) -> u32 {
    let due = entry.due();
    let Kind::Read { source: Some(source), .. } = &entry.kind else { return 0 };
    if due.opens || due.closes {
        return 0;
    }
    let count = due.middles.min(u32::try_from(out.room()).unwrap_or(u32::MAX));
    let (mtu, next) = (connection.mtu as usize, due.index as usize + 1);
    let fill = |index: u32, _: &mut [u8], to: &mut [u8]| {
        source.copy_out(cx.turn, (next + index as usize) * mtu, to).is_ok()
    };
    build::repeat(out, connection, before.opcode, before.psn.next(), count, fill)
}

const fn ack(msn: u32) -> Aeth {
    Aeth { syndrome: Syndrome::Ack { credits: Aeth::UNLIMITED_CREDITS }, msn }
}

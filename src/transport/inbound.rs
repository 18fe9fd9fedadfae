//! Reception of a SEND or WRITE packet by packet, for RC and UC.

use crate::ids::{PdId, Qpn, Rkey};
use crate::mem::{Access, LocalAccess, Placement, Span, Spans};
use crate::transport::connection::{Connection, RecvEnd};
use crate::transport::context::Context;
use crate::transport::fault::TransportError;
use crate::transport::recv::RecvQueue;
use crate::transport::work::{FlushPlacement, RecvRequest, Sge, WcOpcode, WcStatus};
use crate::wire::{Datagram, Ieth, OpcodeFlags, Operation, Position, Reth};

/// Maximum message length: 2^31 bytes (IBTA vol 1, C9-94).
pub(crate) const MAX_MESSAGE: u32 = 1 << 31;

/// The message that is being received.
#[derive(Debug, Default)]
pub(crate) enum Inbound {
    /// None.
    #[default]
    None,
    /// A SEND with several packets.
    Send(Box<InboundSend>),
    /// A WRITE with the memory of its RETH; `None` for a WRITE of 0 bytes.
    Write { target: Option<Span>, total: u32, received: u32 },
}

/// A SEND that is being received, with its receive request.
#[derive(Debug)]
pub(crate) struct InboundSend {
    request: RecvRequest,
    /// The accessible bytes of the request, from the first.
    buffer: Spans,
    received: u32,
}

impl Inbound {
    /// Executes a packet of a SEND; the caller has checked its position in the message. Returns
    /// whether it ends the message.
    pub(crate) fn send(
        &mut self,
        cx: &mut Context<'_>,
        connection: &Connection,
        receives: &mut RecvQueue,
        packet: &Datagram<'_>,
    ) -> Result<bool, TransportError> {
        let position = packet.info.position;
        if position == Position::Only && send_single(cx, connection, receives, packet) {
            return Ok(true);
        }
        if position.is_start() {
            let request = receives.take().ok_or(TransportError::NotReady)?;
            self.open_send(cx, receives.pd, request);
        }
        check_length(position, packet.payload.len(), connection.mtu)?;
        let total = self.place(cx, packet.payload, order(position))?;
        if let (Self::Send(message), true) = (&*self, position.is_end()) {
            if let Some(Ieth(rkey)) = packet.ieth() {
                let user = &connection.id;
                cx.shared.memory.invalidate(user, rkey).map_err(|_| TransportError::Invalidate)?;
            }
            let end = arrived(WcOpcode::Recv, total, packet);
            cx.complete_recv(receives.cq, connection.id.qpn, message.request.wr_id, end);
            receives.finish();
            *self = Self::None;
        }
        Ok(position.is_end())
    }

    /// Looks up the memory of the receive request of a SEND. The message holds the request, which completes with it.
    fn open_send(&mut self, cx: &Context<'_>, pd: PdId, request: RecvRequest) {
        let buffer = Spans::accessible(&cx.shared.memory, pd, request.pieces(), LocalAccess::Write);
        *self = Self::Send(Box::new(InboundSend { request, buffer, received: 0 }));
    }

    /// Executes a packet of a WRITE; the caller has checked its position in the message. Returns
    /// whether it ends the message.
    pub(crate) fn write(
        &mut self,
        cx: &mut Context<'_>,
        connection: &Connection,
        receives: &mut RecvQueue,
        packet: &Datagram<'_>,
    ) -> Result<bool, TransportError> {
        let position = packet.info.position;
        let takes_receive = packet.info.has(OpcodeFlags::IMM);
        if takes_receive && receives.is_empty() {
            return Err(TransportError::NotReady);
        }
        check_length(position, packet.payload.len(), connection.mtu)?;
        if let Some(reth) = packet.reth() {
            // Messages that fit one packet must use ONLY.
            if position == Position::First && reth.length <= connection.mtu {
                return Err(TransportError::Length);
            }
            if !takes_receive && reth.length as usize == packet.payload.len() {
                write_single(cx, connection, reth, packet.payload)?;
                return Ok(true);
            }
            let target = open_remote(cx, connection, reth, Access::REMOTE_WRITE)?;
            *self = Self::Write { target, total: reth.length, received: 0 };
        }
        if let Self::Write { total, received, .. } = self
            && position.is_end()
            && (*total - *received) as usize != packet.payload.len()
        {
            return Err(TransportError::Length);
        }
        let sum = self.place(cx, packet.payload, order(position))?;
        if position.is_end() {
            *self = Self::None;
            if let Some(request) = takes_receive.then(|| receives.take()).flatten() {
                let end = arrived(WcOpcode::RecvRdmaWithImm, sum, packet);
                cx.complete_recv(receives.cq, connection.id.qpn, request.wr_id, end);
                receives.finish();
            }
        }
        Ok(position.is_end())
    }

    /// Stores the payload of a MIDDLE packet. Returns false and changes nothing if it is invalid or
    /// no message is being received.
    pub(crate) fn append_middle(
        &mut self,
        cx: &Context<'_>,
        connection: &Connection,
        payload: &[u8],
    ) -> bool {
        payload.len() == connection.mtu as usize
            && self.place(cx, payload, Placement::Plain).is_ok()
    }

    /// Stores the next bytes of the message. Returns the number of bytes so far.
    fn place(
        &mut self,
        cx: &Context<'_>,
        payload: &[u8],
        placement: Placement,
    ) -> Result<u32, TransportError> {
        let len = u32::try_from(payload.len()).map_err(|_| TransportError::Length)?;
        match self {
            Self::Send(message) => {
                let InboundSend { request, buffer, received } = &mut **message;
                let sum = received.checked_add(len).ok_or(TransportError::ReceiveTooShort)?;
                if sum as usize > buffer.len() {
                    let fits = u64::from(sum) <= request.length();
                    return Err(match fits {
                        true => TransportError::LocalProtection,
                        false => TransportError::ReceiveTooShort,
                    });
                }
                let placed = buffer.place(cx.turn, *received as usize, payload, placement);
                placed.map_err(|_| TransportError::LocalProtection)?;
                *received = sum;
                Ok(sum)
            }
            Self::Write { target, total, received } => {
                let sum = received.checked_add(len).filter(|sum| *sum <= *total);
                let sum = sum.ok_or(TransportError::Length)?;
                if let Some(span) = target {
                    let placed = span.place(cx.turn, *received as usize, payload, placement);
                    placed.map_err(|_| TransportError::RemoteAccess)?;
                }
                *received = sum;
                Ok(sum)
            }
            Self::None => Err(TransportError::Sequence),
        }
    }

    /// Marks its memory as faulted after a failed write, so that the next packet is refused.
    pub(crate) fn mark_faulted(&mut self) {
        match self {
            Self::Send(message) => message.buffer.mark_faulted(),
            Self::Write { target: Some(span), .. } => span.mark_faulted(),
            Self::Write { target: None, .. } | Self::None => {}
        }
    }

    /// Completes the receive request of the message with `status`. Returns whether there was one.
    pub(crate) fn end(
        &mut self,
        cx: &mut Context<'_>,
        qpn: Qpn,
        receives: &mut RecvQueue,
        status: WcStatus,
    ) -> bool {
        let Self::Send(message) = std::mem::take(self) else { return false };
        cx.complete_recv(receives.cq, qpn, message.request.wr_id, RecvEnd::failed(status));
        receives.finish();
        true
    }

    /// Completes the receive request of a refused WRITE with immediate, if the error is an invalid
    /// key (IBTA vol 1, §11.6.2). Returns whether there was one.
    pub(crate) fn end_notice(
        cx: &mut Context<'_>,
        qpn: Qpn,
        receives: &mut RecvQueue,
        packet: &Datagram<'_>,
        error: TransportError,
    ) -> bool {
        let is_notice = packet.info.has(OpcodeFlags::WRITE) && packet.info.has(OpcodeFlags::IMM);
        if error != TransportError::RemoteAccess || !is_notice {
            return false;
        }
        let Some(request) = receives.take() else { return false };
        let end = RecvEnd::failed(error.consequence().status);
        cx.complete_recv(receives.cq, qpn, request.wr_id, end);
        receives.finish();
        true
    }

    /// Drops the message and puts its receive request back. A request of a shared queue cannot be
    /// put back (IBTA vol 1, §9.9.3, class E): it completes with the status of `error`.
    pub(crate) fn abandon(
        &mut self,
        cx: &mut Context<'_>,
        qpn: Qpn,
        receives: &mut RecvQueue,
        error: TransportError,
    ) {
        if receives.shared {
            self.end(cx, qpn, receives, error.consequence().status);
        } else {
            self.forget(receives);
        }
    }

    /// Drops the message and puts its receive request back.
    pub(crate) fn forget(&mut self, receives: &mut RecvQueue) {
        if let Self::Send(message) = std::mem::take(self) {
            receives.put_back(message.request);
        }
    }
}

/// Executes a single-packet SEND or WRITE to a single buffer. Returns false and changes nothing if
/// the packet is another one or invalid.
pub(crate) fn execute_single(
    cx: &mut Context<'_>,
    connection: &Connection,
    receives: &mut RecvQueue,
    packet: &Datagram<'_>,
) -> bool {
    match (packet.info.operation, packet.reth()) {
        (Operation::Send, None) => send_single(cx, connection, receives, packet),
        (Operation::Write, Some(reth)) => {
            !packet.info.has(OpcodeFlags::IMM)
                && reth.length as usize == packet.payload.len()
                && write_single(cx, connection, reth, packet.payload).is_ok()
        }
        _ => false,
    }
}

/// Executes a single-packet SEND to a single buffer. Returns false and changes nothing if the
/// packet is another one or invalid.
fn send_single(
    cx: &mut Context<'_>,
    connection: &Connection,
    receives: &mut RecvQueue,
    packet: &Datagram<'_>,
) -> bool {
    let Some(RecvRequest { wr_id, sges }) = receives.first() else { return false };
    let wr_id = *wr_id;
    let [Sge { addr, length, lkey }] = sges[..] else { return false };
    let Ok(len) = u32::try_from(packet.payload.len()) else { return false };
    if len > length.min(connection.mtu) || packet.info.has(OpcodeFlags::INVALIDATE) {
        return false;
    }
    // Only the bytes that the message has: see `Spans::accessible`.
    let span =
        cx.shared.memory.epoch_local(cx.turn, receives.pd, (lkey, addr, len), LocalAccess::Write);
    // By reference: to move it would load words together that were just stored one by one.
    if !span.as_ref().is_ok_and(|span| span.place(packet.payload).is_ok()) {
        return false;
    }
    receives.pop_first();
    let end = arrived(WcOpcode::Recv, len, packet);
    cx.complete_recv(receives.cq, connection.id.qpn, wr_id, end);
    true
}

/// Executes a single-packet WRITE.
fn write_single(
    cx: &Context<'_>,
    connection: &Connection,
    to: Reth,
    payload: &[u8],
) -> Result<(), TransportError> {
    let bytes = (to.rkey, to.addr, to.length);
    let span = cx.shared.memory.epoch_remote(cx.turn, &connection.id, bytes, Access::REMOTE_WRITE);
    let placed = span.as_ref().ok().and_then(|span| span.place(payload).ok());
    placed.ok_or(TransportError::RemoteAccess)
}

fn arrived(opcode: WcOpcode, byte_len: u32, packet: &Datagram<'_>) -> RecvEnd {
    RecvEnd {
        status: WcStatus::Success,
        opcode,
        byte_len,
        imm: packet.imm().map(|imm| imm.0),
        invalidated: packet.ieth().map(|key| key.0),
        solicited: packet.bth.solicited,
        source_qp: None,
        ip_version: None,
    }
}

/// Checks that the queue pair's access flags allow the operation.
pub(crate) fn permit(connection: &Connection, packet: &Datagram<'_>) -> Result<(), TransportError> {
    let needed = match packet.info.operation {
        Operation::Write | Operation::AtomicWrite => Access::REMOTE_WRITE,
        Operation::ReadRequest => Access::REMOTE_READ,
        Operation::CompareSwap | Operation::FetchAdd => Access::REMOTE_ATOMIC,
        Operation::Flush => packet.feth().map_or(Access::empty(), |feth| to_flush(feth.placement)),
        _ => Access::empty(),
    };
    if connection.access.contains(needed) { Ok(()) } else { Err(TransportError::NotPermitted) }
}

/// Returns the access rights that a FLUSH to `placement` needs.
pub(crate) fn to_flush(placement: FlushPlacement) -> Access {
    let mut access = Access::empty();
    access.set(Access::FLUSH_GLOBAL, placement.contains(FlushPlacement::GLOBAL_VISIBILITY));
    access.set(Access::FLUSH_PERSISTENT, placement.contains(FlushPlacement::PERSISTENCE));
    access
}

/// Checks the payload length for its position: FIRST and MIDDLE are full, LAST is not empty (IBTA
/// vol 1, §9.7.4.1.6).
fn check_length(position: Position, len: usize, mtu: u32) -> Result<(), TransportError> {
    let mtu = mtu as usize;
    let valid = match position {
        Position::First | Position::Middle => len == mtu,
        Position::Last => (1..=mtu).contains(&len),
        Position::Only => len <= mtu,
    };
    if valid { Ok(()) } else { Err(TransportError::Length) }
}

/// Returns the memory of a RETH. With a length of 0, neither key nor address is checked (IBTA vol
/// 1, C9-88).
pub(crate) fn open_remote(
    cx: &Context<'_>,
    connection: &Connection,
    reth: Reth,
    need: Access,
) -> Result<Option<Span>, TransportError> {
    match reth.length {
        0 => Ok(None),
        1..=MAX_MESSAGE => {
            remote(cx, connection, reth.rkey, reth.addr, reth.length, need).map(Some)
        }
        _ => Err(TransportError::Length),
    }
}

/// Returns the `length` bytes at `addr` in the region of `rkey`.
pub(crate) fn remote(
    cx: &Context<'_>,
    connection: &Connection,
    rkey: Rkey,
    addr: u64,
    length: u32,
    need: Access,
) -> Result<Span, TransportError> {
    cx.shared
        .memory
        .remote(&connection.id, rkey, addr, length, need)
        .map_err(|_| TransportError::RemoteAccess)
}

const fn order(position: Position) -> Placement {
    if position.is_end() { Placement::Final } else { Placement::Plain }
}

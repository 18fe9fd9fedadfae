//! Attributes of a connection, and the parts of the engine that a queue pair borrows.

use crate::ids::{CqId, PKey, PdId, Qpn, Rkey};
use crate::mem::{Access, EpochGuard, KeyUser, Memory};
use crate::net::{IpVersion, Path};
use crate::time::{AckTimeout, Instant, RnrTimer};
use crate::transport::counters::{Counters, Tally};
use crate::transport::outputs::Outputs;
use crate::transport::rc::ahead::ReorderBuffer;
use crate::transport::srq::SrqTable;
use crate::transport::window::{UsableWindow, WindowId, Windows};
use crate::transport::work::{Completion, WcOpcode, WcStatus};
use crate::wire::icrc::Flow;
use crate::wire::{Opcode, Operation, Position, Suffix, Transport};

/// Number, protection domain and completion queues of a queue pair.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Identity {
    pub(crate) qpn: Qpn,
    pub(crate) pd: PdId,
    /// The completion queue of send requests, if it has a send queue.
    pub(crate) send_cq: Option<CqId>,
    /// The completion queue of receive requests, if it has a receive queue.
    pub(crate) recv_cq: Option<CqId>,
}

impl From<&Identity> for KeyUser {
    fn from(id: &Identity) -> Self {
        Self { pd: id.pd, qpn: Some(id.qpn) }
    }
}

/// The attributes of a queue pair from RTR on.
#[derive(Clone, Debug)]
pub(crate) struct Connection {
    pub(crate) id: Identity,
    /// RC, UC or XRC.
    pub(crate) transport: Transport,
    pub(crate) dest_qpn: Qpn,
    pub(crate) path: Path,
    /// ICRC of packets on `path`.
    pub(crate) flow: Flow,
    pub(crate) window: WindowId,
    pub(crate) pkey: PKey,
    /// Payload bytes of a full packet.
    pub(crate) mtu: u32,
    /// Access rights of the peer to memory through this queue pair.
    pub(crate) access: Access,
    pub(crate) min_rnr_timer: RnrTimer,
    pub(crate) timeout: AckTimeout,
    pub(crate) retry_cnt: u8,
    pub(crate) rnr_retry: u8,
    /// READs and atomics that this queue pair may have outstanding.
    pub(crate) max_rd_atomic: u8,
    /// READs and atomics that the peer may have outstanding.
    pub(crate) max_dest_rd_atomic: u8,
}

impl Connection {
    /// Returns the opcode of a single-packet operation.
    pub(crate) fn opcode(&self, operation: Operation) -> Opcode {
        opcode(self.transport, operation, Position::Only, Suffix::None)
    }
}

/// Returns the opcode of a packet to send. Posting rejects operations that the service does not
/// have, so the opcode exists.
#[inline]
pub(crate) fn opcode(
    transport: Transport,
    operation: Operation,
    position: Position,
    suffix: Suffix,
) -> Opcode {
    let found = Opcode::find(transport, operation, position, suffix);
    debug_assert!(found.is_some(), "{transport} has no {operation:?} {position:?} {suffix:?}");
    found.unwrap_or(Opcode::Cnp)
}

/// Parts of the engine that a queue pair borrows for one input.
pub(crate) struct Context<'a> {
    pub(crate) now: Instant,
    pub(crate) memory: &'a Memory,
    pub(crate) turn: &'a EpochGuard<'a>,
    pub(crate) windows: &'a mut Windows,
    /// Window for the device's own receive buffer, which READ responses fill.
    pub(crate) read_window: WindowId,
    /// Window for which the queue pair waited, and which has room now.
    pub(crate) in_turn: Option<WindowId>,
    /// Shared receive queues.
    pub(crate) srqs: &'a mut SrqTable,
    /// Memory for requests that arrive out of order.
    pub(crate) reorder: &'a ReorderBuffer,
    pub(crate) tally: &'a mut Tally,
    /// Slot of the queue pair that handles the input, once known. It selects the counters.
    pub(crate) slot: Option<usize>,
    pub(crate) outputs: &'a mut Outputs,
}

impl Context<'_> {
    /// Returns the room of a window. It is closed while other queue pairs wait for it.
    pub(crate) fn allowance(&self, id: WindowId) -> UsableWindow {
        let allowance = self.windows.allowance(id, self.now);
        if self.is_behind_others(id) { allowance.closed() } else { allowance }
    }

    /// Returns whether other queue pairs wait for a window before this one.
    pub(crate) fn is_behind_others(&self, id: WindowId) -> bool {
        self.windows.is_waited_for(id) && self.in_turn != Some(id)
    }

    /// Returns the counters of this queue pair.
    pub(crate) fn counters(&mut self) -> &mut Counters {
        self.tally.row(self.slot)
    }

    /// Completes a successful send request, with a completion if it is `signaled`.
    pub(crate) fn succeed(&mut self, id: &Identity, wqe: &SendEnd, signaled: bool) {
        match signaled {
            true => self.complete_send(id, wqe, WcStatus::Success),
            false => self.counters().sent(wqe.opcode, WcStatus::Success),
        }
    }

    /// Completes a send request.
    pub(crate) fn complete_send(&mut self, id: &Identity, wqe: &SendEnd, status: WcStatus) {
        self.counters().sent(wqe.opcode, status);
        let completion = Completion {
            wr_id: wqe.wr_id,
            status,
            opcode: wqe.opcode,
            byte_len: wqe.byte_len,
            imm: None,
            invalidated: None,
            qpn: id.qpn,
            source_qp: None,
            ip_version: None,
            solicited: status != WcStatus::Success,
        };
        self.outputs.complete(id.send_cq, completion);
    }

    /// Completes, at `cq`, a receive request that was consumed by a message to `qpn`.
    pub(crate) fn complete_recv(&mut self, cq: Option<CqId>, qpn: Qpn, wr_id: u64, end: RecvEnd) {
        self.counters().received(end.status);
        let completion = Completion {
            wr_id,
            status: end.status,
            opcode: end.opcode,
            byte_len: end.byte_len,
            imm: end.imm,
            invalidated: end.invalidated,
            qpn,
            source_qp: end.source_qp,
            ip_version: end.ip_version,
            solicited: end.solicited || end.status != WcStatus::Success,
        };
        self.outputs.complete(cq, completion);
    }
}

/// Fields of a send request that are copied to its completion.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SendEnd {
    pub(crate) wr_id: u64,
    pub(crate) opcode: WcOpcode,
    pub(crate) byte_len: u32,
}

/// Fields of a message that are copied to the completion of its receive request.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RecvEnd {
    pub(crate) status: WcStatus,
    pub(crate) opcode: WcOpcode,
    pub(crate) byte_len: u32,
    pub(crate) imm: Option<u32>,
    pub(crate) invalidated: Option<Rkey>,
    pub(crate) solicited: bool,
    /// UD: queue pair of the sender.
    pub(crate) source_qp: Option<Qpn>,
    /// UD: IP version of the packet.
    pub(crate) ip_version: Option<IpVersion>,
}

impl RecvEnd {
    /// Returns the result of a receive request without a message.
    pub(crate) const fn failed(status: WcStatus) -> Self {
        Self {
            status,
            opcode: WcOpcode::Recv,
            byte_len: 0,
            imm: None,
            invalidated: None,
            solicited: false,
            source_qp: None,
            ip_version: None,
        }
    }
}

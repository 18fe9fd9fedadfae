//! What both halves of a connected queue pair know, and what they may touch.

use crate::ids::{CqId, PKey, PdId, Qpn, Rkey};
use crate::mem::{Access, EpochGuard, KeyUser, Memory};
use crate::net::{IpVersion, Path};
use crate::time::{AckTimeout, Instant, RnrTimer};
use crate::transport::build;
use crate::transport::counters::{Counters, Tally};
use crate::transport::outputs::Outputs;
use crate::transport::rc::ahead::ReorderBuffer;
use crate::transport::srq::SrqTable;
use crate::transport::window::{Allowance, WindowId, Windows};
use crate::transport::work::{Completion, WcOpcode, WcStatus};
use crate::wire::icrc::Flow;
use crate::wire::{Opcode, Operation, Position, Suffix, Transport};

/// What a queue pair is from its creation on.
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
    /// The ICRC's view of `path`.
    pub(crate) flow: Flow,
    pub(crate) window: WindowId,
    pub(crate) pkey: PKey,
    /// Payload bytes of a full packet.
    pub(crate) mtu: u32,
    /// What the peer may do to this side's memory through this queue pair.
    pub(crate) access: Access,
    pub(crate) min_rnr_timer: RnrTimer,
    pub(crate) timeout: AckTimeout,
    pub(crate) retry_cnt: u8,
    pub(crate) rnr_retry: u8,
    /// READs and atomics that may be outstanding from here.
    pub(crate) max_rd_atomic: u8,
    /// READs and atomics that the peer may have outstanding.
    pub(crate) max_dest_rd_atomic: u8,
}

impl Connection {
    /// Returns the opcode of an operation that takes one packet.
    pub(crate) fn opcode(&self, operation: Operation) -> Opcode {
        build::opcode(self.transport, operation, Position::Only, Suffix::None)
    }
}

/// What a queue pair works with during one input: the engine's own things, lent.
pub(crate) struct Context<'a> {
    pub(crate) now: Instant,
    pub(crate) memory: &'a Memory,
    pub(crate) turn: &'a EpochGuard<'a>,
    pub(crate) windows: &'a mut Windows,
    /// The device's own receive buffer, which the answers to READs fill.
    pub(crate) read_window: WindowId,
    /// The queue pair has waited for this window, and it is its turn.
    pub(crate) in_turn: Option<WindowId>,
    /// Receive queues that queue pairs share.
    pub(crate) srqs: &'a mut SrqTable,
    /// Room for requests that arrive ahead of a missing one.
    pub(crate) reorder: &'a ReorderBuffer,
    pub(crate) tally: &'a mut Tally,
    /// The slot of the queue pair that the input is for, once it is known: what happens is counted there.
    pub(crate) slot: Option<usize>,
    pub(crate) outputs: &'a mut Outputs,
}

impl Context<'_> {
    /// What a window allows now. Who comes while others wait, waits behind them.
    pub(crate) fn allowance(&self, id: WindowId) -> Allowance {
        let allowance = self.windows.allowance(id, self.now);
        if self.is_behind_others(id) { allowance.closed() } else { allowance }
    }

    /// Whether others wait for a window, and the queue pair at hand has its turn behind them.
    pub(crate) fn is_behind_others(&self, id: WindowId) -> bool {
        self.windows.is_waited_for(id) && self.in_turn != Some(id)
    }

    /// The counters of the queue pair at hand.
    pub(crate) fn counters(&mut self) -> &mut Counters {
        self.tally.row(self.slot)
    }

    /// A send request has succeeded, which is announced if it is `signaled`.
    pub(crate) fn succeed(&mut self, id: &Identity, wqe: &SendEnd, signaled: bool) {
        match signaled {
            true => self.complete_send(id, wqe, WcStatus::Success),
            false => self.counters().sent(wqe.opcode, WcStatus::Success),
        }
    }

    /// Announces the end of a send request.
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

    /// Announces the end of a receive request that a message to `qpn` has taken, at `cq`.
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

/// What the completion of a send request repeats of it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SendEnd {
    pub(crate) wr_id: u64,
    pub(crate) opcode: WcOpcode,
    pub(crate) byte_len: u32,
}

/// What the completion of a receive request tells of the message.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RecvEnd {
    pub(crate) status: WcStatus,
    pub(crate) opcode: WcOpcode,
    pub(crate) byte_len: u32,
    pub(crate) imm: Option<u32>,
    pub(crate) invalidated: Option<Rkey>,
    pub(crate) solicited: bool,
    /// UD: who sent it.
    pub(crate) source_qp: Option<Qpn>,
    /// UD: in which packet.
    pub(crate) ip_version: Option<IpVersion>,
}

impl RecvEnd {
    /// An end without a message.
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

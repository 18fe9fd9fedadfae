//! The parts of an engine that all of its queue pairs share, as one of them borrows them for an input.

use std::sync::Arc;

use crate::ids::{CqId, Qpn};
use crate::mem::{EpochGuard, Memory};
use crate::time::Instant;
use crate::transport::connection::{Identity, RecvEnd, SendEnd};
use crate::transport::counters::{Counters, Tally};
use crate::transport::outputs::Outputs;
use crate::transport::rc::ahead::ReorderBuffer;
use crate::transport::srq::SrqTable;
use crate::transport::window::{UsableWindow, WindowId, Windows};
use crate::transport::work::{Completion, WcStatus};

/// The parts that all queue pairs share.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) memory: Arc<Memory>,
    pub(crate) windows: Windows,
    /// Window for the receive buffer of this device, which READ responses fill.
    pub(crate) read_window: WindowId,
    pub(crate) srqs: SrqTable,
    /// Memory for packets that arrive out of order.
    pub(crate) reorder: ReorderBuffer,
    pub(crate) tally: Tally,
    pub(crate) outputs: Outputs,
}

impl Shared {
    /// Lends the parts for one input, for the queue pair in `slot` if there is one.
    #[inline]
    pub(crate) fn context<'a>(
        &'a mut self,
        now: Instant,
        turn: &'a EpochGuard<'a>,
        slot: Option<usize>,
    ) -> Context<'a> {
        Context { now, shared: self, turn, in_turn: None, slot }
    }
}

/// What a queue pair needs besides its own state for one input.
pub(crate) struct Context<'a> {
    pub(crate) now: Instant,
    pub(crate) shared: &'a mut Shared,
    pub(crate) turn: &'a EpochGuard<'a>,
    /// Window for which the queue pair waited, and which has room now.
    pub(crate) in_turn: Option<WindowId>,
    /// Slot of the queue pair that handles the input, once known. It selects the counters.
    pub(crate) slot: Option<usize>,
}

impl Context<'_> {
    /// Returns the room of a window. It is closed while other queue pairs wait for it.
    pub(crate) fn allowance(&self, id: WindowId) -> UsableWindow {
        let allowance = self.shared.windows.allowance(id, self.now);
        if self.is_behind_others(id) { allowance.closed() } else { allowance }
    }

    /// Returns whether other queue pairs wait for a window before this one.
    pub(crate) fn is_behind_others(&self, id: WindowId) -> bool {
        self.shared.windows.is_waited_for(id) && self.in_turn != Some(id)
    }

    /// Returns the counters of this queue pair.
    pub(crate) fn counters(&mut self) -> &mut Counters {
        self.shared.tally.row(self.slot)
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
        self.shared.outputs.complete(id.send_cq, completion);
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
        self.shared.outputs.complete(cq, completion);
    }
}

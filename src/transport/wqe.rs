//! Send work queue elements.

use std::mem;

use crate::ids::{PdId, Srqn};
use crate::mem::{LocalAccess, Memory, Revoked, Spans};
use crate::psn::Psn;
use crate::transport::connection::{Identity, SendEnd};
use crate::transport::context::Context;
use crate::transport::fault::TransportError;
use crate::transport::segment::Segmentation;
use crate::transport::work::{SendData, SendFlags, SendOp, SendRequest, SendTarget, Sge};

/// An element of the send queue.
#[derive(Debug)]
pub(crate) struct Wqe {
    wr_id: u64,
    pub(crate) op: SendOp,
    pub(crate) flags: SendFlags,
    /// XRC: the peer's shared receive queue.
    pub(crate) srqn: Option<Srqn>,
    data: Data,
    /// The region from which a packet was built, if `data` holds no region.
    region: Option<u64>,
    /// Length of the message in bytes.
    pub(crate) length: u32,
    /// The first PSN; `packets` PSNs are assigned when the request starts. Requests that are
    /// executed locally have none.
    pub(crate) first: Psn,
    pub(crate) packets: u32,
    /// Number of response packets received, for a request with responses.
    pub(crate) received: u32,
    /// READ: the first response packet that was requested again.
    pub(crate) resumed_at: u32,
    /// The request was executed locally, and only its completion is outstanding.
    done: bool,
    /// The request could not start. It fails with this error when all earlier requests are complete.
    pub(crate) failure: Option<TransportError>,
}

/// Properties of a single-packet message. Packets of messages with equal properties differ only in
/// PSN, address and payload.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Kind {
    is_write: bool,
    length: u32,
    flags: SendFlags,
    srqn: Option<Srqn>,
}

#[derive(Debug)]
enum Data {
    Request(SendData),
    Resolved(Spans),
}

impl Default for Wqe {
    /// Returns an empty slot.
    fn default() -> Self {
        Self {
            wr_id: 0,
            op: SendOp::Send,
            flags: SendFlags::empty(),
            srqn: None,
            data: Data::Request(SendData::none()),
            region: None,
            length: 0,
            first: Psn::default(),
            packets: 0,
            received: 0,
            resumed_at: u32::MAX,
            done: false,
            failure: None,
        }
    }
}

impl Wqe {
    /// Overwrites the element with `request`. `length` is the length of its data, which was checked
    /// when it was posted.
    #[inline]
    pub(crate) fn set(&mut self, request: &mut SendRequest, length: u32) {
        self.wr_id = request.wr_id;
        self.op = request.op;
        self.flags = request.flags;
        self.srqn = match request.to {
            Some(SendTarget::Srq(srqn)) => Some(srqn),
            Some(SendTarget::Datagram(_)) | None => None,
        };
        match &mut self.data {
            // The swap moves whole words, and there is nothing to drop.
            Data::Request(data) => mem::swap(data, &mut request.data),
            Data::Resolved(_) => self.data = Data::Request(mem::take(&mut request.data)),
        }
        self.region = None;
        self.length = length;
        self.first = Psn::default();
        (self.packets, self.received, self.resumed_at) = (0, 0, u32::MAX);
        (self.done, self.failure) = (false, None);
    }

    /// Drops the data of the request.
    #[inline]
    pub(crate) fn clear(&mut self) {
        self.data = Data::Request(SendData::none());
    }

    pub(crate) fn is_started(&self) -> bool {
        self.packets != 0 || self.done
    }

    /// Whether at least one packet of it was sent, given the PSN after the last sent one. A request
    /// may have its PSNs earlier, while it waits.
    pub(crate) fn has_begun(&self, sent: Psn) -> bool {
        self.is_started() && self.first.is_before(sent)
    }

    /// Whether it was executed locally and is complete when all earlier requests are.
    pub(crate) fn is_done(&self) -> bool {
        self.done
    }

    /// Executes an operation that sends no packet. `next` is the PSN of the next packet.
    pub(crate) fn run(&mut self, next: Psn, id: &Identity, memory: &Memory) {
        let done = match &self.op {
            SendOp::BindMw { window, rkey, to } => {
                memory.bind(id, *window, rkey.variant(), to).is_ok()
            }
            SendOp::LocalInv { rkey } => memory.invalidate(id, *rkey).is_ok(),
            _ => false,
        };
        if done {
            (self.first, self.done) = (next, true);
        } else {
            self.failure = Some(TransportError::WindowBind);
        }
    }

    /// Assigns PSNs and looks up the memory: keys are checked once per message. A single buffer for
    /// a single packet is [looked up](Memory::epoch_local) when the packet is built.
    pub(crate) fn start(&mut self, first: Psn, pd: PdId, mtu: u32, memory: &Memory) {
        self.first = first;
        self.packets = self.segmentation(mtu).packets();
        if let Data::Request(SendData::Sges(sges)) = &self.data
            && (sges.len() != 1 || self.packets != 1 || self.op.has_response())
        {
            let need = if self.op.has_result() { LocalAccess::Write } else { LocalAccess::Read };
            let pieces = sges.iter().map(Sge::piece);
            match Spans::resolve(memory, pd, pieces, need) {
                Ok(spans) => self.data = Data::Resolved(spans),
                Err(_) => self.failure = Some(TransportError::SendProtection),
            }
        }
    }

    /// Returns the properties it shares with other requests that only copy one buffer; `None` for
    /// other requests.
    #[inline]
    pub(crate) fn kind(&self) -> Option<Kind> {
        let is_write = match self.op {
            SendOp::Send => false,
            SendOp::Write { .. } => true,
            _ => return None,
        };
        let takes_more = match &self.data {
            Data::Request(SendData::Inline(_)) => false,
            Data::Request(SendData::Sges(sges)) => sges.len() != 1,
            Data::Resolved(_) => true,
        };
        // The BTH holds the pad count.
        let takes_more = takes_more || !self.length.is_multiple_of(4);
        let flags = self.flags.difference(SendFlags::SIGNALED);
        (!takes_more).then_some(Kind { is_write, length: self.length, flags, srqn: self.srqn })
    }

    /// Does the same as [`start`](Self::start) for a single-packet message that has a
    /// [`kind`](Self::kind).
    pub(crate) fn start_alone(&mut self, first: Psn) {
        (self.first, self.packets) = (first, 1);
    }

    /// Returns its segmentation into packets; for an atomic, that of its single response packet.
    pub(crate) fn segmentation(&self, mtu: u32) -> Segmentation {
        Segmentation { length: self.length, mtu }
    }

    /// Returns the PSN after its last one.
    pub(crate) fn end(&self) -> Psn {
        self.first.plus(self.packets)
    }

    /// Returns the PSN of the next response packet.
    pub(crate) fn awaited(&self) -> Psn {
        self.first.plus(self.received)
    }

    /// Copies message bytes from `offset` on, for a packet. A retransmission must read the same
    /// region as the first transmission.
    pub(crate) fn copy_out(
        &mut self,
        cx: &Context<'_>,
        pd: PdId,
        offset: u32,
        to: &mut [u8],
    ) -> Result<(), Revoked> {
        let offset = offset as usize;
        match &self.data {
            Data::Resolved(spans) => spans.copy_out(cx.turn, offset, to),
            Data::Request(SendData::Inline(bytes)) => {
                let from = bytes.get(offset..offset + to.len()).ok_or(Revoked)?;
                to.copy_from_slice(from);
                Ok(())
            }
            Data::Request(SendData::Sges(sges)) => {
                let [Sge { addr, length, lkey }] = sges[..] else { return Err(Revoked) };
                let span = cx.shared.memory.epoch_local(
                    cx.turn,
                    pd,
                    (lkey, addr, length),
                    LocalAccess::Read,
                );
                // By reference: to move it would load words together that were just stored one by one.
                let span = span.as_ref().map_err(|_| Revoked)?;
                if self.region.is_some_and(|before| span.region() != Some(before)) {
                    return Err(Revoked);
                }
                self.region = span.region();
                span.copy_out(to)
            }
        }
    }

    /// Returns the memory for the response of a READ or atomic.
    pub(crate) fn answer(&self) -> Option<&Spans> {
        match &self.data {
            Data::Resolved(spans) => Some(spans),
            Data::Request(_) => None,
        }
    }

    /// Marks the response memory as faulted after a failed write, so that later responses fail too.
    pub(crate) fn mark_faulted(&mut self) {
        if let Data::Resolved(spans) = &mut self.data {
            spans.mark_faulted();
        }
    }

    pub(crate) fn end_of(&self) -> SendEnd {
        SendEnd { wr_id: self.wr_id, opcode: self.op.wc_opcode(), byte_len: self.length }
    }
}

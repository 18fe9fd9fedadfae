//! A send request on its way.

use std::mem;

use crate::ids::{PdId, Srqn};
use crate::mem::{LocalAccess, Memory, Revoked, Spans};
use crate::psn::Psn;
use crate::transport::connection::{Context, Identity, SendEnd};
use crate::transport::fault::TransportError;
use crate::transport::segment::Segmentation;
use crate::transport::work::{SendData, SendFlags, SendOp, SendRequest, SendTarget, Sge};

/// An element of the send queue.
#[derive(Debug)]
pub(crate) struct Wqe {
    wr_id: u64,
    pub(crate) op: SendOp,
    pub(crate) flags: SendFlags,
    /// XRC: the peer's queue that it is for.
    pub(crate) srqn: Option<Srqn>,
    data: Data,
    /// The region of which a packet was made, where none is held in `data`.
    region: Option<u64>,
    /// Bytes of the message.
    pub(crate) length: u32,
    /// Its PSNs, known once it has started: `first` and the `packets - 1` after it. What is done
    /// here has none.
    pub(crate) first: Psn,
    pub(crate) packets: u32,
    /// Response packets taken, of a request that has any.
    pub(crate) received: u32,
    /// READ: the response packet from which on it was asked again.
    pub(crate) resumed_at: u32,
    /// Done here, and nothing more is to be done for it.
    done: bool,
    /// It could not start. It ends like this when its turn comes.
    pub(crate) failure: Option<TransportError>,
}

/// What messages of one packet have in common of which the packets differ in PSN, address and bytes alone.
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
    /// A place for one.
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
    /// Takes the place of whatever it was. `length` is that of the data, which posting has checked.
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
            // In exchange for nothing: so they are moved by the word, and nothing has to be dropped.
            Data::Request(data) => mem::swap(data, &mut request.data),
            Data::Resolved(_) => self.data = Data::Request(mem::take(&mut request.data)),
        }
        self.region = None;
        self.length = length;
        self.first = Psn::default();
        (self.packets, self.received, self.resumed_at) = (0, 0, u32::MAX);
        (self.done, self.failure) = (false, None);
    }

    /// Lets go of what the request holds.
    #[inline]
    pub(crate) fn clear(&mut self) {
        self.data = Data::Request(SendData::none());
    }

    pub(crate) fn is_started(&self) -> bool {
        self.packets != 0 || self.done
    }

    /// Whether something of it was sent, where that is the PSN after the last that was. It may have its
    /// PSNs before that, while it waits.
    pub(crate) fn has_begun(&self, sent: Psn) -> bool {
        self.is_started() && self.first.is_before(sent)
    }

    /// Whether it was done here, and is complete when all before it are.
    pub(crate) fn is_done(&self) -> bool {
        self.done
    }

    /// Does what takes no packet. `next` is the PSN of the next packet.
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

    /// Gives it its PSNs and looks up its memory: keys are checked once a message. One piece for one
    /// packet is [reached](Memory::epoch_local) when that is built.
    pub(crate) fn start(&mut self, first: Psn, pd: PdId, mtu: u32, memory: &Memory) {
        self.first = first;
        self.packets = self.segmentation(mtu).packets();
        if let Data::Request(SendData::Sges(sges)) = &self.data
            && (sges.len() != 1 || self.packets != 1 || self.op.has_response())
        {
            let need = if self.op.has_result() { LocalAccess::Write } else { LocalAccess::Read };
            let pieces = sges.iter().map(|sge| (sge.lkey, sge.addr, sge.length));
            match Spans::resolve(memory, pd, pieces, need) {
                Ok(spans) => self.data = Data::Resolved(spans),
                Err(_) => self.failure = Some(TransportError::SendProtection),
            }
        }
    }

    /// What it has in common with others that take no more than to copy one piece; `None` when it takes more.
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
        // Padding is in the BTH.
        let takes_more = takes_more || !self.length.is_multiple_of(4);
        let flags = self.flags.difference(SendFlags::SIGNALED);
        (!takes_more).then_some(Kind { is_write, length: self.length, flags, srqn: self.srqn })
    }

    /// As [`start`](Self::start), of a message of one packet that has a [`kind`](Self::kind).
    pub(crate) fn start_alone(&mut self, first: Psn) {
        (self.first, self.packets) = (first, 1);
    }

    /// How it falls into packets; of an atomic, the one packet of its answer.
    pub(crate) fn segmentation(&self, mtu: u32) -> Segmentation {
        Segmentation { length: self.length, mtu }
    }

    /// The PSN after its last.
    pub(crate) fn end(&self) -> Psn {
        self.first.plus(self.packets)
    }

    /// The PSN of the response it waits for.
    pub(crate) fn awaited(&self) -> Psn {
        self.first.plus(self.received)
    }

    /// Copies message bytes from `offset` on, for a packet. A retransmission reads the same region as the first
    /// transmission.
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
                let span =
                    cx.memory.epoch_local(cx.turn, pd, (lkey, addr, length), LocalAccess::Read);
                let span = span.map_err(|_| Revoked)?;
                if self.region.is_some_and(|before| span.region() != Some(before)) {
                    return Err(Revoked);
                }
                self.region = span.region();
                span.copy_out(to)
            }
        }
    }

    /// The memory that takes the answer of a READ or atomic.
    pub(crate) fn answer(&self) -> Option<&Spans> {
        match &self.data {
            Data::Resolved(spans) => Some(spans),
            Data::Request(_) => None,
        }
    }

    /// What was answered could not be written: the next answer finds no place either.
    pub(crate) fn mark_faulted(&mut self) {
        if let Data::Resolved(spans) = &mut self.data {
            spans.mark_faulted();
        }
    }

    pub(crate) fn end_of(&self) -> SendEnd {
        SendEnd { wr_id: self.wr_id, opcode: self.op.wc_opcode(), byte_len: self.length }
    }
}

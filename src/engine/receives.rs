//! Receive queues of a queue pair: its own, a shared one, or those of an XRC domain.

use crate::engine::attr::QpType;
use crate::engine::create::QpInit;
use crate::ids::{PdId, Srqn, XrcdId};
use crate::transport::connection::Identity;
use crate::transport::context::Context;
use crate::transport::fault::TransportError;
use crate::transport::recv::RecvQueue;
use crate::transport::srq::SrqTable;
use crate::wire::Datagram;

/// The receive queue of a queue pair.
#[derive(Debug)]
pub(crate) enum Receives {
    /// A queue of its own.
    Own(RecvQueue),
    /// A shared receive queue.
    Shared(Srqn),
    /// XRC target: each message selects a shared receive queue.
    Xrc(XrcReceives),
    /// None: the queue pair only sends.
    None,
}

/// The shared receive queues of an XRC target.
#[derive(Debug)]
pub(crate) struct XrcReceives {
    domain: XrcdId,
    /// Queue of the message that is being received, or of the current packet.
    current: Option<Srqn>,
}

impl Receives {
    /// Returns the queue of a queue pair created with `init`, which the engine has checked.
    pub(crate) fn new(id: &Identity, init: &QpInit) -> Self {
        match (init.qp_type, init.srq) {
            (QpType::XrcIni, _) => Self::None,
            (QpType::XrcTgt, _) => {
                Self::Xrc(XrcReceives { domain: init.xrcd.unwrap_or_default(), current: None })
            }
            (_, Some(srqn)) => Self::Shared(srqn),
            (_, None) => {
                Self::Own(RecvQueue::new(init.cap.max_recv_wr as usize, id.pd, id.recv_cq))
            }
        }
    }

    /// Returns the shared receive queue, except for XRC.
    pub(crate) fn srq(&self) -> Option<Srqn> {
        match self {
            Self::Shared(srqn) => Some(*srqn),
            _ => None,
        }
    }

    /// Calls `act` with the queue. A shared one is lent for the call.
    pub(crate) fn with<R>(
        &mut self,
        cx: &mut Context<'_>,
        id: &Identity,
        act: impl FnOnce(&mut Context<'_>, &mut RecvQueue) -> R,
    ) -> R {
        let srqn = match self {
            Self::Own(queue) => return act(cx, queue),
            Self::Shared(srqn) => Some(*srqn),
            Self::Xrc(xrc) => xrc.current,
            Self::None => None,
        };
        let Some(srqn) = srqn else { return act(cx, &mut RecvQueue::default()) };
        let mut queue = cx.shared.srqs.lend(srqn, id.recv_cq);
        let result = act(cx, &mut queue);
        let event = cx.shared.srqs.take_back(srqn, queue);
        cx.shared.outputs.events.extend(event);
        result
    }
}

impl XrcReceives {
    /// Selects the queue by the number in a packet; all packets of a message carry the same
    /// one. Also returns the protection domain for the packet's keys, which is that of the queue
    /// (IBTA vol 1, annex A14).
    pub(crate) fn select_srq(
        &mut self,
        srqs: &SrqTable,
        packet: &Datagram<'_>,
    ) -> (PdId, Result<(), TransportError>) {
        let srqn = Srqn::new(packet.xrceth().unwrap_or_default().srqn);
        let domain = self.domain;
        let found = srqs.get(srqn).filter(|srq| srq.xrc.is_some_and(|xrc| xrc.domain == domain));
        let addressed = match (found, self.current) {
            (None, _) => Err(TransportError::WrongSrq),
            (Some(_), Some(begun)) if begun != srqn => Err(TransportError::WrongSrq),
            (Some(srq), _) if srq.failed => Err(TransportError::SrqFailed),
            (Some(_), _) => {
                self.current = Some(srqn);
                Ok(())
            }
        };
        (found.map_or_else(PdId::default, |srq| srq.queue.pd), addressed)
    }

    /// Deselects the queue after the last packet of a message.
    pub(crate) fn deselect(&mut self) {
        self.current = None;
    }

    /// Returns whether the message that is being received uses this queue.
    pub(crate) fn is_at(&self, srqn: Srqn) -> bool {
        self.current == Some(srqn)
    }
}

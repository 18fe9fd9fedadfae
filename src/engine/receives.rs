//! Where a queue pair takes receive requests from.

use crate::engine::attr::QpType;
use crate::engine::create::QpInit;
use crate::ids::{PdId, Srqn, XrcdId};
use crate::transport::connection::{Context, Identity};
use crate::transport::fault::TransportError;
use crate::transport::recv::RecvQueue;
use crate::transport::srq::SrqTable;
use crate::wire::Datagram;

/// The queue that a queue pair takes from.
#[derive(Debug)]
pub(crate) enum Receives {
    /// Its own.
    Own(RecvQueue),
    /// One that others take from too.
    Shared(Srqn),
    /// XRC: the one that each message names.
    Named(Named),
    /// None: it only sends.
    None,
}

/// How an XRC target takes from the shared queues of its domain.
#[derive(Debug)]
pub(crate) struct Named {
    domain: XrcdId,
    /// The queue of the message under way, or of the packet at hand.
    current: Option<Srqn>,
}

impl Receives {
    /// Those of a queue pair that is created with `init`, which the engine has checked.
    pub(crate) fn new(id: &Identity, init: &QpInit) -> Self {
        match (init.qp_type, init.srq) {
            (QpType::XrcIni, _) => Self::None,
            (QpType::XrcTgt, _) => {
                Self::Named(Named { domain: init.xrcd.unwrap_or_default(), current: None })
            }
            (_, Some(srqn)) => Self::Shared(srqn),
            (_, None) => {
                Self::Own(RecvQueue::new(init.cap.max_recv_wr as usize, id.pd, id.recv_cq))
            }
        }
    }

    /// The one shared queue, if there is one.
    pub(crate) fn srq(&self) -> Option<Srqn> {
        match self {
            Self::Shared(srqn) => Some(*srqn),
            _ => None,
        }
    }

    /// Does something with the queue. A shared one is lent for that.
    pub(crate) fn with<R>(
        &mut self,
        cx: &mut Context<'_>,
        id: &Identity,
        act: impl FnOnce(&mut Context<'_>, &mut RecvQueue) -> R,
    ) -> R {
        let srqn = match self {
            Self::Own(queue) => return act(cx, queue),
            Self::Shared(srqn) => Some(*srqn),
            Self::Named(named) => named.current,
            Self::None => None,
        };
        let Some(srqn) = srqn else { return act(cx, &mut RecvQueue::default()) };
        let mut queue = cx.srqs.lend(srqn, id.recv_cq);
        let result = act(cx, &mut queue);
        let event = cx.srqs.take_back(srqn, queue);
        cx.outputs.events.extend(event);
        result
    }
}

impl Named {
    /// Turns to the queue that a packet names; a message under way keeps its own. Also says in which
    /// domain the packet's keys are looked for: that of the queue (IBTA vol 1, annex A14).
    pub(crate) fn turn_to(
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

    /// The packet is dealt with, and no message is under way.
    pub(crate) fn turn_away(&mut self) {
        self.current = None;
    }

    /// Whether the message under way has begun with this queue.
    pub(crate) fn is_at(&self, srqn: Srqn) -> bool {
        self.current == Some(srqn)
    }
}

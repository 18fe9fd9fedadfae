//! Where a queue pair takes receive requests from.

use crate::engine::post::QpCap;
use crate::ids::Srqn;
use crate::transport::connection::{Context, Identity};
use crate::transport::recv::RecvQueue;

/// A queue of its own, or one that others take from too.
#[derive(Debug)]
pub(crate) enum Receives {
    Own(RecvQueue),
    Shared(Srqn),
}

impl Receives {
    pub(crate) fn new(id: &Identity, cap: &QpCap, srq: Option<Srqn>) -> Self {
        match srq {
            Some(srqn) => Self::Shared(srqn),
            None => Self::Own(RecvQueue::new(cap.max_recv_wr as usize, id.pd, id.recv_cq)),
        }
    }

    /// The shared queue, if it is one.
    pub(crate) fn srq(&self) -> Option<Srqn> {
        match self {
            Self::Own(_) => None,
            Self::Shared(srqn) => Some(*srqn),
        }
    }

    /// Does something with the queue. A shared one is lent for that.
    pub(crate) fn with<R>(
        &mut self,
        cx: &mut Context<'_>,
        id: &Identity,
        act: impl FnOnce(&mut Context<'_>, &mut RecvQueue) -> R,
    ) -> R {
        match self {
            Self::Own(queue) => act(cx, queue),
            Self::Shared(srqn) => {
                let mut queue = cx.srqs.lend(*srqn, id.recv_cq);
                let result = act(cx, &mut queue);
                let event = cx.srqs.take_back(*srqn, queue);
                cx.outputs.events.extend(event);
                result
            }
        }
    }
}

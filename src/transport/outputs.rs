//! Outputs of an engine: completions and asynchronous events.

use std::collections::VecDeque;

pub use crate::transport::counters::{Counters, DropReason, Drops};

use crate::ids::{CqId, Qpn, Srqn};
use crate::transport::work::Completion;

/// Something happened that no work request's completion tells.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[doc(alias = "ibv_async_event")]
#[non_exhaustive]
pub enum AsyncEvent {
    /// A completion queue was full when a completion came; its queue pairs fail.
    #[doc(alias = "IBV_EVENT_CQ_ERR")]
    CqErr(CqId),
    /// The queue pair failed for a reason of its own.
    #[doc(alias = "IBV_EVENT_QP_FATAL")]
    QpFatal(Qpn),
    /// The peer sent what is no valid request, and no receive request tells of it.
    #[doc(alias = "IBV_EVENT_QP_REQ_ERR")]
    QpReqErr(Qpn),
    /// The peer tried what it may not, and no receive request tells of it.
    #[doc(alias = "IBV_EVENT_QP_ACCESS_ERR")]
    QpAccessErr(Qpn),
    /// The first packet arrived while the queue pair was in RTR.
    #[doc(alias = "IBV_EVENT_COMM_EST")]
    CommEst(Qpn),
    /// An interface has got an address of the device, or has lost it: a slot of the GID table is filled
    /// again, or empty.
    #[doc(alias = "IBV_EVENT_GID_CHANGE")]
    GidChange,
    /// An interface has an address of the device and carries packets, which was so of none before.
    #[doc(alias = "IBV_EVENT_PORT_ACTIVE")]
    PortActive,
    /// The device's interface carries no packets any more, or has lost the address; of several addresses
    /// it was the last that was left.
    #[doc(alias = "IBV_EVENT_PORT_ERR")]
    PortErr,
    /// The device has failed, and with it everything that was made of it: what was posted is flushed,
    /// and nothing more can be asked of it. The error of any call says why.
    #[doc(alias = "IBV_EVENT_DEVICE_FATAL")]
    DeviceFatal,
    /// Everything started before SQD is complete.
    #[doc(alias = "IBV_EVENT_SQ_DRAINED")]
    SqDrained(Qpn),
    /// The shared receive queue has failed, for its completion queue has: queue pairs that it is named to
    /// fail too.
    #[doc(alias = "IBV_EVENT_SRQ_ERR")]
    SrqErr(Srqn),
    /// Fewer receive requests are left than the limit that `modify` has set, which is off now.
    #[doc(alias = "IBV_EVENT_SRQ_LIMIT_REACHED")]
    SrqLimitReached(Srqn),
    /// The queue pair has failed, and takes no more receive requests from its shared queue: the last
    /// that it had taken is complete.
    #[doc(alias = "IBV_EVENT_QP_LAST_WQE_REACHED")]
    QpLastWqeReached(Qpn),
}

/// Completions and events on their way out, in order.
///
/// Bounded by the queues: a work request completes once, a queue pair fails once, and a limit is
/// reached once for each time it is set.
#[derive(Debug, Default)]
pub(crate) struct Outputs {
    pub(crate) completions: VecDeque<(CqId, Completion)>,
    pub(crate) events: VecDeque<AsyncEvent>,
    pub(crate) shortage: Shortage,
}

impl Outputs {
    /// Announces a completion at `cq`. Halves of queue pairs without a completion queue complete nothing.
    #[inline]
    pub(crate) fn complete(&mut self, cq: Option<CqId>, completion: Completion) {
        debug_assert!(cq.is_some(), "{completion:?} has nowhere to go");
        if let Some(cq) = cq {
            self.completions.push_back((cq, completion));
        }
    }
}

/// How near UC and UD are to losing messages for want of receive requests.
#[derive(Debug, Default)]
pub(crate) struct Shortage {
    /// Receive requests taken since one was posted.
    taken: u32,
    /// Receive requests that were left when the last was taken.
    left: usize,
}

impl Shortage {
    /// A stream takes so many one after the other.
    const STREAM: u32 = 64;

    /// What a few batches of datagrams take.
    const FEW: usize = 512;

    /// One was taken, and so many are left.
    pub(crate) fn take(&mut self, left: usize) {
        self.taken = self.taken.saturating_add(1);
        self.left = left;
    }

    /// One was posted.
    pub(crate) fn post(&mut self) {
        self.taken = 0;
    }

    /// Whether a stream of messages uses up the last of them.
    pub(crate) fn is_near(&self) -> bool {
        self.taken >= Self::STREAM && self.left < Self::FEW
    }
}

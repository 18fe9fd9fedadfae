//! Outputs of an engine: completions and asynchronous events.

use std::collections::VecDeque;

pub use crate::transport::counters::{Counters, DropReason, Drops};

use crate::ids::{CqId, Qpn, Srqn};
use crate::transport::work::Completion;

/// An event that no completion of a work request reports.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[doc(alias = "ibv_async_event")]
#[non_exhaustive]
pub enum AsyncEvent {
    /// A completion overran a full completion queue; its queue pairs fail.
    #[doc(alias = "IBV_EVENT_CQ_ERR")]
    CqErr(CqId),
    /// The queue pair failed for a local reason.
    #[doc(alias = "IBV_EVENT_QP_FATAL")]
    QpFatal(Qpn),
    /// The peer sent an invalid request, and no receive request reports it.
    #[doc(alias = "IBV_EVENT_QP_REQ_ERR")]
    QpReqErr(Qpn),
    /// The peer attempted an access without permission, and no receive request reports it.
    #[doc(alias = "IBV_EVENT_QP_ACCESS_ERR")]
    QpAccessErr(Qpn),
    /// The first packet arrived while the queue pair was in RTR.
    #[doc(alias = "IBV_EVENT_COMM_EST")]
    CommEst(Qpn),
    /// An interface has gained or lost an address of the device: a slot of the GID table is filled
    /// again or empty.
    #[doc(alias = "IBV_EVENT_GID_CHANGE")]
    GidChange,
    /// An interface with an address of the device is running, and none was before.
    #[doc(alias = "IBV_EVENT_PORT_ACTIVE")]
    PortActive,
    /// The device's interface is down or has lost its address. With several addresses, this was the
    /// last one.
    #[doc(alias = "IBV_EVENT_PORT_ERR")]
    PortErr,
    /// The device and all its objects have failed: posted requests are flushed, and every call
    /// returns the error.
    #[doc(alias = "IBV_EVENT_DEVICE_FATAL")]
    DeviceFatal,
    /// All requests started before SQD are complete.
    #[doc(alias = "IBV_EVENT_SQ_DRAINED")]
    SqDrained(Qpn),
    /// The shared receive queue has failed because its completion queue has. Queue pairs that
    /// receive packets for it fail too.
    #[doc(alias = "IBV_EVENT_SRQ_ERR")]
    SrqErr(Srqn),
    /// Fewer receive requests are left than the limit set by `modify`, which is now disabled.
    #[doc(alias = "IBV_EVENT_SRQ_LIMIT_REACHED")]
    SrqLimitReached(Srqn),
    /// The queue pair has failed and consumes no more receive requests of its shared queue. The
    /// last one that it consumed is complete.
    #[doc(alias = "IBV_EVENT_QP_LAST_WQE_REACHED")]
    QpLastWqeReached(Qpn),
}

/// Queued completions and events, in order.
///
/// The queue sizes bound them: a work request completes once, a queue pair fails once, and a limit
/// is reached once for each time it is set.
#[derive(Debug, Default)]
pub(crate) struct Outputs {
    pub(crate) completions: VecDeque<(CqId, Completion)>,
    pub(crate) events: VecDeque<AsyncEvent>,
    /// Queue pairs that have received their first packet since RTR, at most [`MAX_FIRST_PACKETS`].
    pub(crate) first_packets: VecDeque<Qpn>,
    pub(crate) shortage: Shortage,
}

/// Maximum number of reported first packets, for a driver without a connection manager, which does
/// not poll them.
const MAX_FIRST_PACKETS: usize = 1 << 14;

impl Outputs {
    /// Returns whether there is a completion, an event or a first packet to take.
    pub(crate) fn is_empty(&self) -> bool {
        self.completions.is_empty() && self.events.is_empty() && self.first_packets.is_empty()
    }

    /// Reports the first packet of a queue pair.
    #[cold]
    pub(crate) fn first_packet(&mut self, qpn: Qpn) {
        if self.first_packets.len() < MAX_FIRST_PACKETS {
            self.first_packets.push_back(qpn);
        }
    }

    /// Queues a completion for `cq`. Halves of queue pairs without a completion queue complete no
    /// requests.
    #[inline]
    pub(crate) fn complete(&mut self, cq: Option<CqId>, completion: Completion) {
        debug_assert!(cq.is_some(), "{completion:?} has nowhere to go");
        if let Some(cq) = cq {
            self.completions.push_back((cq, completion));
        }
    }
}

/// Detects that UC and UD may soon lose messages for lack of receive requests.
#[derive(Debug, Default)]
pub(crate) struct Shortage {
    /// Receive requests consumed since the last one was posted.
    taken: u32,
    /// Receive requests left when the last one was consumed.
    left: usize,
}

impl Shortage {
    /// Number of consecutive receive requests that a stream consumes.
    const STREAM: u32 = 64;

    /// Number of receive requests that a few batches of datagrams consume.
    const FEW: usize = 512;

    /// Records a consumed receive request, with `left` remaining.
    pub(crate) fn take(&mut self, left: usize) {
        self.taken = self.taken.saturating_add(1);
        self.left = left;
    }

    /// Records a posted receive request.
    pub(crate) fn post(&mut self) {
        self.taken = 0;
    }

    /// Whether a stream of messages is about to exhaust the receive requests.
    pub(crate) fn is_near(&self) -> bool {
        self.taken >= Self::STREAM && self.left < Self::FEW
    }
}

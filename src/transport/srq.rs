//! Shared receive queues: receive requests that several queue pairs consume.
//!
//! The first packet of a message takes the oldest request, and the message keeps it to its end. A
//! queue pair thus holds at most one request. A queue pair that finds the queue empty has no claim
//! to the next posted request (IBTA vol 1, §10.2.9).
//!
//! The table *lends* a queue to a queue pair for one input, and takes it back.

use std::collections::BTreeMap;

use crate::ids::{CqId, PdId, Srqn, XrcdId};
use crate::transport::outputs::AsyncEvent;
use crate::transport::recv::RecvQueue;

/// Properties of a shared receive queue for XRC.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct XrcSrq {
    /// The domain of the queue pairs that may consume its requests.
    pub domain: XrcdId,
    /// Completion queue of its requests.
    pub cq: CqId,
}

/// A shared receive queue.
#[derive(Debug)]
pub(crate) struct Srq {
    pub(crate) queue: RecvQueue,
    /// Maximum number of scatter/gather elements of a request.
    pub(crate) max_sge: u32,
    /// Threshold for the limit event: fewer requests than this are left. 0 disables it.
    pub(crate) limit: u32,
    /// Number of queue pairs that use it.
    pub(crate) users: usize,
    /// Set for an XRC queue: packets carry its number.
    pub(crate) xrc: Option<XrcSrq>,
    /// Its completion queue failed.
    pub(crate) failed: bool,
    /// Number of requests when it was lent.
    lent_with: usize,
}

impl Srq {
    pub(crate) fn new(max_wr: u32, max_sge: u32, pd: PdId, xrc: Option<XrcSrq>) -> Self {
        let queue = RecvQueue::shared(max_wr as usize, pd);
        Self { queue, max_sge, limit: 0, users: 0, xrc, failed: false, lent_with: 0 }
    }

    /// Whether requests were taken and fewer than the limit are left. It then disables the limit,
    /// so the event is reported once.
    fn falls_below_limit(&mut self) -> bool {
        let left = self.queue.len();
        let falls = left < self.lent_with && left < self.limit as usize;
        if falls {
            self.limit = 0;
        }
        falls
    }
}

/// The shared receive queues of an engine, by number.
#[derive(Debug)]
pub(crate) struct SrqTable {
    by_number: BTreeMap<Srqn, Srq>,
    /// The last assigned number.
    last: u32,
    /// Distance between numbers of this shard; the numbers in between belong to other shards.
    stride: u32,
}

impl SrqTable {
    /// Maximum number of queues of a device: a number has 24 bits, and 0 is reserved.
    pub(crate) const MAX: usize = 1 << 20;

    /// Returns the table of one shard; `shards` is a power of two.
    pub(crate) fn new(shard: u8, shards: u8) -> Self {
        let stride = u32::from(shards.max(1));
        Self { by_number: BTreeMap::new(), last: u32::from(shard) % stride, stride }
    }

    /// Adds a queue under the number that has been unused for the longest time. `None` when there
    /// are too many.
    pub(crate) fn insert(&mut self, srq: Srq) -> Option<Srqn> {
        if self.by_number.len() >= Self::MAX / self.stride as usize {
            return None;
        }
        loop {
            self.last = self.last.wrapping_add(self.stride) & 0xff_ffff;
            let srqn = Srqn::new(self.last);
            if self.last != 0 && !self.by_number.contains_key(&srqn) {
                self.by_number.insert(srqn, srq);
                return Some(srqn);
            }
        }
    }

    pub(crate) fn remove(&mut self, srqn: Srqn) {
        self.by_number.remove(&srqn);
    }

    pub(crate) fn get(&self, srqn: Srqn) -> Option<&Srq> {
        self.by_number.get(&srqn)
    }

    pub(crate) fn get_mut(&mut self, srqn: Srqn) -> Option<&mut Srq> {
        self.by_number.get_mut(&srqn)
    }

    /// Returns the XRC queues that complete at `cq`.
    pub(crate) fn completing_at(&mut self, cq: CqId) -> impl Iterator<Item = (Srqn, &mut Srq)> {
        let all = self.by_number.iter_mut().map(|(srqn, srq)| (*srqn, srq));
        all.filter(move |(_, srq)| srq.xrc.is_some_and(|xrc| xrc.cq == cq))
    }

    /// Lends a queue to a queue pair with the receive completion queue `cq`. An XRC queue keeps its
    /// own completion queue.
    pub(crate) fn lend(&mut self, srqn: Srqn, cq: Option<CqId>) -> RecvQueue {
        let Some(srq) = self.by_number.get_mut(&srqn) else { return RecvQueue::default() };
        srq.lent_with = srq.queue.len();
        srq.queue.cq = srq.xrc.map_or(cq, |xrc| Some(xrc.cq));
        std::mem::take(&mut srq.queue)
    }

    /// Takes back a lent queue. Returns the limit event if it is due.
    pub(crate) fn take_back(&mut self, srqn: Srqn, queue: RecvQueue) -> Option<AsyncEvent> {
        let srq = self.by_number.get_mut(&srqn)?;
        srq.queue = queue;
        srq.falls_below_limit().then_some(AsyncEvent::SrqLimitReached(srqn))
    }
}

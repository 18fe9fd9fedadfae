//! Shared receive queues: receive requests that several queue pairs take from.
//!
//! A message takes the oldest request with its first packet, whichever queue pair it comes to, and
//! keeps it to its end. So a queue pair holds one request at most, and none that waits for it; who
//! finds the queue empty has no claim to what is posted next (IBTA vol 1, §10.2.9).
//!
//! A queue is *lent* to a queue pair for one input, and taken back.

use std::collections::BTreeMap;

use crate::ids::{CqId, PdId, Srqn, XrcdId};
use crate::transport::outputs::AsyncEvent;
use crate::transport::recv::RecvQueue;

/// What a shared receive queue for XRC has that others have not.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct XrcSrq {
    /// Queue pairs of this domain may be told to take from it.
    pub domain: XrcdId,
    /// Where its requests complete.
    pub cq: CqId,
}

/// A shared receive queue.
#[derive(Debug)]
pub(crate) struct Srq {
    pub(crate) queue: RecvQueue,
    /// Pieces of a request.
    pub(crate) max_sge: u32,
    /// An event is due when fewer requests than this are left. 0: none is.
    pub(crate) limit: u32,
    /// Queue pairs that take from it.
    pub(crate) users: usize,
    /// It is for XRC: packets name it by its number.
    pub(crate) xrc: Option<XrcSrq>,
    /// It was for completions that are lost.
    pub(crate) failed: bool,
    /// How many requests waited when it was lent.
    lent_with: usize,
}

impl Srq {
    pub(crate) fn new(max_wr: u32, max_sge: u32, pd: PdId, xrc: Option<XrcSrq>) -> Self {
        let queue = RecvQueue::shared(max_wr as usize, pd);
        Self { queue, max_sge, limit: 0, users: 0, xrc, failed: false, lent_with: 0 }
    }

    /// Whether requests were taken and fewer are left than the limit says. Told once: the limit is
    /// off then.
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
    /// The number given last.
    last: u32,
    /// How far apart numbers are: in between are those of other shards.
    stride: u32,
}

impl SrqTable {
    /// How many there can be in a device: a number has 24 bits, and 0 is none.
    pub(crate) const MAX: usize = 1 << 20;

    /// That of one shard of so many, a power of two.
    pub(crate) fn new(shard: u8, shards: u8) -> Self {
        let stride = u32::from(shards.max(1));
        Self { by_number: BTreeMap::new(), last: u32::from(shard) % stride, stride }
    }

    /// Enters a queue under a number that was not in use for as long as possible. `None` when there
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

    /// The queues for XRC that complete at `cq`.
    pub(crate) fn completing_at(&mut self, cq: CqId) -> impl Iterator<Item = (Srqn, &mut Srq)> {
        let all = self.by_number.iter_mut().map(|(srqn, srq)| (*srqn, srq));
        all.filter(move |(_, srq)| srq.xrc.is_some_and(|xrc| xrc.cq == cq))
    }

    /// Lends a queue to a queue pair whose receive requests complete at `cq`, unless the queue has a
    /// completion queue of its own.
    pub(crate) fn lend(&mut self, srqn: Srqn, cq: Option<CqId>) -> RecvQueue {
        let Some(srq) = self.by_number.get_mut(&srqn) else { return RecvQueue::default() };
        srq.lent_with = srq.queue.len();
        srq.queue.cq = srq.xrc.map_or(cq, |xrc| Some(xrc.cq));
        std::mem::take(&mut srq.queue)
    }

    /// Takes back what was lent, with the event that is due if requests were taken from it.
    pub(crate) fn take_back(&mut self, srqn: Srqn, queue: RecvQueue) -> Option<AsyncEvent> {
        let srq = self.by_number.get_mut(&srqn)?;
        srq.queue = queue;
        srq.falls_below_limit().then_some(AsyncEvent::SrqLimitReached(srqn))
    }
}

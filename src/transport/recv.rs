//! The receive queue.

use std::collections::VecDeque;

use crate::ids::{CqId, PdId};
use crate::transport::work::RecvRequest;

/// Receive requests in the order posted: those of one queue pair, or of several that share them.
#[derive(Debug, Default)]
pub(crate) struct RecvQueue {
    requests: VecDeque<RecvRequest>,
    /// Number of requests taken by messages that are still arriving. They still count towards the capacity.
    taken: usize,
    capacity: usize,
    /// Protection domain of the memory of its requests.
    pub(crate) pd: PdId,
    /// Completion queue of its requests; `None` only if it never has any.
    pub(crate) cq: Option<CqId>,
    /// Several queue pairs take from it, so a request that one has taken cannot go back.
    pub(crate) shared: bool,
}

impl RecvQueue {
    /// The queue of one queue pair.
    pub(crate) fn new(capacity: usize, pd: PdId, cq: Option<CqId>) -> Self {
        Self { capacity, pd, cq, ..Self::default() }
    }

    /// A queue that several queue pairs take from.
    pub(crate) fn shared(capacity: usize, pd: PdId) -> Self {
        Self { capacity, pd, shared: true, ..Self::default() }
    }

    /// Appends a request, or gives it back when the queue is full.
    pub(crate) fn push(&mut self, request: RecvRequest) -> Result<(), RecvRequest> {
        if self.used() >= self.capacity {
            return Err(request);
        }
        self.requests.push_back(request);
        Ok(())
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.requests.is_empty()
    }

    /// How many wait for a message.
    pub(crate) fn len(&self) -> usize {
        self.requests.len()
    }

    /// How many are not complete: they wait, or their message is arriving.
    pub(crate) fn used(&self) -> usize {
        self.requests.len() + self.taken
    }

    /// The oldest request, to be looked at.
    pub(crate) fn first(&self) -> Option<&RecvRequest> {
        self.requests.front()
    }

    /// The oldest request, for a message that starts.
    pub(crate) fn take(&mut self) -> Option<RecvRequest> {
        let request = self.requests.pop_front()?;
        self.taken += 1;
        Some(request)
    }

    /// The oldest request was for a message of one packet, and is complete.
    pub(crate) fn pop_first(&mut self) {
        self.requests.pop_front();
    }

    /// A taken request is free for the next message.
    pub(crate) fn put_back(&mut self, request: RecvRequest) {
        self.finish();
        self.requests.push_front(request);
    }

    /// A taken request has completed.
    pub(crate) fn finish(&mut self) {
        self.taken = self.taken.saturating_sub(1);
    }

    /// Removes every request that no message has taken, oldest first.
    pub(crate) fn drain(&mut self) -> impl Iterator<Item = RecvRequest> + '_ {
        self.requests.drain(..)
    }

    pub(crate) fn capacity(&self) -> usize {
        self.capacity
    }

    /// Changes how many requests it holds; the caller knows that those in it fit.
    pub(crate) fn resize(&mut self, capacity: usize) {
        self.capacity = capacity;
    }
}

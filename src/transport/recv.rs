//! The receive queue.

use std::collections::VecDeque;

use crate::ids::{CqId, PdId};
use crate::transport::work::RecvRequest;

/// Receive requests in posting order, of one queue pair or shared by several.
#[derive(Debug, Default)]
pub(crate) struct RecvQueue {
    requests: VecDeque<RecvRequest>,
    /// Number of requests held by messages that are being received. They count against the
    /// capacity.
    taken: usize,
    capacity: usize,
    /// Protection domain of the memory of its requests.
    pub(crate) pd: PdId,
    /// Completion queue of its requests; `None` only if it never has any.
    pub(crate) cq: Option<CqId>,
    /// Several queue pairs consume its requests, so a consumed request cannot be put back.
    pub(crate) shared: bool,
}

impl RecvQueue {
    /// Returns the queue of one queue pair.
    pub(crate) fn new(capacity: usize, pd: PdId, cq: Option<CqId>) -> Self {
        Self { capacity, pd, cq, ..Self::default() }
    }

    /// Returns a queue for several queue pairs.
    pub(crate) fn shared(capacity: usize, pd: PdId) -> Self {
        Self { capacity, pd, shared: true, ..Self::default() }
    }

    /// Appends a request, or returns it if the queue is full.
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

    /// Returns the number of requests that wait for a message.
    pub(crate) fn len(&self) -> usize {
        self.requests.len()
    }

    /// Returns the number of incomplete requests: those that wait, and those held by a message.
    pub(crate) fn used(&self) -> usize {
        self.requests.len() + self.taken
    }

    /// Returns the oldest request without removing it.
    pub(crate) fn first(&self) -> Option<&RecvRequest> {
        self.requests.front()
    }

    /// Takes the oldest request for a message that starts.
    pub(crate) fn take(&mut self) -> Option<RecvRequest> {
        let request = self.requests.pop_front()?;
        self.taken += 1;
        Some(request)
    }

    /// Removes the oldest request, which a single-packet message has completed.
    pub(crate) fn pop_first(&mut self) {
        self.requests.pop_front();
    }

    /// Puts a taken request back for the next message.
    pub(crate) fn put_back(&mut self, request: RecvRequest) {
        self.finish();
        self.requests.push_front(request);
    }

    /// Records that a taken request has completed.
    pub(crate) fn finish(&mut self) {
        self.taken = self.taken.saturating_sub(1);
    }

    /// Removes all requests that no message holds, oldest first.
    pub(crate) fn drain(&mut self) -> impl Iterator<Item = RecvRequest> + '_ {
        self.requests.drain(..)
    }

    pub(crate) fn capacity(&self) -> usize {
        self.capacity
    }

    /// Changes the capacity; the caller has checked that the current requests fit.
    pub(crate) fn resize(&mut self, capacity: usize) {
        self.capacity = capacity;
    }
}

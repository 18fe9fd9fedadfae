//! The receive queue.

use std::collections::VecDeque;

use crate::transport::work::RecvRequest;

/// Receive requests in the order posted.
#[derive(Debug)]
pub(crate) struct RecvQueue {
    requests: VecDeque<RecvRequest>,
    /// Taken by a message that is still arriving: its slot is not free yet.
    taken: usize,
    capacity: usize,
}

impl RecvQueue {
    pub(crate) fn new(capacity: usize) -> Self {
        Self { requests: VecDeque::new(), taken: 0, capacity }
    }

    /// Appends a request, or gives it back when the queue is full.
    pub(crate) fn push(&mut self, request: RecvRequest) -> Result<(), RecvRequest> {
        if self.requests.len() + self.taken >= self.capacity {
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
}

//! The send queue: unfinished requests, oldest first.

use crate::transport::work::SendRequest;
use crate::transport::wqe::Wqe;

/// Ring of unfinished requests, oldest first. A request keeps its slot until it is complete.
///
/// A request is written into its slot field by field. Building it elsewhere and moving it would
/// read the narrow writes back with wide loads. Such loads stall until the stores reach the cache
/// (failed store-to-load forwarding), which costs a tenth of the total time of a 64-byte message.
#[derive(Debug)]
pub(crate) struct SendQueue {
    /// The slots: a power of two, or none. Free slots hold no data.
    places: Vec<Wqe>,
    /// Index of the oldest request's slot.
    oldest: usize,
    len: usize,
    capacity: usize,
}

/// Minimum number of slots of a queue in use.
const FEWEST: usize = 4;

impl SendQueue {
    /// Returns a queue for `capacity` requests. Slots are allocated on demand.
    pub(crate) const fn new(capacity: usize) -> Self {
        Self { places: Vec::new(), oldest: 0, len: 0, capacity }
    }

    pub(crate) const fn capacity(&self) -> usize {
        self.capacity
    }

    /// Returns the number of requests that may still be posted.
    pub(crate) const fn room(&self) -> usize {
        self.capacity.saturating_sub(self.len)
    }

    pub(crate) const fn len(&self) -> usize {
        self.len
    }

    pub(crate) const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Appends a request of `length` bytes, and takes its data. The caller has checked
    /// [`room`](Self::room).
    #[inline]
    pub(crate) fn post(&mut self, request: &mut SendRequest, length: u32) {
        if self.len == self.places.len() {
            self.grow();
        }
        let place = self.place(self.len);
        if let Some(wqe) = self.places.get_mut(place) {
            wqe.set(request, length);
            self.len += 1;
        }
    }

    #[cold]
    fn grow(&mut self) {
        self.places.rotate_left(self.oldest);
        self.oldest = 0;
        self.places.resize_with((2 * self.len).max(FEWEST), Wqe::default);
    }

    /// Returns the slot of the request at `index`, if there is one.
    #[inline]
    const fn place(&self, index: usize) -> usize {
        self.oldest.wrapping_add(index) & self.places.len().wrapping_sub(1)
    }

    #[inline]
    pub(crate) fn get(&self, index: usize) -> Option<&Wqe> {
        self.places.get(self.place(index)).filter(|_| index < self.len)
    }

    #[inline]
    pub(crate) fn get_mut(&mut self, index: usize) -> Option<&mut Wqe> {
        let (place, len) = (self.place(index), self.len);
        self.places.get_mut(place).filter(|_| index < len)
    }

    #[inline]
    pub(crate) fn front(&self) -> Option<&Wqe> {
        self.get(0)
    }

    #[inline]
    pub(crate) fn front_mut(&mut self) -> Option<&mut Wqe> {
        self.get_mut(0)
    }

    /// Removes the oldest request.
    #[inline]
    pub(crate) fn pop_front(&mut self) {
        if let Some(oldest) = self.front_mut() {
            oldest.clear();
            self.oldest = self.place(1);
            self.len -= 1;
        }
    }

    /// Removes all requests.
    pub(crate) fn clear(&mut self) {
        while !self.is_empty() {
            self.pop_front();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use proptest::prelude::*;

    use super::*;
    use crate::transport::work::SendData;

    fn post(queue: &mut SendQueue, wr_id: u64) {
        let mut request = SendRequest::send(wr_id, SendData::inline(&wr_id.to_be_bytes()));
        queue.post(&mut request, 8);
        assert_eq!(request.data, SendData::none(), "what was posted is no longer the caller's");
    }

    fn known(queue: &SendQueue) -> Vec<u64> {
        let mut all = (0..).map_while(|index| queue.get(index).map(|wqe| wqe.end_of().wr_id));
        all.by_ref().collect()
    }

    proptest! {
        /// Each step: the number of requests posted, and then completed.
        #[test]
        fn requests_stay_in_order_however_many_come_and_go(
            steps in prop::collection::vec((0..12_usize, 0..12_usize), 1..40),
        ) {
            let (mut queue, mut model, mut next) = (SendQueue::new(64), VecDeque::new(), 0);
            for (posted, completed) in steps {
                for _ in 0..posted.min(queue.room()) {
                    post(&mut queue, next);
                    model.push_back(next);
                    next += 1;
                }
                prop_assert_eq!((known(&queue), queue.len()), (Vec::from_iter(model.clone()), model.len()));
                prop_assert!(queue.get_mut(model.len()).is_none());
                for _ in 0..completed {
                    queue.pop_front();
                    model.pop_front();
                }
                prop_assert_eq!(queue.front_mut().map(|wqe| wqe.end_of().wr_id), model.front().copied());
                prop_assert_eq!(queue.room(), 64 - model.len());
            }
            queue.clear();
            prop_assert!(queue.is_empty() && queue.front().is_none());
        }
    }

    /// A reused slot has no data of the previous request.
    #[test]
    fn what_is_complete_is_let_go() {
        let mut queue = SendQueue::new(4);
        let long = SendData::inline(&[7; 1000]);
        queue.post(&mut SendRequest::send(1, long).signaled(), 1000);
        queue.pop_front();
        for wr_id in 2..6 {
            post(&mut queue, wr_id);
        }
        let holding = |queue: &SendQueue| {
            queue.places.iter().filter(|place| format!("{place:?}").contains("Inline")).count()
        };
        assert_eq!(holding(&queue), 4);
        queue.pop_front();
        assert_eq!(holding(&queue), 3);
        queue.clear();
        assert_eq!(holding(&queue), 0);
    }
}

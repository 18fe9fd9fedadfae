//! Number of messages to request in one receive call.
//!
//! A call for one message is cheaper to set up; a call for many is cheaper for each message. A call receives no more
//! than fits the cache, and leaves programs the time to post receive requests.

use crate::sys::MAX_MESSAGES;

/// Maximum bytes received by one call, so that they are still in the cache when they are read.
pub(in crate::port) const MAX_BYTES_PER_RECV: usize = 256 << 10;

/// Approximate maximum of datagrams received by one call. Each may consume a receive request, and a program posts new
/// ones only after it has polled completions. Programs post 512 at a time, or more.
pub(in crate::port) const MAX_DATAGRAMS_PER_RECV: usize = 256;

/// Length of a received message, or of a send, from which it counts as part of a stream: more messages follow at once.
const STREAM_BYTES: usize = 8 << 10;

/// Minimum number of messages to request after a send of a stream. The send took long: requests and acknowledgements
/// arrived meanwhile, one message each, and responses to several requests share bursts.
const MIN_MESSAGES_AFTER_STREAM: usize = 8;

/// Number of messages to request, adapted to the messages received and sent.
#[derive(Debug)]
pub(in crate::port) struct RecvBatchSize {
    next: usize,
    /// Maximum for messages as long as the last ones.
    max: usize,
}

impl RecvBatchSize {
    pub(in crate::port) const fn new() -> Self {
        Self { next: 1, max: MAX_MESSAGES }
    }

    /// Returns the number of messages to request next.
    pub(in crate::port) const fn next(&self) -> usize {
        self.next
    }

    /// Reports the messages of one receive call, and the datagrams and bytes in all of them.
    pub(in crate::port) fn received(&mut self, messages: usize, datagrams: usize, bytes: usize) {
        if messages == 0 {
            self.next = 1;
            return;
        }
        let fit = (MAX_BYTES_PER_RECV * messages).checked_div(bytes).unwrap_or(MAX_MESSAGES);
        let few =
            (MAX_DATAGRAMS_PER_RECV * messages).checked_div(datagrams).unwrap_or(MAX_MESSAGES);
        self.max = fit.min(few).clamp(1, MAX_MESSAGES);
        // A single short message is max often a response that a program waits for: no more follow at once.
        let is_stream = messages > 1 || bytes >= STREAM_BYTES;
        let wanted = if is_stream && messages == self.next { messages * 2 } else { messages };
        self.next = wanted.min(self.max);
    }

    /// Reports a send of `bytes` in one call.
    pub(in crate::port) fn sends(&mut self, bytes: usize) {
        if bytes >= STREAM_BYTES {
            self.next = self.next.max(MIN_MESSAGES_AFTER_STREAM.min(self.max));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the number requested after each of five calls that receive all they request, messages of this size.
    fn asked(bytes: usize, datagrams: usize) -> Vec<usize> {
        let mut batch = RecvBatchSize::new();
        let mut asked = || {
            let all = batch.next();
            batch.received(all, all * datagrams, all * bytes);
            batch.next()
        };
        [(); 5].map(|()| asked()).to_vec()
    }

    #[test]
    fn single_messages_are_requested_during_round_trips() {
        assert_eq!(asked(80, 1), [1, 1, 1, 1, 1]);
    }

    #[test]
    fn batch_doubles_for_a_stream_up_to_the_limits() {
        assert_eq!(asked(STREAM_BYTES, 2), [2, 4, 8, 16, 16]);
        assert_eq!(asked(60_000, 15), [2, 4, 4, 4, 4], "bytes");
        assert_eq!(asked(60_000, 100), [2, 2, 2, 2, 2], "datagrams");
    }

    #[test]
    fn empty_receive_resets_the_batch() {
        let mut batch = RecvBatchSize::new();
        batch.received(1, 2, STREAM_BYTES);
        assert_eq!(batch.next(), 2);
        batch.received(0, 0, 0);
        assert_eq!(batch.next(), 1);
    }

    #[test]
    fn send_of_a_stream_raises_the_batch() {
        let mut batch = RecvBatchSize::new();
        batch.received(1, 1, 20);
        batch.sends(STREAM_BYTES - 1);
        assert_eq!(batch.next(), 1);
        batch.sends(STREAM_BYTES);
        assert_eq!(batch.next(), 8);
        batch.received(3, 3, 60);
        assert_eq!(batch.next(), 3);
        // In both directions.
        batch.received(1, 15, 60_000);
        batch.sends(60_000);
        assert_eq!(batch.next(), 4);
    }
}

//! How many messages to ask for in one receive.
//!
//! One is cheaper to ask for, many are cheaper to get. What is received is read while it is in the cache, and
//! finds receive requests that were posted before.

use crate::sys::MAX_MESSAGES;

/// Bytes to receive in one call at most, so that they are still in the cache when they are read.
pub(in crate::port) const MOST_BYTES: usize = 256 << 10;

/// Datagrams to receive in one call, about: each may take a receive request, and who looks for
/// completions posts the next after he has seen them. Programs post 512 at a time, or more.
pub(in crate::port) const MOST_DATAGRAMS: usize = 256;

/// What is received in one message is part of a stream when it is so long, and others are behind it. So is
/// what is sent at once.
const STREAM_BYTES: usize = 8 << 10;

/// Messages to ask for at least when a part of a stream was sent since the last time. That took long: requests and
/// acknowledgements have come meanwhile, one message each, and answers to several requests share bursts.
const BEHIND_STREAM: usize = 8;

/// How many messages to ask for, learnt from what was received and sent.
#[derive(Debug)]
pub(in crate::port) struct Batch {
    next: usize,
    /// How many are not too much, if they are as long as the last.
    most: usize,
}

impl Batch {
    pub(in crate::port) const fn new() -> Self {
        Self { next: 1, most: MAX_MESSAGES }
    }

    /// How many to ask for next.
    pub(in crate::port) const fn next(&self) -> usize {
        self.next
    }

    /// So many were received, with so many datagrams and bytes in all.
    pub(in crate::port) fn received(&mut self, messages: usize, datagrams: usize, bytes: usize) {
        if messages == 0 {
            self.next = 1;
            return;
        }
        let fit = (MOST_BYTES * messages).checked_div(bytes).unwrap_or(MAX_MESSAGES);
        let few = (MOST_DATAGRAMS * messages).checked_div(datagrams).unwrap_or(MAX_MESSAGES);
        self.most = fit.min(few).clamp(1, MAX_MESSAGES);
        // A lone small message is an answer that somebody waits for; what follows is another wait.
        let is_stream = messages > 1 || bytes >= STREAM_BYTES;
        let wanted = if is_stream && messages == self.next { messages * 2 } else { messages };
        self.next = wanted.min(self.most);
    }

    /// So many bytes are being sent at once.
    pub(in crate::port) fn sends(&mut self, bytes: usize) {
        if bytes >= STREAM_BYTES {
            self.next = self.next.max(BEHIND_STREAM.min(self.most));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What is asked for after each of these messages of a length, when all that was asked for has come.
    fn asked(bytes: usize, datagrams: usize) -> Vec<usize> {
        let mut batch = Batch::new();
        let mut asked = || {
            let all = batch.next();
            batch.received(all, all * datagrams, all * bytes);
            batch.next()
        };
        [(); 5].map(|()| asked()).to_vec()
    }

    #[test]
    fn one_is_asked_for_while_each_is_an_answer_to_something() {
        assert_eq!(asked(80, 1), [1, 1, 1, 1, 1]);
    }

    #[test]
    fn ever_more_of_a_stream_are_asked_for_but_no_more_than_is_read_in_time() {
        assert_eq!(asked(STREAM_BYTES, 2), [2, 4, 8, 16, 16]);
        assert_eq!(asked(60_000, 15), [2, 4, 4, 4, 4], "bytes");
        assert_eq!(asked(60_000, 100), [2, 2, 2, 2, 2], "datagrams");
    }

    #[test]
    fn one_is_asked_for_when_nothing_has_come() {
        let mut batch = Batch::new();
        batch.received(1, 2, STREAM_BYTES);
        assert_eq!(batch.next(), 2);
        batch.received(0, 0, 0);
        assert_eq!(batch.next(), 1);
    }

    #[test]
    fn several_are_asked_for_behind_a_stream_of_our_own() {
        let mut batch = Batch::new();
        batch.received(1, 1, 20);
        batch.sends(STREAM_BYTES - 1);
        assert_eq!(batch.next(), 1);
        batch.sends(STREAM_BYTES);
        assert_eq!(batch.next(), 8);
        batch.received(3, 3, 60);
        assert_eq!(batch.next(), 3);
        // Both ways.
        batch.received(1, 15, 60_000);
        batch.sends(60_000);
        assert_eq!(batch.next(), 4);
    }
}

//! Figures that streams have in common: messages, retransmissions, waits, losses.

use std::collections::BTreeMap;

use super::series::Distribution;

/// Messages that do the same.
#[derive(Clone, Debug, Default)]
pub struct Messages {
    /// How many began and ended.
    pub messages: u64,
    /// Their bytes.
    pub bytes: u64,
    /// How many carried immediate data.
    pub with_immediate: u64,
    /// How many have this size, for the first [`Messages::SIZES`] sizes that there are.
    pub sizes: BTreeMap<u64, u64>,
    /// How many have another size, or one that the capture does not show.
    pub other_sizes: u64,
    /// From the first packet to the acknowledgement of the last, or to the end of the answer.
    pub latency: Distribution,
}

impl Messages {
    /// Sizes that are counted one by one.
    pub const SIZES: usize = 16;

    /// Adds others that do the same.
    pub fn merge(&mut self, other: &Self) {
        let Self { messages, bytes, with_immediate, sizes, other_sizes, latency } = other;
        self.messages += messages;
        self.bytes = self.bytes.saturating_add(*bytes);
        self.with_immediate += with_immediate;
        self.other_sizes += other_sizes;
        sizes.iter().for_each(|(size, count)| self.count_size(*size, *count));
        self.latency.merge(latency);
    }

    pub(super) fn count(&mut self, size: Option<u64>, immediate: bool) {
        self.messages += 1;
        self.with_immediate += u64::from(immediate);
        let Some(size) = size else {
            self.other_sizes += 1;
            return;
        };
        self.bytes = self.bytes.saturating_add(size);
        self.count_size(size, 1);
    }

    fn count_size(&mut self, size: u64, times: u64) {
        let room = self.sizes.len() < Self::SIZES;
        match self.sizes.get_mut(&size) {
            Some(count) => *count += times,
            None if room => drop(self.sizes.insert(size, times)),
            None => self.other_sizes += times,
        }
    }
}

/// Request packets that came again, by why; see [`Cause`](crate::flow::Cause).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Retransmissions {
    /// A NAK asked for them.
    pub by_nak: u64,
    /// An RNR NAK put them off.
    pub by_rnr: u64,
    /// A timer ran out.
    pub by_timeout: u64,
    /// A later answer came, and not that of a READ or atomic.
    pub implied: u64,
    /// The capture does not show why.
    pub unexplained: u64,
    /// Of all these, what had been acknowledged already.
    pub spurious: u64,
    /// Bytes of payload that came again.
    pub bytes: u64,
    /// Answers to READs that came again.
    pub responses: u64,
}

impl Retransmissions {
    /// Request packets, whatever the cause.
    pub const fn total(&self) -> u64 {
        self.by_nak + self.by_rnr + self.by_timeout + self.implied + self.unexplained
    }
}

/// Times in which a requester waited for the same reason.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Waits {
    /// How many reasons there were.
    pub count: u64,
    /// How many of the waits ended.
    pub ended: u64,
    /// How long those were together, in nanoseconds.
    pub total: u64,
    /// The longest of them.
    pub longest: u64,
}

impl Waits {
    pub(super) fn end(&mut self, waited: u64) {
        self.ended += 1;
        self.total = self.total.saturating_add(waited);
        self.longest = self.longest.max(waited);
    }
}

/// Packets that are not in the capture, or did not get where they were to.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Missing {
    /// Requests with a PSN that the capture skips at first.
    pub holes: u64,
    /// Of these, the late ones: reordered, or retransmitted.
    pub filled: u64,
    /// NAKs for a request that the capture has: it was lost behind the point of capture.
    pub lost_behind: u64,
    /// NAKs for one that it has not.
    pub lost_before: u64,
    /// Answers to READs that were skipped.
    pub responses: u64,
}

impl Missing {
    /// Requests that were never captured.
    pub const fn never(&self) -> u64 {
        self.holes.saturating_sub(self.filled)
    }
}

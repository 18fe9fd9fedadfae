//! Delayed acknowledgements.
//!
//! A program that responds to a message with another one also has to acknowledge it. If the peer sends its next message
//! without waiting for the acknowledgement, one acknowledgement covers many messages, and a round trip takes two
//! packets instead of four. So an acknowledgement waits [`ACK_DELAY`] for the next message. If the delay expires, the
//! following acknowledgements are sent at once, until another attempt.

use std::time::Duration;

use crate::runtime::AckPolicy;
use crate::time::Instant;

/// Time that an acknowledgement waits after the response: a few round trips within a machine, or one between two
/// machines at a switch.
pub(super) const ACK_DELAY: Duration = Duration::from_micros(50);

/// Maximum number of responses before an acknowledgement is sent.
const MAX_RESPONSES_PER_ACK: u32 = 16;

/// Number of responses that are acknowledged at once after the delay has expired: the first time, and at most.
const MIN_IMMEDIATE_ACKS: u32 = 64;
const MAX_IMMEDIATE_ACKS: u32 = 4096;

/// State of the pending acknowledgement of a shard.
#[derive(Debug)]
pub(crate) struct DelayedAck {
    policy: AckPolicy,
    until: Option<Instant>,
    /// Responses since the last acknowledgement.
    answers: u32,
    /// Responses to acknowledge at once before another attempt.
    skip: u32,
    /// Value of `skip` after the next expiry.
    pause: u32,
}

impl DelayedAck {
    pub(crate) const fn new(policy: AckPolicy) -> Self {
        Self { policy, until: None, answers: 0, skip: 0, pause: MIN_IMMEDIATE_ACKS }
    }

    /// Returns when requests are acknowledged.
    pub(crate) fn policy(&self) -> AckPolicy {
        self.policy
    }

    /// Reports that a response was sent, and that an acknowledgement is pending.
    pub(crate) fn response_sent(&mut self, now: Instant) {
        if self.policy != AckPolicy::Lazy {
            return;
        }
        if self.skip > 0 {
            self.skip -= 1;
            return;
        }
        self.answers += 1;
        if self.answers < MAX_RESPONSES_PER_ACK {
            self.until = Some(now + ACK_DELAY);
        } else {
            // The peer has continued each time.
            self.pause = MIN_IMMEDIATE_ACKS;
            self.sent();
        }
    }

    /// Returns whether the acknowledgement may wait longer.
    pub(crate) fn may_wait(&mut self, now: Instant) -> bool {
        let Some(until) = self.until else { return false };
        if now < until {
            return true;
        }
        self.skip = self.pause;
        self.pause = (self.pause * 2).min(MAX_IMMEDIATE_ACKS);
        self.sent();
        false
    }

    /// Reports that the acknowledgement was sent.
    pub(crate) fn sent(&mut self) {
        self.until = None;
        self.answers = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns how many of `answers` responses, one each `gap`, delayed the acknowledgement.
    fn held(delayed: &mut DelayedAck, answers: u32, gap: Duration) -> u32 {
        let mut now = Instant::ZERO;
        let mut held = 0;
        for _ in 0..answers {
            delayed.response_sent(now);
            held += u32::from(delayed.may_wait(now));
            now += gap;
            if !delayed.may_wait(now) {
                delayed.sent();
            }
        }
        held
    }

    #[test]
    fn one_in_sixteen_is_sent_while_the_peer_goes_on() {
        assert_eq!(held(&mut DelayedAck::new(AckPolicy::Lazy), 160, Duration::from_micros(8)), 150);
    }

    #[test]
    fn a_peer_that_waits_is_seldom_made_to() {
        let mut delayed = DelayedAck::new(AckPolicy::Lazy);
        let gap = ACK_DELAY;
        assert_eq!(held(&mut delayed, 1, gap), 1);
        assert_eq!(held(&mut delayed, 64, gap), 0);
        assert_eq!(held(&mut delayed, 1, gap), 1);
        assert_eq!(held(&mut delayed, 128, gap), 0);
        // After 256, 512, 1024, 2048, and then each 4096.
        assert_eq!(held(&mut delayed, 100_000, gap), 28);
    }

    #[test]
    fn a_peer_that_no_longer_waits_is_found_out() {
        let mut delayed = DelayedAck::new(AckPolicy::Lazy);
        held(&mut delayed, 100_000, ACK_DELAY);
        held(&mut delayed, MAX_IMMEDIATE_ACKS, Duration::from_micros(8));
        assert_eq!(held(&mut delayed, 160, Duration::from_micros(8)), 150);
    }
}

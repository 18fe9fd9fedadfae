//! Delayed acknowledgements.
//!
//! A program that responds to a message with another one also has to acknowledge it. If the peer sends its next message
//! without waiting for the acknowledgement, one acknowledgement covers many messages, and a round trip takes two
//! packets instead of four. So the acknowledgement of a request waits [`ACK_DELAY`], in three cases:
//!
//! | request | response | the acknowledgement waits for |
//! |---|---|---|
//! | any, received in a poll | sent | the next message of the peer |
//! | WRITE without completion, or any received by the device's thread | not yet sent | the response |
//! | any, less than [`ACK_DELAY`] after another one, received in a poll | none | further messages of the peer |
//!
//! The second case is for programs that wait until their memory changes. The peer polls for the completion of its
//! message. If the acknowledgement follows the response, that poll also receives the response. Otherwise the poll ends
//! before it, and the peer needs its device's thread, which may wait for a processor.
//!
//! The third case is for a peer that sends one message after the other. The receiver is faster than the sender, so it would
//! acknowledge each message alone, as TCP would without delayed acknowledgements (RFC 1122, section 4.2.3.2). WRITEs
//! without a completion get there from the second case, if no response comes.
//!
//! If the delay expires, the following acknowledgements are sent at once, until another attempt. The peer may wait for
//! them before it sends its next message, as perftest's latency tests do. So they leave with the response, and in its
//! burst if they fit: a round trip takes four packets then, but one system call to send and one to receive at each end.

use std::time::Duration;

use crate::runtime::AckPolicy;
use crate::time::Instant;

/// Time that an acknowledgement waits: a few round trips within a machine, or one between two machines at a switch.
pub(super) const ACK_DELAY: Duration = Duration::from_micros(50);

/// Maximum number of responses before an acknowledgement is sent.
const MAX_RESPONSES_PER_ACK: u32 = 16;

/// Number of turns with received messages before an acknowledgement without a response is sent.
const MAX_TURNS_PER_ACK: u32 = 4;

/// Number of acknowledgements that are sent at once after the delay has expired: the first time, and at most.
const MIN_IMMEDIATE_ACKS: u32 = 64;
const MAX_IMMEDIATE_ACKS: u32 = 4096;

/// Number of waits for further messages that save about the time that an expired one takes.
const HELPS_PER_EXPIRY: u32 = 16;

/// Which acknowledgements of a turn may wait for the response.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum AckWait {
    /// None.
    Never,
    /// Those of requests without a completion. A program that polls responds to a completion before its next poll.
    WithoutCompletion,
    /// All.
    Always,
}

impl AckWait {
    /// Returns whether acknowledgements may wait after a turn with or without completions.
    pub(super) fn admits(self, has_completions: bool) -> bool {
        match self {
            Self::Never => false,
            Self::WithoutCompletion => !has_completions,
            Self::Always => true,
        }
    }
}

/// State of the pending acknowledgement of a shard.
#[derive(Debug)]
pub(crate) struct DelayedAck {
    policy: AckPolicy,
    /// The wait for the next message, after the response.
    for_message: Wait,
    /// Responses since the last acknowledgement.
    answers: u32,
    /// The wait for the response.
    for_response: Wait,
    /// The wait for further messages, without a response.
    for_stream: Wait,
    /// Turns with received messages since that wait began.
    turns: u32,
    /// Time of the last turn with received messages.
    last_taken: Option<Instant>,
}

/// Attempts to wait. After one that was of no use, some are omitted.
#[derive(Debug)]
struct Wait {
    until: Option<Instant>,
    /// Number of attempts to omit.
    skip: u32,
    /// Value of `skip` after the next expiry.
    pause: u32,
}

impl Wait {
    const fn new() -> Self {
        Self { until: None, skip: 0, pause: MIN_IMMEDIATE_ACKS }
    }

    /// Returns whether an attempt may begin now.
    fn may_begin(&mut self) -> bool {
        let may_begin = self.skip == 0;
        self.skip = self.skip.saturating_sub(1);
        may_begin
    }

    /// Returns whether the acknowledgement may wait longer.
    fn lasts(&mut self, now: Instant) -> bool {
        let Some(until) = self.until else { return false };
        if now >= until {
            self.until = None;
            self.skip = self.pause;
            self.pause = (self.pause * 2).min(MAX_IMMEDIATE_ACKS);
        }
        self.until.is_some()
    }

    /// Reports that the wait was of use.
    fn has_helped(&mut self) {
        self.until = None;
        self.pause = MIN_IMMEDIATE_ACKS;
    }

    /// Reports that the wait has saved a few acknowledgements, far less time than an expiry takes.
    fn has_helped_a_little(&mut self) {
        self.until = None;
        self.pause = (self.pause - self.pause / HELPS_PER_EXPIRY).max(MIN_IMMEDIATE_ACKS);
    }
}

impl DelayedAck {
    pub(crate) const fn new(policy: AckPolicy) -> Self {
        let [for_message, for_response, for_stream] = [const { Wait::new() }; 3];
        Self {
            policy,
            for_message,
            answers: 0,
            for_response,
            for_stream,
            turns: 0,
            last_taken: None,
        }
    }

    /// Returns when requests are acknowledged.
    pub(crate) fn policy(&self) -> AckPolicy {
        self.policy
    }

    /// Reports that a response was sent, and that an acknowledgement is pending.
    pub(crate) fn response_sent(&mut self, now: Instant) {
        if self.policy != AckPolicy::Lazy || !self.for_message.may_begin() {
            return;
        }
        self.answers += 1;
        if self.answers < MAX_RESPONSES_PER_ACK {
            self.for_message.until = Some(now + ACK_DELAY);
        } else {
            // The peer has continued each time.
            self.for_message.has_helped();
            self.answers = 0;
        }
    }

    /// Returns whether an acknowledgement would not wait for the next message after a response that is sent now.
    pub(crate) fn is_immediate(&self) -> bool {
        self.policy == AckPolicy::Lazy && self.for_message.skip > 0
    }

    /// Reports that an acknowledgement is sent with the response, because [it would not wait](Self::is_immediate).
    pub(crate) fn sent_with_response(&mut self) {
        self.for_message.skip = self.for_message.skip.saturating_sub(1);
    }

    /// Returns whether the acknowledgement may wait longer for the next message.
    pub(crate) fn waits_for_message(&mut self, now: Instant) -> bool {
        let waits = self.for_message.lasts(now);
        if !waits {
            self.answers = 0;
        }
        waits
    }

    /// Reports a received request, of which only the acknowledgement is pending. Returns whether that waits for the
    /// response.
    pub(crate) fn request_taken(&mut self, now: Instant) -> bool {
        let waits = self.for_response.until.is_some();
        if self.policy == AckPolicy::Lazy && !waits && self.for_response.may_begin() {
            self.for_response.until = Some(now + ACK_DELAY);
        }
        self.for_response.until.is_some()
    }

    /// Reports a turn that received messages to which no response is expected, and of which only the acknowledgement is
    /// pending.
    pub(crate) fn messages_taken(&mut self, now: Instant) {
        let last = self.last_taken.replace(now);
        let is_stream = last.is_some_and(|last| now < last + ACK_DELAY);
        if self.for_stream.until.is_some() {
            self.turns += 1;
            if self.turns >= MAX_TURNS_PER_ACK {
                // The peer has continued each time.
                self.for_stream.has_helped_a_little();
            }
        } else if self.policy == AckPolicy::Lazy && is_stream && self.for_stream.may_begin() {
            self.for_stream.until = Some(now + ACK_DELAY);
            self.turns = 1;
        }
    }

    /// Returns whether the acknowledgement may wait longer for further messages.
    pub(crate) fn waits_in_stream(&mut self, now: Instant) -> bool {
        self.for_stream.lasts(now)
    }

    /// Reports that the program has posted a request.
    pub(crate) fn posted(&mut self) {
        // It may be the response.
        self.for_stream.until = None;
        if self.for_response.until.is_some() {
            self.for_response.has_helped();
        }
    }

    /// Returns whether the acknowledgement may wait longer for the response.
    pub(crate) fn waits_for_response(&mut self, now: Instant) -> bool {
        self.for_response.lasts(now)
    }

    /// Returns the time until which the acknowledgement waits for the response.
    pub(crate) fn response_deadline(&self) -> Option<Instant> {
        self.for_response.until
    }

    /// Reports that the acknowledgement was sent.
    pub(crate) fn sent(&mut self) {
        self.for_message.until = None;
        self.for_response.until = None;
        self.for_stream.until = None;
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
            held += u32::from(delayed.waits_for_message(now));
            now += gap;
            if !delayed.waits_for_message(now) {
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
    fn response_in_time_keeps_the_acknowledgement_waiting_each_time() {
        let mut delayed = DelayedAck::new(AckPolicy::Lazy);
        let at = |us| Instant::ZERO + Duration::from_micros(us);
        for request in 0..100 {
            delayed.request_taken(at(100 * request));
            assert_eq!(delayed.response_deadline(), Some(at(100 * request) + ACK_DELAY));
            assert!(delayed.waits_for_response(at(100 * request + 49)));
            delayed.posted();
            assert!(!delayed.waits_for_response(at(100 * request + 49)), "request {request}");
        }
    }

    #[test]
    fn program_without_responses_is_seldom_waited_for() {
        let mut delayed = DelayedAck::new(AckPolicy::Lazy);
        let mut waits = 0;
        for request in 0..200 {
            let now = Instant::ZERO + ACK_DELAY * request;
            delayed.request_taken(now);
            waits += u32::from(delayed.waits_for_response(now));
            assert!(!delayed.waits_for_response(now + ACK_DELAY));
        }
        assert_eq!(waits, 3, "after 64 and 128 more");
    }

    /// Returns the number of messages, one each `gap`, after which the acknowledgement was sent.
    fn acknowledged(delayed: &mut DelayedAck, start: Instant, messages: u32, gap: Duration) -> u32 {
        let mut acknowledged = 0;
        for message in 0..messages {
            let now = start + gap * message;
            if !delayed.waits_in_stream(now) {
                delayed.sent();
            }
            delayed.messages_taken(now);
            acknowledged += u32::from(!delayed.waits_in_stream(now));
        }
        acknowledged
    }

    #[test]
    fn one_message_in_four_of_a_stream_is_acknowledged() {
        let mut delayed = DelayedAck::new(AckPolicy::Lazy);
        let gap = Duration::from_micros(5);
        assert_eq!(acknowledged(&mut delayed, Instant::ZERO, 1, gap), 1, "no stream yet");
        let start = Instant::ZERO + gap;
        assert_eq!(acknowledged(&mut delayed, start, 400, gap), 100);
        let mut other = DelayedAck::new(AckPolicy::BeforeCompletion);
        assert_eq!(acknowledged(&mut other, start, 400, gap), 400);
    }

    #[test]
    fn messages_with_pauses_are_acknowledged_at_once() {
        let mut delayed = DelayedAck::new(AckPolicy::Lazy);
        assert_eq!(acknowledged(&mut delayed, Instant::ZERO, 400, ACK_DELAY), 400);
    }

    #[test]
    fn sender_that_waits_for_acknowledgements_of_a_stream_is_seldom_made_to() {
        let mut delayed = DelayedAck::new(AckPolicy::Lazy);
        let mut now = Instant::ZERO;
        let mut waits = 0;
        for _ in 0..10_000 {
            delayed.messages_taken(now);
            if delayed.waits_in_stream(now) {
                waits += 1;
                now += ACK_DELAY;
            }
            assert!(!delayed.waits_in_stream(now), "the delay has expired");
            delayed.sent();
            now += Duration::from_micros(10);
        }
        assert_eq!(waits, 8, "after 64, 128, 256, 512, 1024, 2048 and 4096 more");
    }

    #[test]
    fn sender_that_waits_now_and_then_is_seldom_made_to() {
        for in_flight in [8, 20] {
            let mut delayed = DelayedAck::new(AckPolicy::Lazy);
            let mut now = Instant::ZERO;
            let mut expired = 0;
            for message in 1..=100_000 {
                delayed.messages_taken(now);
                if message % in_flight == 0 && delayed.waits_in_stream(now) {
                    expired += 1;
                    now += ACK_DELAY;
                }
                if !delayed.waits_in_stream(now) {
                    delayed.sent();
                }
                now += Duration::from_micros(5);
            }
            // More than a thousand if each wait that has saved acknowledgements were followed by the next.
            assert!(expired < 100, "{expired} with {in_flight} messages in flight");
        }
    }

    #[test]
    fn response_ends_the_wait_for_further_messages() {
        let mut delayed = DelayedAck::new(AckPolicy::Lazy);
        delayed.messages_taken(Instant::ZERO);
        delayed.messages_taken(Instant::ZERO);
        assert!(delayed.waits_in_stream(Instant::ZERO));
        delayed.posted();
        assert!(!delayed.waits_in_stream(Instant::ZERO));
    }

    #[test]
    fn further_requests_do_not_prolong_the_wait_for_a_response() {
        let mut delayed = DelayedAck::new(AckPolicy::Lazy);
        let later = Instant::ZERO + ACK_DELAY / 2;
        delayed.request_taken(Instant::ZERO);
        delayed.request_taken(later);
        assert_eq!(delayed.response_deadline(), Some(Instant::ZERO + ACK_DELAY));
        delayed.sent();
        assert!(!delayed.waits_for_response(later));
        delayed.request_taken(later);
        assert_eq!(delayed.response_deadline(), Some(later + ACK_DELAY));
    }

    #[test]
    fn other_policies_never_wait_for_a_response() {
        let mut delayed = DelayedAck::new(AckPolicy::BeforeCompletion);
        delayed.request_taken(Instant::ZERO);
        assert!(!delayed.waits_for_response(Instant::ZERO));
    }

    #[test]
    fn a_peer_that_no_longer_waits_is_found_out() {
        let mut delayed = DelayedAck::new(AckPolicy::Lazy);
        held(&mut delayed, 100_000, ACK_DELAY);
        held(&mut delayed, MAX_IMMEDIATE_ACKS, Duration::from_micros(8));
        assert_eq!(held(&mut delayed, 160, Duration::from_micros(8)), 150);
    }
}

//! Post coalescing: send requests that are posted one after the other leave together.
//!
//! Most programs post single requests. If each left alone it would cost a system call and an acknowledgement. So only the
//! first request after a turn of the shard leaves at once. Further ones wait for the first of these events:
//!
//! - a thread polls a completion queue and finds it empty, which takes a turn,
//! - [`MAX_WAITING_REQUESTS`] or [`MAX_WAITING_BYTES`] wait, which fill a burst,
//! - the device's thread finds that no thread takes turns any more, some milliseconds later.
//!
//! Requests wait only if a thread has taken a turn within [`POLL_WINDOW`], or has posted a series of requests since a turn
//! within [`SERIES_WINDOW`], and no thread sleeps on the port. A program that often posts and then computes would lose time
//! to the third event, so requests that waited longer than [`LATE`] pause the coalescing. The pause doubles from
//! [`MIN_PAUSE`] to [`MAX_PAUSE`]: a program that polls, and is late because another thread had its processor, is to
//! coalesce again soon.
//!
//! The idea is Nagle's (RFC 896) at the level of work requests; drivers of adapters batch doorbells in the same way.

use std::time::Duration;

use crate::time::Instant;

/// Number of requests that wait at most: they leave in one burst.
const MAX_WAITING_REQUESTS: usize = 32;

/// Bytes of the messages that wait at most: the payload of one burst.
const MAX_WAITING_BYTES: u64 = 48 << 10;

/// A program that took a turn within this time is expected to take another soon.
const POLL_WINDOW: Duration = Duration::from_micros(100);

/// Longest series of posts after a turn, each within [`POLL_WINDOW`] of the one before, behind which a turn is expected too:
/// perftest posts a hundred requests between two polls.
const SERIES_WINDOW: Duration = LATE;

/// Requests that waited longer than this did not leave by the program's next poll.
const LATE: Duration = Duration::from_millis(1);

/// Time without coalescing after a late request: the first time, and at most.
const MIN_PAUSE: Duration = Duration::from_millis(4);
const MAX_PAUSE: Duration = Duration::from_secs(1);

/// Number of times in a row that requests waited and left in time, after which the pause is short again.
const MIN_WAITS_IN_TIME: u32 = 64;

/// When posted send requests leave.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum PostPolicy {
    /// Requests that are posted one after the other leave together, as far as the program polls. This is the default.
    #[default]
    Coalesce,
    /// Each call that posts requests sends them before it returns.
    Immediate,
}

/// Expectation about the next call of the thread that posts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Doorbell {
    /// A turn follows soon: the requests may wait for it.
    MayWait,
    /// The requests leave now.
    Now,
}

/// Returns whether a thread that posts now will take a turn soon, by the times of its last turn and of the post before.
pub(super) fn is_turn_expected(now: Instant, turn: Instant, post: Instant) -> bool {
    let (idle, gap) = (now - turn, now - post);
    idle < POLL_WINDOW || idle < SERIES_WINDOW && gap < POLL_WINDOW
}

/// The requests of a shard that wait for others.
#[derive(Debug)]
pub(crate) struct PostCoalescing {
    policy: PostPolicy,
    /// A request was posted since the last turn.
    has_posted: bool,
    requests: usize,
    bytes: u64,
    /// Time of the oldest post that waits.
    since: Option<Instant>,
    paused_until: Instant,
    /// Length of the next pause.
    pause: Duration,
    /// Number of times that requests left in time since a request was late.
    in_time: u32,
}

impl PostCoalescing {
    pub(crate) fn new(policy: PostPolicy) -> Self {
        Self {
            policy,
            has_posted: false,
            requests: 0,
            bytes: 0,
            since: None,
            paused_until: Instant::ZERO,
            pause: MIN_PAUSE,
            in_time: 0,
        }
    }

    /// Whether this many requests, just posted with messages of `bytes` in all, wait for others. If they do not, all
    /// waiting requests leave now.
    pub(crate) fn waits(
        &mut self,
        now: Instant,
        doorbell: Doorbell,
        requests: usize,
        bytes: u64,
    ) -> bool {
        let is_first = !std::mem::replace(&mut self.has_posted, true);
        let requests = self.requests + requests;
        let bytes = self.bytes + bytes;
        if is_first
            || doorbell == Doorbell::Now
            || self.policy == PostPolicy::Immediate
            || requests >= MAX_WAITING_REQUESTS
            || bytes >= MAX_WAITING_BYTES
            || now < self.paused_until
            || self.since.is_some_and(|since| now - since > POLL_WINDOW)
        {
            return false;
        }
        (self.requests, self.bytes) = (requests, bytes);
        self.since.get_or_insert(now);
        true
    }

    /// Whether requests wait.
    pub(crate) fn has_waiting(&self) -> bool {
        self.since.is_some()
    }

    /// Reports that a turn begins.
    pub(crate) fn begin_turn(&mut self) {
        self.has_posted = false;
    }

    /// Reports that all waiting requests leave.
    pub(crate) fn send_all(&mut self, now: Instant) {
        if let Some(since) = self.since.take() {
            (self.requests, self.bytes) = (0, 0);
            self.record_wait(now, now - since > LATE);
        }
    }

    fn record_wait(&mut self, now: Instant, is_late: bool) {
        if is_late {
            self.paused_until = now + self.pause;
            self.pause = (self.pause * 2).min(MAX_PAUSE);
            self.in_time = 0;
        } else if self.in_time < MIN_WAITS_IN_TIME {
            self.in_time += 1;
        } else {
            self.pause = MIN_PAUSE;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const US: Duration = Duration::from_micros(1);

    fn at(us: u64) -> Instant {
        Instant::ZERO + Duration::from_micros(us)
    }

    /// After a turn and a first post.
    fn posting() -> PostCoalescing {
        let mut posts = PostCoalescing::new(PostPolicy::Coalesce);
        posts.begin_turn();
        assert!(!posts.waits(at(0), Doorbell::MayWait, 1, 64), "the first leaves at once");
        posts
    }

    /// Number of posts of `bytes` that wait before one does not.
    fn waiting(posts: &mut PostCoalescing, bytes: u64) -> usize {
        (0..1000).take_while(|_| posts.waits(at(1), Doorbell::MayWait, 1, bytes)).count()
    }

    #[test]
    fn requests_wait_until_a_burst_is_full() {
        assert_eq!(waiting(&mut posting(), 64), MAX_WAITING_REQUESTS - 1);
        let messages = usize::try_from(MAX_WAITING_BYTES / 4096).unwrap();
        assert_eq!(waiting(&mut posting(), 4096), messages - 1);
        assert_eq!(waiting(&mut posting(), MAX_WAITING_BYTES), 0, "a long message is a burst");
    }

    #[test]
    fn first_request_after_each_turn_leaves_at_once() {
        let mut posts = posting();
        assert!(posts.waits(at(1), Doorbell::MayWait, 1, 64) && posts.has_waiting());
        posts.begin_turn();
        posts.send_all(at(2));
        assert!(!posts.has_waiting());
        assert!(!posts.waits(at(3), Doorbell::MayWait, 1, 64));
        assert!(posts.waits(at(4), Doorbell::MayWait, 1, 64));
    }

    #[test]
    fn requests_of_a_program_that_does_not_poll_leave_at_once() {
        assert!(!posting().waits(at(1), Doorbell::Now, 1, 64));
        let mut posts = posting();
        assert!(posts.waits(at(1), Doorbell::MayWait, 1, 64));
        let later = at(1) + POLL_WINDOW + US;
        assert!(!posts.waits(later, Doorbell::MayWait, 1, 64), "the oldest has waited enough");
    }

    #[test]
    fn turn_is_expected_after_another_and_behind_a_series_of_posts() {
        let window = u64::try_from(POLL_WINDOW.as_micros()).unwrap();
        let series = u64::try_from(SERIES_WINDOW.as_micros()).unwrap();
        for (now, turn, post, expected) in [
            (window - 1, 0, 0, true),
            (window + 50, 0, 51, true),
            (window + 50, 0, 50, false),
            (series - 1, 0, series - 2, true),
            (series, 0, series - 1, false),
            (series, series - 1, 0, true),
        ] {
            let found = is_turn_expected(at(now), at(turn), at(post));
            assert_eq!(found, expected, "at {now} µs, turn {turn}, post {post}");
        }
    }

    #[test]
    fn immediate_policy_sends_each_post() {
        let mut posts = PostCoalescing::new(PostPolicy::Immediate);
        assert_eq!(waiting(&mut posts, 64) + waiting(&mut posts, 64), 0);
    }

    /// Lets a request wait from `from` on for longer than [`LATE`]. Returns the time at which requests wait again.
    fn be_late(posts: &mut PostCoalescing, from: Instant) -> Instant {
        assert!(posts.waits(from, Doorbell::MayWait, 1, 64));
        let late = from + LATE + US;
        posts.send_all(late);
        let waits = |posts: &mut PostCoalescing, now: Instant| {
            let waits = posts.waits(now, Doorbell::MayWait, 1, 64);
            posts.send_all(now);
            waits
        };
        assert!(!waits(posts, late + (MIN_PAUSE - US)));
        (2..).map(|n| late + n * MIN_PAUSE / 2).find(|&now| waits(posts, now)).unwrap()
    }

    #[test]
    fn late_request_pauses_the_coalescing() {
        let mut posts = posting();
        let late = at(1) + LATE + US;
        let resumed = be_late(&mut posts, at(1));
        assert_eq!(resumed, late + MIN_PAUSE);
        assert!(posts.waits(resumed, Doorbell::MayWait, 1, 64));
        posts.send_all(resumed + LATE);
        assert!(posts.waits(resumed + LATE, Doorbell::MayWait, 1, 64), "that one was in time");
    }

    #[test]
    fn pause_doubles_up_to_a_second_until_requests_are_in_time() {
        let mut posts = posting();
        let mut now = at(1);
        let mut pauses = Vec::new();
        for _ in 0..10 {
            let resumed = be_late(&mut posts, now);
            pauses.push(resumed - now - (LATE + US));
            now = resumed;
        }
        let expected = (0..10).map(|n| (MIN_PAUSE * (1 << n)).min(MAX_PAUSE));
        assert!(pauses.iter().copied().eq(expected), "{pauses:?}");
        for _ in 0..=MIN_WAITS_IN_TIME {
            assert!(posts.waits(now, Doorbell::MayWait, 1, 64));
            posts.send_all(now);
        }
        assert_eq!(be_late(&mut posts, now), now + LATE + US + MIN_PAUSE);
    }
}

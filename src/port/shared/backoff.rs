//! Pauses between attempts to send while the kernel has no room.

use std::time::Duration;

use crate::time::Instant;

/// First pause: the time of one burst on an interface of 50 Gb/s.
const MIN_PAUSE: Duration = Duration::from_micros(10);

/// Longest pause.
const MAX_PAUSE: Duration = Duration::from_millis(4);

/// Sum of the pauses after which a burst counts as lost.
const MAX_PAUSED: Duration = Duration::from_secs(2);

/// Exponential backoff of a port whose kernel has no room for a burst (`EAGAIN`, `ENOBUFS`, `ENOMEM`).
///
/// The backoff counts its own pauses rather than the time since the first failure, so that a process that was stopped
/// for some seconds loses nothing.
#[derive(Debug, Default)]
pub(in crate::port) struct SendBackoff {
    /// Time of the next attempt, during a pause.
    retry_at: Option<Instant>,
    /// Length of the last pause since a burst was sent.
    pause: Duration,
    /// Sum of all pauses since a burst was sent.
    paused: Duration,
}

impl SendBackoff {
    /// Ends the pause if its time has come. Returns whether the port may send.
    pub(in crate::port) fn may_send(&mut self, now: Instant) -> bool {
        if self.retry_at.is_some_and(|at| now < at) {
            return false;
        }
        self.retry_at = None;
        true
    }

    /// Reports that the kernel has taken a burst.
    pub(in crate::port) fn sent(&mut self) {
        if !self.pause.is_zero() {
            *self = Self::default();
        }
    }

    /// Reports that the kernel had no room for a burst. Returns whether to try again: if not, the burst is lost, and
    /// so is each later one until the kernel takes one.
    pub(in crate::port) fn had_no_room(&mut self, now: Instant) -> bool {
        if self.paused >= MAX_PAUSED {
            return false;
        }
        self.pause = (self.pause * 2).clamp(MIN_PAUSE, MAX_PAUSE);
        self.paused += self.pause;
        self.retry_at = Some(now + self.pause);
        true
    }

    /// Returns the time of the next attempt, during a pause.
    pub(in crate::port) fn retry_at(&self) -> Option<Instant> {
        self.retry_at
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Fails each attempt until the burst is lost, and returns the pauses.
    fn pauses_until_lost(backoff: &mut SendBackoff, now: &mut Instant) -> Vec<Duration> {
        let mut pauses = Vec::new();
        while backoff.had_no_room(*now) {
            let at = backoff.retry_at().unwrap();
            assert!(!backoff.may_send(*now));
            pauses.push(at - *now);
            *now = at;
            assert!(backoff.may_send(*now));
            assert_eq!(backoff.retry_at(), None);
        }
        pauses
    }

    #[test]
    fn pauses_double_up_to_the_longest_and_end_after_two_seconds() {
        let (mut backoff, mut now) = (SendBackoff::default(), Instant::from_nanos(1));
        let pauses = pauses_until_lost(&mut backoff, &mut now);
        assert_eq!(pauses[..3], [10, 20, 40].map(Duration::from_micros));
        assert_eq!(pauses.last(), Some(&MAX_PAUSE));
        let sum: Duration = pauses.iter().sum();
        assert!((MAX_PAUSED..MAX_PAUSED + MAX_PAUSE).contains(&sum), "{sum:?}");
        // The port stays without room: there is one attempt for each burst.
        assert_eq!((backoff.had_no_room(now), backoff.may_send(now)), (false, true));
    }

    #[test]
    fn a_burst_that_is_sent_ends_the_backoff() {
        let (mut backoff, mut now) = (SendBackoff::default(), Instant::from_nanos(1));
        let first = pauses_until_lost(&mut backoff, &mut now);
        backoff.sent();
        assert_eq!(pauses_until_lost(&mut backoff, &mut now), first);
    }

    #[test]
    fn a_process_that_was_stopped_loses_nothing() {
        let mut backoff = SendBackoff::default();
        assert!(backoff.had_no_room(Instant::from_nanos(1)));
        let later = Instant::from_nanos(1) + 10 * MAX_PAUSED;
        assert!(backoff.may_send(later) && backoff.had_no_room(later));
    }
}

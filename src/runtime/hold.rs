//! Acknowledgements that wait for the next.
//!
//! Who answers a message has an acknowledgement to send behind the answer. When the peer goes on with
//! its next message, one acknowledgement can stand for many, and a round trip takes two
//! packets instead of four. But a peer may want it before it goes on. Which it is shows: while an
//! acknowledgement waits either the next message comes, or time runs out, and then none waits for a
//! while.

use std::time::Duration;

use crate::time::Instant;

/// How long an acknowledgement waits after the answer: a few round trips within a machine, or one between
/// two that a switch joins.
pub(super) const PATIENCE: Duration = Duration::from_micros(50);

/// Answers that one acknowledgement comes behind at most.
const MOST_ANSWERS: u32 = 16;

/// Answers that are acknowledged at once after time has run out, for the first time and at most.
const FIRST_PAUSE: u32 = 64;
const LONGEST_PAUSE: u32 = 4096;

/// Whether the acknowledgement that is owed waits.
#[derive(Debug)]
pub(crate) struct Hold {
    until: Option<Instant>,
    /// Answers since the last acknowledgement.
    answers: u32,
    /// Answers to acknowledge at once before another try.
    skip: u32,
    /// What `skip` will be when time runs out again.
    pause: u32,
}

impl Hold {
    pub(crate) const fn new() -> Self {
        Self { until: None, answers: 0, skip: 0, pause: FIRST_PAUSE }
    }

    /// An answer has left, and an acknowledgement is owed.
    pub(crate) fn answered(&mut self, now: Instant) {
        if self.skip > 0 {
            self.skip -= 1;
            return;
        }
        self.answers += 1;
        if self.answers < MOST_ANSWERS {
            self.until = Some(now + PATIENCE);
        } else {
            // The peer went on each time.
            self.pause = FIRST_PAUSE;
            self.end();
        }
    }

    /// Whether it may wait on.
    pub(crate) fn holds(&mut self, now: Instant) -> bool {
        let Some(until) = self.until else { return false };
        if now < until {
            return true;
        }
        self.skip = self.pause;
        self.pause = (self.pause * 2).min(LONGEST_PAUSE);
        self.end();
        false
    }

    /// It is sent.
    pub(crate) fn end(&mut self) {
        self.until = None;
        self.answers = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// How many of `answers` answers, one each `gap`, hold the acknowledgement back.
    fn held(hold: &mut Hold, answers: u32, gap: Duration) -> u32 {
        let mut now = Instant::ZERO;
        let mut held = 0;
        for _ in 0..answers {
            hold.answered(now);
            held += u32::from(hold.holds(now));
            now += gap;
            if !hold.holds(now) {
                hold.end();
            }
        }
        held
    }

    #[test]
    fn one_in_sixteen_is_sent_while_the_peer_goes_on() {
        assert_eq!(held(&mut Hold::new(), 160, Duration::from_micros(8)), 150);
    }

    #[test]
    fn a_peer_that_waits_is_seldom_made_to() {
        let mut hold = Hold::new();
        let gap = PATIENCE;
        assert_eq!(held(&mut hold, 1, gap), 1);
        assert_eq!(held(&mut hold, 64, gap), 0);
        assert_eq!(held(&mut hold, 1, gap), 1);
        assert_eq!(held(&mut hold, 128, gap), 0);
        // After 256, 512, 1024, 2048, and then each 4096.
        assert_eq!(held(&mut hold, 100_000, gap), 28);
    }

    #[test]
    fn a_peer_that_no_longer_waits_is_found_out() {
        let mut hold = Hold::new();
        held(&mut hold, 100_000, PATIENCE);
        held(&mut hold, LONGEST_PAUSE, Duration::from_micros(8));
        assert_eq!(held(&mut hold, 160, Duration::from_micros(8)), 150);
    }
}

//! How many completions an armed queue waits for, and how long.

use std::time::Duration;

use crate::time::Instant;

/// How long an armed completion queue waits for more before it is announced: until `count`
/// completions that it is armed for have come, or `period` after the first. Zero leaves a limit out;
/// without either it is announced at once, and so it is with a `count` of 1.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
#[doc(alias = "ibv_moderate_cq")]
pub struct Moderation {
    /// Completions that are announced together.
    #[doc(alias = "cq_count")]
    pub count: u16,
    /// Microseconds that the first of them may wait.
    #[doc(alias = "cq_period")]
    pub period: u16,
}

impl Moderation {
    fn is_off(self) -> bool {
        self.count == 1 || self == Self::default()
    }
}

/// What an armed completion queue waits for, whichever shard brings it.
#[derive(Debug, Default)]
pub(super) struct Moderator {
    moderation: Moderation,
    /// Completions that it was armed for and that are not announced yet.
    held: u32,
    /// When they are at the latest.
    until: Option<Instant>,
}

/// What is to be done with a completion queue.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Verdict {
    /// Nothing.
    Nothing,
    /// It is announced now.
    Announce,
    /// It is looked at again at this time.
    Later(Instant),
}

impl Moderator {
    /// Sets the rule. When the first of what is held must be announced is decided anew.
    pub(super) fn moderate(&mut self, moderation: Moderation) {
        (self.moderation, self.until) = (moderation, None);
    }

    /// So many more are held. With none more, time may have run out.
    pub(super) fn hold(&mut self, now: Instant, more: u32) -> Verdict {
        self.held += more;
        if self.is_complete(now) {
            (self.held, self.until) = (0, None);
            return Verdict::Announce;
        }
        let is_looked_after = more > 0 && self.until.is_some();
        if self.held > 0 && self.until.is_none() && self.moderation.period > 0 {
            self.until = Some(now + Duration::from_micros(self.moderation.period.into()));
        }
        match self.until {
            Some(until) if !is_looked_after => Verdict::Later(until),
            _ => Verdict::Nothing,
        }
    }

    fn is_complete(&self, now: Instant) -> bool {
        let Moderation { count, .. } = self.moderation;
        let enough = self.moderation.is_off() || (count > 0 && self.held >= count.into());
        self.held > 0 && (enough || self.until.is_some_and(|until| until <= now))
    }
}

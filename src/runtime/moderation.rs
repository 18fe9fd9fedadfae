//! Completion moderation: how many completions an armed queue waits for, and how long.

use std::time::Duration;

use crate::time::Instant;

/// Limits up to which an armed completion queue delays its notification: until `count` completions of the armed kind
/// have arrived, or `period` after the first. Zero disables a limit; without both, or with a `count` of 1, the
/// notification is immediate.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
#[doc(alias = "ibv_moderate_cq")]
pub struct Moderation {
    /// Number of completions per notification.
    #[doc(alias = "cq_count")]
    pub count: u16,
    /// Longest delay of the first of them, in microseconds.
    #[doc(alias = "cq_period")]
    pub period: u16,
}

impl Moderation {
    fn is_off(self) -> bool {
        self.count == 1 || self == Self::default()
    }
}

/// Moderation state of a completion queue, for all shards that fill it.
#[derive(Debug, Default)]
pub(super) struct Moderator {
    moderation: Moderation,
    /// Completions of the armed kind without a notification yet.
    pending: u32,
    /// Time of their notification at the latest.
    until: Option<Instant>,
}

/// Action for a completion queue.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum ModerationAction {
    /// Nothing.
    Nothing,
    /// Notify now.
    Announce,
    /// Check again at this time.
    Later(Instant),
}

impl Moderator {
    /// Sets the limits. The time of the pending notification is computed anew.
    pub(super) fn moderate(&mut self, moderation: Moderation) {
        (self.moderation, self.until) = (moderation, None);
    }

    /// Adds `more` completions; 0 if only time has passed.
    pub(super) fn add_pending(&mut self, now: Instant, more: u32) -> ModerationAction {
        self.pending += more;
        if self.is_complete(now) {
            (self.pending, self.until) = (0, None);
            return ModerationAction::Announce;
        }
        let is_looked_after = more > 0 && self.until.is_some();
        if self.pending > 0 && self.until.is_none() && self.moderation.period > 0 {
            self.until = Some(now + Duration::from_micros(self.moderation.period.into()));
        }
        match self.until {
            Some(until) if !is_looked_after => ModerationAction::Later(until),
            _ => ModerationAction::Nothing,
        }
    }

    fn is_complete(&self, now: Instant) -> bool {
        let Moderation { count, .. } = self.moderation;
        let enough = self.moderation.is_off() || (count > 0 && self.pending >= count.into());
        self.pending > 0 && (enough || self.until.is_some_and(|until| until <= now))
    }
}

//! The DREPs of the last seconds. No process answers a copy of a DREQ after its end, so they are sent again then.

use std::collections::VecDeque;
use std::time::Duration;

use crate::engine::OutgoingMad;
use crate::time::Instant;

/// Time after which a DREP has most likely arrived: Linux repeats a DREQ every 4.3 s without one, and each copy is answered.
const LIFETIME: Duration = Duration::from_secs(10);

/// Maximum number of DREPs. The oldest are forgotten first.
const MAX: usize = 1024;

/// Sent DREPs, the oldest first.
#[derive(Debug, Default)]
pub(super) struct Confirmations {
    sent: VecDeque<(Instant, OutgoingMad)>,
}

impl Confirmations {
    /// Keeps a DREP that is sent at `now`.
    pub(super) fn push(&mut self, now: Instant, drep: OutgoingMad) {
        let is_old = |sent: &Instant| *sent + LIFETIME < now;
        while self.sent.len() == MAX || self.sent.front().is_some_and(|(sent, _)| is_old(sent)) {
            self.sent.pop_front();
        }
        self.sent.push_back((now, drep));
    }

    /// Removes all, and returns those that may not have arrived at `now`.
    pub(super) fn take(&mut self, now: Instant) -> impl Iterator<Item = OutgoingMad> {
        let sent = std::mem::take(&mut self.sent).into_iter();
        sent.filter(move |(sent, _)| *sent + LIFETIME >= now).map(|(_, drep)| drep)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.sent.is_empty()
    }
}

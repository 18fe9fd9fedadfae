//! Deadlines of ids.

use std::collections::BTreeSet;

use crate::time::Instant;

use super::types::ConnId;

/// Deadlines, at most one of each id.
#[derive(Debug, Default)]
pub(super) struct Timers(BTreeSet<(Instant, ConnId)>);

impl Timers {
    /// Replaces the deadline of an id.
    pub(super) fn set(&mut self, id: ConnId, deadline: &mut Option<Instant>, to: Option<Instant>) {
        if let Some(at) = deadline.take() {
            self.0.remove(&(at, id));
        }
        if let Some(at) = to {
            self.0.insert((at, id));
        }
        *deadline = to;
    }

    /// Returns the earliest deadline.
    pub(super) fn next(&self) -> Option<Instant> {
        self.0.first().map(|(at, _)| *at)
    }

    /// Returns an id with a deadline that has passed.
    pub(super) fn expired(&self, now: Instant) -> Option<ConnId> {
        self.0.first().filter(|(at, _)| *at <= now).map(|(_, id)| *id)
    }

    /// Returns the number of deadlines.
    pub(super) fn len(&self) -> usize {
        self.0.len()
    }
}

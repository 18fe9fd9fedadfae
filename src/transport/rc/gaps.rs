//! Answers that are missing while others behind them have come.
//!
//! Answers come in the order of their requests, so one that comes ahead tells that those before it are lost. A
//! requester may go back to the first that is missing and ask for everything from there on again. This one keeps
//! what has come, and asks again only for what is missing: of each request that lacks some of its answer, for the
//! rest of that. No peer can tell this from a READ that was interrupted.
//!
//! ```text
//!   una                                          known            sent
//!    │ missing  kept  kept │ missing  missing kept │ still to come │
//!    └─ asked again ───────┴─ asked again ─────────┘
//!       to the end of the request
//! ```
//!
//! What is lost once more is found out by the ACK timer, and then everything is asked for again; so it is while
//! that is under way, or where there is no room to keep anything.

use std::collections::VecDeque;

use crate::psn::Psn;
use crate::transport::rc::ahead::ReorderQueue;

/// What a requester knows of answers that it lacks.
#[derive(Debug, Default)]
pub(super) struct ReadGaps {
    /// Answers and acknowledgements that came ahead of a missing answer.
    pub(super) kept: ReorderQueue,
    /// Every answer before this PSN has come, is kept, or was asked for again.
    pub(super) known: Psn,
    /// PSNs from which on answers are to be requested again.
    pub(super) pending_rerequests: VecDeque<Psn>,
}

impl ReadGaps {
    /// Returns a state in which every answer before `una` has come.
    pub(super) fn new(una: Psn) -> Self {
        Self { known: una, ..Self::default() }
    }

    /// Moves `known` up to `una` if it is behind. It does not move while nothing is missing, and half a circle later an old
    /// PSN would compare as one ahead.
    pub(super) fn look(&mut self, una: Psn, sent: Psn) {
        if self.known.since(una) > sent.since(una) {
            self.known = una;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_known_long_ago_is_not_taken_for_news() {
        let known_at = |known, una, sent| {
            let [known, una, sent] = [known, una, sent].map(Psn::new);
            let mut gaps = ReadGaps { known, ..ReadGaps::default() };
            gaps.look(una, sent);
            gaps.known.value()
        };
        // Between the two, at either end, before, and more than half of the circle before.
        assert_eq!(known_at(7, 5, 9), 7);
        assert_eq!([known_at(5, 5, 9), known_at(9, 5, 9)], [5, 9]);
        assert_eq!(known_at(4, 5, 9), 5);
        assert_eq!(known_at(7, 0x90_0000, 0x90_0005), 0x90_0000);
        assert_eq!(known_at(0xff_ffff, 0xff_fffe, 3), 0xff_ffff);
    }
}

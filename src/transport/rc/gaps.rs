//! Gaps in the responses to READs and atomics.
//!
//! Responses arrive in the order of their requests, so a response that arrives ahead implies that
//! the missing ones before it are lost. A requester may go back to the first missing one and
//! request everything from there again. This requester keeps the responses that arrived, and
//! requests only the missing ones again: for each request with a gap, the rest of its response. A
//! peer cannot distinguish this from an interrupted READ.
//!
//! ```text
//!   una                                          known             sent
//!    │ missing  kept  kept │ missing  missing kept │ not yet arrived │
//!    └─ requested again ───┴─ requested again ─────┘
//!       to the end of the request
//! ```
//!
//! The [loss timer](crate::transport::rc::retry::LossTimer) detects a second loss, and then the
//! oldest missing response is requested once more. After an ACK timeout, during the recovery from
//! it, and without room to keep responses, the requester requests everything again.

use std::collections::VecDeque;

use crate::psn::Psn;
use crate::transport::rc::ahead::ReorderQueue;

/// Gaps in the responses of one requester.
#[derive(Debug, Default)]
pub(super) struct ReadGaps {
    /// Responses and acknowledgements that arrived ahead of a missing response.
    pub(super) kept: ReorderQueue,
    /// Every response before this PSN has arrived, is kept, or was requested again.
    pub(super) known: Psn,
    /// PSNs from which on responses are to be requested again.
    pub(super) pending_rerequests: VecDeque<Psn>,
}

impl ReadGaps {
    /// Returns the state in which every response before `una` has arrived.
    pub(super) fn new(una: Psn) -> Self {
        Self { known: una, ..Self::default() }
    }

    /// Raises `known` to `una` if it is behind. It does not advance without a gap, and an old PSN
    /// compares as a later one after half of the PSN space.
    pub(super) fn look(&mut self, una: Psn, sent: Psn) {
        if self.known.since(una) > sent.since(una) {
            self.known = una;
        }
    }

    /// Whether the response with the PSN `una` was lost. `sent`: the PSN after the highest ever
    /// sent.
    pub(super) fn begins_at(&self, una: Psn, sent: Psn) -> bool {
        (1..=sent.since(una)).contains(&self.known.since(una))
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
        // Between the two, at either end, before, and more than half of the PSN space before.
        assert_eq!(known_at(7, 5, 9), 7);
        assert_eq!([known_at(5, 5, 9), known_at(9, 5, 9)], [5, 9]);
        assert_eq!(known_at(4, 5, 9), 5);
        assert_eq!(known_at(7, 0x90_0000, 0x90_0005), 0x90_0000);
        assert_eq!(known_at(0xff_ffff, 0xff_fffe, 3), 0xff_ffff);
    }

    #[test]
    fn a_gap_ends_where_no_loss_is_known() {
        let begins_at = |known, una, sent| {
            let [known, una, sent] = [known, una, sent].map(Psn::new);
            ReadGaps { known, ..ReadGaps::default() }.begins_at(una, sent)
        };
        assert!(begins_at(7, 5, 9) && begins_at(9, 5, 9) && begins_at(3, 0xff_ffff, 3));
        assert!(!begins_at(5, 5, 9) && !begins_at(4, 5, 9) && !begins_at(7, 0x90_0000, 0x90_0005));
    }
}

//! Outstanding responses of a requester.

use crate::psn::Psn;
use crate::transport::rc::gaps::ReadGaps;
use crate::transport::rc::reads::ReadPlan;

/// The outstanding responses to READs, atomics, FLUSHes and ATOMIC WRITEs.
#[derive(Debug)]
pub(super) struct PendingResponses {
    /// Segmentation of READs into requests.
    pub(super) plan: ReadPlan,
    /// Responses that were lost while later ones arrived; `None` before the first loss.
    pub(super) gaps: Option<Box<ReadGaps>>,
    /// Number of outstanding requests with a response, with each part of a READ counted separately;
    /// at most `max_rd_atomic`.
    pub(super) outstanding: u32,
    /// Number of requests with an incomplete response before the cursor; a fence waits for them.
    pub(super) fence_count: u32,
}

impl Default for PendingResponses {
    fn default() -> Self {
        let plan = ReadPlan::new(u32::MAX);
        Self { plan, gaps: None, outstanding: 0, fence_count: 0 }
    }
}

impl PendingResponses {
    /// Whether responses are kept that arrived ahead of a missing one.
    pub(super) fn keeps_responses(&self) -> bool {
        self.gaps.as_ref().is_some_and(|gaps| !gaps.kept.is_empty())
    }

    /// Returns the PSN of the next request to send again.
    pub(super) fn next_rerequest(&self) -> Option<Psn> {
        self.gaps.as_ref()?.pending_rerequests.front().copied()
    }

    /// Removes the next request to send again.
    pub(super) fn pop_rerequest(&mut self) {
        if let Some(gaps) = &mut self.gaps {
            gaps.pending_rerequests.pop_front();
        }
    }
}

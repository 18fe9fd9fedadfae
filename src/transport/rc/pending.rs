//! Responses that a requester waits for.

use crate::transport::rc::gaps::ReadGaps;
use crate::transport::rc::reads::ReadPlan;

/// The responses to READs, atomics and the like that are pending.
#[derive(Debug)]
pub(super) struct PendingResponses {
    /// How READs are cut into requests.
    pub(super) plan: ReadPlan,
    /// Responses that were lost while later ones have come.
    pub(super) gaps: ReadGaps,
    /// Requests with a response that are outstanding, each part of a READ for itself: never more than
    /// `max_rd_atomic`.
    pub(super) outstanding: u32,
    /// Requests with a response before the cursor that have no full one yet: a fence waits for them.
    pub(super) fence_count: u32,
}

impl Default for PendingResponses {
    fn default() -> Self {
        let plan = ReadPlan::new(u32::MAX);
        Self { plan, gaps: ReadGaps::default(), outstanding: 0, fence_count: 0 }
    }
}

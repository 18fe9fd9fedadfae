//! Memory that all streams share.

/// Room that all streams share.
#[derive(Debug)]
pub(super) struct FlowBudget {
    pub(super) outstanding: usize,
    pub(super) most_outstanding: usize,
    pub(super) cells: usize,
    pub(super) most_cells: usize,
}

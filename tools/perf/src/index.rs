//! Indices of the queue pairs of one side by their numbers.

use std::collections::HashMap;

use anyhow::Context as _;
use softroce::verbs::{Completion, Qpn};

/// Index of each queue pair.
pub(crate) struct QpIndex {
    by_qpn: HashMap<Qpn, usize>,
    /// The newest lookup: consecutive completions usually are of one queue pair.
    recent: Option<(Qpn, usize)>,
}

impl QpIndex {
    /// Creates the index from pairs of index and number.
    pub(crate) fn new(qps: impl Iterator<Item = (usize, Qpn)>) -> Self {
        Self { by_qpn: qps.map(|(index, qpn)| (qpn, index)).collect(), recent: None }
    }

    /// Returns the index of the queue pair of a completion.
    ///
    /// # Errors
    ///
    /// The completion is of another queue pair.
    #[inline]
    pub(crate) fn of(&mut self, completion: &Completion) -> anyhow::Result<usize> {
        let qpn = completion.qpn;
        if let Some((_, index)) = self.recent.filter(|(recent, _)| *recent == qpn) {
            return Ok(index);
        }
        let found = self.by_qpn.get(&qpn).copied();
        let index = found
            .with_context(|| format!("a completion of queue pair {qpn}, which is not ours"))?;
        self.recent = Some((qpn, index));
        Ok(index)
    }
}

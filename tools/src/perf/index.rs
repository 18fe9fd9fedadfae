//! The queue pairs of one side by their numbers.

use std::collections::HashMap;

use anyhow::Context as _;
use softroce::verbs::{Completion, Qpn};

/// The index of each queue pair.
pub(super) struct QpIndex {
    by_qpn: HashMap<Qpn, usize>,
    /// The newest lookup: completions come in runs.
    recent: Option<(Qpn, usize)>,
}

impl QpIndex {
    /// The queue pairs with their indices.
    pub(super) fn new(qps: impl Iterator<Item = (usize, Qpn)>) -> Self {
        Self { by_qpn: qps.map(|(index, qpn)| (qpn, index)).collect(), recent: None }
    }

    /// Returns the index of the queue pair that a completion is of.
    ///
    /// # Errors
    ///
    /// The queue pair is another.
    pub(super) fn of(&mut self, completion: &Completion) -> anyhow::Result<usize> {
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

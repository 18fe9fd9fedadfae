//! Bursts between the engine and the port.

use crate::net::Burst;

/// Number of bursts that the engine builds before the port sends them. The receiving host processes the first while the
/// port copies the others, so small batches are faster than large ones.
pub(super) const BURSTS_PER_BATCH: usize = 4;

/// Bursts that the engine has built and the port has not taken yet.
pub(super) struct TxBatch {
    bursts: [Burst; BURSTS_PER_BATCH],
    /// Number of bursts built, of which the port has taken the first `taken`.
    built: usize,
    taken: usize,
}

impl TxBatch {
    /// Returns an empty batch of bursts with at most `max_segments` segments.
    pub(super) fn new(max_segments: usize) -> Self {
        let bursts = std::array::from_fn(|_| Burst::with_max_segments(max_segments));
        Self { bursts, built: 0, taken: 0 }
    }

    /// Returns whether the port has taken everything.
    pub(super) fn is_empty(&self) -> bool {
        self.taken == self.built
    }

    /// Returns whether the last [`fill`](Self::fill) ended for lack of room, so that the engine may have more.
    pub(super) fn was_full(&self) -> bool {
        self.built == BURSTS_PER_BATCH
    }

    /// Fills an empty batch by `build`, until that returns `false`.
    pub(super) fn fill(&mut self, mut build: impl FnMut(&mut Burst) -> bool) {
        (self.built, self.taken) = (0, 0);
        while let Some(burst) = self.bursts.get_mut(self.built)
            && build(burst)
        {
            self.built += 1;
        }
    }

    /// Returns the bursts that the port has not taken.
    pub(super) fn pending(&self) -> &[Burst] {
        &self.bursts[self.taken..self.built]
    }

    /// Removes the first `count` pending bursts.
    pub(super) fn take(&mut self, count: usize) {
        self.taken = (self.taken + count).min(self.built);
    }

    /// Removes all bursts and returns one to build in.
    pub(super) fn discard(&mut self) -> &mut Burst {
        (self.built, self.taken) = (0, 0);
        &mut self.bursts[0]
    }
}

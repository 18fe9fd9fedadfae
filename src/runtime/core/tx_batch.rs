//! Bursts between the engine and the port.

use crate::net::Burst;
use crate::port::PortInfo;

/// Maximum number of bursts that the engine builds before the port sends them. Over UDP sockets, streams of READs and
/// WRITEs of 64 KiB are 3 % slower with two, and 8 % slower with one.
pub(super) const BURSTS_PER_BATCH: usize = 4;

/// Bursts that the engine has built and the port has not taken yet.
pub(super) struct TxBatch {
    bursts: [Burst; BURSTS_PER_BATCH],
    /// Number of bursts built, of which the port has taken the first `taken`.
    built: usize,
    taken: usize,
    /// Bytes of the bursts built.
    bytes: usize,
    /// Number of bytes after which a batch takes no further burst.
    max_bytes: usize,
}

impl TxBatch {
    /// Returns an empty batch of bursts for a port.
    pub(super) fn new(port: &PortInfo) -> Self {
        let PortInfo { max_burst_segments, max_batch_bytes, omits_icrcs, .. } = *port;
        let bursts = std::array::from_fn(|_| {
            Burst::with_max_segments(max_burst_segments).omitting_icrcs(omits_icrcs)
        });
        Self { bursts, built: 0, taken: 0, bytes: 0, max_bytes: max_batch_bytes }
    }

    /// Returns whether the port has taken everything.
    pub(super) fn is_empty(&self) -> bool {
        self.taken == self.built
    }

    /// Returns whether the last [`fill`](Self::fill) ended for lack of room, so that the engine may have more.
    pub(super) fn was_full(&self) -> bool {
        self.built == BURSTS_PER_BATCH || self.bytes >= self.max_bytes
    }

    /// Fills an empty batch by `build`, until that returns `false`.
    pub(super) fn fill(&mut self, mut build: impl FnMut(&mut Burst) -> bool) {
        (self.built, self.taken, self.bytes) = (0, 0, 0);
        while !self.was_full()
            && let Some(burst) = self.bursts.get_mut(self.built)
            && build(burst)
        {
            self.built += 1;
            self.bytes += burst.byte_len();
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::port::Control;
    use crate::port::sim::Network;

    #[test]
    fn batch_is_full_after_four_bursts_or_the_bytes_of_the_port() {
        let port = Network::new(0).host("10.0.0.1".parse().unwrap()).info();
        let in_memory = PortInfo { max_batch_bytes: 8192, ..port };
        let cases = [(64, 4), (2048, 4), (4096, 2), (8191, 2), (8192, 1), (9000, 1)];
        let cases = cases.map(|(len, expected)| (in_memory, len, expected));
        for (port, len, expected) in cases.into_iter().chain([(port, 9000, 4)]) {
            let mut batch = TxBatch::new(&port);
            batch.fill(|burst| {
                burst.clear();
                burst.push(len);
                true
            });
            assert_eq!((batch.pending().len(), batch.was_full()), (expected, true), "{len} bytes");
        }
    }
}

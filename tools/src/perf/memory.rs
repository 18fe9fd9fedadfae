//! The memory of one side: where each message is sent from and received into.

use softroce::verbs::{Access, GRH_LEN, MemoryRegion, ProtectionDomain, Sge};

/// Memory that the messages of all queue pairs together are taken from and put to: more than a
/// first-level cache, less than a last-level one, and what the raw UDP measurement has.
const MEMORY: usize = 4 << 20;

/// A region with two stretches for each queue pair: one to send from, and one to receive into.
pub(super) struct Memory {
    pub(super) mr: MemoryRegion,
    /// Bytes of one stretch.
    stretch: usize,
}

impl Memory {
    /// Registers memory for `qps` queue pairs and messages up to `longest` bytes.
    pub(super) fn new(pd: &ProtectionDomain, qps: usize, longest: usize) -> anyhow::Result<Self> {
        let stretch = (longest + GRH_LEN).max(MEMORY / qps).next_multiple_of(4096);
        let access = Access::LOCAL_WRITE
            | Access::REMOTE_WRITE
            | Access::REMOTE_READ
            | Access::REMOTE_ATOMIC;
        let mr = pd.alloc_mr(qps * 2 * stretch, access)?;
        touch(&mr, stretch)?;
        Ok(Self { mr, stretch })
    }

    /// Returns the offset from which message `count` of queue pair `qp` is sent, on either side. Messages
    /// follow one another, and begin again at the end of the stretch.
    pub(super) fn outgoing(&self, qp: usize, count: u64, size: usize) -> usize {
        2 * qp * self.stretch + self.within(count, size)
    }

    /// Returns the offset into which it is received.
    pub(super) fn incoming(&self, qp: usize, count: u64, size: usize) -> usize {
        (2 * qp + 1) * self.stretch + self.within(count, size)
    }

    fn within(&self, count: u64, size: usize) -> usize {
        let step = size.next_multiple_of(64).max(64);
        let places = (self.stretch / step).max(1) as u64;
        // Less than the stretch.
        step * usize::try_from(count % places).unwrap_or_default()
    }

    pub(super) fn sge(&self, offset: usize, size: usize) -> Sge {
        self.mr.sge(offset..offset + size)
    }
}

/// Fills the stretches that are sent from, as the memory of raw UDP is, and those that are received
/// into with zeros: no message pays for pages that the kernel has not given out yet, and none is
/// read from the one page of zeros that stands for all of those.
fn touch(mr: &MemoryRegion, stretch: usize) -> anyhow::Result<()> {
    let (outgoing, incoming) = (vec![0x5a; stretch], vec![0; stretch]);
    for (index, offset) in (0..mr.len()).step_by(stretch).enumerate() {
        let is_outgoing = index.is_multiple_of(2);
        mr.write_at(offset, if is_outgoing { &outgoing } else { &incoming })?;
    }
    Ok(())
}

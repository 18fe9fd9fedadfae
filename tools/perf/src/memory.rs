//! The memory of one side: where each message is sent from and received to.

use softroce::verbs::{Access, GRH_LEN, MemoryRegion, ProtectionDomain, SendData, Sge};

/// Minimum size of the memory of all queue pairs together: larger than a first-level cache, smaller than a last-level
/// one, and as large as in the raw UDP measurement.
const MIN_MEMORY_BYTES: usize = 4 << 20;

/// Each byte of a message, as in the raw UDP measurement.
const PATTERN: u8 = 0x5a;

/// A memory region with two areas for each queue pair: one to send from, and one to receive to.
pub(crate) struct Memory {
    pub(crate) mr: MemoryRegion,
    /// Bytes of one area.
    area: usize,
    /// The longest message that is inline.
    inline: Vec<u8>,
}

impl Memory {
    /// Registers memory for `qps` queue pairs and messages up to `longest` bytes, of which those up to `inline_size` are
    /// inline.
    pub(crate) fn new(
        pd: &ProtectionDomain,
        qps: usize,
        longest: usize,
        inline_size: usize,
    ) -> anyhow::Result<Self> {
        let area = (longest + GRH_LEN).max(MIN_MEMORY_BYTES / qps).next_multiple_of(4096);
        let access = Access::LOCAL_WRITE
            | Access::REMOTE_WRITE
            | Access::REMOTE_READ
            | Access::REMOTE_ATOMIC;
        let mr = pd.alloc_mr(qps * 2 * area, access)?;
        touch(&mr, area)?;
        Ok(Self { mr, area, inline: vec![PATTERN; inline_size] })
    }

    /// Returns the offset from which message `count` of queue pair `qp` is sent, on either side. Consecutive messages
    /// are adjacent, and start over at the end of the area.
    #[inline]
    pub(crate) fn outgoing(&self, qp: usize, count: u64, size: usize) -> usize {
        2 * qp * self.area + self.within(count, size)
    }

    /// Returns the offset to which the message is received.
    #[inline]
    pub(crate) fn incoming(&self, qp: usize, count: u64, size: usize) -> usize {
        (2 * qp + 1) * self.area + self.within(count, size)
    }

    #[inline]
    fn within(&self, count: u64, size: usize) -> usize {
        let step = size.next_multiple_of(64).max(64);
        let places = (self.area / step).max(1) as u64;
        // The offset is within the area.
        step * usize::try_from(count % places).unwrap_or_default()
    }

    #[inline]
    pub(crate) fn sge(&self, offset: usize, size: usize) -> Sge {
        self.mr.sge(offset..offset + size)
    }

    /// Returns a message to send: inline if it is small enough, otherwise from `offset`.
    #[inline]
    pub(crate) fn message(&self, offset: usize, size: usize) -> SendData {
        match self.inline.get(..size) {
            Some(bytes) => SendData::inline(bytes),
            None => self.sge(offset, size).into(),
        }
    }
}

/// Fills the send areas with the pattern, and the receive areas with zeros, so that the kernel allocates
/// every page before the measurement.
fn touch(mr: &MemoryRegion, area: usize) -> anyhow::Result<()> {
    let (outgoing, incoming) = (vec![PATTERN; area], vec![0; area]);
    for (index, offset) in (0..mr.len()).step_by(area).enumerate() {
        let is_outgoing = index.is_multiple_of(2);
        mr.write_at(offset, if is_outgoing { &outgoing } else { &incoming })?;
    }
    Ok(())
}

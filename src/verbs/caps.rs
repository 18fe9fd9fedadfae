//! What a device can do beyond what every device can.

use std::fmt;

use bitflags::bitflags;

use crate::mem::HostMemory;

bitflags! {
    /// What a device can do beyond what every device can, in the numbers of `device_cap_flags_ex`.
    #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
    #[doc(alias = "ibv_device_cap_flags")]
    pub struct DeviceCaps: u64 {
        /// Packets of a wrong partition are counted (`drop_pkey_mismatch`).
        #[doc(alias = "IBV_DEVICE_BAD_PKEY_CNTR")]
        const BAD_PKEY_CNTR = 1 << 1;
        /// Messages with a wrong queue key are counted (`drop_qkey_mismatch`).
        #[doc(alias = "IBV_DEVICE_BAD_QKEY_CNTR")]
        const BAD_QKEY_CNTR = 1 << 2;
        /// Who modifies a queue pair may say in which state it should be.
        #[doc(alias = "IBV_DEVICE_CURR_QP_STATE_MOD")]
        const CURR_QP_STATE_MOD = 1 << 7;
        /// A peer is told to wait when there is no receive request.
        #[doc(alias = "IBV_DEVICE_RC_RNR_NAK_GEN")]
        const RC_RNR_NAK_GEN = 1 << 12;
        /// Shared receive queues take another size.
        #[doc(alias = "IBV_DEVICE_SRQ_RESIZE")]
        const SRQ_RESIZE = 1 << 13;
        /// Memory windows of type 1.
        const MEM_WINDOW = 1 << 17;
        /// Memory windows of type 2B.
        const MEM_WINDOW_TYPE_2B = 1 << 24;
        /// FLUSH to where every reader sees it.
        #[doc(alias = "IB_UVERBS_DEVICE_FLUSH_GLOBAL")]
        const FLUSH_GLOBAL = 1 << 38;
        /// FLUSH to where it survives a loss of power, of files that are mapped.
        #[doc(alias = "IB_UVERBS_DEVICE_FLUSH_PERSISTENT")]
        const FLUSH_PERSISTENT = 1 << 39;
        /// ATOMIC WRITE.
        #[doc(alias = "IB_UVERBS_DEVICE_ATOMIC_WRITE")]
        const ATOMIC_WRITE = 1 << 40;
    }
}

/// Among whom atomics are atomic.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[repr(u8)]
#[doc(alias = "ibv_atomic_cap")]
pub enum AtomicCap {
    /// There are none.
    #[doc(alias = "IBV_ATOMIC_NONE")]
    None = 0,
    /// Those of all queue pairs of the device. A program of this host that does one itself may come
    /// between the two halves of one in memory that is registered on demand.
    #[doc(alias = "IBV_ATOMIC_HCA")]
    Hca = 1,
    /// Those of everybody, programs of this host included.
    #[doc(alias = "IBV_ATOMIC_GLOB")]
    Glob = 2,
}

impl fmt::Display for AtomicCap {
    /// As `ibv_devinfo` has it: `ATOMIC_HCA`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::None => "ATOMIC_NONE",
            Self::Hca => "ATOMIC_HCA",
            Self::Glob => "ATOMIC_GLOB",
        })
    }
}

bitflags! {
    /// Operations on memory that is registered on demand.
    #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
    #[doc(alias = "ibv_odp_transport_cap_bits")]
    pub struct OdpOps: u32 {
        /// SENDs take from it.
        const SEND = 1;
        /// They are received into it.
        const RECV = 2;
        /// WRITEs take from it and go to it.
        const WRITE = 4;
        /// READs take from it and go to it.
        const READ = 8;
        /// Atomics, one step towards each other, return to it and are done there.
        const ATOMIC = 16;
        /// Receives of a shared queue are in it.
        const SRQ_RECV = 32;
        /// FLUSH of what was written there.
        const FLUSH = 64;
    }
}

/// What may be done with memory that is registered on demand.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[doc(alias = "ibv_odp_caps")]
pub struct OdpCaps {
    /// Whether there is such memory: not where the system does not copy from a process to itself.
    #[doc(alias = "IBV_ODP_SUPPORT")]
    pub supported: bool,
    /// Whether a region may be all of the address space.
    #[doc(alias = "IBV_ODP_SUPPORT_IMPLICIT")]
    pub implicit: bool,
    /// What RC does with it.
    pub rc: OdpOps,
    /// What UC does with it.
    pub uc: OdpOps,
    /// What UD does with it.
    pub ud: OdpOps,
}

impl OdpCaps {
    pub(super) fn of_this_system() -> Self {
        let none = OdpOps::empty();
        if !HostMemory::can_be_on_demand() {
            return Self { supported: false, implicit: false, rc: none, uc: none, ud: none };
        }
        let ud = OdpOps::SEND | OdpOps::RECV | OdpOps::SRQ_RECV;
        Self { supported: true, implicit: true, rc: OdpOps::all(), uc: ud | OdpOps::WRITE, ud }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn capabilities_have_the_values_of_verbs() {
        // Of `ibv_device_cap_flags` 1, 2, 7, 12, 13, 17 and 24; the kernel's 38, 39 and 40.
        assert_eq!(DeviceCaps::all().bits(), 0x1c0_0102_3086);
    }
}

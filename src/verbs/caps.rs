//! What a device can do beyond what every device can.

use bitflags::bitflags;

use crate::mem::HostMemory;

bitflags! {
    /// What a device can do beyond what every device can, in the numbers of `device_cap_flags_ex`.
    #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
    #[doc(alias = "ibv_device_cap_flags")]
    pub struct DeviceCaps: u64 {
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

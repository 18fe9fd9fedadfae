//! Optional capabilities of a device.

use std::fmt;

use bitflags::bitflags;

use crate::mem::HostMemory;

bitflags! {
    /// Optional capabilities of a device, with the values of `device_cap_flags_ex` (`ibv_query_device_ex(3)`).
    #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
    #[doc(alias = "ibv_device_cap_flags")]
    pub struct DeviceCaps: u64 {
        /// The device counts packets with a P_Key of another partition (`drop_pkey_mismatch`).
        #[doc(alias = "IBV_DEVICE_BAD_PKEY_CNTR")]
        const BAD_PKEY_CNTR = 1 << 1;
        /// The device counts UD messages with a wrong queue key (`drop_qkey_mismatch`).
        #[doc(alias = "IBV_DEVICE_BAD_QKEY_CNTR")]
        const BAD_QKEY_CNTR = 1 << 2;
        /// Modifying a queue pair may name its expected current state (`IBV_QP_CUR_STATE`).
        #[doc(alias = "IBV_DEVICE_CURR_QP_STATE_MOD")]
        const CURR_QP_STATE_MOD = 1 << 7;
        /// The responder sends an RNR NAK when it has no receive request.
        #[doc(alias = "IBV_DEVICE_RC_RNR_NAK_GEN")]
        const RC_RNR_NAK_GEN = 1 << 12;
        /// Shared receive queues can be resized.
        #[doc(alias = "IBV_DEVICE_SRQ_RESIZE")]
        const SRQ_RESIZE = 1 << 13;
        /// Memory windows of type 1.
        const MEM_WINDOW = 1 << 17;
        /// Memory windows of type 2B.
        const MEM_WINDOW_TYPE_2B = 1 << 24;
        /// FLUSH with the placement type global visibility (IBTA vol 1, annex A19).
        #[doc(alias = "IB_UVERBS_DEVICE_FLUSH_GLOBAL")]
        const FLUSH_GLOBAL = 1 << 38;
        /// FLUSH with the placement type persistence, for regions of mapped files.
        #[doc(alias = "IB_UVERBS_DEVICE_FLUSH_PERSISTENT")]
        const FLUSH_PERSISTENT = 1 << 39;
        /// ATOMIC WRITE.
        #[doc(alias = "IB_UVERBS_DEVICE_ATOMIC_WRITE")]
        const ATOMIC_WRITE = 1 << 40;
    }
}

/// Scope in which atomic operations are atomic.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[repr(u8)]
#[doc(alias = "ibv_atomic_cap")]
pub enum AtomicCap {
    /// The device has no atomic operations.
    #[doc(alias = "IBV_ATOMIC_NONE")]
    None = 0,
    /// Atomic among all queue pairs of the device. In regions registered on demand, an atomic instruction of a
    /// program on this host may take effect between the read and the write of an operation.
    #[doc(alias = "IBV_ATOMIC_HCA")]
    Hca = 1,
    /// Atomic among all queue pairs of the device and programs of this host.
    #[doc(alias = "IBV_ATOMIC_GLOB")]
    Glob = 2,
}

impl fmt::Display for AtomicCap {
    /// Formats the name as `ibv_devinfo` prints it: `ATOMIC_HCA`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::None => "ATOMIC_NONE",
            Self::Hca => "ATOMIC_HCA",
            Self::Glob => "ATOMIC_GLOB",
        })
    }
}

bitflags! {
    /// Operations that may access memory registered on demand (ODP).
    #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
    #[doc(alias = "ibv_odp_transport_cap_bits")]
    pub struct OdpOps: u32 {
        /// SENDs gather from it.
        const SEND = 1;
        /// Receive requests scatter into it.
        const RECV = 2;
        /// WRITEs gather from it and write to it.
        const WRITE = 4;
        /// READs scatter into it and read from it.
        const READ = 8;
        /// Atomics operate on it and return the original value to it. Only one side's memory needs to be registered
        /// on demand.
        const ATOMIC = 16;
        /// Receive requests of a shared receive queue scatter into it.
        const SRQ_RECV = 32;
        /// FLUSHes of it.
        const FLUSH = 64;
    }
}

/// On-demand paging capabilities of the device.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[doc(alias = "ibv_odp_caps")]
pub struct OdpCaps {
    /// Whether the device supports on-demand paging. The system must permit a process to copy from and to itself
    /// (`process_vm_readv(2)`), or the library's handler of SIGSEGV and SIGBUS must be in front of the program's.
    #[doc(alias = "IBV_ODP_SUPPORT")]
    pub supported: bool,
    /// Whether a region may span the whole address space (implicit ODP).
    #[doc(alias = "IBV_ODP_SUPPORT_IMPLICIT")]
    pub implicit: bool,
    /// Operations over RC.
    pub rc: OdpOps,
    /// Operations over UC.
    pub uc: OdpOps,
    /// Operations over UD.
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

//! Access rights of regions and errors of access checks.

use std::fmt;

use bitflags::bitflags;
use thiserror::Error;

use crate::ids::{PdId, Qpn};

bitflags! {
    /// Access rights and attributes of a region (`ibv_access_flags`). Local reads are always allowed.
    #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
    #[doc(alias = "ibv_access_flags")]
    pub struct Access: u32 {
        /// Local writes: receives, READ responses and atomic results.
        #[doc(alias = "IBV_ACCESS_LOCAL_WRITE")]
        const LOCAL_WRITE = 1;
        /// Remote WRITEs. Requires `LOCAL_WRITE`.
        #[doc(alias = "IBV_ACCESS_REMOTE_WRITE")]
        const REMOTE_WRITE = 2;
        /// Remote READs.
        #[doc(alias = "IBV_ACCESS_REMOTE_READ")]
        const REMOTE_READ = 4;
        /// Remote atomics. Requires `LOCAL_WRITE`.
        #[doc(alias = "IBV_ACCESS_REMOTE_ATOMIC")]
        const REMOTE_ATOMIC = 8;
        /// Binding of memory windows.
        #[doc(alias = "IBV_ACCESS_MW_BIND")]
        const MW_BIND = 16;
        /// Addresses start at zero instead of the host address.
        #[doc(alias = "IBV_ACCESS_ZERO_BASED")]
        const ZERO_BASED = 32;
        /// On-demand paging: pages may be unmapped and mapped while the region is registered. Accepted for any
        /// memory; only [`HostMemory::on_demand`](super::HostMemory::on_demand) provides it.
        #[doc(alias = "IBV_ACCESS_ON_DEMAND")]
        const ON_DEMAND = 64;
        /// Huge pages. Accepted and ignored.
        #[doc(alias = "IBV_ACCESS_HUGETLB")]
        const HUGETLB = 1 << 7;
        /// Remote FLUSHes with global visibility.
        #[doc(alias = "IBV_ACCESS_FLUSH_GLOBAL")]
        const FLUSH_GLOBAL = 1 << 8;
        /// Remote FLUSHes with persistence. Requires persistent memory
        /// ([`HostMemory::is_persistent`](super::HostMemory::is_persistent)).
        #[doc(alias = "IBV_ACCESS_FLUSH_PERSISTENT")]
        const FLUSH_PERSISTENT = 1 << 9;
        /// Relaxed ordering of writes. Accepted and ignored.
        #[doc(alias = "IBV_ACCESS_RELAXED_ORDERING")]
        const RELAXED_ORDERING = 1 << 20;
    }
}

impl Access {
    /// Flags that a provider may ignore (`IBV_ACCESS_OPTIONAL_RANGE`).
    #[doc(alias = "IBV_ACCESS_OPTIONAL_RANGE")]
    pub const OPTIONAL: Self = Self::from_bits_retain(0x3ff0_0000);
}

impl fmt::Display for Access {
    /// Formats the names, separated by `|`, or `none`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_empty() {
            return f.write_str("none");
        }
        bitflags::parser::to_writer(self, f)
    }
}

/// Access of a work request to local memory.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum LocalAccess {
    /// The request reads the memory and sends it.
    Read,
    /// The request receives into the memory, which requires [`Access::LOCAL_WRITE`].
    Write,
}

impl LocalAccess {
    /// Returns the access rights that the region must have.
    pub const fn access(self) -> Access {
        match self {
            Self::Read => Access::empty(),
            Self::Write => Access::LOCAL_WRITE,
        }
    }
}

/// The user of a key: a queue pair and its protection domain.
///
/// A protection domain alone converts to it, but cannot use a window that is bound to one queue pair.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct KeyUser {
    /// Protection domain of the queue pair.
    pub pd: PdId,
    /// Queue pair.
    pub qpn: Option<Qpn>,
}

impl From<PdId> for KeyUser {
    fn from(pd: PdId) -> Self {
        Self { pd, qpn: None }
    }
}

/// Error of an access check.
///
/// The responder answers it with a remote access error NAK (syndrome 0x62); a local work request ends with
/// `LOC_PROT_ERR`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
pub enum AccessError {
    /// No region or bound window has this key.
    #[error("no region or window has key 0x{key:08x}")]
    UnknownKey {
        /// The key.
        key: u32,
    },
    /// The region or window belongs to another protection domain.
    #[error("key 0x{key:08x} is of another protection domain")]
    WrongDomain {
        /// The key.
        key: u32,
    },
    /// The window is not bound.
    #[error("the memory window with key 0x{key:08x} is not bound")]
    Unbound {
        /// The key.
        key: u32,
    },
    /// The window is bound for another queue pair.
    #[error("key 0x{key:08x} is bound to queue pair {qpn}")]
    OtherQp {
        /// The key.
        key: u32,
        /// Queue pair that may use the window.
        qpn: Qpn,
    },
    /// The bytes are not all within the region or window.
    #[error(
        "key 0x{key:08x} covers {region_len} bytes from 0x{region_addr:x}, \
         not {len} from 0x{addr:x}"
    )]
    OutOfRange {
        /// The key.
        key: u32,
        /// First requested address.
        addr: u64,
        /// Requested length in bytes.
        len: u32,
        /// First address of the region or window.
        region_addr: u64,
        /// Length of the region or window in bytes.
        region_len: u64,
    },
    /// The region or window does not grant the access.
    #[error("key 0x{key:08x} does not grant {need}, only {granted}")]
    Denied {
        /// The key.
        key: u32,
        /// Required access rights.
        need: Access,
        /// Access rights of the region or window.
        granted: Access,
    },
}

impl AccessError {
    /// Returns how many of the requested bytes, from the first, are within the region or window.
    pub(super) fn bytes_within(self) -> u32 {
        let Self::OutOfRange { addr, len, region_addr, region_len, .. } = self else { return 0 };
        let Some(offset) = addr.checked_sub(region_addr) else { return 0 };
        u32::try_from(region_len.saturating_sub(offset)).map_or(len, |within| within.min(len))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_before_the_end_of_a_region_are_within_it() {
        let error = |addr, len, region_len| AccessError::OutOfRange {
            key: 0x100,
            addr,
            len,
            region_addr: 0x1000,
            region_len,
        };
        let within = [
            (0x1ff8, 16, 4096, 8),
            (0x2000, 16, 4096, 0),
            (0x3000, 16, 4096, 0),
            (0xff8, 16, 4096, 0),
            (0x1000, u32::MAX, u64::from(u32::MAX) + 1, u32::MAX),
        ];
        for (addr, len, region_len, expected) in within {
            assert_eq!(error(addr, len, region_len).bytes_within(), expected, "{len} at {addr:x}");
        }
        assert_eq!(AccessError::UnknownKey { key: 0x100 }.bytes_within(), 0);
    }

    #[test]
    fn flags_have_the_values_of_ibv_access_flags() {
        let all = [
            Access::LOCAL_WRITE,
            Access::REMOTE_WRITE,
            Access::REMOTE_READ,
            Access::REMOTE_ATOMIC,
            Access::MW_BIND,
            Access::ZERO_BASED,
            Access::ON_DEMAND,
            Access::HUGETLB,
            Access::FLUSH_GLOBAL,
            Access::FLUSH_PERSISTENT,
            Access::RELAXED_ORDERING,
        ];
        let bits = [1, 2, 4, 8, 16, 32, 64, 0x80, 0x100, 0x200, 1 << 20];
        assert_eq!(all.map(|a| a.bits()), bits);
    }

    #[test]
    fn errors_name_the_key_and_what_it_covers() {
        let denied = AccessError::Denied {
            key: 0x100,
            need: Access::REMOTE_WRITE,
            granted: Access::LOCAL_WRITE | Access::REMOTE_READ,
        };
        assert_eq!(
            denied.to_string(),
            "key 0x00000100 does not grant REMOTE_WRITE, only LOCAL_WRITE | REMOTE_READ"
        );
        let range = AccessError::OutOfRange {
            key: 0x100,
            addr: 0x1ff8,
            len: 16,
            region_addr: 0x1000,
            region_len: 4096,
        };
        assert_eq!(
            range.to_string(),
            "key 0x00000100 covers 4096 bytes from 0x1000, not 16 from 0x1ff8"
        );
    }
}

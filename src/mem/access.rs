//! What may be done with a region, and why it was refused.

use std::fmt;

use bitflags::bitflags;
use thiserror::Error;

use crate::ids::{PdId, Qpn};

bitflags! {
    /// What a region may be used for. Reading it locally is always allowed.
    #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
    #[doc(alias = "ibv_access_flags")]
    pub struct Access: u32 {
        /// Receives, READ results and atomic results may be put here.
        #[doc(alias = "IBV_ACCESS_LOCAL_WRITE")]
        const LOCAL_WRITE = 1;
        /// Peers may WRITE here. Needs `LOCAL_WRITE`.
        #[doc(alias = "IBV_ACCESS_REMOTE_WRITE")]
        const REMOTE_WRITE = 2;
        /// Peers may READ here.
        #[doc(alias = "IBV_ACCESS_REMOTE_READ")]
        const REMOTE_READ = 4;
        /// Peers may do atomics here. Needs `LOCAL_WRITE`.
        #[doc(alias = "IBV_ACCESS_REMOTE_ATOMIC")]
        const REMOTE_ATOMIC = 8;
        /// Memory windows may be bound to it.
        #[doc(alias = "IBV_ACCESS_MW_BIND")]
        const MW_BIND = 16;
        /// Addressed from zero instead of from its host address.
        #[doc(alias = "IBV_ACCESS_ZERO_BASED")]
        const ZERO_BASED = 32;
        /// Pages may come and go while it is registered. Taken for any memory; what makes it true is
        /// [`HostMemory::on_demand`](super::HostMemory::on_demand).
        #[doc(alias = "IBV_ACCESS_ON_DEMAND")]
        const ON_DEMAND = 64;
        /// Its pages are huge. Taken and not made use of.
        #[doc(alias = "IBV_ACCESS_HUGETLB")]
        const HUGETLB = 1 << 7;
        /// Peers may FLUSH what they have written here to where every reader sees it.
        #[doc(alias = "IBV_ACCESS_FLUSH_GLOBAL")]
        const FLUSH_GLOBAL = 1 << 8;
        /// Peers may FLUSH what they have written here to where it survives a loss of power. Needs
        /// memory that can ([`HostMemory::is_persistent`](super::HostMemory::is_persistent)).
        #[doc(alias = "IBV_ACCESS_FLUSH_PERSISTENT")]
        const FLUSH_PERSISTENT = 1 << 9;
        /// Data need not be placed in order. Taken and not made use of.
        #[doc(alias = "IBV_ACCESS_RELAXED_ORDERING")]
        const RELAXED_ORDERING = 1 << 20;
    }
}

impl Access {
    /// Flags that may be ignored by who does not know them.
    #[doc(alias = "IBV_ACCESS_OPTIONAL_RANGE")]
    pub const OPTIONAL: Self = Self::from_bits_retain(0x3ff0_0000);
}

impl fmt::Display for Access {
    /// The names with `|` between them, `none` when there are none.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_empty() {
            return f.write_str("none");
        }
        bitflags::parser::to_writer(self, f)
    }
}

/// What a work request does with its own memory.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Need {
    /// Sends from it.
    Read,
    /// Receives into it; the region must have [`Access::LOCAL_WRITE`].
    Write,
}

impl Need {
    /// The rights that the region must have.
    pub const fn access(self) -> Access {
        match self {
            Self::Read => Access::empty(),
            Self::Write => Access::LOCAL_WRITE,
        }
    }
}

/// Through which queue pair of which domain a key is used.
///
/// A domain alone is `Via` too; it does not open what is bound to one queue pair.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Via {
    /// The domain of the queue pair.
    pub pd: PdId,
    /// The queue pair.
    pub qpn: Option<Qpn>,
}

impl From<PdId> for Via {
    fn from(pd: PdId) -> Self {
        Self { pd, qpn: None }
    }
}

/// Why a key does not open what was asked for.
///
/// To a peer all of them are NAK 0x62, to a local work request `LOC_PROT_ERR`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
pub enum AccessError {
    /// Nothing has this key: never registered, deregistered, bound anew since, or guessed.
    #[error("no region or window has key 0x{key:08x}")]
    UnknownKey {
        /// The key given.
        key: u32,
    },
    /// The region or window belongs to another protection domain.
    #[error("key 0x{key:08x} is of another protection domain")]
    WrongDomain {
        /// The key given.
        key: u32,
    },
    /// The window is not bound to memory now.
    #[error("the memory window with key 0x{key:08x} is not bound")]
    Unbound {
        /// The key given.
        key: u32,
    },
    /// The window is bound for another queue pair.
    #[error("key 0x{key:08x} is bound to queue pair {qpn}")]
    OtherQp {
        /// The key given.
        key: u32,
        /// The only queue pair that may use it.
        qpn: Qpn,
    },
    /// The bytes asked for are not all within the region or window.
    #[error(
        "key 0x{key:08x} covers {region_len} bytes from 0x{region_addr:x}, \
         not {len} from 0x{addr:x}"
    )]
    OutOfRange {
        /// The key given.
        key: u32,
        /// The first address asked for.
        addr: u64,
        /// How many bytes were asked for.
        len: u32,
        /// The first address of the region or window.
        region_addr: u64,
        /// Its bytes.
        region_len: u64,
    },
    /// The region or window does not grant the access.
    #[error("key 0x{key:08x} does not grant {need}, only {granted}")]
    Denied {
        /// The key given.
        key: u32,
        /// What was asked for.
        need: Access,
        /// What the region was registered or the window bound with.
        granted: Access,
    },
}

#[cfg(test)]
mod tests {
    use super::*;

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

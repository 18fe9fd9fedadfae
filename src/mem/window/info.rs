//! Types of memory windows, and bind requests.

use std::fmt;

use crate::ids::Lkey;
use crate::mem::access::Access;

/// Type of a memory window (`ibv_mw_type`).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[repr(u8)]
#[doc(alias = "ibv_mw_type")]
pub enum MwType {
    /// Each bind changes the key. All queue pairs of the protection domain may use it.
    #[doc(alias = "IBV_MW_TYPE_1")]
    Type1 = 1,
    /// Bound for one queue pair until invalidated, under a key with a low byte chosen by the consumer. It is type 2B
    /// (IBTA vol 1, §10.6.7.2).
    #[doc(alias = "IBV_MW_TYPE_2")]
    Type2 = 2,
}

impl MwType {
    /// Every type.
    pub const ALL: [Self; 2] = [Self::Type1, Self::Type2];
}

impl fmt::Display for MwType {
    /// Formats the name in the specification: `type 1`, `type 2B`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Type1 => "type 1",
            Self::Type2 => "type 2B",
        })
    }
}

pub(in crate::mem) const FLUSH: Access = Access::FLUSH_GLOBAL.union(Access::FLUSH_PERSISTENT);

/// A bind request: the bytes of the window, and the access rights to them.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[doc(alias = "ibv_mw_bind_info")]
pub struct BindInfo {
    /// Key of the region.
    pub lkey: Lkey,
    /// First address, in the addressing of the region.
    pub addr: u64,
    /// Length in bytes. Zero unbinds a window of type 1.
    pub length: u64,
    /// Access rights of peers: `REMOTE_` flags, independent of those of the region, and `FLUSH_` flags, which the
    /// region needs too. [`Access::ZERO_BASED`], for type 2 only, makes addresses start at zero.
    pub access: Access,
}

impl BindInfo {
    /// Flags that a window may have.
    pub const ACCESS: Access = Access::REMOTE_WRITE
        .union(Access::REMOTE_READ)
        .union(Access::REMOTE_ATOMIC)
        .union(FLUSH)
        .union(Access::ZERO_BASED);

    /// Empty bind, which unbinds a window of type 1.
    pub const NOTHING: Self = Self { lkey: Lkey(0), addr: 0, length: 0, access: Access::empty() };
}

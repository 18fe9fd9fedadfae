//! Types of windows, and requests to bind them.

use std::fmt;

use crate::ids::Lkey;
use crate::mem::access::Access;

/// How a window is bound and invalidated.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[repr(u8)]
#[doc(alias = "ibv_mw_type")]
pub enum MwType {
    /// Bound again and again, each time under another key, for all queue pairs of its domain.
    #[doc(alias = "IBV_MW_TYPE_1")]
    Type1 = 1,
    /// Bound for one queue pair under a key whose low byte is the caller's choice, until it is
    /// invalidated. Of the two kinds that the specification has it is 2B.
    #[doc(alias = "IBV_MW_TYPE_2")]
    Type2 = 2,
}

impl MwType {
    /// Every type.
    pub const ALL: [Self; 2] = [Self::Type1, Self::Type2];
}

impl fmt::Display for MwType {
    /// As the specification has them: `type 1`, `type 2B`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Type1 => "type 1",
            Self::Type2 => "type 2B",
        })
    }
}

pub(in crate::mem) const FLUSH: Access = Access::FLUSH_GLOBAL.union(Access::FLUSH_PERSISTENT);

/// A request to bind a window: the bytes it opens, and the rights to them.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[doc(alias = "ibv_mw_bind_info")]
pub struct BindInfo {
    /// The region.
    pub lkey: Lkey,
    /// The first byte, in the addressing of the region.
    pub addr: u64,
    /// Bytes. A window of type 1 that is bound to none is unbound.
    pub length: u64,
    /// What peers may do there: the `REMOTE_` flags, whatever those of the region are, and the
    /// `FLUSH_` flags that the region has too, which knows where its memory lies. With
    /// [`Access::ZERO_BASED`], of type 2 only, they count addresses from its first byte.
    pub access: Access,
}

impl BindInfo {
    /// Every flag that a window may have.
    pub const ACCESS: Access = Access::REMOTE_WRITE
        .union(Access::REMOTE_READ)
        .union(Access::REMOTE_ATOMIC)
        .union(FLUSH)
        .union(Access::ZERO_BASED);

    /// Nothing: unbinds a window of type 1.
    pub const NOTHING: Self = Self { lkey: Lkey(0), addr: 0, length: 0, access: Access::empty() };
}

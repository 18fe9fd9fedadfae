//! Bindings of memory windows.

use std::sync::Arc;

use crate::ids::Qpn;
use crate::mem::access::{Access, AccessError};
use crate::mem::region::Region;
use crate::sync::epoch::LiveFlag;

/// Bytes and access rights of a bound window.
#[derive(Debug)]
pub(in crate::mem) struct Binding {
    pub(in crate::mem) region: Arc<Region>,
    /// Offset of the first byte in the region.
    pub(in crate::mem) offset: u64,
    pub(in crate::mem) length: u64,
    /// Address of the first byte in requests of peers.
    pub(in crate::mem) addr: u64,
    pub(in crate::mem) access: Access,
    /// The only queue pair that may use the window, for type 2.
    pub(in crate::mem) qpn: Option<Qpn>,
    pub(in crate::mem) live: LiveFlag,
}

impl Binding {
    /// Returns the region, while the window is bound.
    #[inline]
    pub(in crate::mem) fn region(&self) -> Option<&Region> {
        // A binding is revoked in the same way as memory: `crate::sync::epoch`.
        self.live.is_live().then_some(&*self.region)
    }

    pub(super) fn offset_of(&self, key: u32, addr: u64, len: u32) -> Result<usize, AccessError> {
        let (region_addr, region_len) = (self.addr, self.length);
        addr.checked_sub(self.addr)
            .filter(|at| at.checked_add(len.into()).is_some_and(|end| end <= self.length))
            .and_then(|at| usize::try_from(self.offset + at).ok())
            .ok_or(AccessError::OutOfRange { key, addr, len, region_addr, region_len })
    }
}

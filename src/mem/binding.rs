//! Bindings of memory windows.

use std::sync::Arc;

use super::access::{Access, AccessError};
use super::region::Region;
use crate::ids::Qpn;
use crate::sync::epoch::LiveFlag;

/// Bytes and access rights of a bound window.
#[derive(Debug)]
pub(super) struct Binding {
    pub(super) region: Arc<Region>,
    /// Offset of the first byte in the region.
    pub(super) offset: u64,
    pub(super) length: u64,
    /// Address of the first byte in requests of peers.
    pub(super) addr: u64,
    pub(super) access: Access,
    /// The only queue pair that may use the window, for type 2.
    pub(super) qpn: Option<Qpn>,
    pub(super) live: LiveFlag,
}

impl Binding {
    /// Returns the region, while the window is bound.
    #[inline]
    pub(super) fn region(&self) -> Option<&Region> {
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

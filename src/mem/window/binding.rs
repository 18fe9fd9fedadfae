//! The bytes that a bound window opens.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::ids::Qpn;
use crate::mem::access::{Access, AccessError};
use crate::mem::region::Region;

/// The bytes that a window opens while it is bound, and the rights to them.
#[derive(Debug)]
pub(in crate::mem) struct Binding {
    pub(in crate::mem) region: Arc<Region>,
    /// Of the first byte, in the region.
    pub(in crate::mem) offset: u64,
    pub(in crate::mem) length: u64,
    /// What peers call the first byte.
    pub(in crate::mem) addr: u64,
    pub(in crate::mem) access: Access,
    /// Type 2: the only queue pair that may use it.
    pub(in crate::mem) qpn: Option<Qpn>,
    pub(in crate::mem) holds: AtomicBool,
}

impl Binding {
    /// The region, as long as the window is bound.
    #[inline]
    pub(in crate::mem) fn region(&self) -> Option<&Region> {
        // With the turn that the copy needs this is the argument of `epoch`, for the end of a binding
        // in place of the end of a region.
        self.holds.load(Ordering::SeqCst).then_some(&*self.region)
    }

    pub(super) fn offset_of(&self, key: u32, addr: u64, len: u32) -> Result<usize, AccessError> {
        let (region_addr, region_len) = (self.addr, self.length);
        addr.checked_sub(self.addr)
            .filter(|at| at.checked_add(len.into()).is_some_and(|end| end <= self.length))
            .and_then(|at| usize::try_from(self.offset + at).ok())
            .ok_or(AccessError::OutOfRange { key, addr, len, region_addr, region_len })
    }
}

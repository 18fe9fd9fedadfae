//! Device memory: memory on an adapter. Here it is ordinary memory of limited total size, which programs access by
//! copies because it has no host address.

use std::sync::Arc;

use thiserror::Error;

use super::access::Access;
use super::budget::Budget;
use super::raw::HostMemory;
use super::region::{RangeError, Region};
use super::table::{Memory, RegisterError};
use crate::ids::PdId;

/// Memory of a device, for [registration](Memory::register_dm) as a whole or in parts. Dropping the last handle frees
/// it.
#[derive(Clone, Debug)]
#[doc(alias = "ibv_dm")]
pub struct DeviceMemory {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    memory: HostMemory,
    budget: Arc<Budget>,
}

impl Drop for Inner {
    fn drop(&mut self) {
        self.budget.give_back(self.memory.len());
    }
}

impl DeviceMemory {
    /// Copies `from` to `offset`. A concurrent remote READ may return a part of it.
    ///
    /// # Errors
    /// [`RangeError::Outside`]; no byte is copied.
    #[doc(alias = "ibv_memcpy_to_dm")]
    pub fn memcpy_to_dm(&self, offset: usize, from: &[u8]) -> Result<(), RangeError> {
        self.inner.memory.copy_in(offset, from).ok_or(self.outside(offset, from.len()))
    }

    /// Copies `to.len()` bytes from `offset`.
    ///
    /// # Errors
    /// [`RangeError::Outside`]; `to` does not change.
    #[doc(alias = "ibv_memcpy_from_dm")]
    pub fn memcpy_from_dm(&self, offset: usize, to: &mut [u8]) -> Result<(), RangeError> {
        self.inner.memory.copy_out(offset, to).ok_or(self.outside(offset, to.len()))
    }

    /// Returns the length in bytes.
    pub fn len(&self) -> usize {
        self.inner.memory.len()
    }

    /// Returns whether the length is zero, which is never the case.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    fn outside(&self, offset: usize, len: usize) -> RangeError {
        RangeError::Outside { offset, len, region_len: self.len() }
    }
}

/// Maximum alignment of device memory, as a power of two.
const MAX_LOG_ALIGN: u32 = 12;

impl Memory {
    /// Allocates `len` bytes of device memory, zeroed, at a multiple of `2^log_align` bytes.
    ///
    /// # Errors
    /// See [`DmError`].
    pub fn alloc_dm(&self, len: usize, log_align: u32) -> Result<DeviceMemory, DmError> {
        if log_align > MAX_LOG_ALIGN {
            return Err(DmError::Alignment { log_align });
        }
        if len == 0 {
            return Err(DmError::Empty);
        }
        let budget = Arc::clone(&self.device_memory);
        budget.take(len).map_err(|left| DmError::Exhausted { len, left })?;
        match HostMemory::alloc(len) {
            Ok(memory) => Ok(DeviceMemory { inner: Arc::new(Inner { memory, budget }) }),
            Err(_) => {
                let left = budget.give_back(len);
                Err(DmError::Exhausted { len, left })
            }
        }
    }

    /// Returns whether the memory belongs to this device.
    pub fn owns(&self, dm: &DeviceMemory) -> bool {
        Arc::ptr_eq(&self.device_memory, &dm.inner.budget)
    }

    /// Registers `len` bytes of device memory from `offset` on. Their addresses count from zero:
    /// [`Access::ZERO_BASED`] must be among the flags. Unlike host memory, the part may be empty, because programs
    /// that divide device memory may have an empty part.
    ///
    /// # Errors
    /// See [`RegisterError`].
    #[doc(alias = "ibv_reg_dm_mr")]
    pub fn register_dm(
        &self,
        pd: PdId,
        dm: &DeviceMemory,
        offset: usize,
        len: usize,
        access: Access,
    ) -> Result<Arc<Region>, RegisterError> {
        if !access.contains(Access::ZERO_BASED) {
            return Err(RegisterError::NotZeroBased);
        }
        let dm_len = dm.len();
        let part = dm.inner.memory.part(offset, len);
        self.register(
            pd,
            part.ok_or(RegisterError::OutsideDm { offset, len, dm_len })?,
            None,
            access,
        )
    }
}

/// Error of an allocation of device memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
pub enum DmError {
    /// The length is zero.
    #[error("cannot allocate 0 bytes of device memory")]
    Empty,
    /// The alignment exceeds the maximum.
    #[error("device memory is aligned to 2^{MAX_LOG_ALIGN} bytes at most, not to 2^{log_align}")]
    Alignment {
        /// Requested alignment, as a power of two.
        log_align: u32,
    },
    /// Fewer bytes are free than requested.
    #[doc(alias = "ENOMEM")]
    #[error("{len} bytes of device memory, of which {left} are left")]
    Exhausted {
        /// Requested length in bytes.
        len: usize,
        /// Number of free bytes.
        left: usize,
    },
}

#[cfg(test)]
mod tests {
    use super::super::{AccessError, LocalAccess, MemoryLimits};
    use super::*;

    const PD: PdId = PdId(1);

    fn memory() -> Memory {
        Memory::with_limits([0; 32], MemoryLimits { max_dm_size: 8192, ..Default::default() })
    }

    #[test]
    fn device_memory_is_limited_and_reusable() {
        let memory = memory();
        let first = memory.alloc_dm(8000, 0).unwrap();
        let refused = DmError::Exhausted { len: 193, left: 192 };
        assert_eq!(memory.alloc_dm(193, 0).unwrap_err(), refused);
        drop(first);
        assert_eq!(memory.alloc_dm(8192, 12).unwrap().len(), 8192);
        assert_eq!(memory.alloc_dm(0, 0).unwrap_err(), DmError::Empty);
        assert_eq!(memory.alloc_dm(1, 13).unwrap_err(), DmError::Alignment { log_align: 13 });
    }

    #[test]
    fn regions_of_device_memory_share_its_bytes() {
        let memory = memory();
        let dm = memory.alloc_dm(4096, 6).unwrap();
        let access = Access::LOCAL_WRITE | Access::ZERO_BASED;
        let part = memory.register_dm(PD, &dm, 1024, 512, access).unwrap();
        let whole = memory.register_dm(PD, &dm, 0, 4096, access).unwrap();
        dm.memcpy_to_dm(1020, b"12345678").unwrap();
        let mut seen = [0; 4];
        part.read_at(0, &mut seen).unwrap();
        assert_eq!((part.addr(), part.len(), &seen), (0, 512, b"5678"));
        whole.write_at(0, b"there").unwrap();
        let mut seen = [0; 5];
        dm.memcpy_from_dm(0, &mut seen).unwrap();
        assert_eq!(&seen, b"there");
        let outside = RangeError::Outside { offset: 4092, len: 5, region_len: 4096 };
        assert_eq!(dm.memcpy_from_dm(4092, &mut seen), Err(outside));
        assert_eq!(dm.memcpy_to_dm(4092, &seen), Err(outside));
    }

    #[test]
    fn region_of_device_memory_is_zero_based_and_within_it() {
        let memory = memory();
        let dm = memory.alloc_dm(4096, 0).unwrap();
        let refused = |at, len, access| memory.register_dm(PD, &dm, at, len, access).unwrap_err();
        assert_eq!(refused(0, 8, Access::empty()), RegisterError::NotZeroBased);
        let outside = RegisterError::OutsideDm { offset: 4090, len: 7, dm_len: 4096 };
        assert_eq!(refused(4090, 7, Access::ZERO_BASED), outside);
    }

    #[test]
    fn empty_region_of_device_memory_grants_no_access() {
        let memory = memory();
        let dm = memory.alloc_dm(8, 0).unwrap();
        let access = Access::LOCAL_WRITE | Access::ZERO_BASED;
        let region = memory.register_dm(PD, &dm, 0, 0, access).unwrap();
        let find =
            |len| memory.local(PD, region.lkey(), 0, len, LocalAccess::Read).map(|span| span.len());
        assert_eq!(find(0), Ok(0));
        assert!(matches!(find(1), Err(AccessError::OutOfRange { .. })));
        memory.try_deregister(&region).unwrap();
    }
}

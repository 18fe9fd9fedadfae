//! Device memory: what an adapter has on board, near its wire. Here it is memory like any other, but
//! there is a limited amount of it, nobody has an address of it, and it is copied to and from.

use std::sync::Arc;

use thiserror::Error;

use super::access::Access;
use super::budget::Budget;
use super::raw::HostMemory;
use super::region::{RangeError, Region};
use super::table::{Memory, RegisterError};
use crate::ids::PdId;

/// Memory of a device, to be [registered](Memory::register_dm) whole or in parts. It goes back to
/// the device with the last handle.
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
    /// Copies `from` to `offset`. Peers that read meanwhile may see a part of it.
    ///
    /// # Errors
    /// [`RangeError::Outside`]; then nothing has been copied.
    #[doc(alias = "ibv_memcpy_to_dm")]
    pub fn memcpy_to_dm(&self, offset: usize, from: &[u8]) -> Result<(), RangeError> {
        self.inner.memory.copy_in(offset, from).ok_or(self.outside(offset, from.len()))
    }

    /// Copies `to.len()` bytes from `offset`.
    ///
    /// # Errors
    /// [`RangeError::Outside`]; then `to` is unchanged.
    #[doc(alias = "ibv_memcpy_from_dm")]
    pub fn memcpy_from_dm(&self, offset: usize, to: &mut [u8]) -> Result<(), RangeError> {
        self.inner.memory.copy_out(offset, to).ok_or(self.outside(offset, to.len()))
    }

    /// How many bytes there are.
    pub fn len(&self) -> usize {
        self.inner.memory.len()
    }

    /// Whether there are none: never, nothing is not allocated.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    fn outside(&self, offset: usize, len: usize) -> RangeError {
        RangeError::Outside { offset, len, region_len: self.len() }
    }
}

/// The alignment of device memory, as a power of two, at most.
const MAX_LOG_ALIGN: u32 = 12;

impl Memory {
    /// Allocates `len` bytes of device memory, zeroed, at a multiple of `2^log_align`.
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

    /// Whether it is device memory of this device.
    pub fn owns(&self, dm: &DeviceMemory) -> bool {
        Arc::ptr_eq(&self.device_memory, &dm.inner.budget)
    }

    /// Registers `len` bytes of device memory from `offset` on. They have no address but the one
    /// that counts from their first: [`Access::ZERO_BASED`] must be among the flags. Unlike memory of
    /// the host they may be none: programs divide device memory, and one may get nothing.
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

/// Why device memory was not allocated.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
pub enum DmError {
    /// There are no bytes.
    #[error("cannot allocate 0 bytes of device memory")]
    Empty,
    /// An alignment that it cannot have.
    #[error("device memory is aligned to 2^{MAX_LOG_ALIGN} bytes at most, not to 2^{log_align}")]
    Alignment {
        /// The power of two.
        log_align: u32,
    },
    /// There is not so much left.
    #[doc(alias = "ENOMEM")]
    #[error("{len} bytes of device memory, of which {left} are left")]
    Exhausted {
        /// How much was asked for.
        len: usize,
        /// How much there is.
        left: usize,
    },
}

#[cfg(test)]
mod tests {
    use super::super::{AccessError, MemoryLimits, Need};
    use super::*;

    const PD: PdId = PdId(1);

    fn memory() -> Memory {
        Memory::with_limits([0; 32], MemoryLimits { max_dm_size: 8192, ..Default::default() })
    }

    #[test]
    fn device_memory_is_limited_and_comes_back() {
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
    fn parts_of_it_are_regions_and_share_its_bytes() {
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
    fn a_region_of_it_is_zero_based_and_within() {
        let memory = memory();
        let dm = memory.alloc_dm(4096, 0).unwrap();
        let refused = |at, len, access| memory.register_dm(PD, &dm, at, len, access).unwrap_err();
        assert_eq!(refused(0, 8, Access::empty()), RegisterError::NotZeroBased);
        let outside = RegisterError::OutsideDm { offset: 4090, len: 7, dm_len: 4096 };
        assert_eq!(refused(4090, 7, Access::ZERO_BASED), outside);
    }

    #[test]
    fn a_region_of_none_of_it_opens_nothing() {
        let memory = memory();
        let dm = memory.alloc_dm(8, 0).unwrap();
        let access = Access::LOCAL_WRITE | Access::ZERO_BASED;
        let region = memory.register_dm(PD, &dm, 0, 0, access).unwrap();
        let find = |len| memory.local(PD, region.lkey(), 0, len, Need::Read).map(|span| span.len());
        assert_eq!(find(0), Ok(0));
        assert!(matches!(find(1), Err(AccessError::OutOfRange { .. })));
        memory.try_deregister(&region).unwrap();
    }
}

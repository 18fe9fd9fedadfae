//! Registered memory regions.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use thiserror::Error;

use super::access::{Access, AccessError};
use super::backing::Misaligned;
use super::placement::Placement;
use super::raw::{HostMemory, Revocable};
use crate::ids::{Lkey, PdId, Rkey};
use crate::sync::epoch::Epochs;

/// A registered memory region.
///
/// Peers may write to it at any time, so programs read and write its bytes by copies. Offsets count from the first
/// byte, independent of the region's addresses.
///
/// Memory from [`HostMemory::alloc`] remains readable and writable through the region after deregistration; memory of
/// the caller does not.
#[derive(Debug)]
#[doc(alias = "ibv_mr")]
pub struct Region {
    pub(super) memory: Revocable,
    number: u64,
    key: u32,
    pd: PdId,
    iova: u64,
    access: Access,
}

impl Region {
    pub(super) fn new(
        key: u32,
        pd: PdId,
        iova: u64,
        access: Access,
        memory: HostMemory,
        epochs: Arc<Epochs>,
    ) -> Self {
        static NEXT_NUMBER: AtomicU64 = AtomicU64::new(1);
        let number = NEXT_NUMBER.fetch_add(1, Ordering::Relaxed);
        Self { memory: Revocable::new(memory, epochs), number, key, pd, iova, access }
    }

    /// Copies `to.len()` bytes from `offset`. If they contain the last bytes of a message, a later call sees the
    /// whole message.
    ///
    /// # Errors
    /// [`RangeError::Outside`], [`RangeError::Deregistered`]; `to` does not change. [`RangeError::NotMapped`].
    pub fn read_at(&self, offset: usize, to: &mut [u8]) -> Result<(), RangeError> {
        let held = self.memory.pin_for_app().ok_or(RangeError::Deregistered)?;
        held.copy_out(offset, to).ok_or(self.refused(offset, to.len()))
    }

    /// Copies `from` to `offset`. A concurrent remote READ may return a part of it.
    ///
    /// # Errors
    /// [`RangeError::Outside`], [`RangeError::Deregistered`]; the region does not change. [`RangeError::NotMapped`].
    pub fn write_at(&self, offset: usize, from: &[u8]) -> Result<(), RangeError> {
        let held = self.memory.pin_for_app().ok_or(RangeError::Deregistered)?;
        held.place(offset, from, Placement::Plain).ok_or(self.refused(offset, from.len()))
    }

    /// Loads 8 bytes atomically, in host byte order, with acquire ordering: later reads see all bytes that a peer
    /// wrote before.
    ///
    /// # Errors
    /// [`RangeError::Outside`], [`RangeError::Misaligned`], [`RangeError::Deregistered`],
    /// [`RangeError::NotMapped`].
    pub fn load_u64(&self, offset: usize) -> Result<u64, RangeError> {
        let held = self.memory.pin_for_app().ok_or(RangeError::Deregistered)?;
        self.word(offset, held.word(offset, |word| word.load(Ordering::Acquire)))
    }

    /// Stores 8 bytes atomically, in host byte order, with release ordering.
    ///
    /// # Errors
    /// [`RangeError::Outside`], [`RangeError::Misaligned`], [`RangeError::Deregistered`],
    /// [`RangeError::NotMapped`].
    pub fn store_u64(&self, offset: usize, value: u64) -> Result<(), RangeError> {
        let held = self.memory.pin_for_app().ok_or(RangeError::Deregistered)?;
        self.word(offset, held.word(offset, |word| word.store(value, Ordering::Release)))
    }

    /// Returns whether the region is registered.
    pub fn is_live(&self) -> bool {
        self.memory.is_live()
    }

    /// Returns the key for local work requests. It has the same value as [`rkey`](Self::rkey).
    pub fn lkey(&self) -> Lkey {
        Lkey(self.key)
    }

    /// Returns the key for requests of peers. Without a `REMOTE_` access flag it grants nothing.
    pub fn rkey(&self) -> Rkey {
        Rkey(self.key)
    }

    /// Returns the address of the first byte in work requests and requests of peers: the address given at
    /// registration, zero for a zero-based region, otherwise the host address.
    pub fn addr(&self) -> u64 {
        self.iova
    }

    /// Returns the length in bytes.
    pub fn len(&self) -> usize {
        self.memory.len()
    }

    /// Returns whether the length is zero, which is never the case.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the access rights.
    pub fn access(&self) -> Access {
        self.access
    }

    /// Returns the protection domain.
    pub fn pd(&self) -> PdId {
        self.pd
    }

    /// Returns the address of the first byte in this process. It is valid while this region exists; for memory of the
    /// caller, as long as the caller guarantees. Access the bytes as memory shared with another process: volatile or
    /// atomic, without references.
    pub fn as_ptr(&self) -> *mut u8 {
        self.memory.as_ptr()
    }

    /// Makes pages present that will be accessed soon. They may become absent again, because the bytes are not
    /// accessed.
    pub(super) fn prefetch(&self, offset: usize, len: usize, write: bool) -> io::Result<()> {
        self.memory.memory().prefetch(offset, len, write)
    }

    /// Returns a number that is unique among all regions of this process, unlike a key, which can be reused.
    pub(super) fn number(&self) -> u64 {
        self.number
    }

    /// Returns the whole key, including the variant.
    pub(super) fn key(&self) -> u32 {
        self.key
    }

    /// Checks that the region grants these access rights.
    pub(super) fn grants(&self, need: Access) -> Result<(), AccessError> {
        let (key, granted) = (self.key, self.access);
        if granted.contains(need) {
            Ok(())
        } else {
            Err(AccessError::Denied { key, need, granted })
        }
    }

    /// Returns the offset of `len` bytes at the region's address `addr`.
    #[inline]
    pub(super) fn offset_of(&self, addr: u64, len: u32) -> Result<usize, AccessError> {
        let region_len = self.len() as u64;
        addr.checked_sub(self.iova)
            .filter(|offset| {
                offset.checked_add(u64::from(len)).is_some_and(|end| end <= region_len)
            })
            .and_then(|offset| usize::try_from(offset).ok())
            .ok_or(AccessError::OutOfRange {
                key: self.key,
                addr,
                len,
                region_addr: self.iova,
                region_len,
            })
    }

    /// Returns the error for bytes that are not accessible.
    fn refused(&self, offset: usize, len: usize) -> RangeError {
        let region_len = self.len();
        match offset.checked_add(len) {
            Some(end) if end <= region_len => RangeError::NotMapped { offset, len },
            _ => RangeError::Outside { offset, len, region_len },
        }
    }

    fn word<R>(&self, offset: usize, got: Option<Result<R, Misaligned>>) -> Result<R, RangeError> {
        match got {
            None => Err(self.refused(offset, size_of::<u64>())),
            Some(Err(Misaligned)) => Err(RangeError::Misaligned { offset }),
            Some(Ok(value)) => Ok(value),
        }
    }
}

/// Error of an application's access to a region.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
pub enum RangeError {
    /// The bytes are not all within the region.
    #[error("{len} bytes at offset {offset} are not within a region of {region_len}")]
    Outside {
        /// Requested offset.
        offset: usize,
        /// Requested length in bytes.
        len: usize,
        /// Length of the region in bytes.
        region_len: usize,
    },
    /// The bytes are within the region, but a page is not mapped or the file was truncated. Some bytes may have been
    /// copied.
    #[error("the {len} bytes at offset {offset} are not mapped")]
    NotMapped {
        /// Requested offset.
        offset: usize,
        /// Requested length in bytes.
        len: usize,
    },
    /// The host address of the 8 bytes is not a multiple of 8.
    #[error("the 8 bytes at offset {offset} are not aligned")]
    Misaligned {
        /// Requested offset.
        offset: usize,
    },
    /// The region is deregistered, so the memory is no longer accessible through it.
    #[error("the region is deregistered and its memory is the caller's again")]
    Deregistered,
}

#[cfg(test)]
mod tests {
    use super::super::Memory;
    use super::*;

    fn region() -> Arc<Region> {
        let host = HostMemory::alloc(24).unwrap();
        Memory::new([0; 32]).register(PdId(1), host, None, Access::LOCAL_WRITE).unwrap()
    }

    #[test]
    fn new_region_is_zero_and_keeps_written_bytes() {
        let region = region();
        let mut seen = [1; 24];
        region.read_at(0, &mut seen).unwrap();
        assert_eq!(seen, [0; 24]);
        region.write_at(21, b"end").unwrap();
        region.read_at(20, &mut seen[..4]).unwrap();
        assert_eq!(&seen[..4], b"\0end");
    }

    #[test]
    fn offsets_are_checked() {
        let region = region();
        let outside = |offset, len| RangeError::Outside { offset, len, region_len: 24 };
        assert_eq!(region.read_at(20, &mut [0; 5]), Err(outside(20, 5)));
        assert_eq!(region.write_at(25, b""), Err(outside(25, 0)));
        assert_eq!(region.write_at(usize::MAX, b"ab"), Err(outside(usize::MAX, 2)));
        assert_eq!(region.load_u64(17), Err(outside(17, 8)));
        assert_eq!(region.store_u64(4, 0), Err(RangeError::Misaligned { offset: 4 }));
        assert_eq!(region.write_at(24, b""), Ok(()));
    }

    #[test]
    fn words_are_in_host_order() {
        let region = region();
        region.store_u64(16, 0x0102).unwrap();
        let mut bytes = [0; 8];
        region.read_at(16, &mut bytes).unwrap();
        assert_eq!(u64::from_ne_bytes(bytes), 0x0102);
        assert_eq!(region.load_u64(16), Ok(0x0102));
    }
}

//! A registered region: memory, what names it, and what may be done with it.

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
/// Peers may write it at any time, so its bytes are read and written by copying. Offsets count from
/// the first byte, whatever the region's addressing.
///
/// Memory from [`HostMemory::alloc`] can be read and written through the region even after it has
/// been deregistered; memory of the caller cannot.
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
        static MADE: AtomicU64 = AtomicU64::new(1);
        let number = MADE.fetch_add(1, Ordering::Relaxed);
        Self { memory: Revocable::new(memory, epochs), number, key, pd, iova, access }
    }

    /// Copies `to.len()` bytes from `offset`. If it sees the last bytes of a message, it sees what
    /// came before them too in a following call.
    ///
    /// # Errors
    /// [`RangeError::Outside`], [`RangeError::Deregistered`]; then `to` is unchanged.
    /// [`RangeError::NotMapped`].
    pub fn read_at(&self, offset: usize, to: &mut [u8]) -> Result<(), RangeError> {
        let held = self.memory.hold().ok_or(RangeError::Deregistered)?;
        held.copy_out(offset, to).ok_or(self.refused(offset, to.len()))
    }

    /// Copies `from` to `offset`. Peers that read meanwhile may see a part of it.
    ///
    /// # Errors
    /// [`RangeError::Outside`], [`RangeError::Deregistered`]; then the region is unchanged.
    /// [`RangeError::NotMapped`].
    pub fn write_at(&self, offset: usize, from: &[u8]) -> Result<(), RangeError> {
        let held = self.memory.hold().ok_or(RangeError::Deregistered)?;
        held.place(offset, from, Placement::Plain).ok_or(self.refused(offset, from.len()))
    }

    /// Loads 8 bytes at once, in host order, with acquire: what a peer placed before them is seen
    /// after them. Never torn by an atomic of a peer.
    ///
    /// # Errors
    /// [`RangeError::Outside`], [`RangeError::Misaligned`], [`RangeError::Deregistered`],
    /// [`RangeError::NotMapped`].
    pub fn load_u64(&self, offset: usize) -> Result<u64, RangeError> {
        let held = self.memory.hold().ok_or(RangeError::Deregistered)?;
        self.word(offset, held.word(offset, |word| word.load(Ordering::Acquire)))
    }

    /// Stores 8 bytes at once, in host order, with release.
    ///
    /// # Errors
    /// [`RangeError::Outside`], [`RangeError::Misaligned`], [`RangeError::Deregistered`],
    /// [`RangeError::NotMapped`].
    pub fn store_u64(&self, offset: usize, value: u64) -> Result<(), RangeError> {
        let held = self.memory.hold().ok_or(RangeError::Deregistered)?;
        self.word(offset, held.word(offset, |word| word.store(value, Ordering::Release)))
    }

    /// Whether it has not been deregistered.
    pub fn is_live(&self) -> bool {
        self.memory.is_live()
    }

    /// The key that names it in local work requests. The same number as [`rkey`](Self::rkey).
    pub fn lkey(&self) -> Lkey {
        Lkey(self.key)
    }

    /// The key that peers name it by. Opens nothing without a `REMOTE_` access flag.
    pub fn rkey(&self) -> Rkey {
        Rkey(self.key)
    }

    /// The address of the first byte in work requests and at peers: what was given at registration,
    /// zero for a zero-based region, else the host address.
    pub fn addr(&self) -> u64 {
        self.iova
    }

    /// How many bytes there are.
    pub fn len(&self) -> usize {
        self.memory.len()
    }

    /// Whether there are none: never, an empty region is not registered.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// What it may be used for.
    pub fn access(&self) -> Access {
        self.access
    }

    /// The protection domain it belongs to.
    pub fn pd(&self) -> PdId {
        self.pd
    }

    /// The first byte in this process. Valid while this region is, or, for the caller's memory, for
    /// as long as the caller says. Treat the bytes as shared with another process: volatile or
    /// atomic accesses, no references.
    pub fn as_ptr(&self) -> *mut u8 {
        self.memory.as_ptr()
    }

    /// Brings bytes in that will soon be used. Nothing is done to them, so they may be gone.
    pub(super) fn prefetch(&self, offset: usize, len: usize, write: bool) -> io::Result<()> {
        self.memory.memory().prefetch(offset, len, write)
    }

    /// What no other region of this process has had: a key may be another's later.
    pub(super) fn number(&self) -> u64 {
        self.number
    }

    /// The whole key, variant included.
    pub(super) fn key(&self) -> u32 {
        self.key
    }

    /// Whether it may be used for this.
    pub(super) fn grants(&self, need: Access) -> Result<(), AccessError> {
        let (key, granted) = (self.key, self.access);
        if granted.contains(need) {
            Ok(())
        } else {
            Err(AccessError::Denied { key, need, granted })
        }
    }

    /// The offset of `len` bytes at `addr` of the region's addressing.
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

    /// Why bytes could not be had.
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

/// Why bytes of a region cannot be read or written by the application.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
pub enum RangeError {
    /// Not all of them are within the region.
    #[error("{len} bytes at offset {offset} are not within a region of {region_len}")]
    Outside {
        /// The offset given.
        offset: usize,
        /// How many bytes were asked for.
        len: usize,
        /// How many bytes the region has.
        region_len: usize,
    },
    /// The region has them, but nothing is mapped there, or the file is shorter by now. Some may
    /// have been copied.
    #[error("the {len} bytes at offset {offset} are not mapped")]
    NotMapped {
        /// The offset given.
        offset: usize,
        /// How many bytes were asked for.
        len: usize,
    },
    /// The host address of the 8 bytes is not a multiple of 8.
    #[error("the 8 bytes at offset {offset} are not aligned")]
    Misaligned {
        /// The offset given.
        offset: usize,
    },
    /// The region is deregistered, and its memory went back to the caller.
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
    fn a_new_region_is_zero_and_holds_what_is_written() {
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

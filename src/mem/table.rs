//! Key table of a device.

mod advise;
mod rereg;
mod windows;

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, PoisonError, RwLockReadGuard, RwLockWriteGuard};

pub use advise::{Advice, AdviseError};
pub use rereg::Reregister;

use chacha20::ChaCha8Rng;
use rand_core::{Rng, SeedableRng};
use thiserror::Error;

use super::access::{Access, AccessError, KeyUser, LocalAccess};
use super::budget::Budget;
use super::guard::EpochHandle;
use super::keys::{ByKey, hash_key, index};
use super::raw::HostMemory;
use super::region::Region;
use super::span::{Span, Spans};
use super::window::Windows;
use crate::ids::{Lkey, PdId, Rkey};
use crate::sync::RwLock;
use crate::sync::epoch::Epochs;

/// Key table of a device, shared by its engines and by application threads.
///
/// A key consists of an index of 24 random bits, unique among regions and memory windows, and a variant byte. Lookups
/// compare the whole key: a peer that guesses a key finds one of n regions with probability n / 2^32. Neither the
/// responses nor their timing reveal whether an index is in use.
///
/// ```
/// use softroce::ids::PdId;
/// use softroce::mem::{Access, HostMemory, Memory, LocalAccess, Placement};
///
/// let memory = Memory::new([7; 32]);
/// let mut handle = memory.epoch_handle();
/// let pd = PdId(1);
/// let region = memory.register(pd, HostMemory::alloc(4096)?, None, Access::LOCAL_WRITE)?;
///
/// // An engine receives a message:
/// let span = memory.local(pd, region.lkey(), region.addr() + 64, 5, LocalAccess::Write)?;
/// span.place(&handle.enter(), 0, b"hello", Placement::Final)?;
///
/// let mut seen = [0; 5];
/// region.read_at(64, &mut seen)?;
/// assert_eq!(&seen, b"hello");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Memory {
    table: RwLock<Table>,
    pub(super) epochs: Arc<Epochs>,
    pub(super) limits: MemoryLimits,
    pub(super) device_memory: Arc<Budget>,
}

/// Maximum numbers and sizes of registered memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct MemoryLimits {
    /// Number of regions.
    pub max_mr: usize,
    /// Number of memory windows.
    pub max_mw: usize,
    /// Bytes of a region.
    pub max_mr_size: usize,
    /// Total bytes of device memory.
    pub max_dm_size: usize,
}

impl Default for MemoryLimits {
    /// Returns the default limits: regions and windows use at most an eighth of the keys, so keys cannot be guessed;
    /// the size of a region is unlimited; and the size of device memory is that of a large adapter.
    fn default() -> Self {
        Self { max_mr: 1 << 20, max_mw: 1 << 20, max_mr_size: usize::MAX, max_dm_size: 1 << 20 }
    }
}

/// Regions and windows. Their indices are disjoint.
pub(super) struct Table {
    /// Regions by whole key.
    regions: ByKey<Arc<Region>>,
    /// Indices of the regions.
    taken: ByKey<()>,
    pub(super) windows: Windows,
    keys: ChaCha8Rng,
}

impl Table {
    /// Returns a random key with a free index.
    ///
    /// At most one index in 8 is in use, so the loop ends soon.
    pub(super) fn free_key(&mut self) -> u32 {
        loop {
            let key = self.keys.next_u32();
            let at = index(key);
            // Programs use key 0 for "no key".
            if at != 0 && !self.taken.contains_key(&at) && !self.windows.contains(at) {
                return key;
            }
        }
    }

    /// Returns the region with exactly this key, if it belongs to domain `pd`.
    pub(super) fn region(&self, pd: PdId, key: u32) -> Result<&Arc<Region>, AccessError> {
        let region = self.regions.get(&hash_key(key)).ok_or(AccessError::UnknownKey { key })?;
        if region.pd() == pd { Ok(region) } else { Err(AccessError::WrongDomain { key }) }
    }

    /// Returns whether the table contains this region.
    fn contains(&self, region: &Region) -> bool {
        let found = self.regions.get(&hash_key(region.key()));
        found.is_some_and(|found| std::ptr::eq(Arc::as_ptr(found), region))
    }

    /// Returns an error when windows are bound to a region.
    fn check_unbound(&self, region: &Region) -> Result<(), DeregisterError> {
        match self.windows.bound_to(region) {
            0 => Ok(()),
            windows => Err(DeregisterError { windows }),
        }
    }

    /// Removes a region, if the table contains it, and unbinds its windows.
    fn remove(&mut self, region: &Region) {
        if self.contains(region) {
            self.windows.unbind_all_of(region);
            self.regions.remove(&hash_key(region.key()));
            self.taken.remove(&index(region.key()));
        }
    }

    /// Inserts a region. It replaces a region with the same key.
    pub(super) fn insert(&mut self, region: &Arc<Region>) {
        self.taken.insert(index(region.key()), ());
        self.regions.insert(hash_key(region.key()), Arc::clone(region));
    }
}

impl Memory {
    /// Creates an empty table. The seed determines its keys. Peers must not be able to guess the seed.
    pub fn new(seed: [u8; 32]) -> Self {
        Self::with_limits(seed, MemoryLimits::default())
    }

    /// Creates an empty table with these limits, reduced to the defaults where they exceed them.
    pub fn with_limits(seed: [u8; 32], limits: MemoryLimits) -> Self {
        let most = MemoryLimits::default();
        let limits = MemoryLimits {
            max_mr: limits.max_mr.min(most.max_mr),
            max_mw: limits.max_mw.min(most.max_mw),
            ..limits
        };
        let table = Table {
            regions: HashMap::default(),
            taken: HashMap::default(),
            windows: Windows::default(),
            keys: ChaCha8Rng::from_seed(seed),
        };
        Self {
            table: RwLock::new(table),
            epochs: Arc::new(Epochs::new()),
            limits,
            device_memory: Arc::new(Budget::new(limits.max_dm_size)),
        }
    }

    /// Returns the limits.
    pub fn limits(&self) -> MemoryLimits {
        self.limits
    }

    /// Registers memory under a new key.
    ///
    /// Peers and work requests address it from `iova` on; from its host address on if `iova` is `None`; from zero on
    /// with [`Access::ZERO_BASED`], regardless of `iova`. Memory of length 0 is valid: every access to a byte of it
    /// is out of bounds.
    ///
    /// # Errors
    /// See [`RegisterError`]. The memory is dropped.
    pub fn register(
        &self,
        pd: PdId,
        memory: HostMemory,
        iova: Option<u64>,
        access: Access,
    ) -> Result<Arc<Region>, RegisterError> {
        let (addr, access) = self.check(&memory, iova, access)?;
        let mut table = self.write();
        let max = self.limits.max_mr;
        if table.regions.len() >= max {
            return Err(RegisterError::TableFull { max });
        }
        let key = table.free_key();
        let epochs = Arc::clone(&self.epochs);
        let region = Arc::new(Region::new(key, pd, addr, access, memory, epochs));
        table.insert(&region);
        Ok(region)
    }

    /// Returns the address and the access rights of a new region.
    fn check(
        &self,
        memory: &HostMemory,
        iova: Option<u64>,
        access: Access,
    ) -> Result<(u64, Access), RegisterError> {
        check_access(access, memory)?;
        let (len, max) = (memory.len(), self.limits.max_mr_size);
        if len > max {
            return Err(RegisterError::TooLong { len, max });
        }
        let addr = match iova {
            _ if access.contains(Access::ZERO_BASED) => 0,
            Some(iova) => iova,
            None => memory.as_ptr().addr() as u64,
        };
        if addr.checked_add(len as u64).is_none() {
            return Err(RegisterError::AddressOverflow { addr, len });
        }
        Ok((addr, access & Access::all()))
    }

    /// Removes the region and unbinds its windows: their keys become invalid, and messages in progress fail.
    ///
    /// When it returns, no engine and no `read_at` or `write_at` accesses the region's memory, so the caller may free
    /// its memory. It waits for the open [`EpochGuard`](super::EpochGuard)s of all engines, and deadlocks if the
    /// calling thread holds one. Further calls only wait.
    pub fn deregister(&self, region: &Region) {
        self.write().remove(region);
        region.memory.revoke();
    }

    /// Deregisters the region, unless memory windows are bound to it.
    ///
    /// # Errors
    /// [`DeregisterError`]; the region does not change.
    pub fn try_deregister(&self, region: &Region) -> Result<(), DeregisterError> {
        let mut table = self.write();
        if table.contains(region) {
            table.check_unbound(region)?;
            table.remove(region);
        }
        drop(table);
        region.memory.revoke();
        Ok(())
    }

    /// Returns an epoch handle for an engine that copies from and to this table's regions.
    pub fn epoch_handle(&self) -> EpochHandle {
        EpochHandle::new(&self.epochs)
    }

    /// Checks an access of a local work request in domain `pd`, and returns the bytes.
    ///
    /// # Errors
    /// See [`AccessError`]. Empty accesses need no valid key.
    pub fn local(
        &self,
        pd: PdId,
        lkey: Lkey,
        addr: u64,
        len: u32,
        need: LocalAccess,
    ) -> Result<Span, AccessError> {
        if len == 0 {
            return Ok(Span::EMPTY);
        }
        let table = self.read();
        let region = table.region(pd, lkey.0)?;
        span_of(region, addr, len, need.access())
    }

    /// Checks an access of a peer through the queue pair `user`, and returns the bytes. `need` is the `REMOTE_` flag
    /// of the operation. The key is that of a region or of a memory window.
    ///
    /// # Errors
    /// See [`AccessError`]. Empty accesses need no valid key (C9-88).
    pub fn remote(
        &self,
        user: impl Into<KeyUser>,
        rkey: Rkey,
        addr: u64,
        len: u32,
        need: Access,
    ) -> Result<Span, AccessError> {
        if len == 0 {
            return Ok(Span::EMPTY);
        }
        let user = user.into();
        let table = self.read();
        match table.region(user.pd, rkey.0) {
            Ok(region) => span_of(region, addr, len, need),
            Err(unknown @ AccessError::UnknownKey { .. }) => {
                let window = table.windows.with_key(rkey).ok_or(unknown)?;
                window.span(user, addr, len, need)
            }
            Err(error) => Err(error),
        }
    }

    /// Returns all bytes to which a peer has the access right `need` with this key.
    ///
    /// # Errors
    /// See [`AccessError`].
    pub fn remote_whole(
        &self,
        user: impl Into<KeyUser>,
        rkey: Rkey,
        need: Access,
    ) -> Result<Span, AccessError> {
        let user = user.into();
        let table = self.read();
        match table.region(user.pd, rkey.0) {
            Ok(region) => {
                region.grants(need)?;
                Ok(Span::of_all(Arc::clone(region), 0, region.len()))
            }
            Err(unknown @ AccessError::UnknownKey { .. }) => {
                table.windows.with_key(rkey).ok_or(unknown)?.whole_span(user, need)
            }
            Err(error) => Err(error),
        }
    }

    /// Returns the number of regions.
    pub fn region_count(&self) -> usize {
        self.read().regions.len()
    }

    pub(super) fn read(&self) -> RwLockReadGuard<'_, Table> {
        self.table.read().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn write(&self) -> RwLockWriteGuard<'_, Table> {
        self.table.write().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Spans {
    /// Checks each `(key, address, length)` of a local work request.
    ///
    /// # Errors
    /// The error of the first invalid element. Empty elements are not checked.
    pub fn resolve(
        memory: &Memory,
        pd: PdId,
        pieces: impl IntoIterator<Item = (Lkey, u64, u32)>,
        need: LocalAccess,
    ) -> Result<Self, AccessError> {
        let mut spans = Self::default();
        for (lkey, addr, len) in pieces {
            let span = memory.local(pd, lkey, addr, len, need)?;
            spans.push(span);
        }
        Ok(spans)
    }

    /// Checks each `(key, address, length)` of a receive request, and returns the bytes before the first one that is not
    /// accessible. They may be fewer than the lengths have together: a message shorter than the list does not reach the
    /// rest, which therefore need not be accessible, as with adapters and rxe.
    pub(crate) fn accessible(
        memory: &Memory,
        pd: PdId,
        pieces: impl IntoIterator<Item = (Lkey, u64, u32)>,
        need: LocalAccess,
    ) -> Self {
        let mut spans = Self::default();
        for (lkey, addr, len) in pieces {
            match memory.local(pd, lkey, addr, len, need) {
                Ok(span) => spans.push(span),
                Err(error) => {
                    let within = error.bytes_within();
                    spans.push(memory.local(pd, lkey, addr, within, need).unwrap_or_default());
                    break;
                }
            }
        }
        spans
    }
}

/// Returns the `len` bytes at `addr` of a region.
fn span_of(region: &Arc<Region>, addr: u64, len: u32, need: Access) -> Result<Span, AccessError> {
    region.grants(need)?;
    let offset = region.offset_of(addr, len)?;
    Ok(Span::new(Arc::clone(region), offset, len))
}

impl fmt::Debug for Memory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Memory").field("regions", &self.region_count()).finish_non_exhaustive()
    }
}

fn check_access(access: Access, memory: &HostMemory) -> Result<(), RegisterError> {
    let unsupported = access.difference(Access::all() | Access::OPTIONAL);
    if !unsupported.is_empty() {
        return Err(RegisterError::Unsupported { access: unsupported });
    }
    if access.contains(Access::FLUSH_PERSISTENT) && !memory.is_persistent() {
        return Err(RegisterError::NotPersistent);
    }
    let writes = access & (Access::REMOTE_WRITE | Access::REMOTE_ATOMIC);
    if !writes.is_empty() && !access.contains(Access::LOCAL_WRITE) {
        return Err(RegisterError::NeedsLocalWrite { access: writes });
    }
    Ok(())
}

/// Error of a registration.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
pub enum RegisterError {
    /// The new memory of a region is empty.
    #[error("a region cannot move to 0 bytes")]
    Empty,
    /// Remote writes or atomics require local write access.
    #[error("{access} needs LOCAL_WRITE")]
    NeedsLocalWrite {
        /// The flags that require it.
        access: Access,
    },
    /// The flags are not supported.
    #[error("access {access} is not supported")]
    Unsupported {
        /// The unsupported flags.
        access: Access,
    },
    /// The region exceeds the 64-bit address space.
    #[error("{len} bytes from 0x{addr:x} go past the last address")]
    AddressOverflow {
        /// First address.
        addr: u64,
        /// Length in bytes.
        len: usize,
    },
    /// The memory does not support FLUSHes with persistence.
    #[error("FLUSH_PERSISTENT needs memory that is a mapped file")]
    NotPersistent,
    /// The memory exceeds the maximum length of a region.
    #[error("a region of {len} bytes: the longest is {max}")]
    TooLong {
        /// Length in bytes.
        len: usize,
        /// Maximum length in bytes.
        max: usize,
    },
    /// The table has the maximum number of regions.
    #[error("there are {max} regions, the most there can be")]
    TableFull {
        /// Maximum number of regions.
        max: usize,
    },
    /// Regions of device memory must be zero-based.
    #[error("a region of device memory needs ZERO_BASED")]
    NotZeroBased,
    /// The bytes are not all within the device memory.
    #[error("{len} bytes at offset {offset} are not within {dm_len} bytes of device memory")]
    OutsideDm {
        /// Requested offset.
        offset: usize,
        /// Requested length in bytes.
        len: usize,
        /// Length of the device memory in bytes.
        dm_len: usize,
    },
    /// The region is no longer registered.
    #[error("the region is deregistered")]
    Gone,
    /// Memory windows are bound to the region.
    #[error(transparent)]
    Windows(#[from] DeregisterError),
}

/// Error of a deregistration: memory windows are bound to the region.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
#[doc(alias = "EBUSY")]
#[error("memory windows are bound to the region: {windows}")]
pub struct DeregisterError {
    /// Number of windows.
    pub windows: usize,
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::sync::mpsc;
    use std::thread;

    use super::*;
    use crate::sync::epoch::wait_until;

    const PD: PdId = PdId(1);
    const REMOTE: Access = Access::LOCAL_WRITE
        .union(Access::REMOTE_WRITE)
        .union(Access::REMOTE_READ)
        .union(Access::REMOTE_ATOMIC);

    fn memory() -> Memory {
        Memory::new([1; 32])
    }

    fn page() -> HostMemory {
        HostMemory::alloc(4096).unwrap()
    }

    #[test]
    fn region_is_found_by_either_key_within_its_range() {
        let memory = memory();
        let region = memory.register(PD, page(), Some(0x1000), REMOTE).unwrap();
        let local = memory.local(PD, region.lkey(), 0x1000, 4096, LocalAccess::Write).unwrap();
        let remote = memory.remote(PD, region.rkey(), 0x1fff, 1, Access::REMOTE_READ).unwrap();
        assert_eq!((local.len(), remote.len()), (4096, 1));
    }

    #[test]
    fn range_must_lie_within_the_region() {
        let memory = memory();
        let region = memory.register(PD, page(), Some(0x1000), REMOTE).unwrap();
        let find = |addr, len| memory.remote(PD, region.rkey(), addr, len, Access::REMOTE_WRITE);
        for (addr, len) in [
            (0x0fff, 1),
            (0x2000, 1),
            (0x1fff, 2),
            (0x1000, 4097),
            (0x1000, u32::MAX),
            (0, 0x2000),
            (u64::MAX, 1),
            (u64::MAX, u32::MAX),
        ] {
            let refused = AccessError::OutOfRange {
                key: region.rkey().0,
                addr,
                len,
                region_addr: 0x1000,
                region_len: 4096,
            };
            assert_eq!(find(addr, len).unwrap_err(), refused);
        }
    }

    #[test]
    fn empty_region_grants_no_access() {
        let memory = memory();
        let nothing = page().part(0, 0).unwrap();
        let region = memory.register(PD, nothing, Some(0x1000), REMOTE).unwrap();
        let local = |addr, len| memory.local(PD, region.lkey(), addr, len, LocalAccess::Read);
        let remote = |addr, len| memory.remote(PD, region.rkey(), addr, len, Access::REMOTE_WRITE);
        for addr in [0, 0x0fff, 0x1000, 0x1001, u64::MAX] {
            assert_eq!([local(addr, 0), remote(addr, 0)].map(|found| found.unwrap().len()), [0; 2]);
            for len in [1, u32::MAX] {
                let key = region.rkey().0;
                let (region_addr, region_len) = (0x1000, 0);
                let refused = AccessError::OutOfRange { key, addr, len, region_addr, region_len };
                assert_eq!(
                    [local(addr, len), remote(addr, len)].map(Result::unwrap_err),
                    [refused; 2]
                );
            }
        }
        let change = Reregister { access: Some(Access::LOCAL_WRITE), ..Reregister::default() };
        assert_eq!(memory.reregister(&region, change).unwrap().len(), 0);
    }

    #[test]
    fn region_may_end_at_the_last_address() {
        let memory = memory();
        let last = u64::MAX - 4096;
        let region = memory.register(PD, page(), Some(last), REMOTE).unwrap();
        let find = |addr, len| memory.remote(PD, region.rkey(), addr, len, Access::REMOTE_READ);
        assert!(find(u64::MAX - 1, 1).is_ok());
        assert!(find(u64::MAX - 1, 2).is_err());
        assert_eq!(
            memory.register(PD, page(), Some(last + 1), REMOTE).unwrap_err(),
            RegisterError::AddressOverflow { addr: last + 1, len: 4096 }
        );
    }

    /// MR-09
    #[test]
    fn zero_based_region_is_addressed_from_zero() {
        let memory = memory();
        let access = REMOTE | Access::ZERO_BASED;
        let region = memory.register(PD, page(), None, access).unwrap();
        assert_eq!(region.addr(), 0);
        assert!(memory.local(PD, region.lkey(), 0, 4096, LocalAccess::Read).is_ok());
        assert!(
            memory.local(PD, region.lkey(), region.as_ptr() as u64, 1, LocalAccess::Read).is_err()
        );
    }

    #[test]
    fn region_without_iova_has_host_addresses() {
        let memory = memory();
        let region = memory.register(PD, page(), None, REMOTE).unwrap();
        assert_eq!(region.addr(), region.as_ptr() as u64);
        assert_eq!(region.addr() % 4096, 0);
    }

    #[test]
    fn each_operation_requires_its_access_right() {
        let memory = memory();
        let reads = memory.register(PD, page(), Some(0), Access::REMOTE_READ).unwrap();
        let key = reads.rkey().0;
        let granted = Access::REMOTE_READ;
        for need in [Access::REMOTE_WRITE, Access::REMOTE_ATOMIC] {
            let refused = AccessError::Denied { key, need, granted };
            assert_eq!(memory.remote(PD, reads.rkey(), 0, 8, need).unwrap_err(), refused);
        }
        let need = Access::LOCAL_WRITE;
        assert_eq!(
            memory.local(PD, reads.lkey(), 0, 8, LocalAccess::Write).unwrap_err(),
            AccessError::Denied { key, need, granted }
        );
        assert!(memory.local(PD, reads.lkey(), 0, 8, LocalAccess::Read).is_ok());
    }

    #[test]
    fn key_of_another_domain_reveals_nothing_of_the_region() {
        let memory = memory();
        let region = memory.register(PD, page(), Some(0), REMOTE).unwrap();
        let refused = AccessError::WrongDomain { key: region.rkey().0 };
        let find = |addr, need| memory.remote(PdId(2), region.rkey(), addr, 8, need).unwrap_err();
        assert_eq!(find(0, Access::REMOTE_READ), refused);
        assert_eq!(find(9999, Access::MW_BIND), refused);
    }

    #[test]
    fn empty_access_needs_no_key() {
        let memory = memory();
        let span = memory.remote(PD, Rkey(0xdead_beef), 77, 0, Access::REMOTE_WRITE).unwrap();
        assert!(span.is_empty() && span.is_live());
        assert!(memory.local(PD, Lkey(0), 0, 0, LocalAccess::Write).unwrap().is_empty());
    }

    #[test]
    fn table_enforces_its_limits() {
        let limits = MemoryLimits { max_mr: 2, max_mr_size: 4096, ..Default::default() };
        let memory = Memory::with_limits([1; 32], limits);
        let register = |len| memory.register(PD, HostMemory::alloc(len).unwrap(), None, REMOTE);
        let max = 4096;
        assert_eq!(register(4097).unwrap_err(), RegisterError::TooLong { len: 4097, max });
        let regions = [register(4096), register(1)].map(Result::unwrap);
        assert_eq!(register(1).unwrap_err(), RegisterError::TableFull { max: 2 });
        memory.deregister(&regions[0]);
        assert!(register(1).is_ok());
    }

    /// MR-02
    #[test]
    fn registration_refuses_invalid_attributes() {
        let memory = memory();
        let refused = |access| memory.register(PD, page(), None, access).unwrap_err();
        for access in [Access::REMOTE_WRITE, Access::REMOTE_ATOMIC] {
            let also = access | Access::REMOTE_READ;
            assert_eq!(refused(also), RegisterError::NeedsLocalWrite { access });
        }
        for access in [1 << 10, 1 << 30, 1 << 31].map(Access::from_bits_retain) {
            let also = access | REMOTE;
            assert_eq!(refused(also), RegisterError::Unsupported { access });
        }
        assert_eq!(refused(Access::FLUSH_PERSISTENT), RegisterError::NotPersistent);
        assert_eq!(memory.region_count(), 0);
    }

    /// MR-01
    #[test]
    fn variant_byte_of_a_key_must_match() {
        let memory = memory();
        let region = memory.register(PD, page(), Some(0), REMOTE).unwrap();
        for flip in 1..=255 {
            let key = region.rkey().0 ^ flip;
            let found = memory.remote(PD, Rkey(key), 0, 8, Access::REMOTE_READ);
            assert_eq!(found.unwrap_err(), AccessError::UnknownKey { key });
        }
    }

    #[test]
    fn deregistered_key_is_invalid_and_other_keys_stay_valid() {
        let memory = memory();
        let [a, b] = [0, 1].map(|_| memory.register(PD, page(), Some(0), REMOTE).unwrap());
        let find =
            |r: &Region| memory.local(PD, r.lkey(), 0, 8, LocalAccess::Read).map(|span| span.len());
        memory.deregister(&a);
        assert_eq!(find(&a), Err(AccessError::UnknownKey { key: a.lkey().0 }));
        assert_eq!(find(&b), Ok(8));
        memory.deregister(&a);
        assert_eq!((memory.region_count(), a.is_live(), b.is_live()), (1, false, true));
    }

    #[test]
    fn deregistering_a_region_of_another_device_changes_nothing() {
        let [ours, theirs] = [memory(), memory()];
        let [a, b] = [&ours, &theirs].map(|m| m.register(PD, page(), Some(0), REMOTE).unwrap());
        assert_eq!(a.rkey(), b.rkey(), "same seed, same keys");
        ours.deregister(&b);
        assert!(ours.local(PD, a.lkey(), 0, 8, LocalAccess::Read).is_ok());
    }

    #[test]
    fn keys_cannot_be_guessed_from_other_keys() {
        let memory = memory();
        let mut keys: Vec<u32> = (0..64)
            .map(|_| memory.register(PD, page(), Some(0), REMOTE).unwrap().rkey().0)
            .collect();
        keys.sort_unstable();
        keys.dedup();
        assert_eq!(keys.len(), 64);
        // Each bit is set in about half of the keys: 64 draws are outside 12..=52 once in 10^6.
        for bit in 0..32 {
            let set = keys.iter().filter(|key| *key >> bit & 1 == 1).count();
            assert!((12..=52).contains(&set), "bit {bit} is set in {set} of 64 keys");
        }
        // No key near these keys is valid, nor one with the next index.
        for key in &keys {
            for guess in (key.wrapping_sub(300)..*key).chain(key + 1..key.saturating_add(300)) {
                let found = memory.remote(PD, Rkey(guess), 0, 1, Access::REMOTE_READ);
                assert_eq!(found.is_ok(), keys.contains(&guess));
            }
        }
    }

    #[test]
    fn seed_determines_the_keys() {
        let keys = |seed| {
            let memory = Memory::new([seed; 32]);
            [0, 1].map(|_| memory.register(PD, page(), None, REMOTE).unwrap().lkey())
        };
        assert_eq!(keys(1), keys(1));
        assert_ne!(keys(1), keys(2));
    }

    #[test]
    fn deregistration_waits_for_open_epochs() {
        let memory = memory();
        let region = memory.register(PD, page(), None, REMOTE).unwrap();
        let closed = AtomicBool::new(false);
        let (opened, wait_for_open) = mpsc::channel();
        thread::scope(|scope| {
            scope.spawn(|| {
                let mut handle = memory.epoch_handle();
                let guard = handle.enter();
                opened.send(()).unwrap();
                wait_until(|| !region.is_live());
                // Deregistration is in progress. If it did not wait, it would have time to return.
                for _ in 0..1000 {
                    thread::yield_now();
                }
                closed.store(true, Ordering::SeqCst);
                drop(guard);
            });
            wait_for_open.recv().unwrap();
            memory.deregister(&region);
            assert!(closed.load(Ordering::SeqCst), "returned while a guard was open");
        });
    }

    #[test]
    fn deregistration_does_not_wait_for_later_epochs() {
        let memory = memory();
        let regions: Vec<_> =
            (0..100).map(|_| memory.register(PD, page(), None, REMOTE).unwrap()).collect();
        let done = AtomicBool::new(false);
        thread::scope(|scope| {
            scope.spawn(|| {
                let mut handle = memory.epoch_handle();
                while !done.load(Ordering::Relaxed) {
                    drop(handle.enter());
                    thread::yield_now();
                }
            });
            for region in &regions {
                memory.deregister(region);
            }
            done.store(true, Ordering::Relaxed);
        });
        assert_eq!(memory.region_count(), 0);
    }
}

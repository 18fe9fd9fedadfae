//! Spans for copies within the epoch of their lookup.

use super::access::{Access, AccessError, KeyUser, LocalAccess};
use super::error::Revoked;
use super::guard::EpochGuard;
use super::placement::Placement;
use super::region::Region;
use super::span::{Source, Span};
use super::table::Memory;
use crate::ids::{Lkey, PdId, Rkey};

/// A checked span of one region, valid for one epoch. It suffices for a message of one packet.
///
/// A lookup of a region takes a lock and a search. Further messages of the epoch to the same region reuse its result, and
/// the first one of the next epoch too, if the region is still registered.
#[derive(Debug)]
pub(crate) struct EpochSpan<'t> {
    guard: &'t EpochGuard<'t>,
    bytes: SpanBytes<'t>,
}

#[derive(Debug)]
enum SpanBytes<'t> {
    /// Bytes of the region that the epoch caches.
    Cached {
        region: &'t Region,
        offset: usize,
        len: usize,
    },
    Owned(Span),
}

impl<'t> EpochSpan<'t> {
    fn new(guard: &'t EpochGuard<'t>, span: Span) -> Self {
        let bytes = match span.into_parts() {
            (Source::Region(region), offset, len) => match guard.cache(region) {
                Ok(region) => SpanBytes::Cached { region, offset, len },
                Err(region) => SpanBytes::Owned(Span::of_all(Source::Region(region), offset, len)),
            },
            (source, offset, len) => SpanBytes::Owned(Span::of_all(source, offset, len)),
        };
        Self { guard, bytes }
    }

    #[inline]
    fn cached(
        guard: &'t EpochGuard<'t>,
        region: &'t Region,
        (addr, len): (u64, u32),
        need: Access,
    ) -> Result<Self, AccessError> {
        region.grants(need)?;
        let offset = region.offset_of(addr, len)?;
        Ok(Self { guard, bytes: SpanBytes::Cached { region, offset, len: len as usize } })
    }

    /// Returns the number of the region, which distinguishes it from other regions with the same key at other times.
    /// `None` for an empty span.
    pub(crate) fn region(&self) -> Option<u64> {
        match &self.bytes {
            SpanBytes::Cached { region, .. } => Some(region.number()),
            SpanBytes::Owned(span) => span.region().map(Region::number),
        }
    }

    /// Copies the first `to.len()` bytes out.
    ///
    /// # Errors
    /// As [`Span::copy_out`].
    #[inline]
    pub(crate) fn copy_out(&self, to: &mut [u8]) -> Result<(), Revoked> {
        match &self.bytes {
            SpanBytes::Cached { region, offset, len } if to.len() <= *len => {
                region.memory.copy_out(&self.guard.epoch, *offset, to, 0)
            }
            SpanBytes::Cached { .. } => None,
            SpanBytes::Owned(span) => return span.copy_out(self.guard, 0, to),
        }
        .ok_or(Revoked)
    }

    /// Copies a whole message in.
    ///
    /// # Errors
    /// As [`Span::place`].
    #[inline]
    pub(crate) fn place(&self, from: &[u8]) -> Result<(), Revoked> {
        let order = Placement::Final;
        match &self.bytes {
            SpanBytes::Cached { region, offset, len } if from.len() <= *len => {
                region.memory.place(&self.guard.epoch, *offset, from, order)
            }
            SpanBytes::Cached { .. } => None,
            SpanBytes::Owned(span) => return span.place(self.guard, 0, from, order),
        }
        .ok_or(Revoked)
    }
}

impl Memory {
    /// Checks a local access as [`local`](Self::local), for copies within this epoch.
    ///
    /// # Errors
    /// As for [`local`](Self::local).
    #[inline]
    pub(crate) fn epoch_local<'t>(
        &self,
        guard: &'t EpochGuard<'t>,
        pd: PdId,
        (lkey, addr, len): (Lkey, u64, u32),
        need: LocalAccess,
    ) -> Result<EpochSpan<'t>, AccessError> {
        match guard.cached_region(&self.epochs, pd, lkey.0) {
            Some(region) if len > 0 => EpochSpan::cached(guard, region, (addr, len), need.access()),
            _ => self.uncached_local(guard, pd, (lkey, addr, len), need),
        }
    }

    // Not inlined: once for each region, and for each epoch that accesses several.
    #[inline(never)]
    fn uncached_local<'t>(
        &self,
        guard: &'t EpochGuard<'t>,
        pd: PdId,
        (lkey, addr, len): (Lkey, u64, u32),
        need: LocalAccess,
    ) -> Result<EpochSpan<'t>, AccessError> {
        Ok(EpochSpan::new(guard, self.local(pd, lkey, addr, len, need)?))
    }

    /// Checks a remote access as [`remote`](Self::remote), for copies within this epoch.
    ///
    /// # Errors
    /// As for [`remote`](Self::remote).
    pub(crate) fn epoch_remote<'t>(
        &self,
        guard: &'t EpochGuard<'t>,
        user: impl Into<KeyUser>,
        (rkey, addr, len): (Rkey, u64, u32),
        need: Access,
    ) -> Result<EpochSpan<'t>, AccessError> {
        let user = user.into();
        match guard.cached_region(&self.epochs, user.pd, rkey.0) {
            Some(region) if len > 0 => EpochSpan::cached(guard, region, (addr, len), need),
            _ => self.uncached_remote(guard, user, (rkey, addr, len), need),
        }
    }

    // Not inlined, as `uncached_local`.
    #[inline(never)]
    fn uncached_remote<'t>(
        &self,
        guard: &'t EpochGuard<'t>,
        user: KeyUser,
        (rkey, addr, len): (Rkey, u64, u32),
        need: Access,
    ) -> Result<EpochSpan<'t>, AccessError> {
        Ok(EpochSpan::new(guard, self.remote(user, rkey, addr, len, need)?))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::super::{HostMemory, Reregister};
    use super::*;
    use crate::sync::taken;

    const PD: PdId = PdId(1);

    fn region(memory: &Memory, access: Access) -> Arc<Region> {
        memory.register(PD, HostMemory::alloc(64).unwrap(), Some(0), access).unwrap()
    }

    fn place(memory: &Memory, guard: &EpochGuard<'_>, region: &Region, at: u64) -> Option<()> {
        let bytes = (region.lkey(), at, 4);
        memory.epoch_local(guard, PD, bytes, LocalAccess::Write).ok()?.place(b"four").ok()
    }

    #[test]
    fn epoch_caches_its_first_region() {
        let memory = Memory::new([0; 32]);
        let [a, b] = [(); 2].map(|()| region(&memory, Access::LOCAL_WRITE));
        let mut handle = memory.epoch_handle();
        let guard = handle.enter();
        for (at, region) in [(0, &a), (8, &b), (16, &a), (24, &b)] {
            assert_eq!(place(&memory, &guard, region, at), Some(()));
        }
        assert!(guard.region.get().is_some_and(|held| Arc::ptr_eq(held, &a)));
        drop(guard);
        let mut seen = [0; 28];
        b.read_at(0, &mut seen).unwrap();
        assert_eq!((&seen[8..12], &seen[24..]), (&b"four"[..], &b"four"[..]));
        a.read_at(0, &mut seen).unwrap();
        assert_eq!((&seen[..4], &seen[16..20]), (&b"four"[..], &b"four"[..]));
    }

    #[test]
    fn epoch_locks_the_table_once_for_its_cached_region() {
        let memory = Memory::new([0; 32]);
        let [a, b] = [(); 2].map(|()| region(&memory, Access::LOCAL_WRITE));
        let mut handle = memory.epoch_handle();
        let guard = handle.enter();
        let four = || {
            for at in [0, 8, 16, 24] {
                assert_eq!(place(&memory, &guard, &a, at), Some(()));
            }
        };
        assert_eq!(taken(four), ["Table"]);
        assert!(taken(four).is_empty());
        assert_eq!(taken(|| assert_eq!(place(&memory, &guard, &b, 0), Some(()))), ["Table"]);
    }

    #[test]
    fn cached_region_is_checked_for_each_access() {
        let memory = Memory::new([0; 32]);
        let region = region(&memory, Access::LOCAL_WRITE);
        let mut handle = memory.epoch_handle();
        let guard = handle.enter();
        let reach = |pd, at, len| {
            memory.epoch_local(&guard, pd, (region.lkey(), at, len), LocalAccess::Write).map(drop)
        };
        assert_eq!(reach(PD, 0, 64), Ok(()));
        assert!(matches!(reach(PD, 61, 4), Err(AccessError::OutOfRange { .. })));
        assert!(matches!(reach(PdId(2), 0, 4), Err(AccessError::WrongDomain { .. })));
        assert_eq!(reach(PdId(2), 99, 0), Ok(()), "no bytes are always there");
        let bytes = (region.rkey(), 0, 4);
        let remote = memory.epoch_remote(&guard, PD, bytes, Access::REMOTE_WRITE).map(drop);
        assert!(matches!(remote, Err(AccessError::Denied { .. })));
        let short =
            memory.epoch_local(&guard, PD, (region.lkey(), 0, 3), LocalAccess::Write).unwrap();
        assert_eq!(short.place(b"four"), Err(Revoked));
    }

    #[test]
    fn deregistered_region_leaves_the_cache() {
        let memory = Memory::new([0; 32]);
        let region = region(&memory, Access::LOCAL_WRITE);
        let mut handle = memory.epoch_handle();
        let guard = handle.enter();
        assert_eq!(place(&memory, &guard, &region, 0), Some(()));
        std::thread::scope(|scope| {
            // It waits for the end of the epoch.
            scope.spawn(|| memory.deregister(&region));
            while region.is_live() {
                std::thread::yield_now();
            }
            assert_eq!(place(&memory, &guard, &region, 0), None);
            drop(guard);
        });
    }

    #[test]
    fn next_epoch_finds_the_region_of_the_last_one_without_the_table() {
        let memory = Memory::new([0; 32]);
        let [a, b] = [(); 2].map(|()| region(&memory, Access::LOCAL_WRITE));
        let mut handle = memory.epoch_handle();
        let mut locks = |region| {
            let guard = handle.enter();
            taken(|| assert_eq!(place(&memory, &guard, region, 0), Some(())))
        };
        assert_eq!(
            [locks(&a), locks(&a), locks(&b), locks(&b)],
            [&["Table"][..], &[], &["Table"], &[]]
        );
    }

    #[test]
    fn reregistered_region_replaces_the_one_of_the_last_epoch() {
        let memory = Memory::new([0; 32]);
        let mut current = region(&memory, Access::LOCAL_WRITE);
        let mut handle = memory.epoch_handle();
        assert_eq!(place(&memory, &handle.enter(), &current, 0), Some(()));
        let change = Reregister { pd: Some(PdId(2)), ..Default::default() };
        current = memory.reregister(&current, change).unwrap();
        assert_eq!(place(&memory, &handle.enter(), &current, 0), None, "another domain");
        let change = Reregister { pd: Some(PD), ..Default::default() };
        current = memory.reregister(&current, change).unwrap();
        let mut locks = || {
            let guard = handle.enter();
            taken(|| assert_eq!(place(&memory, &guard, &current, 0), Some(())))
        };
        assert_eq!([locks(), locks()], [&["Table"][..], &[]]);
    }

    #[test]
    fn epochs_that_have_ended_keep_no_region() {
        let memory = Memory::new([0; 32]);
        let region = region(&memory, Access::LOCAL_WRITE);
        let mut handle = memory.epoch_handle();
        assert_eq!(place(&memory, &handle.enter(), &region, 0), Some(()));
        memory.deregister(&region);
        assert_eq!(place(&memory, &handle.enter(), &region, 0), None);
        let weak = Arc::downgrade(&region);
        drop(region);
        assert!(weak.upgrade().is_none());
    }
}

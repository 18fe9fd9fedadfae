//! Bytes that are copied in the epoch in which they are looked up.

use super::access::{Access, AccessError, Need, Via};
use super::error::Revoked;
use super::guard::EpochGuard;
use super::placement::Placement;
use super::region::Region;
use super::span::{Span, Way};
use super::table::Memory;
use crate::ids::{Lkey, PdId, Rkey};

/// Bytes of one region that have passed the checks, for one epoch: a message of one packet needs them
/// no longer.
///
/// A look-up of a region takes a lock and a reference count. The first message of an epoch pays for both; further
/// messages to the same region reuse its result.
#[derive(Debug)]
pub(crate) struct Reach<'t> {
    guard: &'t EpochGuard<'t>,
    bytes: Bytes<'t>,
}

#[derive(Debug)]
enum Bytes<'t> {
    /// Of the region that the epoch holds.
    Held {
        region: &'t Region,
        offset: usize,
        len: usize,
    },
    Own(Span),
}

impl<'t> Reach<'t> {
    fn new(guard: &'t EpochGuard<'t>, span: Span) -> Self {
        let bytes = match span.into_parts() {
            (Way::Region(region), offset, len) if guard.region.get().is_none() => {
                Bytes::Held { region: guard.region.get_or_init(|| region), offset, len }
            }
            (way, offset, len) => Bytes::Own(Span::of_all(way, offset, len)),
        };
        Self { guard, bytes }
    }

    fn held(
        guard: &'t EpochGuard<'t>,
        region: &'t Region,
        (addr, len): (u64, u32),
        need: Access,
    ) -> Result<Self, AccessError> {
        region.grants(need)?;
        let offset = region.offset_of(addr, len)?;
        Ok(Self { guard, bytes: Bytes::Held { region, offset, len: len as usize } })
    }

    /// The number of the region, which tells it from those that have its key before or after. `None`
    /// where there are no bytes.
    pub(crate) fn region(&self) -> Option<u64> {
        match &self.bytes {
            Bytes::Held { region, .. } => Some(region.number()),
            Bytes::Own(span) => span.region().map(Region::number),
        }
    }

    /// Copies the first `to.len()` bytes.
    ///
    /// # Errors
    /// As [`Span::copy_out`].
    #[inline]
    pub(crate) fn copy_out(&self, to: &mut [u8]) -> Result<(), Revoked> {
        match &self.bytes {
            Bytes::Held { region, offset, len } if to.len() <= *len => {
                region.memory.copy_out(&self.guard.epoch, *offset, to, 0)
            }
            Bytes::Held { .. } => None,
            Bytes::Own(span) => return span.copy_out(self.guard, 0, to),
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
            Bytes::Held { region, offset, len } if from.len() <= *len => {
                region.memory.place(&self.guard.epoch, *offset, from, order)
            }
            Bytes::Held { .. } => None,
            Bytes::Own(span) => return span.place(self.guard, 0, from, order),
        }
        .ok_or(Revoked)
    }
}

impl Memory {
    /// [`local`](Self::local) for bytes that are copied in this epoch.
    ///
    /// # Errors
    /// The same.
    pub(crate) fn reach_local<'t>(
        &self,
        guard: &'t EpochGuard<'t>,
        pd: PdId,
        (lkey, addr, len): (Lkey, u64, u32),
        need: Need,
    ) -> Result<Reach<'t>, AccessError> {
        match guard.held(&self.epochs, pd, lkey.0) {
            Some(region) if len > 0 => Reach::held(guard, region, (addr, len), need.access()),
            _ => Ok(Reach::new(guard, self.local(pd, lkey, addr, len, need)?)),
        }
    }

    /// [`remote`](Self::remote) for bytes that are copied in this epoch.
    ///
    /// # Errors
    /// The same.
    pub(crate) fn reach_remote<'t>(
        &self,
        guard: &'t EpochGuard<'t>,
        via: impl Into<Via>,
        (rkey, addr, len): (Rkey, u64, u32),
        need: Access,
    ) -> Result<Reach<'t>, AccessError> {
        let via = via.into();
        match guard.held(&self.epochs, via.pd, rkey.0) {
            Some(region) if len > 0 => Reach::held(guard, region, (addr, len), need),
            _ => Ok(Reach::new(guard, self.remote(via, rkey, addr, len, need)?)),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::super::HostMemory;
    use super::*;
    use crate::sync::taken;

    const PD: PdId = PdId(1);

    fn region(memory: &Memory, access: Access) -> Arc<Region> {
        memory.register(PD, HostMemory::alloc(64).unwrap(), Some(0), access).unwrap()
    }

    fn place(memory: &Memory, guard: &EpochGuard<'_>, region: &Region, at: u64) -> Option<()> {
        let bytes = (region.lkey(), at, 4);
        memory.reach_local(guard, PD, bytes, Need::Write).ok()?.place(b"four").ok()
    }

    #[test]
    fn a_turn_lends_the_first_region_and_finds_others() {
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
    fn a_turn_takes_the_tables_lock_once_for_the_region_that_it_lends() {
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
    fn what_is_lent_has_passed_the_checks_each_time() {
        let memory = Memory::new([0; 32]);
        let region = region(&memory, Access::LOCAL_WRITE);
        let mut handle = memory.epoch_handle();
        let guard = handle.enter();
        let reach = |pd, at, len| {
            memory.reach_local(&guard, pd, (region.lkey(), at, len), Need::Write).map(drop)
        };
        assert_eq!(reach(PD, 0, 64), Ok(()));
        assert!(matches!(reach(PD, 61, 4), Err(AccessError::OutOfRange { .. })));
        assert!(matches!(reach(PdId(2), 0, 4), Err(AccessError::WrongDomain { .. })));
        assert_eq!(reach(PdId(2), 99, 0), Ok(()), "no bytes are always there");
        let bytes = (region.rkey(), 0, 4);
        let remote = memory.reach_remote(&guard, PD, bytes, Access::REMOTE_WRITE).map(drop);
        assert!(matches!(remote, Err(AccessError::Denied { .. })));
        let short = memory.reach_local(&guard, PD, (region.lkey(), 0, 3), Need::Write).unwrap();
        assert_eq!(short.place(b"four"), Err(Revoked));
    }

    #[test]
    fn a_region_that_is_gone_is_lent_no_more() {
        let memory = Memory::new([0; 32]);
        let region = region(&memory, Access::LOCAL_WRITE);
        let mut handle = memory.epoch_handle();
        let guard = handle.enter();
        assert_eq!(place(&memory, &guard, &region, 0), Some(()));
        std::thread::scope(|scope| {
            // It waits until the epoch is over.
            scope.spawn(|| memory.deregister(&region));
            while region.is_live() {
                std::thread::yield_now();
            }
            assert_eq!(place(&memory, &guard, &region, 0), None);
            drop(guard);
        });
    }
}

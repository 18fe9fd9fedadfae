//! Memory windows: parts of regions with keys, rights and ends of their own.
//!
//! ```text
//!            bind                              bind
//!   Type 1  ┌────┐  every bind makes a  Type 2 Free ─────────────────────► Valid
//!           │    ▼  new key; one of no   ▲                                  │
//!          bound    bytes unbinds        └──────────────────────────────────┘
//!                                          invalidated, here or by a SEND of the peer;
//!                                          its queue pair gone
//! ```
//!
//! A window of type 1 may be used through every queue pair of its domain, one of type 2 ("2B") only
//! through the queue pair that has bound it (IBTA vol 1, §10.6.7). What happens to a window happens
//! under the lock of the table; a message that came in before asks at each packet whether its
//! [`Binding`] still holds.

mod error;
#[cfg(test)]
mod tests;

use std::collections::BTreeSet;
use std::fmt;
use std::ops::RangeInclusive;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

pub use error::{BindError, InvalidateError, TooManyWindows};

use super::access::{Access, AccessError, Via};
use super::keys::{ByKey, index, whole};
use super::region::Region;
use super::span::Span;
use super::table::{Memory, Table};
use crate::ids::{Lkey, MwId, PdId, Qpn, Rkey};

/// How a window is bound and invalidated.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[repr(u8)]
#[doc(alias = "ibv_mw_type")]
pub enum MwType {
    /// Bound again and again, each time under another key, for all queue pairs of its domain.
    #[doc(alias = "IBV_MW_TYPE_1")]
    Type1 = 1,
    /// Bound for one queue pair under a key whose low byte is the caller's choice, until it is
    /// invalidated. Of the two kinds that the specification has it is 2B.
    #[doc(alias = "IBV_MW_TYPE_2")]
    Type2 = 2,
}

impl MwType {
    /// Every type.
    pub const ALL: [Self; 2] = [Self::Type1, Self::Type2];
}

impl fmt::Display for MwType {
    /// As the specification has them: `type 1`, `type 2B`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Type1 => "type 1",
            Self::Type2 => "type 2B",
        })
    }
}

const FLUSH: Access = Access::FLUSH_GLOBAL.union(Access::FLUSH_PERSISTENT);

/// What a window is to open.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[doc(alias = "ibv_mw_bind_info")]
pub struct BindInfo {
    /// The region.
    pub lkey: Lkey,
    /// The first byte, in the addressing of the region.
    pub addr: u64,
    /// Bytes. A window of type 1 that is bound to none is unbound.
    pub length: u64,
    /// What peers may do there: the `REMOTE_` flags, whatever those of the region are, and the
    /// `FLUSH_` flags that the region has too, which knows where its memory lies. With
    /// [`Access::ZERO_BASED`], of type 2 only, they count addresses from its first byte.
    pub access: Access,
}

impl BindInfo {
    /// Every flag that a window may have.
    pub const ACCESS: Access = Access::REMOTE_WRITE
        .union(Access::REMOTE_READ)
        .union(Access::REMOTE_ATOMIC)
        .union(FLUSH)
        .union(Access::ZERO_BASED);

    /// Nothing: unbinds a window of type 1.
    pub const NOTHING: Self = Self { lkey: Lkey(0), addr: 0, length: 0, access: Access::empty() };
}

/// What a window opens, from when it is bound until it is not.
#[derive(Debug)]
pub(super) struct Binding {
    region: Arc<Region>,
    /// Of the first byte, in the region.
    offset: u64,
    length: u64,
    /// What peers call the first byte.
    addr: u64,
    access: Access,
    /// Type 2: the only queue pair that may use it.
    qpn: Option<Qpn>,
    holds: AtomicBool,
}

impl Binding {
    /// The region, as long as the window is bound.
    #[inline]
    pub(super) fn region(&self) -> Option<&Region> {
        // With the turn that the copy needs this is the argument of `gate`, for the end of a binding
        // in place of the end of a region.
        self.holds.load(Ordering::SeqCst).then_some(&*self.region)
    }

    fn offset_of(&self, key: u32, addr: u64, len: u32) -> Result<usize, AccessError> {
        let (region_addr, region_len) = (self.addr, self.length);
        addr.checked_sub(self.addr)
            .filter(|at| at.checked_add(len.into()).is_some_and(|end| end <= self.length))
            .and_then(|at| usize::try_from(self.offset + at).ok())
            .ok_or(AccessError::OutOfRange { key, addr, len, region_addr, region_len })
    }
}

/// A window of the table.
#[derive(Debug)]
pub(super) struct Window {
    mw_type: MwType,
    pd: PdId,
    rkey: Rkey,
    binding: Option<Arc<Binding>>,
}

impl Window {
    /// The `len` bytes at `addr` that a peer names by this window's key.
    pub(super) fn open(
        &self,
        via: Via,
        addr: u64,
        len: u32,
        need: Access,
    ) -> Result<Span, AccessError> {
        let binding = self.admit(via, need)?;
        let offset = binding.offset_of(self.rkey.0, addr, len)?;
        Ok(Span::new(Arc::clone(binding), offset, len))
    }

    /// All bytes that a peer names by this window's key.
    pub(super) fn open_whole(&self, via: Via, need: Access) -> Result<Span, AccessError> {
        let binding = self.admit(via, need)?;
        // What is within a region can be counted.
        let [offset, len] =
            [binding.offset, binding.length].map(|n| usize::try_from(n).unwrap_or(usize::MAX));
        Ok(Span::of_all(Arc::clone(binding), offset, len))
    }

    /// What the window is bound to, if it opens that for a queue pair and grants what is needed.
    fn admit(&self, via: Via, need: Access) -> Result<&Arc<Binding>, AccessError> {
        let key = self.rkey.0;
        if self.pd != via.pd {
            return Err(AccessError::WrongDomain { key });
        }
        let binding = self.binding.as_ref().ok_or(AccessError::Unbound { key })?;
        if let Some(qpn) = binding.qpn
            && via.qpn != Some(qpn)
        {
            return Err(AccessError::OtherQp { key, qpn });
        }
        let granted = binding.access;
        if granted.contains(need) {
            Ok(binding)
        } else {
            Err(AccessError::Denied { key, need, granted })
        }
    }

    /// Whether a queue pair may bind it so, as far as that depends on the window.
    fn check_bind(&self, via: Via, variant: u8, to: &BindInfo) -> Result<(), BindError> {
        if self.pd != via.pd {
            return Err(BindError::WrongDomain);
        }
        match self.mw_type {
            MwType::Type1 if to.access.contains(Access::ZERO_BASED) => {
                return Err(BindError::ZeroBased);
            }
            MwType::Type2 if self.binding.is_some() => return Err(BindError::Bound),
            MwType::Type2 if to.length == 0 => return Err(BindError::Nothing),
            MwType::Type1 | MwType::Type2 => {}
        }
        if self.rkey.with_variant(variant) == self.rkey {
            return Err(BindError::SameVariant { variant });
        }
        Ok(())
    }

    /// Whether a queue pair may invalidate it.
    fn check_invalidate(&self, via: Via) -> Result<(), InvalidateError> {
        let rkey = self.rkey;
        if self.pd != via.pd {
            return Err(InvalidateError::WrongDomain { rkey });
        }
        if self.mw_type == MwType::Type1 {
            return Err(InvalidateError::NotInvalidatable { rkey });
        }
        let binding = self.binding.as_ref().ok_or(InvalidateError::Unbound { rkey })?;
        match binding.qpn {
            Some(qpn) if via.qpn != Some(qpn) => Err(InvalidateError::OtherQp { rkey, qpn }),
            _ => Ok(()),
        }
    }
}

/// The windows of a table, and what they are bound to.
#[derive(Default)]
pub(super) struct Windows {
    by_index: ByKey<Window>,
    /// The index of each by its whole key.
    by_key: ByKey<u32>,
    /// Indices of a region and of a window that is bound to it.
    of_regions: BTreeSet<(u32, u32)>,
    /// A queue pair and the index of a window of type 2 that is bound for it.
    of_qps: BTreeSet<(Qpn, u32)>,
}

impl Windows {
    pub(super) fn contains(&self, index: u32) -> bool {
        self.by_index.contains_key(&index)
    }

    /// The window with exactly this key.
    pub(super) fn with_key(&self, rkey: Rkey) -> Option<&Window> {
        self.by_index.get(self.by_key.get(&whole(rkey.0))?)
    }

    /// How many are bound to a region.
    pub(super) fn bound_to(&self, region: &Region) -> usize {
        self.of_regions.range(range_of(region)).count()
    }

    pub(super) fn unbind_all_of(&mut self, region: &Region) {
        while let Some((_, window)) = self.of_regions.range(range_of(region)).next().copied() {
            self.unbind(window);
        }
    }

    fn unbind_all_for(&mut self, qpn: Qpn) {
        while let Some((_, window)) = self.of_qps.range((qpn, 0)..=(qpn, u32::MAX)).next().copied()
        {
            self.unbind(window);
        }
    }

    /// Binds a window anew. The caller has made the checks.
    fn bind(&mut self, id: MwId, rkey: Rkey, binding: Option<Binding>) {
        self.unbind(id.0);
        let Some(window) = self.by_index.get_mut(&id.0) else { return };
        self.by_key.remove(&whole(window.rkey.0));
        self.by_key.insert(whole(rkey.0), id.0);
        window.rkey = rkey;
        let Some(binding) = binding else { return };
        self.of_regions.insert((index(binding.region.key()), id.0));
        if let Some(qpn) = binding.qpn {
            self.of_qps.insert((qpn, id.0));
        }
        window.binding = Some(Arc::new(binding));
    }

    /// Ends what a window opens, if it is bound.
    fn unbind(&mut self, at: u32) {
        let Some(binding) = self.by_index.get_mut(&at).and_then(|window| window.binding.take())
        else {
            return;
        };
        binding.holds.store(false, Ordering::SeqCst);
        self.of_regions.remove(&(index(binding.region.key()), at));
        if let Some(qpn) = binding.qpn {
            self.of_qps.remove(&(qpn, at));
        }
    }
}

fn range_of(region: &Region) -> RangeInclusive<(u32, u32)> {
    let region = index(region.key());
    (region, 0)..=(region, u32::MAX)
}

impl Table {
    /// What a bind makes of a window of this type, or why it cannot be; nothing when it unbinds.
    fn binding(
        &self,
        via: Via,
        mw_type: MwType,
        to: &BindInfo,
    ) -> Result<Option<Binding>, BindError> {
        if to.length == 0 {
            return Ok(None);
        }
        let region = self.region(via.pd, to.lkey.0).map_err(BindError::Region)?;
        let rights = region.access();
        if rights.contains(Access::ZERO_BASED) {
            return Err(BindError::ZeroBasedRegion);
        }
        let missing = (Access::MW_BIND | to.access & FLUSH).difference(rights);
        if !missing.is_empty() {
            return Err(BindError::NotGranted { access: missing });
        }
        let writes = to.access & (Access::REMOTE_WRITE | Access::REMOTE_ATOMIC);
        if !writes.is_empty() && !rights.contains(Access::LOCAL_WRITE) {
            return Err(BindError::NeedsLocalWrite { access: writes });
        }
        let (region_addr, region_len) = (region.addr(), region.len() as u64);
        let offset = to
            .addr
            .checked_sub(region_addr)
            .filter(|at| at.checked_add(to.length).is_some_and(|end| end <= region_len))
            .ok_or(BindError::OutOfRange { info: *to, region_addr, region_len })?;
        Ok(Some(Binding {
            region: Arc::clone(region),
            offset,
            length: to.length,
            addr: if to.access.contains(Access::ZERO_BASED) { 0 } else { to.addr },
            access: to.access,
            qpn: via.qpn.filter(|_| mw_type == MwType::Type2),
            holds: AtomicBool::new(true),
        }))
    }
}

impl Memory {
    /// A new window, bound to nothing.
    ///
    /// # Errors
    /// There are as many as there can be.
    pub fn alloc_window(&self, pd: PdId, mw_type: MwType) -> Result<MwId, TooManyWindows> {
        let mut table = self.write();
        let max = self.limits.max_mw;
        if table.windows.by_index.len() >= max {
            return Err(TooManyWindows { max });
        }
        let key = Rkey(table.free_key());
        let rkey = match mw_type {
            MwType::Type1 => key,
            // Whoever chooses the variant must not choose the same, and often takes the first number
            // that comes to mind.
            MwType::Type2 => key.with_variant(u8::MAX),
        };
        let at = index(key.0);
        table.windows.by_index.insert(at, Window { mw_type, pd, rkey, binding: None });
        table.windows.by_key.insert(whole(rkey.0), at);
        Ok(MwId(at))
    }

    /// Removes a window. When it returns, its key opens nothing, and messages under way have been cut
    /// off. It waits as [`deregister`](Self::deregister) does.
    pub fn dealloc_window(&self, id: MwId) {
        let mut table = self.write();
        table.windows.unbind(id.0);
        if let Some(window) = table.windows.by_index.remove(&id.0) {
            table.windows.by_key.remove(&whole(window.rkey.0));
        }
        drop(table);
        self.gates.wait_for_turns();
    }

    /// The key that a window has now.
    pub fn window_key(&self, id: MwId) -> Option<Rkey> {
        self.read().windows.by_index.get(&id.0).map(|window| window.rkey)
    }

    /// How many windows there are.
    pub fn window_count(&self) -> usize {
        self.read().windows.by_index.len()
    }

    /// Binds a window to what `to` says, for the queue pair `via` or its domain, under the key with
    /// this variant. Of a window of type 1 the old key is no good any more.
    ///
    /// # Errors
    /// See [`BindError`]; nothing has changed.
    pub fn bind(
        &self,
        via: impl Into<Via>,
        id: MwId,
        variant: u8,
        to: &BindInfo,
    ) -> Result<(), BindError> {
        let via = via.into();
        let foreign = to.access.difference(BindInfo::ACCESS);
        if !foreign.is_empty() {
            return Err(BindError::Access { access: foreign });
        }
        let mut table = self.write();
        let window = table.windows.by_index.get(&id.0).ok_or(BindError::NoSuchWindow(id))?;
        window.check_bind(via, variant, to)?;
        let rkey = window.rkey.with_variant(variant);
        let binding = table.binding(via, window.mw_type, to)?;
        table.windows.bind(id, rkey, binding);
        Ok(())
    }

    /// Invalidates the window of type 2 with this key, which must be bound for the queue pair `via`.
    /// It is free then. What of it is on its way ends with the packet.
    ///
    /// # Errors
    /// See [`InvalidateError`]; nothing has changed.
    pub fn invalidate(&self, via: impl Into<Via>, rkey: Rkey) -> Result<(), InvalidateError> {
        let via = via.into();
        let mut table = self.write();
        match table.windows.with_key(rkey) {
            Some(window) => window.check_invalidate(via)?,
            None => {
                return Err(match table.region(via.pd, rkey.0) {
                    Err(AccessError::UnknownKey { .. }) => InvalidateError::UnknownKey { rkey },
                    _ => InvalidateError::NotInvalidatable { rkey },
                });
            }
        }
        table.windows.unbind(index(rkey.0));
        Ok(())
    }

    /// A queue pair begins anew or is gone: the windows of type 2 that were bound for it are free.
    pub fn unbind_all_for(&self, qpn: Qpn) {
        self.write().windows.unbind_all_for(qpn);
    }
}

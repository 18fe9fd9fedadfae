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

mod binding;
mod error;
mod info;

use std::collections::BTreeSet;
use std::ops::RangeInclusive;
use std::sync::Arc;

pub(super) use binding::Binding;
pub use error::{BindError, InvalidateError, TooManyWindows};
pub(super) use info::FLUSH;
pub use info::{BindInfo, MwType};

use super::access::{Access, AccessError, Via};
use super::keys::{ByKey, index, whole};
use super::region::Region;
use super::span::Span;
use crate::ids::{MwId, PdId, Qpn, Rkey};

/// A window of the table.
#[derive(Debug)]
pub(super) struct Window {
    pub(super) mw_type: MwType,
    pub(super) pd: PdId,
    pub(super) rkey: Rkey,
    pub(super) binding: Option<Arc<Binding>>,
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
    pub(super) fn check_bind(&self, via: Via, variant: u8, to: &BindInfo) -> Result<(), BindError> {
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
    pub(super) fn check_invalidate(&self, via: Via) -> Result<(), InvalidateError> {
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
    pub(super) by_index: ByKey<Window>,
    /// The index of each by its whole key.
    pub(super) by_key: ByKey<u32>,
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

    pub(super) fn unbind_all_for(&mut self, qpn: Qpn) {
        while let Some((_, window)) = self.of_qps.range((qpn, 0)..=(qpn, u32::MAX)).next().copied()
        {
            self.unbind(window);
        }
    }

    /// Binds a window anew. The caller has made the checks.
    pub(super) fn bind(&mut self, id: MwId, rkey: Rkey, binding: Option<Binding>) {
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
    pub(super) fn unbind(&mut self, at: u32) {
        let Some(binding) = self.by_index.get_mut(&at).and_then(|window| window.binding.take())
        else {
            return;
        };
        binding.live.revoke();
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

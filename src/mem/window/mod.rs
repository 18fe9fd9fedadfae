//! Memory windows: parts of regions with their own keys, access rights and lifetimes.
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
//! All queue pairs of the protection domain may use a window of type 1; only the queue pair that has bound it may use
//! a window of type 2 ("2B") (IBTA vol 1, §10.6.7). Changes of a window take the lock of the table; a message in
//! progress checks at each packet whether its [`Binding`] is still valid.

mod error;
mod info;

use std::collections::BTreeSet;
use std::ops::RangeInclusive;
use std::sync::Arc;

pub use error::{BindError, InvalidateError, TooManyWindows};
pub(super) use info::FLUSH;
pub use info::{BindInfo, MwType};

use super::access::{Access, AccessError, KeyUser};
use super::binding::Binding;
use super::keys::{ByKey, hash_key, index};
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
    /// Returns the `len` bytes at `addr` of this window, after the access check.
    pub(super) fn span(
        &self,
        user: KeyUser,
        addr: u64,
        len: u32,
        need: Access,
    ) -> Result<Span, AccessError> {
        let binding = self.check_access(user, need)?;
        let offset = binding.offset_of(self.rkey.0, addr, len)?;
        Ok(Span::new(Arc::clone(binding), offset, len))
    }

    /// Returns all bytes of this window, after the access check.
    pub(super) fn whole_span(&self, user: KeyUser, need: Access) -> Result<Span, AccessError> {
        let binding = self.check_access(user, need)?;
        // The length of a region fits `usize`.
        let [offset, len] =
            [binding.offset, binding.length].map(|n| usize::try_from(n).unwrap_or(usize::MAX));
        Ok(Span::of_all(Arc::clone(binding), offset, len))
    }

    /// Returns the binding, if the queue pair may use the window and the window grants the access right.
    fn check_access(&self, user: KeyUser, need: Access) -> Result<&Arc<Binding>, AccessError> {
        let key = self.rkey.0;
        if self.pd != user.pd {
            return Err(AccessError::WrongDomain { key });
        }
        let binding = self.binding.as_ref().ok_or(AccessError::Unbound { key })?;
        if let Some(qpn) = binding.qpn
            && user.qpn != Some(qpn)
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

    /// Checks whether a queue pair may bind the window in this way.
    pub(super) fn check_bind(
        &self,
        user: KeyUser,
        variant: u8,
        to: &BindInfo,
    ) -> Result<(), BindError> {
        if self.pd != user.pd {
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

    /// Checks whether a queue pair may invalidate the window.
    pub(super) fn check_invalidate(&self, user: KeyUser) -> Result<(), InvalidateError> {
        let rkey = self.rkey;
        if self.pd != user.pd {
            return Err(InvalidateError::WrongDomain { rkey });
        }
        if self.mw_type == MwType::Type1 {
            return Err(InvalidateError::NotInvalidatable { rkey });
        }
        let binding = self.binding.as_ref().ok_or(InvalidateError::Unbound { rkey })?;
        match binding.qpn {
            Some(qpn) if user.qpn != Some(qpn) => Err(InvalidateError::OtherQp { rkey, qpn }),
            _ => Ok(()),
        }
    }
}

/// Windows of a table and their bindings.
#[derive(Default)]
pub(super) struct Windows {
    pub(super) by_index: ByKey<Window>,
    /// Index of each window by its whole key.
    pub(super) by_key: ByKey<u32>,
    /// Pairs of the index of a region and the index of a window bound to it.
    of_regions: BTreeSet<(u32, u32)>,
    /// Pairs of a queue pair and the index of a window of type 2 bound for it.
    of_qps: BTreeSet<(Qpn, u32)>,
}

impl Windows {
    pub(super) fn contains(&self, index: u32) -> bool {
        self.by_index.contains_key(&index)
    }

    /// Returns the window with exactly this key.
    pub(super) fn with_key(&self, rkey: Rkey) -> Option<&Window> {
        self.by_index.get(self.by_key.get(&hash_key(rkey.0))?)
    }

    /// Returns the number of windows bound to a region.
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

    /// Binds a window. The caller has checked the request.
    pub(super) fn bind(&mut self, id: MwId, rkey: Rkey, binding: Option<Binding>) {
        self.unbind(id.0);
        let Some(window) = self.by_index.get_mut(&id.0) else { return };
        self.by_key.remove(&hash_key(window.rkey.0));
        self.by_key.insert(hash_key(rkey.0), id.0);
        window.rkey = rkey;
        let Some(binding) = binding else { return };
        self.of_regions.insert((index(binding.region.key()), id.0));
        if let Some(qpn) = binding.qpn {
            self.of_qps.insert((qpn, id.0));
        }
        window.binding = Some(Arc::new(binding));
    }

    /// Unbinds a window, if it is bound.
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

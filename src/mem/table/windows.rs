//! Memory windows of a table: allocation, binding and invalidation.

#[cfg(test)]
mod tests;

use std::sync::Arc;

use super::{Memory, Table};
use crate::ids::{MwId, PdId, Qpn, Rkey};
use crate::mem::access::{Access, AccessError, KeyUser};
use crate::mem::binding::Binding;
use crate::mem::keys::{hash_key, index};
use crate::mem::window::{
    BindError, BindInfo, FLUSH, InvalidateError, MwType, TooManyWindows, Window,
};
use crate::sync::epoch::LiveFlag;

impl Table {
    /// Checks a bind of a window of this type, and returns the binding; `None` when it unbinds.
    fn binding(
        &self,
        user: KeyUser,
        mw_type: MwType,
        to: &BindInfo,
    ) -> Result<Option<Binding>, BindError> {
        if to.length == 0 {
            return Ok(None);
        }
        let region = self.region(user.pd, to.lkey.0).map_err(BindError::Region)?;
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
            qpn: user.qpn.filter(|_| mw_type == MwType::Type2),
            live: LiveFlag::new(),
        }))
    }
}

impl Memory {
    /// Allocates a window, unbound.
    ///
    /// # Errors
    /// [`TooManyWindows`] at the maximum number.
    pub fn alloc_window(&self, pd: PdId, mw_type: MwType) -> Result<MwId, TooManyWindows> {
        let mut table = self.write();
        let max = self.limits.max_mw;
        if table.windows.by_index.len() >= max {
            return Err(TooManyWindows { max });
        }
        let key = Rkey(table.free_key());
        let rkey = match mw_type {
            MwType::Type1 => key,
            // The first key chosen by the consumer must differ in its variant, and consumers often start with 0 or 1.
            MwType::Type2 => key.with_variant(u8::MAX),
        };
        let at = index(key.0);
        table.windows.by_index.insert(at, Window { mw_type, pd, rkey, binding: None });
        table.windows.by_key.insert(hash_key(rkey.0), at);
        Ok(MwId(at))
    }

    /// Removes a window. When it returns, its key is invalid, and messages in progress have failed. It waits as
    /// [`deregister`](Self::deregister).
    pub fn dealloc_window(&self, id: MwId) {
        let mut table = self.write();
        table.windows.unbind(id.0);
        if let Some(window) = table.windows.by_index.remove(&id.0) {
            table.windows.by_key.remove(&hash_key(window.rkey.0));
        }
        drop(table);
        self.epochs.wait();
    }

    /// Returns the current key of a window.
    pub fn window_key(&self, id: MwId) -> Option<Rkey> {
        self.read().windows.by_index.get(&id.0).map(|window| window.rkey)
    }

    /// Returns the number of windows.
    pub fn window_count(&self) -> usize {
        self.read().windows.by_index.len()
    }

    /// Binds a window to the bytes `to`, for the user's queue pair or domain, under the key with this variant. The
    /// previous key of a window of type 1 becomes invalid.
    ///
    /// # Errors
    /// See [`BindError`]; the window does not change.
    pub fn bind(
        &self,
        user: impl Into<KeyUser>,
        id: MwId,
        variant: u8,
        to: &BindInfo,
    ) -> Result<(), BindError> {
        let user = user.into();
        let foreign = to.access.difference(BindInfo::ACCESS);
        if !foreign.is_empty() {
            return Err(BindError::Access { access: foreign });
        }
        let mut table = self.write();
        let window = table.windows.by_index.get(&id.0).ok_or(BindError::NoSuchWindow(id))?;
        window.check_bind(user, variant, to)?;
        let rkey = window.rkey.with_variant(variant);
        let binding = table.binding(user, window.mw_type, to)?;
        table.windows.bind(id, rkey, binding);
        Ok(())
    }

    /// Invalidates the bound window of type 2 with this key, which the queue pair of `user` must have bound. The
    /// window becomes free. Messages in progress through it end with their current packets.
    ///
    /// # Errors
    /// See [`InvalidateError`]; the window does not change.
    pub fn invalidate(&self, user: impl Into<KeyUser>, rkey: Rkey) -> Result<(), InvalidateError> {
        let user = user.into();
        let mut table = self.write();
        match table.windows.with_key(rkey) {
            Some(window) => window.check_invalidate(user)?,
            None => {
                return Err(match table.region(user.pd, rkey.0) {
                    Err(AccessError::UnknownKey { .. }) => InvalidateError::UnknownKey { rkey },
                    _ => InvalidateError::NotInvalidatable { rkey },
                });
            }
        }
        table.windows.unbind(index(rkey.0));
        Ok(())
    }

    /// Frees the windows of type 2 bound for a queue pair that is reset or destroyed.
    pub fn unbind_all_for(&self, qpn: Qpn) {
        self.write().windows.unbind_all_for(qpn);
    }
}

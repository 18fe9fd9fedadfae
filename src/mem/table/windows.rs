//! Memory windows of a table: allocated, bound and invalidated.

#[cfg(test)]
mod tests;

use std::sync::Arc;

use super::{Memory, Table};
use crate::ids::{MwId, PdId, Qpn, Rkey};
use crate::mem::access::{Access, AccessError, Via};
use crate::mem::keys::{index, whole};
use crate::mem::window::{
    BindError, BindInfo, Binding, FLUSH, InvalidateError, MwType, TooManyWindows, Window,
};
use crate::sync::epoch::LiveFlag;

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
            live: LiveFlag::new(),
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
        self.epochs.wait();
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
    /// The window is free then. A message under way through it ends with its current packet.
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

//! Reregistration: changes of a region under the same key.

use std::sync::Arc;

use super::{Memory, RegisterError};
use crate::ids::PdId;
use crate::mem::access::Access;
use crate::mem::raw::HostMemory;
use crate::mem::region::Region;

/// Attributes of a region to change; `None` keeps one.
#[derive(Debug, Default)]
#[doc(alias = "ibv_rereg_mr")]
pub struct Reregister {
    /// New memory, and its first address if that is not the host address.
    #[doc(alias = "IBV_REREG_MR_CHANGE_TRANSLATION")]
    pub memory: Option<(HostMemory, Option<u64>)>,
    /// New protection domain.
    #[doc(alias = "IBV_REREG_MR_CHANGE_PD")]
    pub pd: Option<PdId>,
    /// New access rights.
    #[doc(alias = "IBV_REREG_MR_CHANGE_ACCESS")]
    pub access: Option<Access>,
}

impl Memory {
    /// Changes the attributes of a region and keeps its key. Later messages use the changed region. Messages in
    /// progress fail, as by [`deregister`](Self::deregister); when this returns, replaced memory may be freed.
    ///
    /// # Errors
    /// See [`RegisterError`]; the region does not change.
    pub fn reregister(
        &self,
        old: &Region,
        change: Reregister,
    ) -> Result<Arc<Region>, RegisterError> {
        if change.memory.as_ref().is_some_and(|(memory, _)| memory.is_empty()) {
            return Err(RegisterError::Empty);
        }
        let access = change.access.unwrap_or(old.access());
        let (memory, iova) = change.memory.unwrap_or_else(|| {
            // A region that becomes not zero-based cannot keep the addresses of a zero-based one.
            let has_addresses = !old.access().contains(Access::ZERO_BASED);
            (old.memory.memory().alias(), has_addresses.then_some(old.addr()))
        });
        let (addr, access) = self.check(&memory, iova, access)?;
        let pd = change.pd.unwrap_or(old.pd());
        let mut table = self.write();
        if !table.contains(old) {
            return Err(RegisterError::Gone);
        }
        table.check_unbound(old)?;
        let epochs = Arc::clone(&self.epochs);
        let new = Arc::new(Region::new(old.key(), pd, addr, access, memory, epochs));
        table.insert(&new);
        drop(table);
        old.memory.revoke();
        Ok(new)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mem::{
        AccessError, BindInfo, DeregisterError, LocalAccess, MwType, Placement, RangeError, Revoked,
    };

    const PD: PdId = PdId(1);
    const WRITABLE: Access = Access::LOCAL_WRITE.union(Access::REMOTE_WRITE);

    fn registered(access: Access) -> (Memory, Arc<Region>) {
        let memory = Memory::new([0; 32]);
        let host = HostMemory::alloc(64).unwrap();
        let region = memory.register(PD, host, Some(0x1000), access).unwrap();
        (memory, region)
    }

    #[test]
    fn rereg_changes_access_and_keeps_bytes_and_key() {
        let (memory, old) = registered(WRITABLE);
        old.write_at(0, b"bytes").unwrap();
        let access = Access::REMOTE_READ;
        let change = Reregister { access: Some(access), ..Default::default() };
        let new = memory.reregister(&old, change).unwrap();
        assert_eq!((new.rkey(), new.addr(), new.access()), (old.rkey(), 0x1000, access));
        let mut seen = [0; 5];
        new.read_at(0, &mut seen).unwrap();
        assert_eq!(&seen, b"bytes");
        let need = Access::REMOTE_WRITE;
        let refused = memory.remote(PD, new.rkey(), 0x1000, 8, need).unwrap_err();
        assert_eq!(refused, AccessError::Denied { key: new.rkey().0, need, granted: access });
    }

    #[test]
    fn rereg_fails_the_message_in_progress_and_the_next_uses_the_new_memory() {
        let (memory, old) = registered(WRITABLE);
        let mut handle = memory.epoch_handle();
        let find = || memory.remote(PD, old.rkey(), 0x1000, 8, Access::REMOTE_WRITE);
        let under_way = find().unwrap();
        let host = (HostMemory::alloc(8).unwrap(), Some(0x1000));
        let change = Reregister { memory: Some(host), ..Default::default() };
        let new = memory.reregister(&old, change).unwrap();
        let guard = handle.enter();
        assert_eq!(under_way.place(&guard, 0, b"x", Placement::Plain), Err(Revoked));
        find().unwrap().place(&guard, 0, b"y", Placement::Final).unwrap();
        let mut seen = [0; 2];
        old.read_at(0, &mut seen[..1]).unwrap();
        new.read_at(0, &mut seen[1..]).unwrap();
        assert_eq!((&seen, new.len(), old.is_live(), new.is_live()), (b"\0y", 8, false, true));
    }

    #[test]
    fn rereg_returns_replaced_memory_to_the_caller() {
        let (memory, region) = registered(WRITABLE);
        let change = || Reregister {
            memory: Some((HostMemory::null(), None)),
            access: Some(Access::LOCAL_WRITE),
            ..Default::default()
        };
        let null = memory.reregister(&region, change()).unwrap();
        let mut seen = [1; 8];
        null.read_at(usize::MAX - 8, &mut seen).unwrap();
        assert_eq!((seen, null.addr()), ([0; 8], 0));
        assert_eq!(memory.reregister(&region, change()).unwrap_err(), RegisterError::Gone);
    }

    #[test]
    fn rereg_changes_domain_and_addressing() {
        let (memory, old) = registered(WRITABLE);
        let change = Reregister {
            pd: Some(PdId(2)),
            access: Some(WRITABLE | Access::ZERO_BASED),
            ..Default::default()
        };
        let new = memory.reregister(&old, change).unwrap();
        let key = new.lkey();
        assert!(memory.local(PdId(2), key, 0, 64, LocalAccess::Write).is_ok());
        let refused = memory.local(PD, key, 0, 64, LocalAccess::Write).unwrap_err();
        assert_eq!(refused, AccessError::WrongDomain { key: key.0 });
        let back = Reregister { access: Some(WRITABLE), ..Default::default() };
        let back = memory.reregister(&new, back).unwrap();
        assert_eq!(back.addr(), back.as_ptr().addr() as u64);
    }

    #[test]
    fn refused_rereg_leaves_the_region_unchanged() {
        let (memory, region) = registered(WRITABLE | Access::MW_BIND);
        let refused = |change| memory.reregister(&region, change).unwrap_err();
        let access = Access::REMOTE_WRITE;
        let change = Reregister { access: Some(access), ..Default::default() };
        assert_eq!(refused(change), RegisterError::NeedsLocalWrite { access });
        let window = memory.alloc_window(PD, MwType::Type1).unwrap();
        let to = BindInfo { lkey: region.lkey(), addr: 0x1000, length: 8, access };
        let variant = memory.window_key(window).unwrap().0.to_le_bytes()[0] ^ 1;
        memory.bind(PD, window, variant, &to).unwrap();
        let windows = RegisterError::Windows(DeregisterError { windows: 1 });
        assert_eq!(refused(Reregister::default()), windows);
        assert_eq!(region.write_at(0, b"x"), Ok::<_, RangeError>(()));
        assert!(region.is_live());
    }
}

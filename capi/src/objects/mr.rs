//! Memory regions.

use std::ffi::c_void;
use std::sync::Mutex;
use std::sync::atomic::{AtomicPtr, AtomicUsize, Ordering};

use softroce::verbs::{Lkey, MemoryRegion, Rereg};

use super::number::next_handle;
use super::users::User;
use crate::abi::{Handle, IbvMr, IbvPd, MrHead};
use crate::border::{Errno, Pointee};
use crate::gate::lock;

/// A memory region.
#[repr(C)]
pub(crate) struct Mr {
    c: MrHead,
    verbs: Mutex<MemoryRegion>,
    /// Use of the device memory that the region covers.
    of_dm: Mutex<Option<User>>,
}

impl Pointee for IbvMr {
    type Object = Mr;
}

impl Mr {
    /// Creates the object of a region of `len` bytes, which the program sees at `start`.
    ///
    /// # Errors
    ///
    /// `EINVAL` when `pd` is null or destroyed.
    pub(crate) fn create(
        pd: Handle<IbvPd>,
        start: *mut c_void,
        len: usize,
        verbs: MemoryRegion,
        of_dm: Option<User>,
    ) -> Result<Handle<IbvMr>, Errno> {
        let (lkey, rkey) = (verbs.lkey().0, verbs.rkey().0);
        Ok(Handle::new(Self {
            c: MrHead {
                context: pd.get()?.c.context,
                pd: AtomicPtr::new(pd.as_ptr()),
                addr: AtomicPtr::new(start),
                length: AtomicUsize::new(len),
                handle: next_handle(),
                lkey,
                rkey,
            },
            verbs: Mutex::new(verbs),
            of_dm: Mutex::new(of_dm),
        }))
    }

    /// Returns the local key of the region.
    pub(crate) fn lkey(&self) -> Lkey {
        lock(&self.verbs).lkey()
    }

    /// Deregisters the region.
    ///
    /// # Errors
    ///
    /// The errors of the library, such as `EBUSY` while a window is bound to the region.
    pub(crate) fn deregister(&self) -> Result<(), Errno> {
        Ok(lock(&self.verbs).deregister()?)
    }

    /// Registers the region again with a change.
    ///
    /// # Errors
    ///
    /// The errors of the library. The region is then as before.
    pub(crate) fn rereg(&self, change: Rereg<'_>) -> Result<(), Errno> {
        Ok(lock(&self.verbs).rereg(change)?)
    }

    /// Shows the program other memory, which is no device memory.
    pub(crate) fn set_memory(&self, start: *mut c_void, len: usize) {
        self.c.addr.store(start, Ordering::Relaxed);
        self.c.length.store(len, Ordering::Relaxed);
        *lock(&self.of_dm) = None;
    }

    /// Shows the program another protection domain.
    pub(crate) fn set_pd(&self, pd: Handle<IbvPd>) {
        self.c.pd.store(pd.as_ptr(), Ordering::Relaxed);
    }
}

//! Memory windows.

use std::ffi::c_uint;
use std::sync::atomic::{AtomicU32, Ordering};

use softroce::verbs::{MemoryWindow, Rkey};

use super::number::next_handle;
use crate::abi::{Handle, IbvMw, IbvPd, MwHead};
use crate::border::{Errno, Pointee};

/// A memory window.
#[repr(C)]
pub(crate) struct Mw {
    c: MwHead,
    pub(crate) verbs: MemoryWindow,
}

impl Pointee for IbvMw {
    type Object = Mw;
}

impl Mw {
    /// Creates the object of a window of the type `mw_type`, as `ibv_mw_type` numbers it.
    ///
    /// # Errors
    ///
    /// `EINVAL` when `pd` is null or destroyed.
    pub(crate) fn create(
        pd: Handle<IbvPd>,
        mw_type: c_uint,
        verbs: MemoryWindow,
    ) -> Result<Handle<IbvMw>, Errno> {
        let context = pd.get()?.c.context;
        let rkey = AtomicU32::new(verbs.rkey().0);
        let c = MwHead { context, pd, rkey, handle: next_handle(), mw_type };
        Ok(Handle::new(Self { c, verbs }))
    }

    /// Shows the program the key of a new binding.
    pub(crate) fn set_rkey(&self, rkey: Rkey) {
        self.c.rkey.store(rkey.0, Ordering::Relaxed);
    }
}

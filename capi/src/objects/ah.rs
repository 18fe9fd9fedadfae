//! Address handles.

use softroce::verbs::{AddressHandle, AddressVector};

use super::number::next_handle;
use super::users::User;
use crate::abi::{AhHead, Handle, IbvAh, IbvPd};
use crate::border::{Errno, Pointee};

/// An address handle.
#[repr(C)]
pub(crate) struct Ah {
    c: AhHead,
    pub(crate) verbs: AddressHandle,
    _of_pd: User,
}

impl Pointee for IbvAh {
    type Object = Ah;
}

impl Ah {
    /// Creates an address handle in a protection domain.
    ///
    /// # Errors
    ///
    /// `EINVAL` when `pd` is null or destroyed, and the errors of the library.
    pub(crate) fn create(pd: Handle<IbvPd>, av: AddressVector) -> Result<Handle<IbvAh>, Errno> {
        let domain = pd.get()?;
        let verbs = domain.verbs.create_ah(av)?;
        let c = AhHead { context: domain.c.context, pd, handle: next_handle() };
        Ok(Handle::new(Self { c, verbs, _of_pd: domain.ahs.join() }))
    }
}

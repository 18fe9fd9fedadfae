//! Protection domains.

use softroce::verbs::ProtectionDomain;

use super::number::next_handle;
use super::users::Users;
use crate::abi::{Handle, IbvContext, IbvPd, PdHead};
use crate::border::Pointee;

/// A protection domain, which may be a parent domain.
#[repr(C)]
pub(crate) struct Pd {
    pub(crate) c: PdHead,
    pub(crate) verbs: ProtectionDomain,
    /// The address handles of the domain.
    pub(crate) ahs: Users,
}

impl Pointee for IbvPd {
    type Object = Pd;
}

impl Pd {
    /// Creates the object of a domain in `context`.
    pub(crate) fn create(context: Handle<IbvContext>, verbs: ProtectionDomain) -> Handle<IbvPd> {
        let c = PdHead { context, handle: next_handle() };
        Handle::new(Self { c, verbs, ahs: Users::default() })
    }
}

//! Protection domains.

use softroce::verbs::ProtectionDomain;

use super::number::next_handle;
use super::users::Users;
use crate::abi::{Handle, IbvContext, IbvPd};
use crate::border::Head;

/// A protection domain, which may be a parent domain.
#[repr(C)]
pub(crate) struct Pd {
    pub(crate) c: IbvPd,
    pub(crate) verbs: ProtectionDomain,
    /// The address handles of the domain.
    pub(crate) ahs: Users,
}

impl Head for IbvPd {
    type Object = Pd;
}

impl Pd {
    /// Creates the object of a domain in `context`.
    pub(crate) fn create(context: Handle<IbvContext>, verbs: ProtectionDomain) -> Handle<IbvPd> {
        let c = IbvPd { context, handle: next_handle() };
        Handle::new(Self { c, verbs, ahs: Users::default() })
    }
}

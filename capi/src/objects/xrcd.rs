//! XRC domains.

use softroce::verbs::XrcDomain;

use super::users::Users;
use crate::abi::IbvXrcd;
use crate::border::Head;

/// An XRC domain.
#[repr(C)]
pub(crate) struct Xrcd {
    pub(crate) c: IbvXrcd,
    pub(crate) verbs: XrcDomain,
    /// The shared receive queues of the domain, and the targets that are created or opened through it.
    pub(crate) users: Users,
}

impl Head for IbvXrcd {
    type Object = Xrcd;
}

//! XRC domains.

use softroce::verbs::XrcDomain;

use super::users::Users;
use crate::abi::{IbvXrcd, XrcdHead};
use crate::border::Pointee;

/// An XRC domain.
#[repr(C)]
pub(crate) struct Xrcd {
    pub(crate) c: XrcdHead,
    pub(crate) verbs: XrcDomain,
    /// The shared receive queues of the domain, and the targets that are created or opened through it.
    pub(crate) users: Users,
}

impl Pointee for IbvXrcd {
    type Object = Xrcd;
}

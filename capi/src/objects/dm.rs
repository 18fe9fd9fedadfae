//! Device memory.

use softroce::verbs::DeviceMemory;

use super::users::Users;
use crate::abi::{DmHead, IbvDm};
use crate::border::Pointee;

/// Device memory.
#[repr(C)]
pub(crate) struct Dm {
    pub(crate) c: DmHead,
    pub(crate) verbs: DeviceMemory,
    /// The memory regions that cover the memory.
    pub(crate) regions: Users,
}

impl Pointee for IbvDm {
    type Object = Dm;
}

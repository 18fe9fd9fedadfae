//! Device memory.

use softroce::verbs::DeviceMemory;

use super::users::Users;
use crate::abi::IbvDm;
use crate::border::Head;

/// Device memory.
#[repr(C)]
pub(crate) struct Dm {
    pub(crate) c: IbvDm,
    pub(crate) verbs: DeviceMemory,
    /// The memory regions that cover the memory.
    pub(crate) regions: Users,
}

impl Head for IbvDm {
    type Object = Dm;
}

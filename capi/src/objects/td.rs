//! Thread domains.

use softroce::verbs::ThreadDomain;

use crate::abi::IbvTd;
use crate::border::Head;

/// A thread domain.
#[repr(C)]
pub(crate) struct Td {
    pub(crate) c: IbvTd,
    pub(crate) verbs: ThreadDomain,
}

impl Head for IbvTd {
    type Object = Td;
}

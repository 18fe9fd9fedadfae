//! Thread domains.

use softroce::verbs::ThreadDomain;

use crate::abi::{IbvTd, TdHead};
use crate::border::Pointee;

/// A thread domain.
#[repr(C)]
pub(crate) struct Td {
    pub(crate) c: TdHead,
    pub(crate) verbs: ThreadDomain,
}

impl Pointee for IbvTd {
    type Object = Td;
}

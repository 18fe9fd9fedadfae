//! Values in the form of C and in that of the library.

pub(crate) mod address;
pub(crate) mod cm;
pub(crate) mod completion;
pub(crate) mod device_attr;
pub(crate) mod event;
pub(crate) mod memory;
pub(crate) mod qp_attr;
pub(crate) mod request;

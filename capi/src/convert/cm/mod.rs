//! Values of the connection manager in the form of C and in that of the library.

pub(crate) mod address;
pub(crate) mod event;
pub(crate) mod param;
pub(crate) mod path;
pub(crate) mod qp_attr;

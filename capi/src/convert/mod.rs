//! Values in the form of C and in that of the library.

pub(crate) mod qp_attr;

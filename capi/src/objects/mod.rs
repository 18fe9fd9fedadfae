//! Objects behind the structures of C.

pub(crate) mod context;
pub(crate) mod users;

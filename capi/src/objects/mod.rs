//! Objects behind the structures of C.

pub(crate) mod capture;
pub(crate) mod context;
pub(crate) mod descriptor;
pub(crate) mod device;
pub(crate) mod fork;
pub(crate) mod users;

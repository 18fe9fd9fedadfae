//! Objects behind the structures of C, a file for each.
//!
//! An object begins with the structure of C to which the program has a pointer ([`Pointee`](crate::border::Pointee)),
//! and has the object of the library behind it. No file here knows the functions that C calls: functions
//! that stand in an object's structure are passed when it is created.

pub(crate) mod ah;
pub(crate) mod capture;
pub(crate) mod channel;
pub(crate) mod context;
pub(crate) mod cq;
pub(crate) mod descriptor;
pub(crate) mod device;
pub(crate) mod dm;
pub(crate) mod mr;
pub(crate) mod mw;
pub(crate) mod number;
pub(crate) mod pd;
pub(crate) mod qp;
pub(crate) mod srq;
pub(crate) mod td;
pub(crate) mod users;
pub(crate) mod wr_batch;
pub(crate) mod xrcd;

//! Functions that C calls, a file for each family of calls.

pub(crate) mod ah;
pub(crate) mod channel;
pub(crate) mod cq;
pub(crate) mod cq_ex;
pub(crate) mod device;
pub(crate) mod dm;
pub(crate) mod events;
pub(crate) mod fork;
pub(crate) mod kernel;
pub(crate) mod mr;
pub(crate) mod mw;
pub(crate) mod pd;
pub(crate) mod post;
pub(crate) mod qp;
pub(crate) mod qp_ex;
pub(crate) mod query;
pub(crate) mod rates;
pub(crate) mod srq;
pub(crate) mod text;
pub(crate) mod unsupported;
pub(crate) mod xrcd;

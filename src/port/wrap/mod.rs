//! Ports that wrap other ports, and the [`Middleware`](layer::Middleware) of which most are made.

pub mod capture;
pub mod impair;
pub(crate) mod layer;
#[cfg(feature = "runtime")]
pub(crate) mod live;
pub(crate) mod multi_homed;
#[cfg(feature = "runtime")]
pub(crate) mod shard_demux;

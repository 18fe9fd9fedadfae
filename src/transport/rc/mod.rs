//! Reliable connection: two halves that share a connection and nothing else.
//!
//! ```text
//!   requester ── SEND, WRITE, READ, atomic ──► responder
//!       ▲                                          │
//!       └──── ACK, NAK, RNR NAK, READ response ◄───┘
//! ```

pub(crate) mod ahead;
mod bursts;
pub(crate) mod flush_icrc;
mod leash;
mod missing;
pub(crate) mod reads;
mod repair;
pub(crate) mod replay;
pub(crate) mod requester;
mod rerequest;
pub(crate) mod responder;
pub(crate) mod response;
pub(crate) mod retry;

//! Reliable connection: a requester and a responder that share only the connection.
//!
//! ```text
//!   requester ── SEND, WRITE, READ, atomic ──► responder
//!       ▲                                          │
//!       └──── ACK, NAK, RNR NAK, READ response ◄───┘
//! ```

pub(crate) mod ahead;
mod bursts;
mod charges;
mod congestion;
pub(crate) mod flush_icrc;
mod gaps;
mod loss_window;
mod peer;
mod pending;
mod read_source;
pub(crate) mod reads;
mod recovery;
pub(crate) mod replay;
pub(crate) mod requester;
mod rerequest;
pub(crate) mod responder;
pub(crate) mod response;
mod retry;
mod selective;

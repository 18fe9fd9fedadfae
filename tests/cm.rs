//! The connection manager, message by message: an agent at 10.0.0.1, and a peer at 10.0.0.2 that the test plays.
//! Time is virtual.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "test code")]

#[path = "cm/attributes.rs"]
mod attributes;
#[path = "cm/copies.rs"]
mod copies;
#[path = "cm/ends.rs"]
mod ends;
#[path = "cm/qp1.rs"]
mod qp1;
#[path = "cm/refusals.rs"]
mod refusals;
#[path = "cm/services.rs"]
mod services;
#[path = "cm/setup.rs"]
mod setup;
#[path = "cm/side.rs"]
mod side;
#[path = "cm/timers.rs"]
mod timers;

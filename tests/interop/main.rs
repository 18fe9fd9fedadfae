//! Interoperability tests, operation by operation, with another host that runs `peer.c`, a libibverbs program.
//! `tests/interop/rxe.sh` boots guests with kernel rxe and runs these tests.
//!
//! `docs/INTEROP.md` describes the tests with other hosts.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::cast_possible_truncation,
    reason = "test code"
)]

mod datagrams;
mod handmade;
mod loss;
mod messages;
mod multicast;
mod operations;
mod pair;
mod peer;
mod placement;
mod refusals;
mod sharing;
mod windows;
#[allow(dead_code, reason = "each user takes its part")]
#[path = "../support/within.rs"]
mod within;

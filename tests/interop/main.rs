//! Our verbs against those of another host, operation by operation. The other host runs `peer.c`, a
//! program of libibverbs; `tests/interop/rxe.sh` boots guests with kernel rxe for that and runs these
//! tests.
//!
//! Against any other host: `docs/INTEROP.md`.

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

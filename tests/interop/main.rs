//! The engine against kernel rxe, operation by operation: `tests/interop/rxe.sh` boots the guest,
//! starts `peer.c` in it and runs these tests.
//!
//! By hand, in the namespace of a guest: `ROCE_PEER=10.77.0.2:4790 cargo test --test interop --
//! --ignored --test-threads=1`.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::cast_possible_truncation,
    reason = "test code"
)]

mod loss;
mod operations;
mod pair;
mod peer;
mod refusals;

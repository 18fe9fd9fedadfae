//! A RoCEv2 host channel adapter in a library.
//!
//! `softroce` is the protocol engine of an RDMA NIC over an ordinary UDP socket: without root, kernel modules or RDMA
//! hardware. It interoperates with Linux `rdma_rxe` and with hardware adapters.
//!
//! # Layers
//!
//! A module uses only modules below it; `tests/layering.rs` fails when one does not.
//!
//! | layer | modules | |
//! |---|---|---|
//! | 6 | `verbs` | the objects applications hold |
//! | 5 | `runtime` | clock, threads, locks, wake-ups |
//! | 4 | [`cm`] | the connection manager, sans-IO |
//! | 3 | [`engine`] | one shard of a device, sans-IO |
//! | 2 | [`transport`], [`port`] | RC, XRC, UC, UD; sockets, the simulated network, middleware |
//! | 1 | [`wire`], [`mem`], [`net`] | bytes; registered memory; what a datagram is |
//! | 0 | [`time`], [`psn`], [`ids`], [`counter`]; `sync`, `sys` | facts about numbers; what threads share; system calls and processor instructions |
//!
//! Within a layer only `wire` uses another, `net`.
//!
//! `engine` and `port` are independent of each other; `runtime` connects them. The feature `runtime` adds the clock,
//! threads and sockets: without it, the crate contains everything up to `cm`, and the simulated network.

#![deny(unsafe_code)]

pub mod cm;
pub mod counter;
pub mod engine;
pub mod ids;
pub mod mem;
pub mod net;
pub mod port;
pub mod psn;
#[cfg(feature = "runtime")]
pub mod runtime;
mod sync;
#[expect(unsafe_code, reason = "system calls and processor instructions")]
mod sys;
pub mod time;
pub mod transport;
#[cfg(feature = "runtime")]
pub mod verbs;
pub mod wire;

/// Runs the examples of the README as tests.
#[cfg(all(doctest, feature = "runtime"))]
#[doc = include_str!("../README.md")]
struct Readme;

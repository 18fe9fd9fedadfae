//! The measurements of `roce perf`: the tests of perftest between two sides, and raw UDP next to them.
//!
//! A crate of its own, because the command is compiled for size and these loops for speed. It is no stable API.

#![deny(unsafe_code)]
// As within the command: what names and types say is not repeated.
#![allow(missing_docs)]

pub mod ceiling;
pub mod clock;
pub mod completion;
pub mod control;
mod index;
pub mod latency;
pub mod measure;
mod memory;
pub mod plan;
pub mod progress;
pub mod protocol;
pub mod side;
pub mod stream;
pub mod tcp;

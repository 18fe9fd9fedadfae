//! `libibverbs.so.1` without hardware.
//!
//! A program that was built against libibverbs is started with this library in its place
//! (`roce run -- PROGRAM`) and finds one device, softroce. It is the verbs API of `softroce`, with the
//! names, versions, structures and habits of C around it:
//!
//! * [`abi`]: the structures, as C has them;
//! * [`border`]: pointers, entry and export, and everything `unsafe`;
//! * the rest, a module a kind of object: functions that C calls, in safe Rust.

#![deny(unsafe_code)]
#![cfg_attr(test, expect(dead_code, reason = "what only C calls is not exported to the tests"))]

mod abi;
#[expect(unsafe_code, reason = "the border to C; its documentation says what it rests on")]
mod border;
mod convert;
mod entry;
#[cfg(not(test))]
#[expect(unsafe_code, reason = "an assembler gives symbols their versions")]
mod exports;
mod gate;
mod log;
mod objects;
mod open;
#[cfg(test)]
mod tests;

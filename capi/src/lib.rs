//! `libibverbs.so.1` without hardware.
//!
//! A program that was built against libibverbs starts with this library in its place
//! (`roce run -- PROGRAM`) and finds one device, softroce. The library is the verbs API of `softroce` with the
//! names, versions, structures and conventions of C. A module uses only modules below it:
//!
//! | layer | modules | |
//! |---|---|---|
//! | 8 | `exports` | the names and versions under which C finds the functions |
//! | 7 | [`ucma`] | the character device of the connection manager |
//! | 6 | [`open`] | opening and closing of the device, and the table of functions in each context |
//! | 5 | [`entry`] | functions that C calls, a file for each family of calls |
//! | 4 | [`convert`] | values in the form of C and in that of the library |
//! | 3 | [`objects`] | objects behind the structures of C, a file for each |
//! | 2 | [`border`] | all `unsafe` code: access through pointers, handles, the frame of each function |
//! | 1 | [`abi`], [`gate`], [`log`] | structures and pointers, as C has them; locks; messages |

#![deny(unsafe_code)]
#![cfg_attr(
    test,
    expect(dead_code, reason = "tests do not have the exports, through which C calls functions")
)]

mod abi;
#[expect(unsafe_code, reason = "the border to C; its documentation says what it relies on")]
mod border;
mod convert;
mod entry;
#[cfg(not(test))]
#[expect(unsafe_code, reason = "the assembler gives symbols their versions")]
mod exports;
mod gate;
mod log;
mod objects;
mod open;
#[cfg(test)]
mod tests;
mod ucma;

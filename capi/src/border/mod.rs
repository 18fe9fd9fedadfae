//! The border between the program and the library: all `unsafe` code.
//!
//! C passes addresses ([`Handle`], [`In`] and [`Out`]); only this module dereferences them. Every program
//! that includes `verbs.h` makes the promise that this rests on: a pointer is null, or points to a value of
//! the type in the function's declaration, and no other thread destroys, frees or changes this value while
//! the function runs. A program that breaks the promise has undefined behavior, as with any `libibverbs`.
//! Two of its errors are detected: a null pointer, where the real library would crash; and a destroyed object,
//! for as long as its memory is not [reused](handle).
//!
//! Commands of the connection manager have addresses of the program too. These may be wrong: [`user`] asks the kernel.
//!
//! [`call`] is the frame of each function: no panic unwinds past it.
//!
//! [`Handle`]: crate::abi::Handle
//! [`In`]: crate::abi::In
//! [`Out`]: crate::abi::Out

pub(crate) mod call;
mod errno;
mod exit;
mod handle;
mod plain;
mod pointer;
pub(crate) mod report;
pub(crate) mod user;

pub(crate) use call::{
    command_or, handle_or_null, int_or_minus_one, size_from, value_or, without_result,
    zero_or_errno,
};
pub(crate) use errno::Errno;
pub(crate) use exit::at_exit;
pub(crate) use handle::Pointee;
pub(crate) use plain::Plain;
pub(crate) use pointer::{descriptor, memory};

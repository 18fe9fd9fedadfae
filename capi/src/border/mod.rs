//! The border between the program and us: everything `unsafe`.
//!
//! What C hands over are addresses. They are taken as what they are, [`Handle`], [`In`] and [`Out`], and
//! what is behind one is looked at here and nowhere else. Each rests on the same promise, which every
//! program makes that includes `verbs.h`: a pointer is null, or points to what the function's
//! declaration says, and that is not destroyed, freed or changed by another thread while the function
//! runs. A program that breaks it is in the hands of chance, as it is with any `libibverbs`. Null is
//! told apart: it is an error with a number, where the real library would crash; and so is what was destroyed
//! before, for as long as its [place](handle) has not been taken by something else.
//!
//! [`call`] wraps each function: a panic does not get past it.

pub(crate) mod call;
mod exit;
mod fork;
mod handle;
mod plain;
mod pointer;

pub(crate) use call::{Errno, minus_one, nothing, number, or, pointer};
pub(crate) use exit::at_exit;
pub(crate) use fork::at_fork;
pub(crate) use handle::{EmptySlotsGuard, Head, lock_empty_slots};
pub(crate) use plain::Plain;
pub(crate) use pointer::{descriptor, memory};

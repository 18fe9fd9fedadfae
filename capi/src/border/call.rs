//! Where each function of C begins and ends: panics are caught, and errors told as C is used to.

use std::ffi::c_int;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};

use nix::errno::Errno as System;
use softroce::verbs::Error;

use crate::abi::Handle;
use crate::log;

/// The number of an error.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Errno(pub(crate) c_int);

impl Errno {
    pub(crate) const INVALID: Self = Self(System::EINVAL as c_int);
    pub(crate) const UNSUPPORTED: Self = Self(System::EOPNOTSUPP as c_int);
    pub(crate) const NO_ENTRY: Self = Self(System::ENOENT as c_int);
    pub(crate) const BUSY: Self = Self(System::EBUSY as c_int);
    pub(crate) const IO: Self = Self(System::EIO as c_int);

    /// Leaves it where C looks for it.
    fn set(self) {
        System::set_raw(self.0);
    }
}

impl From<Error> for Errno {
    fn from(error: Error) -> Self {
        log::refused(&error);
        Self(error.errno())
    }
}

impl From<io::Error> for Errno {
    fn from(error: io::Error) -> Self {
        log::refused(&error);
        Self(error.raw_os_error().unwrap_or(System::EIO as c_int))
    }
}

/// Runs what a function does. A panic is told on standard error by then, and is an error of the
/// device; it does not get into frames of C.
fn run<R>(body: impl FnOnce() -> Result<R, Errno>) -> Result<R, Errno> {
    let result = catch_unwind(AssertUnwindSafe(body)).unwrap_or(Err(Errno::IO));
    if let Err(errno) = result {
        errno.set();
    }
    result
}

/// Answers 0, or the number of the error, which is in `errno` too.
pub(crate) fn number(body: impl FnOnce() -> Result<(), Errno>) -> c_int {
    run(body).map_or_else(|errno| errno.0, |()| 0)
}

/// Answers a pointer, or null and a number in `errno`.
pub(crate) fn pointer<T>(body: impl FnOnce() -> Result<Handle<T>, Errno>) -> Handle<T> {
    run(body).unwrap_or(Handle::NULL)
}

/// Answers 0 or more, or -1 and a number in `errno`.
pub(crate) fn minus_one(body: impl FnOnce() -> Result<c_int, Errno>) -> c_int {
    run(body).unwrap_or(-1)
}

/// Answers what there is, or `otherwise` and a number in `errno`.
pub(crate) fn or<R>(otherwise: R, body: impl FnOnce() -> Result<R, Errno>) -> R {
    run(body).unwrap_or(otherwise)
}

/// Answers nothing.
pub(crate) fn nothing(body: impl FnOnce() -> Result<(), Errno>) {
    let _ = run(body);
}

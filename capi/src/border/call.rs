//! The frame of each function that C calls: it catches panics, and returns errors as C expects them.

use std::ffi::c_int;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};

use nix::errno::Errno as System;
use softroce::verbs::{Error, cm};

use crate::abi::Handle;
use crate::log;

/// An error number of C.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Errno(pub(crate) c_int);

impl Errno {
    pub(crate) const INVALID: Self = Self(System::EINVAL as c_int);
    pub(crate) const UNSUPPORTED: Self = Self(System::EOPNOTSUPP as c_int);
    pub(crate) const NO_ENTRY: Self = Self(System::ENOENT as c_int);
    pub(crate) const BUSY: Self = Self(System::EBUSY as c_int);
    pub(crate) const IO: Self = Self(System::EIO as c_int);
    pub(crate) const NO_MEMORY: Self = Self(System::ENOMEM as c_int);
    pub(crate) const NO_SPACE: Self = Self(System::ENOSPC as c_int);
    pub(crate) const NO_SYSTEM_CALL: Self = Self(System::ENOSYS as c_int);
    pub(crate) const NO_DEVICE: Self = Self(System::ENODEV as c_int);
    pub(crate) const AGAIN: Self = Self(System::EAGAIN as c_int);

    /// Stores the number in `errno`.
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

impl From<cm::Error> for Errno {
    fn from(error: cm::Error) -> Self {
        log::refused(&error);
        Self(error.errno())
    }
}

impl From<System> for Errno {
    fn from(error: System) -> Self {
        Self(error as c_int)
    }
}

impl From<io::Error> for Errno {
    fn from(error: io::Error) -> Self {
        log::refused(&error);
        Self(error.raw_os_error().unwrap_or(System::EIO as c_int))
    }
}

/// Returns a count, index or offset of C.
///
/// # Errors
///
/// `EINVAL` if it is negative or too large.
pub(crate) fn size_from(number: impl TryInto<usize>) -> Result<usize, Errno> {
    number.try_into().map_err(|_| Errno::INVALID)
}

/// Runs the body of a function, and stores its error in `errno`. A panic becomes `EIO`, because it must not
/// unwind into frames of C; its message is then already on standard error.
fn run<R>(body: impl FnOnce() -> Result<R, Errno>) -> Result<R, Errno> {
    let result = catch_unwind(AssertUnwindSafe(body)).unwrap_or(Err(Errno::IO));
    if let Err(errno) = result {
        errno.set();
    }
    result
}

/// Returns 0, or the error number, which is in `errno` too.
pub(crate) fn zero_or_errno(body: impl FnOnce() -> Result<(), Errno>) -> c_int {
    run(body).map_or_else(|errno| errno.0, |()| 0)
}

/// Returns a pointer, or null with the error number in `errno`.
pub(crate) fn handle_or_null<T>(body: impl FnOnce() -> Result<Handle<T>, Errno>) -> Handle<T> {
    run(body).unwrap_or(Handle::NULL)
}

/// Returns 0 or more, or -1 with the error number in `errno`.
pub(crate) fn int_or_minus_one(body: impl FnOnce() -> Result<c_int, Errno>) -> c_int {
    run(body).unwrap_or(-1)
}

/// Returns a value, or `otherwise` with the error number in `errno`.
pub(crate) fn value_or<R>(otherwise: R, body: impl FnOnce() -> Result<R, Errno>) -> R {
    run(body).unwrap_or(otherwise)
}

/// Returns no value. The error number is in `errno`.
pub(crate) fn without_result(body: impl FnOnce() -> Result<(), Errno>) {
    let _ = run(body);
}

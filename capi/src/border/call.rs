//! The frame of each function that C calls: it catches panics, and returns errors as C expects them. A call that succeeds
//! leaves `errno` as it was, though system calls within have failed: rsockets sets `EWOULDBLOCK`, posts a request, and then
//! reads `errno`.

use std::any::type_name;
use std::ffi::c_int;
use std::panic::{AssertUnwindSafe, catch_unwind};

use nix::errno::Errno as System;

use super::errno::Errno;
use super::report;
use crate::abi::Handle;

/// Returns a count, index or offset of C.
///
/// # Errors
///
/// `EINVAL` if it is negative or too large.
pub(crate) fn size_from(number: impl TryInto<usize>) -> Result<usize, Errno> {
    number
        .try_into()
        .map_err(|_| Errno::invalid("a count, an index or an offset is negative or too large"))
}

/// Runs the body of a function, reports its error, and stores the number in `errno`. A panic becomes `EIO`, because it
/// must not unwind into frames of C; its message is then already on standard error.
fn run<R, F: FnOnce() -> Result<R, Errno>>(body: F) -> Result<R, Errno> {
    let before = System::last_raw();
    let result = catch_unwind(AssertUnwindSafe(body)).unwrap_or_else(|_| Err(Errno::panicked()));
    match &result {
        Ok(_) => System::set_raw(before),
        Err(errno) => {
            report::refused(|| function_of(type_name::<F>()), errno);
            errno.set();
        }
    }
    result
}

/// Runs the body of a command of `librdmacm`, as [`run`] does. The body stores the name of the call that writes it.
pub(crate) fn command_or<R>(
    otherwise: R,
    body: impl FnOnce(&mut &'static str) -> Result<R, Errno>,
) -> R {
    let mut call = "a command of librdmacm";
    let before = System::last_raw();
    let result = catch_unwind(AssertUnwindSafe(|| body(&mut call)));
    match result.unwrap_or_else(|_| Err(Errno::panicked())) {
        Ok(value) => {
            System::set_raw(before);
            value
        }
        Err(errno) => {
            report::refused_command(call, &errno);
            errno.set();
            otherwise
        }
    }
}

/// Returns the name of the function with this closure, such as `create_ah` for
/// `ibverbs::entry::ah::create_ah::{{closure}}`; `None` if it stands for several functions of C, or for commands of
/// librdmacm, which probes for features.
fn function_of(closure: &str) -> Option<&str> {
    let mut names = closure.rsplit("::").skip(1);
    let (function, module) = (names.next()?, names.next()?);
    (module != "unsupported" && !closure.contains("::ucma::"))
        .then(|| function.trim_end_matches("_sized"))
}

/// Returns 0, or the error number, which is in `errno` too.
pub(crate) fn zero_or_errno(body: impl FnOnce() -> Result<(), Errno>) -> c_int {
    run(body).map_or_else(|errno| errno.number(), |()| 0)
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn call_that_succeeds_leaves_errno_unchanged() {
        let fails_within = || {
            System::EOPNOTSUPP.set();
            Ok(0)
        };
        System::EAGAIN.set();
        assert_eq!(int_or_minus_one(fails_within), 0);
        assert_eq!(System::last(), System::EAGAIN);
        assert_eq!(command_or(-1, |_| fails_within()), 0);
        assert_eq!(System::last(), System::EAGAIN);
        let refused = int_or_minus_one(|| Err(Errno::new(System::ENOMEM, "no memory is left")));
        assert_eq!((refused, System::last()), (-1, System::ENOMEM));
    }

    #[test]
    fn closure_has_the_name_of_its_function() {
        fn type_of<F: FnOnce()>(_: F) -> &'static str {
            type_name::<F>()
        }
        fn create_ah() -> &'static str {
            type_of(|| ())
        }
        assert_eq!(function_of(create_ah()), Some("create_ah"));
        assert_eq!(
            function_of("a::entry::query::query_port_sized::{{closure}}"),
            Some("query_port")
        );
        assert_eq!(function_of("a::entry::unsupported::null::{{closure}}"), None);
        assert_eq!(function_of("a::ucma::write::{{closure}}"), None);
    }
}

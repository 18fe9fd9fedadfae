//! Error numbers of C with the reason of each.

use std::borrow::Cow;
use std::ffi::c_int;
use std::fmt;
use std::io;

use nix::errno::Errno as System;
use softroce::verbs::{Error, cm};

/// An error number of C, and its reason. Each has a reason, because C gets only the number.
#[derive(Debug)]
pub(crate) struct Errno {
    number: c_int,
    reason: Reason,
}

/// Reason of an error number. Its text is made only if it is printed.
#[derive(Debug)]
enum Reason {
    /// The number is a normal answer, such as that of an empty queue.
    Normal,
    /// A panic, which has its message on standard error.
    Panic,
    Text(Cow<'static, str>),
    Verbs(Box<Error>),
    /// A failure that is always printed.
    Failure(Box<Error>),
    System(io::Error),
}

impl Errno {
    /// Returns `ENOENT`, the normal answer of an empty queue.
    pub(crate) fn empty() -> Self {
        Self { number: System::ENOENT as c_int, reason: Reason::Normal }
    }

    /// Returns `EIO` after a panic.
    pub(super) fn panicked() -> Self {
        Self { number: System::EIO as c_int, reason: Reason::Panic }
    }

    /// Returns `EINVAL`: the program makes a mistake.
    pub(crate) fn invalid(reason: impl Into<Cow<'static, str>>) -> Self {
        Self::new(System::EINVAL, reason)
    }

    /// Returns `EOPNOTSUPP`: the program asks for something that the device does not have.
    pub(crate) fn unsupported(reason: impl Into<Cow<'static, str>>) -> Self {
        Self::new(System::EOPNOTSUPP, reason)
    }

    /// Returns any number with its reason.
    pub(crate) fn new(number: System, reason: impl Into<Cow<'static, str>>) -> Self {
        Self { number: number as c_int, reason: Reason::Text(reason.into()) }
    }

    /// Returns the number of an error without which the program would work, such as one of its environment.
    pub(crate) fn failed(error: Error) -> Self {
        Self { number: error.errno(), reason: Reason::Failure(Box::new(error)) }
    }

    /// Returns the number.
    pub(crate) fn number(&self) -> c_int {
        self.number
    }

    /// Returns the name of the number, such as `EINVAL`.
    pub(crate) fn name(&self) -> String {
        format!("{:?}", System::from_raw(self.number))
    }

    /// Returns whether the number is a normal answer that needs no message. `EAGAIN` is one of calls that do not wait.
    pub(crate) fn is_normal(&self) -> bool {
        let is_busy = self.number == System::EAGAIN as c_int && !self.is_failure();
        is_busy || matches!(self.reason, Reason::Normal)
    }

    /// Returns whether the error is a failure that is always printed.
    pub(crate) fn is_failure(&self) -> bool {
        matches!(self.reason, Reason::Failure(_))
    }

    /// Returns whether the number means a mistake of the program or of its environment. Other numbers tell it to wait
    /// or to ask again, or answer a question for a feature.
    pub(crate) fn is_mistake(&self) -> bool {
        use System::{EAGAIN, EINTR, ENODATA, ENOENT, EOPNOTSUPP, ETIMEDOUT};
        let answers = [EAGAIN, EINTR, ENODATA, ENOENT, EOPNOTSUPP, ETIMEDOUT];
        !answers.contains(&System::from_raw(self.number))
    }

    /// Returns whether the request has more inline data than the device permits. There is no query for that limit, so
    /// libfabric asks for less and less until it gets a queue pair.
    pub(crate) fn is_inline_limit(&self) -> bool {
        let Reason::Verbs(error) = &self.reason else { return false };
        matches!(**error, Error::Limit { what: "max_inline_data", .. })
    }

    /// Returns whether the number is `ENOMEM`.
    pub(crate) fn is_full(&self) -> bool {
        System::from_raw(self.number) == System::ENOMEM
    }

    /// Stores the number in `errno`.
    pub(super) fn set(&self) {
        System::set_raw(self.number);
    }
}

/// Answers to commands of `librdmacm`.
impl Errno {
    pub(crate) const FAULT: Self =
        Self::of_command(System::EFAULT, "the memory of the command is not readable or writable");
    pub(crate) const AGAIN: Self = Self::of_command(System::EAGAIN, "there is no event");

    const fn of_command(number: System, reason: &'static str) -> Self {
        Self { number: number as c_int, reason: Reason::Text(Cow::Borrowed(reason)) }
    }
}

impl fmt::Display for Errno {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.reason {
            Reason::Normal => f.write_str("normal answer"),
            Reason::Panic => f.write_str("softroce has failed"),
            Reason::Text(text) => f.write_str(text),
            Reason::Verbs(error) | Reason::Failure(error) => error.fmt(f),
            Reason::System(error) => error.fmt(f),
        }
    }
}

impl From<Error> for Errno {
    fn from(error: Error) -> Self {
        Self { number: error.errno(), reason: Reason::Verbs(Box::new(error)) }
    }
}

impl From<cm::Error> for Errno {
    fn from(error: cm::Error) -> Self {
        Self { number: error.errno(), reason: Reason::Text(error.to_string().into()) }
    }
}

impl From<io::Error> for Errno {
    fn from(error: io::Error) -> Self {
        let number = error.raw_os_error().unwrap_or(System::EIO as c_int);
        Self { number, reason: Reason::System(error) }
    }
}

impl From<System> for Errno {
    fn from(error: System) -> Self {
        io::Error::from(error).into()
    }
}

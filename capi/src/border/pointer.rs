//! Access to memory of the program: attributes, lists, and results.

use std::ffi::{CStr, c_char};
use std::ptr;

use super::{Errno, Plain};
use crate::abi::{In, Out};

impl<T: Plain> In<T> {
    /// Reads the value.
    ///
    /// # Errors
    ///
    /// `EINVAL` when the pointer is null.
    pub(crate) fn read(self) -> Result<T, Errno> {
        self.optional().ok_or_else(|| Errno::invalid("a pointer to attributes is NULL"))
    }

    /// Reads the value, or returns `None` when the pointer is null.
    pub(crate) fn optional(self) -> Option<T> {
        if self.as_ptr().is_null() {
            return None;
        }
        // SAFETY: the program promises that there is a `T`, of which every pattern of bits is one.
        Some(unsafe { ptr::read_unaligned(self.as_ptr()) })
    }

    /// Reads the `n`-th of several values. The pointer must not be null.
    fn nth(self, n: usize) -> T {
        // SAFETY: `array` has seen that it is not null; the program promises that there are more
        // than `n`.
        unsafe { ptr::read_unaligned(self.as_ptr().wrapping_add(n)) }
    }

    /// Returns an iterator that reads the first `count` of several values.
    ///
    /// # Errors
    ///
    /// `EINVAL` when the pointer is null and `count` is not 0.
    pub(crate) fn array(self, count: usize) -> Result<impl Iterator<Item = T>, Errno> {
        if self.as_ptr().is_null() && count > 0 {
            return Err(Errno::invalid("a list is NULL, and its count is not 0"));
        }
        Ok((0..count).map(move |n| self.nth(n)))
    }
}

impl In<u8> {
    /// Appends `len` bytes to `to`.
    ///
    /// # Errors
    ///
    /// `EINVAL` when the pointer is null and `len` is not 0.
    pub(crate) fn copy_to<const N: usize>(
        self,
        len: usize,
        to: &mut smallvec::SmallVec<[u8; N]>,
    ) -> Result<(), Errno>
    where
        [u8; N]: smallvec::Array<Item = u8>,
    {
        if len == 0 {
            return Ok(());
        }
        if self.as_ptr().is_null() {
            return Err(Errno::invalid("a buffer is NULL, and its length is not 0"));
        }
        // SAFETY: the program promises that there are `len` bytes, which it does not change before
        // the function has returned.
        to.extend_from_slice(unsafe { std::slice::from_raw_parts(self.as_ptr(), len) });
        Ok(())
    }
}

impl In<c_char> {
    /// Reads a C string.
    ///
    /// # Errors
    ///
    /// `EINVAL` when the pointer is null.
    pub(crate) fn text(self) -> Result<String, Errno> {
        if self.as_ptr().is_null() {
            return Err(Errno::invalid("a string is NULL"));
        }
        // SAFETY: the program promises that a zero is at the end.
        Ok(unsafe { CStr::from_ptr(self.as_ptr()) }.to_string_lossy().into_owned())
    }
}

impl<T: Plain> Out<T> {
    /// Reads the value that the program has stored there.
    ///
    /// # Errors
    ///
    /// `EINVAL` when the pointer is null.
    pub(crate) fn read(self) -> Result<T, Errno> {
        self.as_in().read()
    }

    /// Stores a result, unless the pointer is null.
    pub(crate) fn write(self, value: T) {
        self.write_at(0, value);
    }

    /// Stores the `n`-th of several results, unless the pointer is null.
    pub(crate) fn write_at(self, n: usize, value: T) {
        if self.is_null() {
            return;
        }
        // SAFETY: the program promises that there is room for more than `n`, and that nobody else
        // uses it.
        unsafe { ptr::write_unaligned(self.as_ptr().wrapping_add(n), value) };
    }

    /// Stores the first `len` bytes of a result, which is the size that the program knows, unless the
    /// pointer is null. Bytes beyond the size of `T` become zero.
    pub(crate) fn write_prefix(self, value: &T, len: usize) {
        if self.is_null() {
            return;
        }
        let ours = len.min(size_of::<T>());
        let (from, to) = (ptr::from_ref(value).cast::<u8>(), self.as_ptr().cast::<u8>());
        // SAFETY: `ours` bytes are within `value`, and the program promises room for `len`.
        unsafe { ptr::copy_nonoverlapping(from, to, ours) };
        // SAFETY: as above, the rest of the room.
        unsafe { ptr::write_bytes(to.wrapping_add(ours), 0, len - ours) };
    }
}

impl Out<u8> {
    /// Stores bytes, unless the pointer is null.
    pub(crate) fn fill(self, bytes: &[u8]) {
        if self.is_null() {
            return;
        }
        // SAFETY: the program promises room for them, and that nobody else uses it.
        unsafe { ptr::copy_nonoverlapping(bytes.as_ptr(), self.as_ptr(), bytes.len()) };
    }
}

/// Returns memory of the program for registration. The library accesses it through system calls, so a page
/// that is unmapped at any time is an error and not a signal.
pub(crate) fn memory(start: Out<u8>, len: usize) -> std::io::Result<softroce::verbs::HostMemory> {
    // SAFETY: the program has it registered, and promises with that to treat it as memory which a
    // device reads and writes. No Rust of ours has references to it.
    unsafe { softroce::verbs::HostMemory::on_demand(start.as_ptr(), len) }
}

/// Borrows a descriptor of the program, or returns `None` for a negative number.
pub(crate) fn descriptor<'a>(fd: i32) -> Option<std::os::fd::BorrowedFd<'a>> {
    if fd < 0 {
        return None;
    }
    // SAFETY: it is not negative, and the program promises not to close it while the function runs.
    Some(unsafe { std::os::fd::BorrowedFd::borrow_raw(fd) })
}

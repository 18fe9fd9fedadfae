//! Pointers to what belongs to the program: attributes, lists, and places for results.

use std::ffi::{CStr, c_char};
use std::ptr;

use super::{Errno, Plain};

/// A pointer to something that C wants read: one, or the first of several.
#[repr(transparent)]
pub(crate) struct In<T>(*const T);

impl<T> Clone for In<T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for In<T> {}

impl<T: Plain> In<T> {
    /// What there is.
    pub(crate) fn read(self) -> Result<T, Errno> {
        self.optional().ok_or(Errno::INVALID)
    }

    /// What there is, if there is something.
    pub(crate) fn optional(self) -> Option<T> {
        if self.0.is_null() {
            return None;
        }
        // SAFETY: the program promises that there is a `T`, of which every pattern of bits is one.
        Some(unsafe { ptr::read_unaligned(self.0) })
    }

    /// The `n`-th of several. It must not be null.
    fn nth(self, n: usize) -> T {
        // SAFETY: `array` has seen that it is not null; the program promises that there are more
        // than `n`.
        unsafe { ptr::read_unaligned(self.0.wrapping_add(n)) }
    }

    /// The first `count` of what there are.
    pub(crate) fn array(self, count: usize) -> Result<impl Iterator<Item = T>, Errno> {
        if self.0.is_null() && count > 0 {
            return Err(Errno::INVALID);
        }
        Ok((0..count).map(move |n| self.nth(n)))
    }
}

impl In<u8> {
    /// The address of bytes that a request names by a number.
    pub(crate) fn at(address: u64) -> Self {
        Self(ptr::with_exposed_provenance(usize::try_from(address).unwrap_or_default()))
    }

    /// Appends `len` bytes to `to`.
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
        if self.0.is_null() {
            return Err(Errno::INVALID);
        }
        // SAFETY: the program promises that there are `len` bytes, which it does not change before
        // the function has returned.
        to.extend_from_slice(unsafe { std::slice::from_raw_parts(self.0, len) });
        Ok(())
    }
}

impl In<c_char> {
    /// A text.
    pub(crate) fn text(self) -> Result<String, Errno> {
        if self.0.is_null() {
            return Err(Errno::INVALID);
        }
        // SAFETY: the program promises that a zero is at the end.
        Ok(unsafe { CStr::from_ptr(self.0) }.to_string_lossy().into_owned())
    }
}

/// A pointer to a place for a result, in which attributes may stand before.
#[repr(transparent)]
pub(crate) struct Out<T>(*mut T);

impl<T> Clone for Out<T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for Out<T> {}

impl<T> Out<T> {
    /// Whether there is no such place.
    pub(crate) fn is_null(self) -> bool {
        self.0.is_null()
    }
}

impl<T: Plain> Out<T> {
    /// What stands there.
    pub(crate) fn read(self) -> Result<T, Errno> {
        In(self.0.cast_const()).read()
    }

    /// Puts a result there, if there is a place.
    pub(crate) fn write(self, value: T) {
        self.write_at(0, value);
    }

    /// Puts one of several there, if there is a place.
    pub(crate) fn write_at(self, n: usize, value: T) {
        if self.0.is_null() {
            return;
        }
        // SAFETY: the program promises that there is room for more than `n`, and that nobody else
        // uses it.
        unsafe { ptr::write_unaligned(self.0.wrapping_add(n), value) };
    }

    /// Puts the beginning of a result there: as much of it as the program knows of, `len` bytes.
    /// What it knows beyond ours is zero.
    pub(crate) fn write_prefix(self, value: &T, len: usize) {
        if self.0.is_null() {
            return;
        }
        let ours = len.min(size_of::<T>());
        let (from, to) = (ptr::from_ref(value).cast::<u8>(), self.0.cast::<u8>());
        // SAFETY: `ours` bytes are within `value`, and the program promises room for `len`.
        unsafe { ptr::copy_nonoverlapping(from, to, ours) };
        // SAFETY: as above, the rest of the room.
        unsafe { ptr::write_bytes(to.wrapping_add(ours), 0, len - ours) };
    }
}

impl Out<u8> {
    /// Puts bytes there.
    pub(crate) fn fill(self, bytes: &[u8]) {
        if self.0.is_null() {
            return;
        }
        // SAFETY: the program promises room for them, and that nobody else uses it.
        unsafe { ptr::copy_nonoverlapping(bytes.as_ptr(), self.0, bytes.len()) };
    }

    /// The address itself, of memory that is to be registered.
    pub(crate) fn as_ptr(self) -> *mut u8 {
        self.0
    }
}

/// Memory of the program, to be registered. It is looked at through the system alone: what is not there
/// is an error, whenever it has gone.
pub(crate) fn memory(start: Out<u8>, len: usize) -> std::io::Result<softroce::verbs::HostMemory> {
    // SAFETY: the program has it registered, and promises with that to treat it as memory which a
    // device reads and writes. No Rust of ours has references to it.
    unsafe { softroce::verbs::HostMemory::on_demand(start.0, len) }
}

/// A descriptor of the program.
pub(crate) fn descriptor<'a>(fd: i32) -> Option<std::os::fd::BorrowedFd<'a>> {
    if fd < 0 {
        return None;
    }
    // SAFETY: it is not negative, and the program promises not to close it while the function runs.
    Some(unsafe { std::os::fd::BorrowedFd::borrow_raw(fd) })
}

#[cfg(test)]
impl<T> In<T> {
    /// Nothing.
    pub(crate) const NULL: Self = Self(ptr::null());

    /// The beginning of some words, as another structure.
    pub(crate) fn first_of(words: &[u64]) -> Self {
        Self(words.as_ptr().cast())
    }

    /// What a test has, as C would hand it over.
    pub(crate) fn to(value: &T) -> Self {
        Self(value)
    }
}

#[cfg(test)]
impl<T> Out<T> {
    /// No place.
    pub(crate) const NULL: Self = Self(ptr::null_mut());

    /// A place in a test.
    pub(crate) fn to(value: &mut T) -> Self {
        Self(value)
    }

    /// Any address.
    pub(crate) fn anywhere(address: usize) -> Self {
        Self(ptr::with_exposed_provenance_mut(address))
    }
}

//! Pointers as C passes them. A pointer here is an address with a type; only the border dereferences it.

use std::ffi::c_void;
use std::marker::PhantomData;
use std::ptr;

/// A pointer that the program stores in an object for its own use.
pub(crate) type UserData = *mut c_void;

/// A pointer to a structure that this library has allocated, such as `struct ibv_qp *`, or null.
#[repr(transparent)]
pub(crate) struct Handle<T>(*mut c_void, PhantomData<*const T>);

impl<T> Clone for Handle<T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for Handle<T> {}

impl<T> PartialEq for Handle<T> {
    fn eq(&self, other: &Self) -> bool {
        self.0 == other.0
    }
}

impl<T> Handle<T> {
    /// The null pointer.
    pub(crate) const NULL: Self = Self(ptr::null_mut(), PhantomData);

    /// Returns the pointer with a type.
    pub(crate) const fn from_ptr(pointer: *mut c_void) -> Self {
        Self(pointer, PhantomData)
    }

    /// Returns a pointer that C stores in a field for an integer.
    pub(crate) fn at(address: u64) -> Self {
        let address = usize::try_from(address).unwrap_or_default();
        Self(ptr::with_exposed_provenance_mut(address), PhantomData)
    }

    /// Returns the address, for a field that holds an integer.
    pub(crate) fn address(self) -> u64 {
        self.0.expose_provenance() as u64
    }

    /// Returns the pointer without its type.
    pub(crate) const fn as_ptr(self) -> *mut c_void {
        self.0
    }

    /// Whether the pointer is null.
    pub(crate) fn is_null(self) -> bool {
        self.0.is_null()
    }
}

/// A pointer to one or several values that the program lends for reading.
#[repr(transparent)]
pub(crate) struct In<T>(*const T);

impl<T> Clone for In<T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for In<T> {}

impl<T> In<T> {
    /// Returns the pointer without a claim to what is behind it.
    pub(crate) const fn as_ptr(self) -> *const T {
        self.0
    }
}

impl In<u8> {
    /// Returns a pointer to bytes, by the address in a work request.
    pub(crate) fn at(address: u64) -> Self {
        Self(ptr::with_exposed_provenance(usize::try_from(address).unwrap_or_default()))
    }
}

/// A pointer to memory that the program lends for a result, and that may hold attributes before.
#[repr(transparent)]
pub(crate) struct Out<T>(*mut T);

impl<T> Clone for Out<T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for Out<T> {}

impl<T> Out<T> {
    /// Whether the pointer is null.
    pub(crate) fn is_null(self) -> bool {
        self.0.is_null()
    }

    /// Returns the pointer without a claim to what is behind it.
    pub(crate) const fn as_ptr(self) -> *mut T {
        self.0
    }

    /// Returns the same pointer for reading.
    pub(crate) const fn as_in(self) -> In<T> {
        In(self.0.cast_const())
    }
}

#[cfg(test)]
impl<T> In<T> {
    /// The null pointer.
    pub(crate) const NULL: Self = Self(ptr::null());

    /// Returns a pointer to the structure at the beginning of `words`.
    pub(crate) fn first_of(words: &[u64]) -> Self {
        Self(words.as_ptr().cast())
    }

    /// Returns a pointer to a value of a test.
    pub(crate) fn to(value: &T) -> Self {
        Self(value)
    }
}

#[cfg(test)]
impl<T> Out<T> {
    /// The null pointer.
    pub(crate) const NULL: Self = Self(ptr::null_mut());

    /// Returns a pointer to a value of a test.
    pub(crate) fn to(value: &mut T) -> Self {
        Self(value)
    }

    /// Returns a pointer to any address.
    pub(crate) fn anywhere(address: usize) -> Self {
        Self(ptr::with_exposed_provenance_mut(address))
    }
}

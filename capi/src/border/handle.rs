//! Pointers to what was made here.

use std::ffi::c_void;
use std::marker::PhantomData;
use std::ptr;

use super::Errno;

/// What the program gets pointers to: a structure of C, and behind it what it stands for.
///
/// It is shared: the program may use it from any thread, so whatever changes in it is atomic or behind
/// a lock.
pub(crate) trait Object: Send + Sync + Sized + 'static {
    /// Where in it the structure is that C knows. It is at the beginning, but for contexts.
    const HEAD: usize = 0;
}

/// A pointer to an object, as C has it: null, or from [`Handle::new`].
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

// SAFETY: it is an address; what is done with it is said at each of its methods.
unsafe impl<T> Send for Handle<T> {}
// SAFETY: as above.
unsafe impl<T> Sync for Handle<T> {}

impl<T> Handle<T> {
    /// No object.
    pub(crate) const NULL: Self = Self(ptr::null_mut(), PhantomData);

    /// One that C has put where a number may stand as well.
    pub(crate) fn at(address: u64) -> Self {
        let address = usize::try_from(address).unwrap_or_default();
        Self(ptr::with_exposed_provenance_mut(address), PhantomData)
    }

    /// The address, to be handed to C in such a place.
    pub(crate) fn address(self) -> u64 {
        self.0.expose_provenance() as u64
    }

    /// The same without its type.
    pub(crate) fn as_ptr(self) -> *mut c_void {
        self.0
    }

    /// Whether there is none.
    pub(crate) fn is_null(self) -> bool {
        self.0.is_null()
    }
}

impl<T: Object> Handle<T> {
    /// Hands an object over to the program, until it is [destroyed](Self::destroy).
    pub(crate) fn new(object: T) -> Self {
        let address = Box::into_raw(Box::new(object)).cast::<u8>().wrapping_add(T::HEAD);
        address.expose_provenance();
        Self(address.cast(), PhantomData)
    }

    /// Lends one that stays.
    pub(crate) fn of_static(object: &'static T) -> Self {
        let address = ptr::from_ref(object).cast_mut().cast::<u8>().wrapping_add(T::HEAD);
        Self(address.cast(), PhantomData)
    }

    fn object(self) -> *mut T {
        self.0.cast::<u8>().wrapping_sub(T::HEAD).cast()
    }

    /// The object.
    pub(crate) fn get<'a>(self) -> Result<&'a T, Errno> {
        self.optional().ok_or(Errno::INVALID)
    }

    /// The object, if there is one.
    pub(crate) fn optional<'a>(self) -> Option<&'a T> {
        if self.is_null() {
            return None;
        }
        // SAFETY: it is a pointer that `new` or `of_static` has made, and the program promises not to
        // destroy the object meanwhile. What changes in it is atomic or behind a lock.
        Some(unsafe { &*self.object() })
    }

    /// Takes the object back.
    pub(crate) fn destroy(self) {
        if self.is_null() {
            return;
        }
        // SAFETY: `new` has made it of a box, and the program promises to destroy it once, when nobody
        // uses it any more.
        drop(unsafe { Box::from_raw(self.object()) });
    }
}

//! Functions of the libraries behind this one, by their names.

use std::ffi::{CStr, c_int, c_void};
use std::marker::PhantomData;
use std::ptr;
use std::sync::atomic::{AtomicPtr, Ordering};

use errno::{Errno, set_errno};
use libc::ssize_t;

/// A function of the libraries behind this one, of type `F`.
pub(crate) struct Next<F>(&'static CStr, AtomicPtr<c_void>, PhantomData<F>);

impl<F: Copy> Next<F> {
    pub(crate) const fn named(name: &'static CStr) -> Self {
        Self(name, AtomicPtr::new(ptr::null_mut()), PhantomData)
    }

    /// Looks up the function. A program calls only functions that its version of libc has.
    pub(crate) fn find(&self) {
        // SAFETY: a name with a zero at its end.
        self.set(unsafe { libc::dlsym(libc::RTLD_NEXT, self.0.as_ptr()) });
    }

    /// Sets the function, which must be of type `F`, or null.
    pub(crate) fn set(&self, found: *mut c_void) {
        self.1.store(found, Ordering::Relaxed);
    }

    /// Returns the function, and looks it up if it has not been found before.
    pub(crate) fn get(&self) -> Option<F> {
        self.found().or_else(|| {
            self.find();
            self.found()
        })
    }

    /// Returns the function if it has been found.
    pub(crate) fn found(&self) -> Option<F> {
        const { assert!(size_of::<F>() == size_of::<*mut c_void>()) };
        let found = self.1.load(Ordering::Relaxed);
        if found.is_null() {
            return None;
        }
        // SAFETY: `F` is a pointer to a function, of the type that libc declares for this name.
        Some(unsafe { ptr::from_ref(&found).cast::<F>().read() })
    }
}

/// Value that a function of libc returns when it fails.
pub(crate) trait Failed {
    const FAILED: Self;
}

impl Failed for c_int {
    const FAILED: Self = -1;
}

impl Failed for () {
    const FAILED: Self = ();
}

impl Failed for ssize_t {
    const FAILED: Self = -1;
}

impl<T> Failed for *mut T {
    const FAILED: Self = ptr::null_mut();
}

/// Sets `errno` of this thread, and returns the value of a function that has failed.
pub(crate) fn fail<R: Failed>(number: c_int) -> R {
    set_errno(Errno(number));
    R::FAILED
}

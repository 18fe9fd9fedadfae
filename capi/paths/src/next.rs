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
    pub(crate) fn find(&self) -> *mut c_void {
        // SAFETY: a name with a zero at its end.
        let found = unsafe { libc::dlsym(libc::RTLD_NEXT, self.0.as_ptr()) };
        self.1.store(found, Ordering::Relaxed);
        found
    }

    pub(crate) fn get(&self) -> Option<F> {
        const { assert!(size_of::<F>() == size_of::<*mut c_void>()) };
        let mut found = self.1.load(Ordering::Relaxed);
        if found.is_null() {
            found = self.find();
        }
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

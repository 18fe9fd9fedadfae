//! Forks: the generation of a process, and values that a forked child makes anew.
//!
//! A forked child has the memory of its parent, but only the thread that forked. A lock that another thread held stays
//! locked in the child, and what it protects may be half changed. So state that a child uses as well is a
//! [`PerProcess`], which the child makes again. The other solution, to hold all locks during each fork, deadlocks when a
//! signal handler forks while its own thread holds one of them.

use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, Ordering};

use super::ffi::at_fork;

/// A function that runs in each forked child before `fork` returns there.
pub(super) struct ChildHook {
    run: extern "C" fn(),
    is_installed: AtomicBool,
}

impl ChildHook {
    /// A hook that may run twice in a child.
    pub(super) const fn new(run: extern "C" fn()) -> Self {
        Self { run, is_installed: AtomicBool::new(false) }
    }

    /// Installs the hook unless it is installed. Returns false if the C library has no memory for it.
    pub(super) fn install(&self) -> bool {
        if self.is_installed.load(Ordering::Acquire) {
            return true;
        }
        // Two threads, or a parent and its child, may both install the hook. A lock or a `Once` around the call would
        // remain taken in a child that another thread forks meanwhile.
        let is_installed = at_fork(None, None, Some(self.run));
        if is_installed {
            self.is_installed.store(true, Ordering::Release);
        }
        is_installed
    }
}

static GENERATION: AtomicU32 = AtomicU32::new(0);

/// Returns the generation of this process. A forked child has a larger one than its parent, from the first [`PerProcess`] value on.
///
/// A device of another generation does not belong to this process: its threads do not exist here, and this process must
/// not use its sockets.
#[inline]
pub fn generation() -> u32 {
    GENERATION.load(Ordering::Relaxed)
}

/// Counts generations from now on.
fn watch() {
    extern "C" fn begin_next() {
        GENERATION.fetch_add(1, Ordering::Relaxed);
    }
    static HOOK: ChildHook = ChildHook::new(begin_next);
    // A program without memory for the hook cannot open a device either.
    let _ = HOOK.install();
}

/// A value of this process, made when it is first used. A forked child makes its own. The value of the parent stays in
/// memory there, and nothing uses it.
#[derive(Debug)]
pub struct PerProcess<T: 'static> {
    newest: AtomicPtr<Made<T>>,
    make: fn(generation: u32) -> T,
}

#[derive(Debug)]
struct Made<T> {
    generation: u32,
    value: T,
    /// The value of the parent. The pointer keeps it reachable for detectors of leaks.
    _parents: *mut Self,
}

impl<T: Send + Sync> PerProcess<T> {
    /// A value that `make` returns for a process of a [`generation`].
    pub const fn new(make: fn(generation: u32) -> T) -> Self {
        Self { newest: AtomicPtr::new(ptr::null_mut()), make }
    }

    /// Returns the value of this process, and makes it if necessary. Two threads may call `make` at the same time; one
    /// of the two values is dropped.
    pub fn get(&'static self) -> &'static T {
        loop {
            let newest = self.newest.load(Ordering::Acquire);
            if let Some(value) = of_generation(newest, generation()) {
                return value;
            }
            watch();
            let generation = generation();
            let value = (self.make)(generation);
            let made = Box::into_raw(Box::new(Made { generation, value, _parents: newest }));
            // Release, for the thread that loads the pointer; nothing is read through the other one.
            let stored = (Ordering::Release, Ordering::Relaxed);
            if self.newest.compare_exchange(newest, made, stored.0, stored.1).is_err() {
                // SAFETY: `Box::into_raw` has returned the pointer above, and no other thread has got it.
                drop(unsafe { Box::from_raw(made) });
            }
        }
    }

    /// Returns the value of this process if it has been made. The call is async-signal-safe.
    pub fn if_made(&'static self) -> Option<&'static T> {
        of_generation(self.newest.load(Ordering::Acquire), generation())
    }
}

/// Returns a value if it is of this generation.
fn of_generation<T>(made: *mut Made<T>, generation: u32) -> Option<&'static T> {
    // SAFETY: the pointer is null, or it comes from `Box::into_raw` by a release store that an acquire load has read.
    // The value behind it is never changed nor freed.
    let made = unsafe { made.as_ref() }?;
    (made.generation == generation).then_some(&made.value)
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;

    #[test]
    fn value_is_made_once_for_all_threads() {
        static VALUE: PerProcess<AtomicU32> = PerProcess::new(AtomicU32::new);
        assert!(VALUE.if_made().is_none());
        thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| VALUE.get().fetch_add(1, Ordering::Relaxed));
            }
        });
        assert_eq!(VALUE.if_made().unwrap().load(Ordering::Relaxed), generation() + 4);
    }

    #[test]
    fn child_does_not_get_the_value_of_its_parent() {
        let made = Box::new(Made { generation: 7, value: 1, _parents: ptr::null_mut() });
        let made = Box::into_raw(made);
        assert_eq!([7, 8].map(|generation| of_generation(made, generation)), [Some(&1), None]);
        // SAFETY: from `Box::into_raw` above; the references from `of_generation` are gone.
        drop(unsafe { Box::from_raw(made) });
    }
}

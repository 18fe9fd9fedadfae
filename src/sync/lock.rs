//! Locks: those of the standard library. In the library's own tests a thread records the locks that it takes, so that
//! tests can count those of the hot path ([`taken`]).

#[cfg(not(test))]
pub(crate) use std::sync::{Mutex, RwLock};

#[cfg(test)]
pub(crate) use told::{Mutex, RwLock, taken};

#[cfg(test)]
mod told {
    use std::any::type_name;
    use std::cell::RefCell;
    use std::ops::Deref;
    use std::sync::{
        self, LockResult, MutexGuard, RwLockReadGuard, RwLockWriteGuard, TryLockError,
        TryLockResult,
    };

    thread_local! {
        /// Names of the locks that this thread has taken, while a test records them.
        static TAKEN: RefCell<Option<Vec<String>>> = const { RefCell::new(None) };
    }

    /// Returns the locks that `act` takes in this thread, in order, by the names of the types they protect.
    pub(crate) fn taken(act: impl FnOnce()) -> Vec<String> {
        TAKEN.set(Some(Vec::new()));
        act();
        TAKEN.take().unwrap_or_default()
    }

    fn tell<T>() {
        let tell = |taken: &RefCell<Option<Vec<String>>>| {
            if let Some(taken) = &mut *taken.borrow_mut() {
                taken.push(short(type_name::<T>()));
            }
        };
        // No test records locks at the end of a thread.
        let _ = TAKEN.try_with(tell);
    }

    /// Returns the name of a type without its modules.
    fn short(name: &str) -> String {
        let path = |name: &str| name.rsplit("::").next().unwrap_or_default().to_owned();
        name.split_inclusive(['<', ',', ' ', '[']).map(path).collect()
    }

    #[derive(Debug, Default)]
    pub(crate) struct Mutex<T>(sync::Mutex<T>);

    impl<T> Mutex<T> {
        pub(crate) const fn new(value: T) -> Self {
            Self(sync::Mutex::new(value))
        }

        pub(crate) fn lock(&self) -> LockResult<MutexGuard<'_, T>> {
            tell::<T>();
            self.0.lock()
        }

        /// Records nothing when another thread has the lock.
        pub(crate) fn try_lock(&self) -> TryLockResult<MutexGuard<'_, T>> {
            let taken = self.0.try_lock();
            if !matches!(taken, Err(TryLockError::WouldBlock)) {
                tell::<T>();
            }
            taken
        }
    }

    /// Other methods of the lock.
    impl<T> Deref for Mutex<T> {
        type Target = sync::Mutex<T>;

        fn deref(&self) -> &Self::Target {
            &self.0
        }
    }

    #[derive(Debug)]
    pub(crate) struct RwLock<T>(sync::RwLock<T>);

    impl<T> RwLock<T> {
        pub(crate) const fn new(value: T) -> Self {
            Self(sync::RwLock::new(value))
        }

        pub(crate) fn read(&self) -> LockResult<RwLockReadGuard<'_, T>> {
            tell::<T>();
            self.0.read()
        }

        pub(crate) fn write(&self) -> LockResult<RwLockWriteGuard<'_, T>> {
            tell::<T>();
            self.0.write()
        }
    }

    #[test]
    fn a_lock_is_told_each_time_that_it_is_taken() {
        let (count, list) = (Mutex::new(1_u32), RwLock::new(vec![Some(String::new())]));
        let told = taken(|| {
            let held = count.lock().unwrap();
            assert!(count.try_lock().is_err());
            drop((held, list.read().unwrap()));
            drop((count.try_lock().unwrap(), list.write().unwrap()));
        });
        assert_eq!(told, ["u32", "Vec<Option<String>>", "u32", "Vec<Option<String>>"]);
        assert!(taken(|| ()).is_empty());
    }
}

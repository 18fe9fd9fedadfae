//! Pointers to what was made here.

use std::any::TypeId;
use std::collections::{BTreeMap, VecDeque};
use std::ffi::c_void;
use std::marker::PhantomData;
use std::mem::MaybeUninit;
use std::ptr;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, MutexGuard};

use softroce::runtime::generation;

use super::{Errno, fork};
use crate::gate::lock;
use crate::log;

/// What the program gets pointers to: a structure of C, and behind it what it stands for.
///
/// It is shared: the program may use it from any thread, so whatever changes in it is atomic or behind
/// a lock.
pub(crate) trait Object: Send + Sync + Sized + 'static {
    /// Where in it the structure is that C knows. It is at the beginning, but for contexts.
    const HEAD: usize = 0;

    /// Whether a child that the process forks may use it too, for it is of no device.
    const IS_FOR_CHILDREN: bool = false;
}

/// The place of an object. It outlives it: C reads in the structure of what it has destroyed where to call
/// us, and is told that it has.
#[repr(C)]
struct Slot<T> {
    object: MaybeUninit<T>,
    /// [`NOBODY`] when it is destroyed; else one more than the generation of the process that has made
    /// it.
    owner: AtomicU32,
}

const NOBODY: u32 = 0;

/// Slots without an object, by its type, which they keep. The first is taken again first.
static EMPTY: Mutex<BTreeMap<TypeId, VecDeque<Handle<()>>>> = Mutex::new(BTreeMap::new());

/// What is not done while a process forks.
pub(super) type Held = MutexGuard<'static, BTreeMap<TypeId, VecDeque<Handle<()>>>>;

pub(super) fn hold() -> Held {
    lock(&EMPTY)
}

/// How many slots of a type are left empty before one is taken again: as long as it is, whoever uses what
/// was in it is told.
const REST: usize = 1024;

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
        fork::watch();
        let owner = generation() + 1;
        if let Some(slot) = Self::rested() {
            // SAFETY: `destroy` has put it aside, and we have taken it from there: it is nobody else's,
            // but for programs that read in what they have destroyed.
            unsafe { ptr::write(slot.slot().cast(), object) };
            slot.owner().store(owner, Ordering::Release);
            return slot;
        }
        let slot = Slot { object: MaybeUninit::new(object), owner: AtomicU32::new(owner) };
        let address = Box::into_raw(Box::new(slot)).cast::<u8>().wrapping_add(T::HEAD);
        address.expose_provenance();
        Self(address.cast(), PhantomData)
    }

    /// An empty slot that may be taken again.
    fn rested() -> Option<Self> {
        let mut empty = lock(&EMPTY);
        let of_type = empty.get_mut(&TypeId::of::<T>()).filter(|slots| slots.len() > REST)?;
        of_type.pop_front().map(|slot| Self(slot.0, PhantomData))
    }

    fn slot(self) -> *mut Slot<T> {
        self.0.cast::<u8>().wrapping_sub(T::HEAD).cast()
    }

    /// Whose it is. It must not be null.
    fn owner<'a>(self) -> &'a AtomicU32 {
        // SAFETY: it is a pointer that `new` has made, and slots stay.
        unsafe { &(*self.slot()).owner }
    }

    /// The object.
    pub(crate) fn get<'a>(self) -> Result<&'a T, Errno> {
        self.optional()?.ok_or(Errno::INVALID)
    }

    /// The object, if one is named.
    pub(crate) fn optional<'a>(self) -> Result<Option<&'a T>, Errno> {
        if self.is_null() {
            return Ok(None);
        }
        self.check()?;
        // SAFETY: as in `owner`.
        let object = unsafe { &(*self.slot()).object };
        // SAFETY: it has an owner, so it is there, and the program promises not to destroy it meanwhile.
        // What changes in it is atomic or behind a lock.
        Ok(Some(unsafe { object.assume_init_ref() }))
    }

    /// Whether the object is there, and this process's.
    fn check(self) -> Result<(), Errno> {
        match self.owner().load(Ordering::Acquire) {
            NOBODY => {
                log::refused(&"what the call is for has been destroyed");
                Err(Errno::INVALID)
            }
            owner if T::IS_FOR_CHILDREN || owner == generation() + 1 => Ok(()),
            _ => {
                log::refused(
                    &"what the call is for belongs to the process that has forked this one",
                );
                Err(Errno::IO)
            }
        }
    }

    /// Takes the object back. Null, and what is destroyed already, stays as it is.
    pub(crate) fn destroy(self) {
        if self.is_null() || self.owner().swap(NOBODY, Ordering::AcqRel) == NOBODY {
            return;
        }
        // SAFETY: it was there, and nobody but us has found it so. The program promises to destroy it when
        // nobody uses it any more.
        unsafe { ptr::drop_in_place(self.slot().cast::<T>()) };
        let mut empty = lock(&EMPTY);
        empty.entry(TypeId::of::<T>()).or_default().push_back(Handle(self.0, PhantomData));
    }
}

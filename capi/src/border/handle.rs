//! Objects behind handles: allocation, access and destruction.

use std::any::TypeId;
use std::collections::{BTreeMap, VecDeque};
use std::mem::MaybeUninit;
use std::ptr;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, Ordering};

use nix::errno::Errno as System;
use softroce::runtime::{PerProcess, generation};

use super::Errno;
use crate::abi::Handle;
use crate::gate::lock;

/// A type of C to which the program holds pointers. The structure is part of an object.
pub(crate) trait Pointee: Sized + 'static {
    /// The object. The program may use it from any thread, so every field that changes is atomic or behind
    /// a lock.
    type Object: Send + Sync + 'static;

    /// Offset of the structure in the object, in bytes. It is 0 for all objects but contexts.
    const OFFSET: usize = 0;

    /// Whether a child process may use an object that its parent has made: one of no device.
    const IS_FOR_CHILDREN: bool = false;
}

/// Memory of an object. It is never freed, so that a call with a handle of a destroyed object finds `owner`
/// and fails.
#[repr(C)]
struct Slot<T> {
    object: MaybeUninit<T>,
    /// [`NO_OWNER`] after the object is destroyed; else one more than the generation of the process
    /// that has made it.
    owner: AtomicU32,
}

const NO_OWNER: u32 = 0;

/// Pointers to slots without an object.
type EmptySlots = VecDeque<Handle<()>>;

/// Empty slots by the type of their pointers. A slot is reused for the same type only, in the order of
/// destruction.
static EMPTY_SLOTS: PerProcess<Mutex<BTreeMap<TypeId, EmptySlots>>> =
    PerProcess::new(|_| Mutex::new(BTreeMap::new()));

/// Number of empty slots of a type that are not reused. A call with a handle of a destroyed object fails
/// for as long as the slot is not reused.
const MIN_EMPTY_SLOTS: usize = 1024;

// SAFETY: it is an address; each of its methods says how it is used.
unsafe impl<T> Send for Handle<T> {}
// SAFETY: as above.
unsafe impl<T> Sync for Handle<T> {}

impl<T: Pointee> Handle<T> {
    /// Moves an object into memory that the program may point to until it is
    /// [destroyed](Self::destroy).
    pub(crate) fn new(object: T::Object) -> Self {
        let owner = generation() + 1;
        if let Some(empty) = Self::take_empty() {
            // SAFETY: `destroy` has put it aside, and we have taken it from there: it is nobody else's,
            // but for programs that read in what they have destroyed.
            unsafe { ptr::write(empty.slot().cast(), object) };
            empty.owner().store(owner, Ordering::Release);
            return empty;
        }
        let slot = Slot { object: MaybeUninit::new(object), owner: AtomicU32::new(owner) };
        let address = Box::into_raw(Box::new(slot)).cast::<u8>().wrapping_add(T::OFFSET);
        address.expose_provenance();
        Self::from_ptr(address.cast())
    }

    /// Takes an empty slot that may be reused.
    fn take_empty() -> Option<Self> {
        let mut empty = lock(EMPTY_SLOTS.get());
        let of_type =
            empty.get_mut(&TypeId::of::<T>()).filter(|slots| slots.len() > MIN_EMPTY_SLOTS)?;
        of_type.pop_front().map(|slot| Self::from_ptr(slot.as_ptr()))
    }

    fn slot(self) -> *mut Slot<T::Object> {
        self.as_ptr().cast::<u8>().wrapping_sub(T::OFFSET).cast()
    }

    /// Returns the owner of the slot. The handle must not be null.
    fn owner<'a>(self) -> &'a AtomicU32 {
        // SAFETY: it is a pointer that `new` has made, and slots are not freed.
        unsafe { &(*self.slot()).owner }
    }

    /// Returns the object.
    ///
    /// # Errors
    ///
    /// `EINVAL` when the handle is null or the object is destroyed, and `EIO` when it belongs to the
    /// parent process.
    pub(crate) fn get<'a>(self) -> Result<&'a T::Object, Errno> {
        self.optional()?.ok_or_else(|| Errno::invalid("a handle is NULL"))
    }

    /// Returns the object, or `None` when the handle is null.
    ///
    /// # Errors
    ///
    /// As [`get`](Self::get) for other handles.
    pub(crate) fn optional<'a>(self) -> Result<Option<&'a T::Object>, Errno> {
        if self.is_null() {
            return Ok(None);
        }
        self.check_owner()?;
        // SAFETY: as in `owner`.
        let object = unsafe { &(*self.slot()).object };
        // SAFETY: it has an owner, so it is there, and the program promises not to destroy it meanwhile.
        // Fields that change are atomic or behind a lock.
        Ok(Some(unsafe { object.assume_init_ref() }))
    }

    /// Fails unless the object exists and this process may use it.
    fn check_owner(self) -> Result<(), Errno> {
        match self.owner().load(Ordering::Acquire) {
            NO_OWNER => Err(Errno::invalid("the object has been destroyed")),
            owner if T::IS_FOR_CHILDREN || owner == generation() + 1 => Ok(()),
            _ => Err(Errno::new(
                System::EIO,
                "the object belongs to the process that has forked this one",
            )),
        }
    }

    /// Drops the object. Does nothing when the handle is null or the object is already destroyed.
    pub(crate) fn destroy(self) {
        if self.is_null() || self.owner().swap(NO_OWNER, Ordering::AcqRel) == NO_OWNER {
            return;
        }
        // SAFETY: it was there, and only this call has found it so. The program promises to destroy it when
        // no other thread uses it any more.
        unsafe { ptr::drop_in_place(self.slot().cast::<T::Object>()) };
        let mut empty = lock(EMPTY_SLOTS.get());
        empty.entry(TypeId::of::<T>()).or_default().push_back(Handle::from_ptr(self.as_ptr()));
    }
}

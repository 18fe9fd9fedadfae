//! Bytes of registered memory, and every access to them.
//!
//! # Why this is sound
//!
//! Memory shared with peers and the application can become *invalid* or *change during an access*.
//!
//! **Validity.** [`HostMemory`] is a start and a length of bytes that are valid while it exists (allocated here) or
//! until it is deregistered (a duty of the caller of `from_raw`), or it has a [`Backing`] that accesses the bytes by
//! other means. Its accessors are private to `mem`, and only [`Revocable`] calls them, through a [`Pinned`] that it
//! grants:
//! * to an engine, for at most the duration of its [`EpochGuard`](super::EpochGuard), and only if the region is live;
//! * to the application, with a user count if the memory is the caller's, and only if the region is live. Memory
//!   allocated here lives as long as the `Revocable` that the `Pinned` borrows, so it needs no count.
//!
//! [`Revocable::revoke`] marks the region dead, then waits for the open epochs and for the users. Entering and
//! marking are sequentially consistent on both sides (the argument is in [`crate::sync::epoch`]), so after `revoke`
//! no `Pinned` of the caller's memory exists and none is created. `revoke` does not wait for epochs of another key
//! table, so these get no `Pinned`.
//!
//! **Bounds.** [`HostMemory::bytes`] is the only place that adds an offset to the start, and it checks the offset.
//!
//! **Changes.** Peers, the application and engines on other threads read and write the same bytes without a common
//! lock, as RDMA requires. No Rust reference to the bytes exists, so the compiler assumes nothing about them. There
//! are two kinds of accesses:
//! * 8-byte atomics, and the last stores of a message, are `std::sync::atomic` operations;
//! * copies are specified as [`bytewise`]: a relaxed atomic load or store of each byte, in no particular order, with
//!   private memory on the other side. Such accesses race with nothing. The implementation is the C library's
//!   `memcpy`, called through a pointer that the optimizer must load at run time. The optimizer does not know the
//!   callee, so it must assume any effect that Rust code with these two pointers could have, including that of
//!   `bytewise`. `memcpy` has this effect: it loads each byte of one side and stores its value to the other side, and
//!   no hardware tears a byte. Inlined as a compiler intrinsic, the same copy would be a data race, and the compiler
//!   could read the source again after a check.
//!
//! The language does not define accesses of different sizes to the same bytes (an 8-byte atomic and a copy). This
//! code relies on a property of every target: each access consists of accesses to the bytes, and each byte is
//! coherent.

use std::alloc::{self, Layout};
use std::io;
use std::ops::Deref;
use std::ptr::{self, NonNull};
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU16, AtomicU32, AtomicU64, Ordering, fence};

use thiserror::Error;

use super::backing::{Backing, Misaligned, Null};
use super::epoch::StagedEpoch;
#[cfg(feature = "runtime")]
use super::pageable::OnDemand;
use super::placement::{Placement, TAIL};
use crate::sync::epoch::{Epochs, LiveFlag, UserCount};
#[cfg(feature = "runtime")]
use crate::sys::memory::{self, FileMapping, ProcessMemory};

/// Without the feature `runtime` there are no mapped files.
#[cfg(not(feature = "runtime"))]
mod memory {
    pub(super) fn are_files(_start: usize, _len: usize) -> bool {
        false
    }

    pub(super) fn persist(_start: usize, _len: usize) -> std::io::Result<()> {
        Err(std::io::ErrorKind::Unsupported.into())
    }
}

/// Alignment of memory allocated here, in bytes.
pub(super) const PAGE: usize = 4096;

/// Memory for registration: a start, a length, and an owner.
#[derive(Debug)]
pub struct HostMemory {
    start: *mut u8,
    len: usize,
    owner: Owner,
}

#[derive(Clone, Debug)]
enum Owner {
    /// The bytes live as long as this allocation.
    Library(#[expect(dead_code, reason = "it is there to be dropped")] Arc<Allocation>),
    /// The caller guarantees the lifetime of the bytes.
    Caller,
    /// The backing accesses the bytes.
    Backed(Arc<dyn Backing>),
}

/// Memory from the allocator.
#[derive(Debug)]
struct Allocation {
    start: NonNull<u8>,
    layout: Layout,
}

// SAFETY: the memory is not bound to a thread.
unsafe impl Send for Allocation {}
// SAFETY: as above; a shared reference permits no access.
unsafe impl Sync for Allocation {}

impl Drop for Allocation {
    fn drop(&mut self) {
        // SAFETY: `alloc` got it from the allocator with this layout, and it is dropped once.
        unsafe { alloc::dealloc(self.start.as_ptr(), self.layout) };
    }
}

// SAFETY: a start and a length; the bytes are not bound to a thread, and the accessors treat them as shared.
unsafe impl Send for HostMemory {}
// SAFETY: as above; a shared reference permits checked copies and atomics only.
unsafe impl Sync for HostMemory {}

impl HostMemory {
    /// Allocates `len` bytes, zeroed and page-aligned. Dropping the last handle of their region frees them.
    ///
    /// # Errors
    /// [`AllocError`] when `len` is zero or the host lacks memory.
    pub fn alloc(len: usize) -> Result<Self, AllocError> {
        let layout = Layout::from_size_align(len, PAGE).map_err(|_| AllocError { len })?;
        if len == 0 {
            return Err(AllocError { len });
        }
        // SAFETY: the layout has a size, as just checked.
        let start = unsafe { alloc::alloc_zeroed(layout) };
        let start = NonNull::new(start).ok_or(AllocError { len })?;
        let owner = Owner::Library(Arc::new(Allocation { start, layout }));
        Ok(Self { start: start.as_ptr(), len, owner })
    }

    /// Maps `len` bytes of a file from `offset` on. Bytes written to the memory are in the file; a persistent FLUSH
    /// writes them to storage.
    ///
    /// Another process may truncate the file; accesses beyond its end then fail.
    ///
    /// # Errors
    /// An I/O error when the file has no such range or is not open for reading and writing, or when the system
    /// refuses the mapping; otherwise as for [on-demand](Self::on_demand) memory.
    ///
    /// # Examples
    /// ```
    /// use softroce::ids::PdId;
    /// use softroce::mem::{Access, HostMemory, Memory};
    /// # let path = std::env::temp_dir().join(format!("softroce-doc-{}", std::process::id()));
    ///
    /// let file = std::fs::File::options().read(true).write(true).create_new(true).open(&path)?;
    /// file.set_len(4096)?;
    /// let log = HostMemory::map_file(&file, 0, 4096)?;
    /// assert!(log.is_persistent());
    ///
    /// let access = Access::LOCAL_WRITE | Access::REMOTE_WRITE | Access::FLUSH_PERSISTENT;
    /// let region = Memory::new([7; 32]).register(PdId(1), log, None, access)?;
    /// region.write_at(0, b"entry")?;
    /// assert_eq!(&std::fs::read(&path)?[..5], b"entry");
    /// # std::fs::remove_file(path)?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[cfg(feature = "runtime")]
    pub fn map_file(file: &std::fs::File, offset: u64, len: usize) -> io::Result<Self> {
        let mapping = FileMapping::new(file, offset, len)?;
        Ok(Self::backed(mapping.as_ptr(), len, Arc::new(mapping)))
    }

    /// Creates memory of `len` addresses of this process from `ptr` on. Their pages may be mapped and unmapped at any
    /// time (on-demand paging). Accesses to unmapped pages fail. With a null `ptr` and `usize::MAX` bytes, it covers
    /// the whole address space.
    ///
    /// Atomics of peers are atomic among each other here, not for instructions of the CPU. The memory does not
    /// support ATOMIC WRITE, which must not tear.
    ///
    /// # Errors
    /// An I/O error when the system refuses copies within a process (`process_vm_readv(2)`), and the handler of
    /// SIGSEGV and SIGBUS that would replace them cannot be in front of the program's.
    ///
    /// # Safety
    /// Until the region of this memory is deregistered, peers may read and overwrite the mapped bytes as its access
    /// rights permit. No Rust reference to such bytes is used, and other code reads and writes them as memory shared
    /// with another process.
    #[doc(alias = "IBV_ACCESS_ON_DEMAND")]
    #[cfg(feature = "runtime")]
    pub unsafe fn on_demand(ptr: *mut u8, len: usize) -> io::Result<Self> {
        // SAFETY: the caller makes the same promise.
        let memory = unsafe { ProcessMemory::new(ptr.addr()) }?;
        Ok(Self::backed(ptr, len, Arc::new(OnDemand(memory))))
    }

    /// Returns whether the system permits [`on_demand`](Self::on_demand) memory.
    #[cfg(feature = "runtime")]
    pub fn can_be_on_demand() -> bool {
        memory::can_copy().is_ok()
    }

    /// Creates memory that contains every address without bytes: reads return zeros, and writes are discarded. For
    /// the unwanted parts of a message.
    #[doc(alias = "ibv_alloc_null_mr")]
    pub fn null() -> Self {
        Self::backed(ptr::null_mut(), usize::MAX, Arc::new(Null))
    }

    pub(super) fn backed(start: *mut u8, len: usize, backing: Arc<dyn Backing>) -> Self {
        Self { start, len, owner: Owner::Backed(backing) }
    }

    /// Returns another handle on the same memory. The caller's promises must hold for both.
    pub(super) fn alias(&self) -> Self {
        Self { owner: self.owner.clone(), ..*self }
    }

    /// Returns a part of memory that was allocated here.
    pub(super) fn part(&self, at: usize, len: usize) -> Option<Self> {
        let Owner::Library(_) = self.owner else { return None };
        Some(Self { start: self.bytes(at, len)?, len, owner: self.owner.clone() })
    }

    /// Creates memory of `len` bytes at `ptr` that belong to the caller, for example a mapping of huge pages.
    ///
    /// # Safety
    /// Until the region of these bytes is deregistered (or, without registration, until this value is dropped):
    /// * `ptr` is valid for reads and writes of `len` bytes, from every thread;
    /// * the bytes are initialized, and not unmapped, freed or reused;
    /// * no Rust reference to them is used: code outside of the library reads and writes them as memory shared with
    ///   another process.
    pub unsafe fn from_raw(ptr: *mut u8, len: usize) -> Self {
        Self { start: ptr, len: if ptr.is_null() { 0 } else { len }, owner: Owner::Caller }
    }

    /// Returns the length in bytes.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Returns whether the length is zero. Such memory cannot be registered.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Returns the address of the first byte. [`from_raw`](Self::from_raw) has the rules for access to registered
    /// bytes. Null for [null memory](Self::null) and for memory that covers the whole address space.
    pub fn as_ptr(&self) -> *mut u8 {
        self.start
    }

    /// Returns whether the bytes can survive a power loss: they are a mapped file, by [`map_file`](Self::map_file) or
    /// by the caller.
    pub fn is_persistent(&self) -> bool {
        match &self.owner {
            Owner::Library(_) => false,
            Owner::Caller => memory::are_files(self.start.addr(), self.len),
            Owner::Backed(backing) => backing.is_persistent(self.len),
        }
    }

    fn persist(&self, at: usize, len: usize) -> io::Result<()> {
        match &self.owner {
            Owner::Library(_) => Err(io::ErrorKind::Unsupported.into()),
            Owner::Caller => memory::persist(self.start.addr().saturating_add(at), len),
            Owner::Backed(backing) => backing.persist(at, len),
        }
    }

    /// Returns whether stores of 8 bytes are atomic for every reader.
    pub(super) fn has_atomic_words(&self) -> bool {
        self.backing().is_none_or(Backing::has_atomic_words)
    }

    /// Makes pages present that will be accessed soon.
    pub(super) fn prefetch(&self, at: usize, len: usize, write: bool) -> io::Result<()> {
        self.backing().map_or(Ok(()), |backing| backing.prefetch(at, len, write))
    }

    /// Returns the backing, if the bytes have no direct access.
    #[inline]
    fn backing(&self) -> Option<&dyn Backing> {
        match &self.owner {
            Owner::Library(_) | Owner::Caller => None,
            Owner::Backed(backing) => Some(&**backing),
        }
    }

    /// Returns the backing, if its copies are system calls.
    #[inline]
    fn syscall_backing(&self) -> Option<&Arc<dyn Backing>> {
        match &self.owner {
            Owner::Backed(backing) if backing.uses_syscalls() => Some(backing),
            _ => None,
        }
    }

    /// Checks that `len` bytes at offset `at` are within the memory.
    #[inline]
    fn check(&self, at: usize, len: usize) -> Option<()> {
        (at.checked_add(len)? <= self.len).then_some(())
    }

    /// Returns the address of the `len` bytes at offset `at`, if they are within the memory. For memory without
    /// backing.
    #[inline]
    fn bytes(&self, at: usize, len: usize) -> Option<*mut u8> {
        self.check(at, len)?;
        // SAFETY: `at` is at most `self.len`, and `self.len` bytes at `start` are one allocation.
        Some(unsafe { self.start.add(at) })
    }

    #[inline]
    pub(super) fn copy_out(&self, at: usize, to: &mut [u8]) -> Option<()> {
        if let Some(backing) = self.backing() {
            self.check(at, to.len())?;
            return backing.read(at, to);
        }
        let from = self.bytes(at, to.len())?;
        // SAFETY: `bytes` has checked the source; the destination is a slice of the same length,
        // and no slice lies in registered memory.
        unsafe { copy(from, to.as_mut_ptr(), to.len()) };
        Some(())
    }

    #[inline]
    pub(super) fn copy_in(&self, at: usize, from: &[u8]) -> Option<()> {
        if let Some(backing) = self.backing() {
            self.check(at, from.len())?;
            return backing.write(at, from);
        }
        let to = self.bytes(at, from.len())?;
        // SAFETY: `bytes` has checked the destination; the source is a slice of the same length,
        // and no slice lies in registered memory.
        unsafe { copy(from.as_ptr(), to, from.len()) };
        Some(())
    }

    #[inline]
    fn copy_in_final(&self, at: usize, from: &[u8]) -> Option<()> {
        let (front, tail) = from.split_at(from.len().saturating_sub(TAIL));
        if let Some(backing) = self.backing() {
            self.check(at, from.len())?;
            backing.write(at, front)?;
            fence(Ordering::Release);
            return backing.write_last(at + front.len(), tail);
        }
        let to = self.bytes(at, from.len())?;
        self.copy_in(at, front)?;
        // SAFETY: `bytes` has checked `from.len()` bytes, of which `front.len()` are a part.
        let to = unsafe { to.add(front.len()) };
        // SAFETY: the checked bytes after `front` are as many as those of `tail`.
        unsafe { store_ascending(to, tail) };
        Some(())
    }

    /// Runs `op` on the 8 aligned bytes at offset `at`. Returns an inner error when they are not aligned, and `None`
    /// when they are out of bounds.
    #[inline]
    fn word<R>(
        &self,
        at: usize,
        op: impl FnOnce(&AtomicU64) -> R,
    ) -> Option<Result<R, Misaligned>> {
        if let Some(backing) = self.backing() {
            self.check(at, size_of::<u64>())?;
            let (mut op, mut result) = (Some(op), None);
            let done = backing.word(at, &mut |word| result = op.take().map(|op| op(word)))?;
            return done.map_or_else(|error| Some(Err(error)), |()| result.map(Ok));
        }
        let word = self.bytes(at, size_of::<u64>())?.cast::<u64>();
        if !word.is_aligned() {
            return Some(Err(Misaligned));
        }
        // SAFETY: checked to be within bounds and aligned, and valid while `self` may be accessed; other accesses to
        // these bytes are atomic, as the module documentation requires.
        let word = unsafe { AtomicU64::from_ptr(word) };
        Some(Ok(op(word)))
    }
}

/// Error of an allocation of memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
#[error("cannot allocate {len} bytes of memory")]
pub struct AllocError {
    /// Requested length in bytes.
    pub len: usize,
}

/// Memory with revocable access.
#[derive(Debug)]
pub(super) struct Revocable {
    memory: HostMemory,
    live: LiveFlag,
    epochs: Arc<Epochs>,
    /// Number of application threads in a copy from or to memory of the caller.
    users: UserCount,
}

impl Revocable {
    pub(super) fn new(memory: HostMemory, epochs: Arc<Epochs>) -> Self {
        Self { memory, live: LiveFlag::new(), epochs, users: UserCount::new() }
    }

    /// Revokes access. When it returns, no access granted before is in use.
    pub(super) fn revoke(&self) {
        self.live.revoke();
        self.epochs.wait();
        self.users.wait();
    }

    /// Grants access for an epoch, unless revoked. Writes the staged bytes of the epoch first.
    #[inline]
    pub(super) fn pin<'a>(&'a self, guard: &'a StagedEpoch<'_>) -> Option<Pinned<'a>> {
        guard.stage.write_out()?;
        self.pin_unflushed(guard)
    }

    #[inline]
    fn pin_unflushed<'a>(&'a self, guard: &'a StagedEpoch<'_>) -> Option<Pinned<'a>> {
        (guard.is_of(&self.epochs) && self.is_live()).then_some(Pinned(&self.memory))
    }

    /// Copies `to.len()` bytes from offset `at`, unless revoked. The caller expects to read the `behind` bytes after
    /// them next.
    #[inline]
    pub(super) fn copy_out(
        &self,
        guard: &StagedEpoch<'_>,
        at: usize,
        to: &mut [u8],
        behind: usize,
    ) -> Option<()> {
        let pinned = self.pin(guard)?;
        let Some(backing) = self.memory.syscall_backing() else { return pinned.copy_out(at, to) };
        self.memory.check(at, to.len().checked_add(behind)?)?;
        guard.stage.read(backing, at, to, behind)?;
        fence(Ordering::Acquire);
        Some(())
    }

    /// Copies `from` to offset `at`, unless revoked. Memory with a syscall backing has the bytes at the end of the
    /// epoch at the latest.
    #[inline]
    pub(super) fn place(
        &self,
        guard: &StagedEpoch<'_>,
        at: usize,
        from: &[u8],
        placement: Placement,
    ) -> Option<()> {
        let Some(backing) = self.memory.syscall_backing() else {
            return self.pin(guard)?.place(at, from, placement);
        };
        self.pin_unflushed(guard)?;
        self.memory.check(at, from.len())?;
        guard.stage.write(backing, at, from, placement)
    }

    /// Grants access to the application: always to memory allocated here, and to memory of the caller unless revoked.
    #[inline]
    pub(super) fn pin_for_app(&self) -> Option<AppPin<'_>> {
        let belongs_to_caller = match &self.memory.owner {
            Owner::Library(_) => false,
            Owner::Caller => true,
            Owner::Backed(backing) => backing.belongs_to_caller(),
        };
        let users = belongs_to_caller.then_some(&self.users);
        if let Some(users) = users {
            users.join();
        }
        let pin = AppPin { pinned: Pinned(&self.memory), users };
        (users.is_none() || self.is_live()).then_some(pin)
    }

    #[inline]
    pub(super) fn is_live(&self) -> bool {
        self.live.is_live()
    }

    pub(super) fn len(&self) -> usize {
        self.memory.len
    }

    pub(super) fn memory(&self) -> &HostMemory {
        &self.memory
    }

    pub(super) fn as_ptr(&self) -> *mut u8 {
        self.memory.as_ptr()
    }
}

/// Access to memory that stays valid while this exists. `None` from its accessors means out of bounds or not
/// accessible.
pub(super) struct Pinned<'a>(&'a HostMemory);

impl Pinned<'_> {
    /// Copies `to.len()` bytes from offset `at`. The acquire fence orders later reads after stores that a release
    /// store among the bytes has published.
    #[inline]
    pub(super) fn copy_out(&self, at: usize, to: &mut [u8]) -> Option<()> {
        self.0.copy_out(at, to)?;
        fence(Ordering::Acquire);
        Some(())
    }

    /// Copies `from` to offset `at`.
    #[inline]
    pub(super) fn place(&self, at: usize, from: &[u8], placement: Placement) -> Option<()> {
        match placement {
            Placement::Plain => self.0.copy_in(at, from),
            Placement::Final => self.0.copy_in_final(at, from),
        }
    }

    /// Returns when `len` bytes from offset `at` on are persistent.
    pub(super) fn persist(&self, at: usize, len: usize) -> io::Result<()> {
        self.0.persist(at, len)
    }

    /// Runs `op` on the aligned 8 bytes at offset `at`.
    #[inline]
    pub(super) fn word<R>(
        &self,
        at: usize,
        op: impl FnOnce(&AtomicU64) -> R,
    ) -> Option<Result<R, Misaligned>> {
        self.0.word(at, op)
    }
}

/// Access of the application, which counts as a user until it is dropped.
pub(super) struct AppPin<'a> {
    pinned: Pinned<'a>,
    users: Option<&'a UserCount>,
}

impl<'a> Deref for AppPin<'a> {
    type Target = Pinned<'a>;

    fn deref(&self) -> &Pinned<'a> {
        &self.pinned
    }
}

impl Drop for AppPin<'_> {
    #[inline]
    fn drop(&mut self) {
        if let Some(users) = self.users {
            users.leave();
        }
    }
}

unsafe extern "C" {
    fn memcpy(to: *mut u8, from: *const u8, len: usize) -> *mut u8;
}

/// `memcpy`, hidden from the optimizer.
static OPAQUE_MEMCPY: unsafe extern "C" fn(*mut u8, *const u8, usize) -> *mut u8 = memcpy;

/// Copies `len` bytes, where one side may be registered memory or memory shared with another process. See the module
/// documentation.
///
/// # Safety
/// * `from` is valid for reads and `to` for writes of `len` bytes, and they do not overlap;
/// * at least one of them is private: no other code accesses it meanwhile.
#[inline]
unsafe fn copy(from: *const u8, to: *mut u8, len: usize) {
    // ThreadSanitizer and Miri treat the accesses of `memcpy` as non-atomic.
    if cfg!(any(miri, bytewise_copies)) {
        // SAFETY: the caller's promises are those of `bytewise`.
        unsafe { bytewise(from, to, len) };
        return;
    }
    // SAFETY: a reference to a static is valid for reads. The load is volatile, so the compiler cannot omit it.
    let memcpy = unsafe { (&raw const OPAQUE_MEMCPY).read_volatile() };
    // SAFETY: valid and not overlapping, as the caller promises.
    unsafe { memcpy(to, from, len) };
}

/// Copies `from` to offset `at` of a mapping that another process may access. Returns `None`, without a copy, when
/// the bytes are not within the mapping.
#[cfg(feature = "runtime")]
#[inline]
pub(super) fn copy_in(mapping: &FileMapping, at: usize, from: &[u8]) -> Option<()> {
    let to = mapping.bytes(at, from.len())?;
    // SAFETY: `bytes` has checked the destination; the source is a slice of the same length, and no slice lies in a
    // mapping.
    unsafe { copy(from.as_ptr(), to, from.len()) };
    Some(())
}

/// Copies from offset `at` of a mapping that another process may access. Returns `None`, without a copy, when the
/// bytes are not within the mapping.
#[cfg(feature = "runtime")]
#[inline]
pub(super) fn copy_out(mapping: &FileMapping, at: usize, to: &mut [u8]) -> Option<()> {
    let from = mapping.bytes(at, to.len())?;
    // SAFETY: `bytes` has checked the source; the destination is a slice of the same length, and no slice lies in a
    // mapping.
    unsafe { copy(from, to.as_mut_ptr(), to.len()) };
    Some(())
}

/// Specification of [`copy`].
///
/// # Safety
/// As for [`copy`].
unsafe fn bytewise(from: *const u8, to: *mut u8, len: usize) {
    for at in 0..len {
        // SAFETY: within the `len` bytes that the caller promises.
        let from = unsafe { from.add(at) };
        // SAFETY: likewise.
        let to = unsafe { to.add(at) };
        // SAFETY: valid, a byte is always aligned, and others access it atomically or not at all.
        let byte = unsafe { AtomicU8::from_ptr(from.cast_mut()) }.load(Ordering::Relaxed);
        // SAFETY: likewise.
        unsafe { AtomicU8::from_ptr(to) }.store(byte, Ordering::Relaxed);
    }
}

/// Stores `bytes` at `to` in ascending order, each store as wide as alignment permits and with release ordering: a
/// thread that observes a store also observes the earlier ones, and all earlier stores of this thread.
///
/// # Safety
/// `to` is valid for writes of `bytes.len()` bytes; other accesses to them are atomic or as by [`bytewise`].
#[inline]
unsafe fn store_ascending(to: *mut u8, bytes: &[u8]) {
    let mut to = to;
    let mut rest = bytes;
    while !rest.is_empty() {
        // SAFETY: `to` has the room that the caller promises, minus the stored bytes.
        let stored = unsafe { store_widest(to, rest) };
        // SAFETY: at most one past the end of that room.
        to = unsafe { to.add(stored) };
        rest = &rest[stored..];
    }
}

/// Stores the first 8, 4, 2 or 1 of `bytes` in one release store, depending on their number and the alignment of
/// `to`. Returns the number of stored bytes.
///
/// # Safety
/// As for [`store_ascending`].
#[inline]
unsafe fn store_widest(to: *mut u8, bytes: &[u8]) -> usize {
    macro_rules! try_width {
        ($($atomic:ident($int:ty)),*) => {$(
            if let Some(first) = bytes.first_chunk() && to.cast::<$int>().is_aligned() {
                // SAFETY: aligned, and the room has at least the size of the chunk.
                let word = unsafe { $atomic::from_ptr(to.cast()) };
                word.store(<$int>::from_ne_bytes(*first), Ordering::Release);
                return size_of::<$int>();
            }
        )*};
    }
    try_width!(AtomicU64(u64), AtomicU32(u32), AtomicU16(u16), AtomicU8(u8));
    0
}

/// Memory for tests, which keep its pages mapped and do not reference them.
#[cfg(all(test, feature = "runtime"))]
#[expect(clippy::unwrap_used, reason = "a test whose memory is refused has failed")]
pub(super) mod of_tests {
    use super::HostMemory;

    pub(in crate::mem) fn on_demand(start: *mut u8, len: usize) -> HostMemory {
        // SAFETY: the caller uses its own pages alone.
        unsafe { HostMemory::on_demand(start, len) }.unwrap()
    }

    pub(in crate::mem) fn from_raw(start: *mut u8, len: usize) -> HostMemory {
        // SAFETY: the caller keeps the pages for longer than the memory made of them.
        unsafe { HostMemory::from_raw(start, len) }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicBool;
    use std::thread;

    use super::super::{Access, LocalAccess, Memory, RangeError, Region, Revoked};
    use super::*;
    use crate::ids::PdId;
    use crate::sync::epoch::wait_until;

    const PD: PdId = PdId(1);

    fn register(memory: &Memory, bytes: &[AtomicU64]) -> Arc<Region> {
        let start = bytes.as_ptr().cast_mut().cast();
        // SAFETY: the words are atomics, so concurrent stores are allowed; each test deregisters the region before it
        // frees them.
        let host = unsafe { HostMemory::from_raw(start, size_of_val(bytes)) };
        memory.register(PD, host, Some(0), Access::LOCAL_WRITE).unwrap()
    }

    #[test]
    fn allocation_of_zero_or_too_many_bytes_is_refused() {
        for len in [0, usize::MAX, isize::MAX.unsigned_abs()] {
            assert_eq!(HostMemory::alloc(len).unwrap_err(), AllocError { len });
        }
    }

    #[test]
    fn memory_of_the_caller_is_used_in_place_and_returned() {
        let bytes = [const { AtomicU64::new(0) }; 4];
        let memory = Memory::new([0; 32]);
        let region = register(&memory, &bytes);
        region.store_u64(8, 7).unwrap();
        region.write_at(16, &9u64.to_ne_bytes()).unwrap();
        assert_eq!(bytes.each_ref().map(|word| word.load(Ordering::Relaxed)), [0, 7, 9, 0]);

        memory.deregister(&region);
        assert_eq!(region.write_at(0, &[1]), Err(RangeError::Deregistered));
        assert_eq!(region.read_at(0, &mut [1]), Err(RangeError::Deregistered));
        assert_eq!(region.load_u64(0), Err(RangeError::Deregistered));
        assert_eq!(region.store_u64(0, 1), Err(RangeError::Deregistered));
        assert_eq!(bytes[0].load(Ordering::Relaxed), 0);
    }

    #[test]
    fn null_is_memory_without_bytes() {
        // SAFETY: no bytes are asked for.
        let host = unsafe { HostMemory::from_raw(ptr::null_mut(), 0) };
        assert!(host.is_empty());
    }

    #[test]
    fn final_stores_reach_every_byte_at_every_alignment() {
        for (at, len) in (0..8).flat_map(|at| (0..=TAIL).map(move |len| (at, len))) {
            let words = [const { AtomicU64::new(0) }; 2];
            let bytes: Vec<u8> = (1..=8).take(len).collect();
            let start = words.as_ptr().cast_mut().cast::<u8>();
            // SAFETY: `at` is less than 16.
            let to = unsafe { start.add(at) };
            // SAFETY: `at + len` is at most 16, and the words are atomics.
            unsafe { store_ascending(to, &bytes) };
            let seen = words.map(|word| word.into_inner().to_ne_bytes()).concat();
            let mut expected = vec![0; 16];
            expected[at..at + len].copy_from_slice(&bytes);
            assert_eq!(seen, expected);
        }
    }

    #[test]
    fn memcpy_copies_as_specified() {
        let from: Vec<u8> = (0..=255).cycle().take(3000).collect();
        for len in (0..130).chain([1000, 2999]) {
            let (mut ran, mut specified) = (vec![0; 3000], vec![0; 3000]);
            // SAFETY: all three have 3000 bytes, and no other code accesses them.
            unsafe { copy(from.as_ptr(), ran.as_mut_ptr(), len) };
            // SAFETY: as above.
            unsafe { bytewise(from.as_ptr(), specified.as_mut_ptr(), len) };
            assert_eq!(ran, specified);
        }
    }

    /// An engine and an application thread write continuously until the region is gone; afterwards the bytes must
    /// keep the values of their owner.
    #[test]
    fn deregistered_memory_of_the_caller_is_not_written() {
        const LEN: usize = 512;
        let memory = Memory::new([0; 32]);
        for _ in 0..100 {
            let words = [const { AtomicU64::new(0) }; LEN / 8];
            let region = register(&memory, &words);
            let span = memory.local(PD, region.lkey(), 0, 512, LocalAccess::Write).unwrap();
            let written = AtomicBool::new(false);
            thread::scope(|scope| {
                scope.spawn(|| {
                    let mut handle = memory.epoch_handle();
                    while span.place(&handle.enter(), 0, &[1; LEN], Placement::Final) == Ok(()) {
                        written.store(true, Ordering::Relaxed);
                    }
                    assert_eq!(
                        span.place(&handle.enter(), 0, &[1; LEN], Placement::Plain),
                        Err(Revoked)
                    );
                });
                scope.spawn(|| while region.write_at(0, &[2; LEN]) == Ok(()) {});
                wait_until(|| written.load(Ordering::Relaxed));
                memory.deregister(&region);
                for word in &words {
                    word.store(u64::MAX, Ordering::Relaxed);
                }
            });
            let after = words.each_ref().map(|word| word.load(Ordering::Relaxed));
            assert_eq!(after, [u64::MAX; LEN / 8]);
        }
    }
}

//! The bytes of registered memory, and every access to them.
//!
//! # Why this is sound
//!
//! Two things can go wrong with memory that others use at the same time: it may be *gone*, and it
//! may *change while it is looked at*.
//!
//! **Gone.** [`HostMemory`] is a start and a length of bytes that are valid while it exists
//! (allocated here) or until it is deregistered (the duty of who called `from_raw`), or has a
//! [`Backing`] that reaches them some other way. Its accessors are private to `mem`. They are reached through [`Revocable`] alone, which lends them as a
//! [`Pinned`]:
//! * to an engine, for no longer than its [`EpochGuard`](super::EpochGuard) is open, and only if the region is live;
//! * to the application, counted as a user of memory that is the caller's, and only if the region
//!   is live. Memory allocated here stays as long as the `Revocable` that the `Pinned` borrows, so
//!   no count is needed.
//!
//! [`Revocable::revoke`] marks the region dead, then waits for the epochs that are open and for the
//! users. Opening and marking are sequentially consistent on both sides (the argument is in
//! [`crate::sync::epoch`]), so after `revoke` no `Pinned` of the caller's memory exists and none is made. An epoch
//! of another key table, for which `revoke` would not wait, is refused.
//!
//! **Bounds.** [`HostMemory::bytes`] is the only place where the start is offset, and it checks.
//!
//! **Changing.** Peers, the application and engines on other threads read and write the same bytes
//! without a common lock; that is what RDMA is. No reference into them exists, so nothing is
//! promised to the compiler about them. The accesses themselves are of two kinds:
//! * 8-byte atomics, and the last stores of a message, are `std::sync::atomic` operations;
//! * copies are specified as [`bytewise`]: a relaxed atomic load or store of each byte, in no
//!   particular order, the other side being private memory. Such accesses race with nothing. What
//!   runs is the C library's `memcpy`, called through a pointer that the optimizer must load at run
//!   time. It cannot see what is called, so it must expect of it anything that Rust code with these
//!   two pointers could do, `bytewise` included; and `memcpy` does do that: it loads each byte of
//!   the one side, stores each byte of the other with the value loaded, and no hardware tears a
//!   byte. Inlined as a compiler intrinsic the same copy would be a data race, and the compiler
//!   would be free to read the source a second time after it was checked.
//!
//! Where accesses of different sizes meet (an 8-byte atomic against a copy) the language has not
//! settled what is promised. We rely on what every target does: each access is some number of
//! accesses to the bytes, and coherence holds for each byte.

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

/// Without a system there are no files.
#[cfg(not(feature = "runtime"))]
mod memory {
    pub(super) fn are_files(_start: usize, _len: usize) -> bool {
        false
    }

    pub(super) fn persist(_start: usize, _len: usize) -> std::io::Result<()> {
        Err(std::io::ErrorKind::Unsupported.into())
    }
}

/// The alignment of memory allocated here.
pub(super) const PAGE: usize = 4096;

/// Memory that can be registered: a start and a length, and what keeps it.
#[derive(Debug)]
pub struct HostMemory {
    start: *mut u8,
    len: usize,
    owner: Owner,
}

#[derive(Clone, Debug)]
enum Owner {
    /// Its bytes are there as long as this is.
    Library(#[expect(dead_code, reason = "it is there to be dropped")] Arc<Allocation>),
    /// They are there as long as the caller has promised.
    Caller,
    /// They are reached through this alone.
    Backed(Arc<dyn Backing>),
}

/// Memory from the allocator.
#[derive(Debug)]
struct Allocation {
    start: NonNull<u8>,
    layout: Layout,
}

// SAFETY: it is memory that has no thread it belongs to.
unsafe impl Send for Allocation {}
// SAFETY: as above; through a shared reference nothing is done with it.
unsafe impl Sync for Allocation {}

impl Drop for Allocation {
    fn drop(&mut self) {
        // SAFETY: `alloc` got it from the allocator with this layout, and it is dropped once.
        unsafe { alloc::dealloc(self.start.as_ptr(), self.layout) };
    }
}

// SAFETY: it is a start and a length; the bytes have no thread they belong to, and the accessors
// take them for shared.
unsafe impl Send for HostMemory {}
// SAFETY: as above; through a shared reference there are only checked copies and atomics.
unsafe impl Sync for HostMemory {}

impl HostMemory {
    /// Allocates `len` bytes, zeroed and page-aligned. They are freed with the last handle of the
    /// region they become.
    ///
    /// # Errors
    /// When `len` is zero or more than the host can give.
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

    /// Maps `len` bytes of a file from `offset` on. What is written there is in the file; what is
    /// flushed to persistence is on its medium then.
    ///
    /// The file may be cut off by others: who asks for what is no longer there fails.
    ///
    /// # Errors
    /// When the file has no such part, or is not open for reading and writing; when the system
    /// refuses the mapping, or copies from a process to itself, on which it rests.
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

    /// Takes `len` addresses of this process from `ptr` on, whatever is mapped there when they are
    /// used: pages may come and go. Where nothing is, a request fails. From null on, `usize::MAX`
    /// bytes are all there can be.
    ///
    /// Atomics of peers are one step towards each other here, not towards the processor's; ATOMIC
    /// WRITE, which no reader may see a half of, is refused.
    ///
    /// # Errors
    /// When the system does not copy from a process to itself, on which it rests.
    ///
    /// # Safety
    /// Until the region that it becomes has been deregistered, whatever is mapped there may be read
    /// by whom the region lets read, and overwritten by whom it lets write: no Rust reference to
    /// such bytes is used, and who else reads or writes them does so as with memory shared with
    /// another process.
    #[doc(alias = "IBV_ACCESS_ON_DEMAND")]
    #[cfg(feature = "runtime")]
    pub unsafe fn on_demand(ptr: *mut u8, len: usize) -> io::Result<Self> {
        // SAFETY: the caller promises the same.
        let memory = unsafe { ProcessMemory::new(ptr.addr()) }?;
        Ok(Self::backed(ptr, len, Arc::new(OnDemand(memory))))
    }

    /// Whether the system lets [`on_demand`](Self::on_demand) memory be.
    #[cfg(feature = "runtime")]
    pub fn can_be_on_demand() -> bool {
        memory::can_copy().is_ok()
    }

    /// No memory, under any address: it reads as zeros, and what is written is gone. For the pieces
    /// of a message that are not wanted.
    #[doc(alias = "ibv_alloc_null_mr")]
    pub fn null() -> Self {
        Self::backed(ptr::null_mut(), usize::MAX, Arc::new(Null))
    }

    pub(super) fn backed(start: *mut u8, len: usize, backing: Arc<dyn Backing>) -> Self {
        Self { start, len, owner: Owner::Backed(backing) }
    }

    /// The same memory again. What the caller has promised of the one must hold for the other.
    pub(super) fn share(&self) -> Self {
        Self { owner: self.owner.clone(), ..*self }
    }

    /// A part of memory that was allocated here.
    pub(super) fn part(&self, at: usize, len: usize) -> Option<Self> {
        let Owner::Library(_) = self.owner else { return None };
        Some(Self { start: self.bytes(at, len)?, len, owner: self.owner.clone() })
    }

    /// Takes `len` bytes at `ptr` that belong to the caller, for instance a mapping of huge pages.
    ///
    /// # Safety
    /// Until the region they are registered as has been deregistered (or, without registration,
    /// until this value is dropped):
    /// * `ptr` is valid for reads and writes of `len` bytes, from every thread;
    /// * the bytes are initialized, and not unmapped, freed or given to anything else;
    /// * no Rust reference to them is used: who reads or writes them besides the library does so as
    ///   with memory shared with another process.
    pub unsafe fn from_raw(ptr: *mut u8, len: usize) -> Self {
        Self { start: ptr, len: if ptr.is_null() { 0 } else { len }, owner: Owner::Caller }
    }

    /// How many bytes there are.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there are none. Such memory cannot be registered.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The first byte. See [`from_raw`](Self::from_raw) for how to behave towards the bytes while
    /// they are registered. Null when there are [none](Self::null), or all there can be.
    pub fn as_ptr(&self) -> *mut u8 {
        self.start
    }

    /// Whether what is in it can survive a loss of power: it is a file that is mapped, by
    /// [`map_file`](Self::map_file) or by the caller.
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

    /// Whether 8 bytes of it are written at once, so that no reader sees a half of them.
    pub(super) fn has_whole_words(&self) -> bool {
        self.backing().is_none_or(Backing::has_whole_words)
    }

    /// Brings the bytes in that will soon be used, where they may be elsewhere.
    pub(super) fn prefetch(&self, at: usize, len: usize, write: bool) -> io::Result<()> {
        self.backing().map_or(Ok(()), |backing| backing.prefetch(at, len, write))
    }

    /// What reaches the bytes, where they cannot be loaded and stored.
    #[inline]
    fn backing(&self) -> Option<&dyn Backing> {
        match &self.owner {
            Owner::Library(_) | Owner::Caller => None,
            Owner::Backed(backing) => Some(&**backing),
        }
    }

    /// The same, where the system copies.
    #[inline]
    fn called(&self) -> Option<&Arc<dyn Backing>> {
        match &self.owner {
            Owner::Backed(backing) if backing.takes_calls() => Some(backing),
            _ => None,
        }
    }

    /// Whether `len` bytes at offset `at` are within.
    #[inline]
    fn check(&self, at: usize, len: usize) -> Option<()> {
        (at.checked_add(len)? <= self.len).then_some(())
    }

    /// The `len` bytes that start at offset `at`, if they are within. Of memory without backing.
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
        // SAFETY: what follows `front` within the checked bytes is as long as `tail`.
        unsafe { store_ascending(to, tail) };
        Some(())
    }

    /// Runs `op` on the 8 aligned bytes at offset `at`, or says that they are not aligned (`Err`)
    /// or not within (`None`).
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
        // SAFETY: checked to be within and aligned, valid while `self` may be accessed; others
        // access these bytes atomically, as the module documentation has it.
        let word = unsafe { AtomicU64::from_ptr(word) };
        Some(Ok(op(word)))
    }
}

/// The memory could not be had.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
#[error("cannot allocate {len} bytes of memory")]
pub struct AllocError {
    /// How much was asked for.
    pub len: usize,
}

/// Memory that can be taken away from those who use it.
#[derive(Debug)]
pub(super) struct Revocable {
    memory: HostMemory,
    live: LiveFlag,
    epochs: Arc<Epochs>,
    /// Application threads inside a copy from or to the caller's memory.
    users: UserCount,
}

impl Revocable {
    pub(super) fn new(memory: HostMemory, epochs: Arc<Epochs>) -> Self {
        Self { memory, live: LiveFlag::new(), epochs, users: UserCount::new() }
    }

    /// Takes the memory away. When it returns, nobody has it who got it before.
    pub(super) fn revoke(&self) {
        self.live.revoke();
        self.epochs.wait();
        self.users.wait();
    }

    /// Lends the memory for an epoch, if it has not been revoked. Staged bytes of the epoch are written
    /// before.
    #[inline]
    pub(super) fn pin<'a>(&'a self, guard: &'a StagedEpoch<'_>) -> Option<Pinned<'a>> {
        guard.stage.write_out()?;
        self.lend(guard)
    }

    #[inline]
    fn lend<'a>(&'a self, guard: &'a StagedEpoch<'_>) -> Option<Pinned<'a>> {
        (guard.is_of(&self.epochs) && self.is_live()).then_some(Pinned(&self.memory))
    }

    /// Copies `to.len()` bytes from offset `at`, if it has not been revoked. The `behind` bytes after
    /// them are likely to be asked for next.
    #[inline]
    pub(super) fn copy_out(
        &self,
        guard: &StagedEpoch<'_>,
        at: usize,
        to: &mut [u8],
        behind: usize,
    ) -> Option<()> {
        let pinned = self.pin(guard)?;
        let Some(backing) = self.memory.called() else { return pinned.copy_out(at, to) };
        self.memory.check(at, to.len().checked_add(behind)?)?;
        guard.stage.read(backing, at, to, behind)?;
        fence(Ordering::Acquire);
        Some(())
    }

    /// Copies `from` to offset `at`, if it has not been revoked: what the system copies, by the end of
    /// the epoch.
    #[inline]
    pub(super) fn place(
        &self,
        guard: &StagedEpoch<'_>,
        at: usize,
        from: &[u8],
        placement: Placement,
    ) -> Option<()> {
        let Some(backing) = self.memory.called() else {
            return self.pin(guard)?.place(at, from, placement);
        };
        self.lend(guard)?;
        self.memory.check(at, from.len())?;
        guard.stage.write(backing, at, from, placement)
    }

    /// Lends the memory to the application: what was allocated here always, the caller's if it has
    /// not been revoked.
    #[inline]
    pub(super) fn hold(&self) -> Option<Held<'_>> {
        let is_callers = match &self.memory.owner {
            Owner::Library(_) => false,
            Owner::Caller => true,
            Owner::Backed(backing) => backing.is_callers(),
        };
        let users = is_callers.then_some(&self.users);
        if let Some(users) = users {
            users.join();
        }
        let held = Held { pinned: Pinned(&self.memory), users };
        (users.is_none() || self.is_live()).then_some(held)
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

/// Memory that stays while this exists. `None` from its accessors means out of bounds, or that the
/// bytes are not there.
pub(super) struct Pinned<'a>(&'a HostMemory);

impl Pinned<'_> {
    /// Copies `to.len()` bytes from offset `at`. What a release store announced before they were
    /// read is seen by what follows.
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

    /// Returns when `len` bytes from offset `at` on will survive a loss of power.
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

/// Memory lent to the application; a count is given back when it is dropped.
pub(super) struct Held<'a> {
    pinned: Pinned<'a>,
    users: Option<&'a UserCount>,
}

impl<'a> Deref for Held<'a> {
    type Target = Pinned<'a>;

    fn deref(&self) -> &Pinned<'a> {
        &self.pinned
    }
}

impl Drop for Held<'_> {
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

/// `memcpy`, where the optimizer does not know it.
static OPAQUE_MEMCPY: unsafe extern "C" fn(*mut u8, *const u8, usize) -> *mut u8 = memcpy;

/// Copies `len` bytes of which one side may be registered memory, or another process's. See the module documentation.
///
/// # Safety
/// * `from` is valid for reads and `to` for writes of `len` bytes, and they do not overlap;
/// * at least one of them is not accessed by anybody else meanwhile.
#[inline]
unsafe fn copy(from: *const u8, to: *mut u8, len: usize) {
    // ThreadSanitizer, like Miri, takes the accesses of `memcpy` for plain ones.
    if cfg!(any(miri, bytewise_copies)) {
        // SAFETY: the caller's promises are those that `bytewise` asks for.
        unsafe { bytewise(from, to, len) };
        return;
    }
    // SAFETY: a reference to a static is valid for reads. Volatile, so that the load is made.
    let memcpy = unsafe { (&raw const OPAQUE_MEMCPY).read_volatile() };
    // SAFETY: valid and not overlapping, as the caller promises.
    unsafe { memcpy(to, from, len) };
}

/// Copies `from` to offset `at` of a mapping that another process may access. `None`, and nothing is done, where
/// that is not within the mapping.
#[cfg(feature = "runtime")]
#[inline]
pub(super) fn copy_in(mapping: &FileMapping, at: usize, from: &[u8]) -> Option<()> {
    let to = mapping.bytes(at, from.len())?;
    // SAFETY: `bytes` has checked the destination; the source is a slice of the same length, and no slice lies in a
    // mapping.
    unsafe { copy(from.as_ptr(), to, from.len()) };
    Some(())
}

/// Copies from offset `at` of a mapping that another process may access. `None`, and nothing is done, where that is
/// not within the mapping.
#[cfg(feature = "runtime")]
#[inline]
pub(super) fn copy_out(mapping: &FileMapping, at: usize, to: &mut [u8]) -> Option<()> {
    let from = mapping.bytes(at, to.len())?;
    // SAFETY: `bytes` has checked the source; the destination is a slice of the same length, and no slice lies in a
    // mapping.
    unsafe { copy(from, to.as_mut_ptr(), to.len()) };
    Some(())
}

/// What [`copy`] is specified to do.
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

/// Stores `bytes` at `to` in ascending order, each store as wide as alignment allows and a release:
/// who sees one of them sees those before it, and everything this thread stored earlier.
///
/// # Safety
/// `to` is valid for writes of `bytes.len()` bytes, which others access atomically or as by
/// [`bytewise`].
#[inline]
unsafe fn store_ascending(to: *mut u8, bytes: &[u8]) {
    let mut to = to;
    let mut rest = bytes;
    while !rest.is_empty() {
        // SAFETY: `to` has the room that the caller promises, less what was stored.
        let stored = unsafe { store_widest(to, rest) };
        // SAFETY: at most one past the end of that room.
        to = unsafe { to.add(stored) };
        rest = &rest[stored..];
    }
}

/// Stores the first 8, 4, 2 or 1 of `bytes`, as many as there are and `to` is aligned for, in one
/// release store. Returns how many.
///
/// # Safety
/// As for [`store_ascending`].
#[inline]
unsafe fn store_widest(to: *mut u8, bytes: &[u8]) -> usize {
    macro_rules! try_width {
        ($($atomic:ident($int:ty)),*) => {$(
            if let Some(first) = bytes.first_chunk() && to.cast::<$int>().is_aligned() {
                // SAFETY: aligned, and there is room for as many bytes as the chunk has.
                let word = unsafe { $atomic::from_ptr(to.cast()) };
                word.store(<$int>::from_ne_bytes(*first), Ordering::Release);
                return size_of::<$int>();
            }
        )*};
    }
    try_width!(AtomicU64(u64), AtomicU32(u32), AtomicU16(u16), AtomicU8(u8));
    0
}

/// Memory of tests, each of which keeps its pages mapped and unreferenced.
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

    use super::super::{Access, Memory, Need, RangeError, Region, Revoked};
    use super::*;
    use crate::ids::PdId;
    use crate::sync::epoch::wait_until;

    const PD: PdId = PdId(1);

    fn register(memory: &Memory, bytes: &[AtomicU64]) -> Arc<Region> {
        let start = bytes.as_ptr().cast_mut().cast();
        // SAFETY: the words are atomics, so others may store to them; each test deregisters before
        // they are freed.
        let host = unsafe { HostMemory::from_raw(start, size_of_val(bytes)) };
        memory.register(PD, host, Some(0), Access::LOCAL_WRITE).unwrap()
    }

    #[test]
    fn an_allocation_of_nothing_or_too_much_is_refused() {
        for len in [0, usize::MAX, isize::MAX.unsigned_abs()] {
            assert_eq!(HostMemory::alloc(len).unwrap_err(), AllocError { len });
        }
    }

    #[test]
    fn the_callers_memory_is_used_in_place_and_given_back() {
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
    fn the_last_stores_reach_every_byte_at_every_alignment() {
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
    fn what_runs_copies_as_specified() {
        let from: Vec<u8> = (0..=255).cycle().take(3000).collect();
        for len in (0..130).chain([1000, 2999]) {
            let (mut ran, mut specified) = (vec![0; 3000], vec![0; 3000]);
            // SAFETY: all three are of 3000 bytes, and nobody else has them.
            unsafe { copy(from.as_ptr(), ran.as_mut_ptr(), len) };
            // SAFETY: as above.
            unsafe { bytewise(from.as_ptr(), specified.as_mut_ptr(), len) };
            assert_eq!(ran, specified);
        }
    }

    /// An engine and an application thread write as fast as they can until they are told that the
    /// region is gone; from then on the bytes must stay as the owner leaves them.
    #[test]
    fn nothing_is_written_to_the_callers_memory_after_deregistration() {
        const LEN: usize = 512;
        let memory = Memory::new([0; 32]);
        for _ in 0..100 {
            let words = [const { AtomicU64::new(0) }; LEN / 8];
            let region = register(&memory, &words);
            let span = memory.local(PD, region.lkey(), 0, 512, Need::Write).unwrap();
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

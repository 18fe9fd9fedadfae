//! Descriptors of `/dev/infiniband/rdma_cm`, the character device of the connection manager. Our libibverbs answers in
//! the place of the kernel.
//!
//! A set in memory of its own marks these descriptors. Each function looks into it before anything else, takes no lock for
//! it, and passes calls for other descriptors to libc. A child of `fork` has an empty set: the kernel fills its copy with
//! zeros. A child of `vfork` has the memory of its parent, as it has the descriptors, but another process ID, and ends no
//! channel of the parent.

use std::ffi::{CStr, c_int, c_uint, c_void};
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicPtr, Ordering};

use libc::{mode_t, size_t, ssize_t};

use crate::descriptors::DescriptorSet;
use crate::next::{Next, fail};

/// The marked descriptors, in memory of its own.
struct Channels {
    descriptors: DescriptorSet,
    /// Whether a child of `fork` has an empty set.
    is_wiped: AtomicBool,
    /// The process that has opened them.
    opener: AtomicI32,
}

/// The channels of this process; null before [`find_all`].
static CHANNELS: AtomicPtr<Channels> = AtomicPtr::new(ptr::null_mut());

/// Returns the memory for marks. It is zero in a child of `fork`.
fn map() -> *mut Channels {
    let (len, protection) = (size_of::<Channels>(), libc::PROT_READ | libc::PROT_WRITE);
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
    // SAFETY: new memory, at an address that the kernel chooses.
    let mapped = unsafe { libc::mmap(ptr::null_mut(), len, protection, flags, -1, 0) };
    if mapped == libc::MAP_FAILED {
        return ptr::null_mut();
    }
    let channels: *mut Channels = mapped.cast();
    // SAFETY: the memory from above. Before Linux 4.14, a child keeps the marks, and the process ID tells them apart.
    let is_wiped = unsafe { libc::madvise(mapped, len, libc::MADV_WIPEONFORK) } == 0;
    // SAFETY: the memory from above; zeros are a value of its type.
    unsafe { (*channels).is_wiped.store(is_wiped, Ordering::Relaxed) };
    channels
}

fn channels() -> Option<&'static Channels> {
    let channels = CHANNELS.load(Ordering::Acquire);
    // SAFETY: null, or memory of `map`, which stays mapped. Zeros are a value of its type, which has atomics only.
    unsafe { channels.as_ref() }
}

impl Channels {
    /// Returns whether this process has opened the marked descriptors.
    fn is_own(&self) -> bool {
        // SAFETY: the call takes nothing, and cannot fail.
        self.opener.load(Ordering::Relaxed) == unsafe { libc::getpid() }
    }

    /// Marks a descriptor.
    fn mark(&self, fd: c_int) -> bool {
        // SAFETY: as in `is_own`.
        let process = unsafe { libc::getpid() };
        if self.opener.swap(process, Ordering::Relaxed) != process {
            while self.descriptors.remove_between(0, c_uint::MAX).is_some() {}
        }
        self.descriptors.insert(fd)
    }
}

/// Returns the channels if `fd` is one of them.
#[inline]
fn marked(fd: c_int) -> Option<&'static Channels> {
    channels().filter(|channels| channels.descriptors.contains(fd))
}

/// Returns whether `fd` is a channel: of this process, or in a child of `vfork` of its parent. Each command asks, so this
/// is no system call.
#[inline]
fn is_channel(fd: c_int) -> bool {
    let is_usable =
        |channels: &Channels| channels.is_wiped.load(Ordering::Relaxed) || channels.is_own();
    marked(fd).is_some_and(is_usable)
}

/// Ends the mark of a descriptor, and destroys its channel.
fn end(fd: c_int) {
    let is_ended = |channels: &Channels| channels.is_own() && channels.descriptors.remove(fd);
    if marked(fd).is_some_and(is_ended) {
        destroy(fd);
    }
}

/// Destroys the channel of a descriptor.
fn destroy(fd: c_int) {
    if let Some(close) = CLOSE.get() {
        // SAFETY: of our libibverbs, and of this type.
        unsafe { close(fd) };
    }
}

/// A function of our libibverbs, of type `F`.
struct Ours<F>(&'static CStr, Next<F>);

impl<F: Copy> Ours<F> {
    const fn named(name: &'static CStr) -> Self {
        Self(name, Next::named(c""))
    }

    fn find(&self) {
        // SAFETY: a name with a zero at its end.
        self.1.set(unsafe { libc::dlsym(libc::RTLD_DEFAULT, self.0.as_ptr()) });
    }

    fn get(&self) -> Option<F> {
        self.1.found()
    }
}

static OPEN: Ours<unsafe extern "C" fn(c_int) -> c_int> = Ours::named(c"softroce_cm_open");
static WRITE: Ours<unsafe extern "C" fn(c_int, *const c_void, size_t) -> ssize_t> =
    Ours::named(c"softroce_cm_write");
static CLOSE: Ours<unsafe extern "C" fn(c_int)> = Ours::named(c"softroce_cm_close");

/// Opens a channel, with the flags of `open`. Returns its descriptor, or -1 with the error in `errno`; `None` if the
/// libibverbs of the process is not softroce's.
pub(crate) fn open(flags: c_int) -> Option<c_int> {
    let open = OPEN.get()?;
    let channels = channels()?;
    // SAFETY: of our libibverbs, and of this type.
    let fd = unsafe { open(flags) };
    if fd < 0 || channels.mark(fd) {
        return Some(fd);
    }
    destroy(fd);
    if let Some(close) = next::close.get() {
        // SAFETY: libc's function; no other code knows the descriptor.
        unsafe { close(fd) };
    }
    Some(fail(libc::EMFILE))
}

/// Declares functions of libc to interpose, and finds those behind them.
macro_rules! functions {
    ($($name:ident($($argument:ident: $type:ty),*) -> $result:ty $body:block)*) => {
        $(
            // SAFETY: it takes and answers what libc's function of that name does.
            #[unsafe(no_mangle)]
            extern "C" fn $name($($argument: $type),*) -> $result $body
        )*

        /// The functions of libc.
        #[expect(non_upper_case_globals, reason = "they have the names of functions")]
        mod next {
            use super::*;

            $(pub(super) static $name: Next<unsafe extern "C" fn($($type),*) -> $result> =
                Next::named(match CStr::from_bytes_with_nul(
                    concat!(stringify!($name), "\0").as_bytes()
                ) {
                    Ok(name) => name,
                    Err(_) => c"",
                });)*
        }

        /// Maps the memory for marks, and looks up all functions. Between `fork` and `exec` no look-up is allowed.
        pub(crate) fn find_all() {
            $(next::$name.find();)*
            OPEN.find();
            WRITE.find();
            CLOSE.find();
            CHANNELS.store(map(), Ordering::Release);
        }
    };
}

/// Calls libc's function with the arguments of the program.
macro_rules! next {
    ($name:ident($($argument:expr),*)) => {
        match next::$name.get() {
            // SAFETY: libc's function, with the arguments that the program has for it.
            Some(next) => unsafe { next($($argument),*) },
            None => fail(libc::ENOSYS),
        }
    };
}

functions! {
    write(fd: c_int, from: *const c_void, len: size_t) -> ssize_t {
        match WRITE.get() {
            // SAFETY: of our libibverbs, and of this type, with the arguments of the program.
            Some(write) if is_channel(fd) => unsafe { write(fd, from, len) },
            _ => next!(write(fd, from, len)),
        }
    }

    close(fd: c_int) -> c_int {
        // Afterwards another thread may get the same number.
        end(fd);
        next!(close(fd))
    }

    dup2(from: c_int, to: c_int) -> c_int {
        let fd = next!(dup2(from, to));
        if fd >= 0 && from != to {
            end(to);
        }
        fd
    }

    dup3(from: c_int, to: c_int, flags: c_int) -> c_int {
        let fd = next!(dup3(from, to, flags));
        if fd >= 0 {
            end(to);
        }
        fd
    }

    close_range(first: c_uint, last: c_uint, flags: c_int) -> c_int {
        if flags.cast_unsigned() & libc::CLOSE_RANGE_CLOEXEC == 0 {
            end_between(first, last);
        }
        next!(close_range(first, last, flags))
    }

    closefrom(first: c_int) -> () {
        end_between(c_uint::try_from(first).unwrap_or(0), c_uint::MAX);
        next!(closefrom(first))
    }

    fstat(fd: c_int, to: *mut libc::stat) -> c_int {
        described(fd, to, next!(fstat(fd, to)))
    }

    fstat64(fd: c_int, to: *mut libc::stat) -> c_int {
        described(fd, to, next!(fstat64(fd, to)))
    }

    __fxstat(version: c_int, fd: c_int, to: *mut libc::stat) -> c_int {
        described(fd, to, next!(__fxstat(version, fd, to)))
    }

    __fxstat64(version: c_int, fd: c_int, to: *mut libc::stat) -> c_int {
        described(fd, to, next!(__fxstat64(version, fd, to)))
    }

    socket(domain: c_int, kind: c_int, protocol: c_int) -> c_int {
        // The kernel would describe RDMA devices of the machine, and load modules for them.
        if domain == libc::AF_NETLINK && protocol == NETLINK_RDMA && OPEN.get().is_some() {
            return fail(libc::EPROTONOSUPPORT);
        }
        next!(socket(domain, kind, protocol))
    }
}

/// `NETLINK_RDMA`.
const NETLINK_RDMA: c_int = 20;

/// Ends the channels with descriptors from `first` to `last`.
fn end_between(first: c_uint, last: c_uint) {
    let Some(channels) = channels() else { return };
    while channels.is_own()
        && let Some(fd) = channels.descriptors.remove_between(first, last)
    {
        destroy(fd);
    }
}

/// Describes a channel as a character device, which every process may open; other descriptors stay as libc has
/// described them.
fn described(fd: c_int, to: *mut libc::stat, result: c_int) -> c_int {
    if result == 0 && is_channel(fd) {
        // SAFETY: libc has just written there. On machines of 64 bits both structures of `stat` are one.
        let to = unsafe { &mut *to };
        to.st_mode = libc::S_IFCHR | ACCESS;
        // The file in the tree is a link to `/dev/null`.
        to.st_rdev = libc::makedev(1, 3);
    }
    result
}

/// Every process may read and write.
const ACCESS: mode_t = 0o666;

//! Functions with the names of those of libc, which the loader finds first, and the calls to libc.
//!
//! The safety rests on one assumption: a program calls a function of libc as libc declares it. The arguments are passed
//! on unchanged, except a path to the tree, which is replaced by another one that lives as long as the call.

use std::ffi::{CStr, OsString, c_char, c_int, c_uint, c_void};
use std::os::unix::ffi::OsStringExt;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicPtr, Ordering};
use std::{env, process, ptr};

use libc::{mode_t, size_t, ssize_t};

use crate::next::{Next, fail};
use crate::tree_path::TreePath;
use crate::{channel, signals};

/// Returns the root of the tree that `roce run` has set; `None` if it has not.
fn root() -> Option<&'static [u8]> {
    static ROOT: OnceLock<Option<Vec<u8>>> = OnceLock::new();
    // As `secure_getenv` does: a set-uid program does not trust its environment.
    // SAFETY: the call takes a number, and answers 0 where there is no such entry.
    let trusted = unsafe { libc::getauxval(libc::AT_SECURE) } == 0;
    let read = || env::var_os("SOFTROCE_PATHS").filter(|_| trusted).map(OsString::into_vec);
    ROOT.get_or_init(read).as_deref().filter(|root| !root.is_empty())
}

/// Returns the path to use instead of `path`; `None` for a path that stays as it is.
fn tree_path(path: *const c_char) -> Option<TreePath> {
    if path.is_null() {
        return None;
    }
    // SAFETY: it is not null, and the program promises that a zero is at the end.
    let path = unsafe { CStr::from_ptr(path) }.to_bytes();
    TreePath::of(root()?, path)
}

/// Opens a channel of the connection manager, if that is where the path leads. Otherwise returns `None`.
fn open_channel(path: Option<&TreePath>, flags: c_int) -> Option<c_int> {
    path.filter(|path| path.is_rdma_cm()).and_then(|_| channel::open(flags))
}

/// Functions with a path among their arguments, which is marked by a semicolon on both sides. Those that open a file have
/// the name of their flags behind them.
macro_rules! functions {
    ($($name:ident($($a:ident: $at:ty),*; path; $($b:ident: $bt:ty),*) -> $r:ty $([$opens:ident])?)*) => {
        $(
            // SAFETY: it takes and answers what libc's function of that name does.
            #[unsafe(no_mangle)]
            extern "C" fn $name($($a: $at,)* path: *const c_char, $($b: $bt,)*) -> $r {
                let Some(next) = next::$name.get() else { return fail(libc::ENOSYS) };
                let tree_path = tree_path(path);
                $(if let Some(fd) = open_channel(tree_path.as_ref(), $opens) {
                    return fd;
                })?
                let path = tree_path.as_ref().and_then(TreePath::as_c_str).map_or(path, CStr::as_ptr);
                // SAFETY: `next` is libc's function, and takes what the program has for it.
                unsafe { next($($a,)* path, $($b,)*) }
            }
        )*

        /// The functions of libc.
        #[expect(non_upper_case_globals, reason = "they have the names of functions")]
        mod next {
            use super::*;

            $(pub(super) static $name: Next<
                unsafe extern "C" fn($($at,)* *const c_char, $($bt,)*) -> $r
            > = Next::named(match CStr::from_bytes_with_nul(
                concat!(stringify!($name), "\0").as_bytes()
            ) {
                Ok(name) => name,
                Err(_) => c"",
            });)*
        }

        /// Looks up all functions. Between `fork` and `exec` no look-up is allowed.
        fn find_all() {
            $(next::$name.find();)*
        }
    };
}

// `open` and its like have their last argument only when they make a file. On all machines that there is
// a libibverbs for it comes where an argument of a fixed list would, and is nothing if it is not there.
functions! {
    open(; path; flags: c_int, mode: mode_t) -> c_int [flags]
    open64(; path; flags: c_int, mode: mode_t) -> c_int [flags]
    openat(dir: c_int; path; flags: c_int, mode: mode_t) -> c_int [flags]
    openat64(dir: c_int; path; flags: c_int, mode: mode_t) -> c_int [flags]
    __open_2(; path; flags: c_int) -> c_int [flags]
    __open64_2(; path; flags: c_int) -> c_int [flags]
    __openat_2(dir: c_int; path; flags: c_int) -> c_int [flags]
    __openat64_2(dir: c_int; path; flags: c_int) -> c_int [flags]
    fopen(; path; mode: *const c_char) -> *mut c_void
    fopen64(; path; mode: *const c_char) -> *mut c_void
    stat(; path; to: *mut c_void) -> c_int
    stat64(; path; to: *mut c_void) -> c_int
    lstat(; path; to: *mut c_void) -> c_int
    lstat64(; path; to: *mut c_void) -> c_int
    fstatat(dir: c_int; path; to: *mut c_void, flags: c_int) -> c_int
    fstatat64(dir: c_int; path; to: *mut c_void, flags: c_int) -> c_int
    __xstat(version: c_int; path; to: *mut c_void) -> c_int
    __xstat64(version: c_int; path; to: *mut c_void) -> c_int
    __lxstat(version: c_int; path; to: *mut c_void) -> c_int
    __lxstat64(version: c_int; path; to: *mut c_void) -> c_int
    __fxstatat(version: c_int, dir: c_int; path; to: *mut c_void, flags: c_int) -> c_int
    __fxstatat64(version: c_int, dir: c_int; path; to: *mut c_void, flags: c_int) -> c_int
    statx(dir: c_int; path; flags: c_int, mask: c_uint, to: *mut c_void) -> c_int
    getxattr(; path; name: *const c_char, to: *mut c_void, room: size_t) -> ssize_t
    lgetxattr(; path; name: *const c_char, to: *mut c_void, room: size_t) -> ssize_t
    access(; path; mode: c_int) -> c_int
    eaccess(; path; mode: c_int) -> c_int
    euidaccess(; path; mode: c_int) -> c_int
    faccessat(dir: c_int; path; mode: c_int, flags: c_int) -> c_int
    readlink(; path; to: *mut c_char, len: size_t) -> ssize_t
    readlinkat(dir: c_int; path; to: *mut c_char, len: size_t) -> ssize_t
    __readlink_chk(; path; to: *mut c_char, len: size_t, room: size_t) -> ssize_t
    __readlinkat_chk(dir: c_int; path; to: *mut c_char, len: size_t, room: size_t) -> ssize_t
    realpath(; path; to: *mut c_char) -> *mut c_char
    __realpath_chk(; path; to: *mut c_char, room: size_t) -> *mut c_char
    canonicalize_file_name(; path; ) -> *mut c_char
    chdir(; path; ) -> c_int
    opendir(; path; ) -> *mut c_void
    scandir(; path; to: *mut c_void, filter: *mut c_void, order: *mut c_void) -> c_int
    ftw(; path; each: *mut c_void, descriptors: c_int) -> c_int
    ftw64(; path; each: *mut c_void, descriptors: c_int) -> c_int
    nftw(; path; each: *mut c_void, descriptors: c_int, flags: c_int) -> c_int
    nftw64(; path; each: *mut c_void, descriptors: c_int, flags: c_int) -> c_int
    glob(; path; flags: c_int, failed: *mut c_void, to: *mut c_void) -> c_int
    glob64(; path; flags: c_int, failed: *mut c_void, to: *mut c_void) -> c_int
    scandir64(; path; to: *mut c_void, filter: *mut c_void, order: *mut c_void) -> c_int
}

/// A function that ends the process.
type ExitFunction = unsafe extern "C" fn(c_int) -> !;

/// Sends pending packets to peers, and ends the process by a function of libc. May be called in a signal handler and in
/// the child of a fork: all steps are async-signal-safe.
fn end(next: &Next<ExitFunction>, status: c_int) -> ! {
    if let Some(flush) = FLUSH.get() {
        // SAFETY: of our libibverbs, and of this type. Without devices it does nothing.
        unsafe { flush() };
    }
    let Some(next) = next.get() else { process::abort() };
    // SAFETY: libc's function, with the argument that the program has for it.
    unsafe { next(status) }
}

static FLUSH: Flush = Flush(AtomicPtr::new(ptr::null_mut()));

/// Function of libibverbs for the end of a process; null if libibverbs is not softroce's.
struct Flush(AtomicPtr<c_void>);

impl Flush {
    fn find(&self) {
        // SAFETY: a name with a zero at its end.
        let found = unsafe { libc::dlsym(libc::RTLD_DEFAULT, c"softroce_flush".as_ptr()) };
        self.0.store(found, Ordering::Relaxed);
    }

    fn get(&self) -> Option<unsafe extern "C" fn()> {
        let found = self.0.load(Ordering::Relaxed);
        // SAFETY: a pointer to a function of this type, or null, which is `None`.
        unsafe { ptr::from_ref(&found).cast::<Option<unsafe extern "C" fn()>>().read() }
    }
}

macro_rules! ends {
    ($($name:ident $next:ident)*) => {$(
        static $next: Next<ExitFunction> = Next::named(match CStr::from_bytes_with_nul(
            concat!(stringify!($name), "\0").as_bytes()
        ) {
            Ok(name) => name,
            Err(_) => c"",
        });

        // SAFETY: it takes what libc's function of that name does.
        #[unsafe(no_mangle)]
        extern "C" fn $name(status: c_int) -> ! {
            end(&$next, status)
        }
    )*};
}

ends! {
    _exit NEXT_EXIT
    _Exit NEXT_CAPITAL_EXIT
    quick_exit NEXT_QUICK_EXIT
}

/// Looks up all functions before the program starts.
extern "C" fn prepare() {
    root();
    find_all();
    for end in [&NEXT_EXIT, &NEXT_CAPITAL_EXIT, &NEXT_QUICK_EXIT] {
        end.find();
    }
    FLUSH.find();
    signals::find_all();
    channel::find_all();
}

// SAFETY: the loader calls what stands there, when all libraries are where they belong.
#[used]
#[unsafe(link_section = ".init_array")]
static PREPARE: extern "C" fn() = prepare;

//! Functions that change actions of signals, in the place of libc's.
//!
//! Our libibverbs has a handler of SIGSEGV and SIGBUS in front of the program's as soon as memory is registered
//! (`softroce::sys::fault`). Each of these functions calls the function of the same name in the next library: libc, UCX or
//! a sanitizer. Our libibverbs then moves its handler to the front again, and what the program reads as the action from
//! before is its own. Without our libibverbs, and for other signals, nothing is changed.

use std::ffi::{CStr, c_int, c_void};
use std::mem::MaybeUninit;
use std::ptr;
use std::sync::atomic::{AtomicPtr, Ordering};

use libc::{SIG_ERR, SIGBUS, SIGSEGV, sighandler_t};

use crate::next::{Failed, Next, fail};

/// Action of the program, as our libibverbs has it.
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct ProgramAction {
    /// Handler that libc returns in place of the program's; 0 if it returns the program's.
    front: sighandler_t,
    handler: sighandler_t,
    /// `SA_…`, all of which are in 32 bits.
    flags: u32,
    restorer: usize,
    mask: u64,
}

/// `softroce_change_signal_action`.
type Change = extern "C" fn(c_int, extern "C" fn(*mut c_void), *mut c_void, *mut ProgramAction);

/// The function of our libibverbs; null where it is not softroce's.
static CHANGE: AtomicPtr<c_void> = AtomicPtr::new(ptr::null_mut());

/// Calls `set`, which may change or read the action of a signal. Returns the program's action from before.
fn change<R, F: FnOnce() -> R>(signal: c_int, set: F) -> (Option<R>, ProgramAction) {
    let mut before = ProgramAction::default();
    let found = CHANGE.load(Ordering::Relaxed);
    if found.is_null() || ![SIGSEGV, SIGBUS].contains(&signal) {
        return (Some(set()), before);
    }
    // SAFETY: of our libibverbs, and of this type.
    let change = unsafe { ptr::from_ref(&found).cast::<Change>().read() };
    let mut call = Call { set: Some(set), result: None };
    change(signal, run::<R, F>, ptr::from_mut(&mut call).cast(), &mut before);
    (call.result, before)
}

/// A call that [`run`] makes.
struct Call<F, R> {
    set: Option<F>,
    result: Option<R>,
}

extern "C" fn run<R, F: FnOnce() -> R>(call: *mut c_void) {
    // SAFETY: `change` has made it of this type, and lends it for the call.
    let call = unsafe { &mut *call.cast::<Call<F, R>>() };
    call.result = call.set.take().map(|set| set());
}

/// Functions with the arguments of `sigaction`.
macro_rules! sigaction {
    ($($name:ident $next:ident)*) => {$(
        static $next: Next<
            unsafe extern "C" fn(c_int, *const libc::sigaction, *mut libc::sigaction) -> c_int
        > = Next::named(named(concat!(stringify!($name), "\0")));

        // SAFETY: it takes and answers what libc's function of that name does.
        #[unsafe(no_mangle)]
        extern "C" fn $name(
            signal: c_int,
            action: *const libc::sigaction,
            old: *mut libc::sigaction,
        ) -> c_int {
            let Some(next) = $next.get() else { return fail(libc::ENOSYS) };
            if ![SIGSEGV, SIGBUS].contains(&signal) {
                // SAFETY: libc's function, with the arguments of the program.
                return unsafe { next(signal, action, old) };
            }
            // A bad pointer faults here, and not within `change`.
            let action = (!action.is_null()).then(|| {
                // SAFETY: the program promises that it is an action, or null.
                unsafe { ptr::read_unaligned(action) }
            });
            let action = action.as_ref().map_or(ptr::null(), ptr::from_ref);
            let mut found = MaybeUninit::<libc::sigaction>::zeroed();
            let to = if old.is_null() { ptr::null_mut() } else { found.as_mut_ptr() };
            // SAFETY: libc's function, with copies of what the program has for it.
            let (result, before) = change(signal, || unsafe { next(signal, action, to) });
            if result == Some(0) && !old.is_null() {
                // SAFETY: initialized by zeros, and by libc.
                let found = before.in_place_of(unsafe { found.assume_init() });
                // SAFETY: the program promises that there is room for it.
                unsafe { ptr::write_unaligned(old, found) };
            }
            result.unwrap_or(c_int::FAILED)
        }
    )*};
}

sigaction! {
    sigaction NEXT_SIGACTION
    __sigaction NEXT_UNDERSCORED_SIGACTION
}

impl ProgramAction {
    /// Returns the program's action in place of the one in front of it.
    fn in_place_of(&self, found: libc::sigaction) -> libc::sigaction {
        if self.front == 0 || found.sa_sigaction != self.front {
            return found;
        }
        let mut own = found;
        own.sa_sigaction = self.handler;
        own.sa_flags = self.flags.cast_signed();
        // SAFETY: an address of code, or null, which is `None`.
        own.sa_restorer = unsafe { ptr::from_ref(&self.restorer).cast::<Option<_>>().read() };
        // SAFETY: the kernel's set is the first word of libc's.
        unsafe { ptr::from_mut(&mut own.sa_mask).cast::<u64>().write_unaligned(self.mask) };
        own
    }
}

/// Functions that take a handler, and return the one from before.
macro_rules! signal {
    ($($name:ident $next:ident)*) => {$(
        static $next: Next<unsafe extern "C" fn(c_int, sighandler_t) -> sighandler_t> =
            Next::named(named(concat!(stringify!($name), "\0")));

        // SAFETY: it takes and answers what libc's function of that name does.
        #[unsafe(no_mangle)]
        extern "C" fn $name(signal: c_int, handler: sighandler_t) -> sighandler_t {
            let Some(next) = $next.get() else {
                fail::<c_int>(libc::ENOSYS);
                return SIG_ERR;
            };
            // SAFETY: libc's function, with the arguments of the program.
            let (result, before) = change(signal, || unsafe { next(signal, handler) });
            match result {
                Some(found) if before.front != 0 && found == before.front => before.handler,
                found => found.unwrap_or(SIG_ERR),
            }
        }
    )*};
}

signal! {
    signal NEXT_SIGNAL
    bsd_signal NEXT_BSD_SIGNAL
    ssignal NEXT_SSIGNAL
    sysv_signal NEXT_SYSV_SIGNAL
    __sysv_signal NEXT_UNDERSCORED_SYSV_SIGNAL
}

static NEXT_SIGSET: Next<unsafe extern "C" fn(c_int, sighandler_t) -> sighandler_t> =
    Next::named(c"sigset");

// SAFETY: it takes and answers what libc's function of that name does.
#[unsafe(no_mangle)]
extern "C" fn sigset(signal: c_int, handler: sighandler_t) -> sighandler_t {
    if [SIGSEGV, SIGBUS].contains(&signal) {
        return set_and_unblock(signal, handler).unwrap_or(SIG_ERR);
    }
    let Some(next) = NEXT_SIGSET.get() else {
        fail::<c_int>(libc::ENOSYS);
        return SIG_ERR;
    };
    // SAFETY: libc's function, with the arguments of the program.
    unsafe { next(signal, handler) }
}

/// Does what `sigset` does. As it changes the mask of the thread too, [`change`] cannot call libc's.
fn set_and_unblock(signal: c_int, handler: sighandler_t) -> Option<sighandler_t> {
    /// `SIG_HOLD`: blocks the signal.
    const HOLD: sighandler_t = 2;
    let mut old = MaybeUninit::<libc::sigaction>::zeroed();
    let mut action = MaybeUninit::<libc::sigaction>::zeroed();
    // SAFETY: integers and addresses, for which all zeros is a value: a handler without flags.
    unsafe { action.assume_init_mut() }.sa_sigaction = handler;
    let (how, action) = match handler {
        HOLD => (libc::SIG_BLOCK, ptr::null()),
        _ => (libc::SIG_UNBLOCK, action.as_ptr()),
    };
    if sigaction(signal, action, old.as_mut_ptr()) != 0 {
        return None;
    }
    let mut set = MaybeUninit::<libc::sigset_t>::zeroed();
    let mut blocked = MaybeUninit::<libc::sigset_t>::zeroed();
    // SAFETY: a set of no signals, to which one is added.
    unsafe { libc::sigaddset(set.as_mut_ptr(), signal) };
    // SAFETY: one set is read, the other is written.
    if unsafe { libc::pthread_sigmask(how, set.as_ptr(), blocked.as_mut_ptr()) } != 0 {
        return None;
    }
    // SAFETY: a set of signals, written by the call before.
    let was_blocked = unsafe { libc::sigismember(blocked.as_ptr(), signal) } == 1;
    // SAFETY: initialized by zeros, and by `sigaction`.
    let old = unsafe { old.assume_init() };
    Some(if was_blocked { HOLD } else { old.sa_sigaction })
}

static NEXT_SIGIGNORE: Next<unsafe extern "C" fn(c_int) -> c_int> = Next::named(c"sigignore");

// SAFETY: it takes and answers what libc's function of that name does.
#[unsafe(no_mangle)]
extern "C" fn sigignore(signal: c_int) -> c_int {
    let Some(next) = NEXT_SIGIGNORE.get() else { return fail(libc::ENOSYS) };
    // SAFETY: libc's function, with the argument of the program.
    change(signal, || unsafe { next(signal) }).0.unwrap_or(c_int::FAILED)
}

/// A name with a zero at its end.
const fn named(name: &'static str) -> &'static CStr {
    match CStr::from_bytes_with_nul(name.as_bytes()) {
        Ok(name) => name,
        Err(_) => c"",
    }
}

/// Looks up all functions, and that of our libibverbs.
pub(crate) fn find_all() {
    for next in [&NEXT_SIGACTION, &NEXT_UNDERSCORED_SIGACTION] {
        next.find();
    }
    let signals = [&NEXT_SIGNAL, &NEXT_BSD_SIGNAL, &NEXT_SSIGNAL, &NEXT_SYSV_SIGNAL];
    for next in signals.into_iter().chain([&NEXT_UNDERSCORED_SYSV_SIGNAL, &NEXT_SIGSET]) {
        next.find();
    }
    NEXT_SIGIGNORE.find();
    // SAFETY: a name with a zero at its end.
    let change =
        unsafe { libc::dlsym(libc::RTLD_DEFAULT, c"softroce_change_signal_action".as_ptr()) };
    CHANGE.store(change, Ordering::Relaxed);
}

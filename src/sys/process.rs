//! The process: its privileges, its clocks, and hooks for its exit and for `fork`.

use std::time::Duration;

/// The user that this process acts for.
pub(crate) fn user() -> u32 {
    // SAFETY: the call takes nothing, and always succeeds.
    unsafe { libc::geteuid() }
}

/// Whether this thread may do what takes `CAP_NET_RAW`.
pub(crate) fn has_net_raw() -> bool {
    /// `CAP_NET_RAW`, and the version of the call that has two words for each set (capability.h).
    const NET_RAW: u32 = 13;
    const VERSION: u32 = 0x2008_0522;
    // The version, and the number of the calling thread.
    let header = [VERSION, 0];
    // Effective, permitted and inheritable capabilities, twice.
    let mut sets = [0_u32; 6];
    // SAFETY: `header` is a version and a thread, and `sets` has room for what the call returns in that version.
    let rc = unsafe { libc::syscall(libc::SYS_capget, header.as_ptr(), sets.as_mut_ptr()) };
    rc == 0 && (sets[0] >> NET_RAW) & 1 == 1
}

/// Whether the program has more privileges than the program that started it: it is set-uid, set-gid, or has
/// file capabilities (`AT_SECURE`). The environment is not to be trusted then.
pub(crate) fn is_privileged() -> bool {
    // SAFETY: the call takes a number, and answers 0 where there is no such entry.
    unsafe { libc::getauxval(libc::AT_SECURE) != 0 }
}

/// Nanoseconds since the system was started: what the standard library's clock says, without the
/// arithmetic around it. A poll that finds nothing reads it once.
pub(crate) fn monotonic() -> u64 {
    nanos_of(libc::CLOCK_MONOTONIC)
}

/// How long processors have worked for this process.
pub(crate) fn processor_time() -> Duration {
    Duration::from_nanos(nanos_of(libc::CLOCK_PROCESS_CPUTIME_ID))
}

fn nanos_of(clock: libc::clockid_t) -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `time` is a place for what the call returns. Every system has these clocks.
    unsafe { libc::clock_gettime(clock, &mut time) };
    let (seconds, nanos) = (u64::try_from(time.tv_sec), u64::try_from(time.tv_nsec));
    seconds.unwrap_or_default() * 1_000_000_000 + nanos.unwrap_or_default()
}

/// Has `hook` run when the process exits by `exit` or by the end of `main`. Other threads may still
/// run then.
pub(crate) fn at_exit(hook: extern "C" fn()) {
    // SAFETY: `hook` is a function of the type that is asked for, and functions stay. Without
    // memory for the entry it is not run, and what it would send is sent again by the peer's timer.
    let _ = unsafe { libc::atexit(hook) };
}

/// Has hooks run by `fork`: `before` it, and when it is made in the parent and in the child, where there
/// is the calling thread only.
pub(crate) fn at_fork(before: extern "C" fn(), parent: extern "C" fn(), child: extern "C" fn()) {
    // SAFETY: functions of the type that is asked for. The only error is out of memory.
    let _ = unsafe { libc::pthread_atfork(Some(before), Some(parent), Some(child)) };
}

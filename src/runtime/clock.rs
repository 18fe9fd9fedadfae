//! The clock: the only one of the library.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::SystemTime;

use crate::sys::monotonic;
use crate::time::Instant;

/// Returns the time in nanoseconds since the first call of this process. It never runs backwards.
///
/// Captured packets carry it (see [`Sink`](crate::port::Sink)).
pub fn now() -> Instant {
    /// 0 before the first call. An atomic, because a `OnceLock` would stay locked in a child that another thread forks
    /// during the first call.
    static ORIGIN: AtomicU64 = AtomicU64::new(0);
    let now = monotonic();
    let mut origin = ORIGIN.load(Ordering::Relaxed);
    if origin == 0 {
        let first = ORIGIN.compare_exchange(0, now, Ordering::Relaxed, Ordering::Relaxed);
        origin = first.err().unwrap_or(now);
    }
    Instant::from_nanos(now - origin.min(now))
}

/// Returns the wall-clock time at `at`, if the clock was not set since.
pub fn wall_clock(at: Instant) -> SystemTime {
    let ago = now() - at;
    #[expect(clippy::disallowed_methods, reason = "this is where the wall clock is read")]
    let wall = SystemTime::now();
    wall.checked_sub(ago).unwrap_or(SystemTime::UNIX_EPOCH)
}

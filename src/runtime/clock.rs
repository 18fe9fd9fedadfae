//! The clock: the only one of the library.

use std::sync::OnceLock;
use std::time::SystemTime;

use crate::sys::monotonic;
use crate::time::Instant;

/// The time, in nanoseconds since this process first asked. It never runs backwards.
///
/// Captured packets carry it (see [`Sink`](crate::io::Sink)).
pub fn now() -> Instant {
    static ORIGIN: OnceLock<u64> = OnceLock::new();
    let now = monotonic();
    Instant::from_nanos(now - (*ORIGIN.get_or_init(|| now)).min(now))
}

/// What the wall clock showed at that time, if nobody has set it since: it is asked now.
pub fn wall_clock(at: Instant) -> SystemTime {
    let ago = now() - at;
    #[expect(clippy::disallowed_methods, reason = "this is where the wall clock is read")]
    let wall = SystemTime::now();
    wall.checked_sub(ago).unwrap_or(SystemTime::UNIX_EPOCH)
}

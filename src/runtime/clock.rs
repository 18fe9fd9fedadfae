//! The clock: the only one of the library.

use std::sync::OnceLock;

use crate::io::monotonic;
use crate::time::Instant;

/// The time, in nanoseconds since this process first asked. It never runs backwards.
///
/// Captured packets carry it (see [`Sink`](crate::io::Sink)).
pub fn now() -> Instant {
    static ORIGIN: OnceLock<u64> = OnceLock::new();
    let now = monotonic();
    Instant::from_nanos(now - (*ORIGIN.get_or_init(|| now)).min(now))
}

//! The clock: the only one of the library.

use std::sync::OnceLock;
use std::time::Instant as StdInstant;

use crate::time::Instant;

/// The time, in nanoseconds since this process first asked. It never runs backwards.
///
/// Captured packets carry it (see [`Sink`](crate::io::Sink)).
#[expect(clippy::disallowed_methods, reason = "this is the runtime's clock")]
pub fn now() -> Instant {
    static ORIGIN: OnceLock<StdInstant> = OnceLock::new();
    let elapsed = ORIGIN.get_or_init(StdInstant::now).elapsed();
    Instant::ZERO + elapsed
}

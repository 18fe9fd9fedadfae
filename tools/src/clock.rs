//! Time, which this command measures.

use std::time::{Duration, Instant};

use nix::time::{ClockId, clock_gettime};

/// Now.
#[expect(clippy::disallowed_methods, reason = "a measuring command needs a clock")]
pub(crate) fn now() -> Instant {
    Instant::now()
}

/// A stretch of time in which a thread was meant to have a CPU for itself.
pub(crate) struct Stretch {
    start: Instant,
    cpu: Duration,
}

impl Stretch {
    /// Begins now, for the calling thread.
    pub(crate) fn begin() -> Self {
        Self { cpu: thread_cpu(), start: now() }
    }

    /// How long ago it began.
    pub(crate) fn elapsed(&self) -> Duration {
        now() - self.start
    }

    /// The fraction of this time in which the thread ran.
    pub(crate) fn cpu_share(&self) -> f64 {
        let ran = thread_cpu().saturating_sub(self.cpu);
        ran.as_secs_f64() / self.elapsed().as_secs_f64().max(f64::EPSILON)
    }
}

fn thread_cpu() -> Duration {
    // It cannot fail for this clock; a zero would only silence a warning.
    clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID).map_or(Duration::ZERO, Duration::from)
}

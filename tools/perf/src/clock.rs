//! The clocks of the measurements.

use std::time::{Duration, Instant};

use nix::time::{ClockId, clock_gettime};

/// Returns the current time.
#[expect(clippy::disallowed_methods, reason = "a measuring command needs a clock")]
pub fn now() -> Instant {
    Instant::now()
}

/// Measures elapsed time and the CPU time of a thread.
pub struct CpuTimer {
    start: Instant,
    cpu: Duration,
}

impl CpuTimer {
    /// Starts the timer for the calling thread.
    pub fn begin() -> Self {
        Self { cpu: thread_cpu(), start: now() }
    }

    /// Returns the time since the start.
    pub fn elapsed(&self) -> Duration {
        now() - self.start
    }

    /// Returns the fraction of the elapsed time in which the thread ran.
    pub fn cpu_share(&self) -> f64 {
        let ran = thread_cpu().saturating_sub(self.cpu);
        ran.as_secs_f64() / self.elapsed().as_secs_f64().max(f64::EPSILON)
    }
}

fn thread_cpu() -> Duration {
    // The call cannot fail for this clock.
    clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID).map_or(Duration::ZERO, Duration::from)
}

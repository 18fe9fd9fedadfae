//! The process: its user and capabilities, and its clocks.

use std::io;
use std::os::fd::BorrowedFd;
use std::time::Duration;

use rustix::fs::fstat;
use rustix::process::{DumpableBehavior, dumpable_behavior, geteuid};
use rustix::thread::{CapabilitySet, capabilities};
use rustix::time::{ClockId, DynamicClockId, clock_gettime_dynamic};

/// Returns the effective user of this process.
pub(crate) fn user() -> u32 {
    geteuid().as_raw()
}

/// Whether other processes of the user may trace this one (`PR_GET_DUMPABLE`).
pub(crate) fn is_dumpable() -> bool {
    dumpable_behavior().is_ok_and(|found| found == DumpableBehavior::Dumpable)
}

/// Device and inode of an open file: a descriptor that other code has closed may be that of another file by now.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct FileIdentity(u64, u64);

impl FileIdentity {
    /// Returns the identity of an open file.
    pub(crate) fn of(file: BorrowedFd<'_>) -> io::Result<Self> {
        let found = fstat(file)?;
        Ok(Self(found.st_dev, found.st_ino))
    }
}

/// Whether this thread has `CAP_NET_RAW`.
pub(crate) fn has_net_raw() -> bool {
    capabilities(None).is_ok_and(|sets| sets.effective.contains(CapabilitySet::NET_RAW))
}

/// Whether this thread has `CAP_NET_BIND_SERVICE`.
pub(crate) fn has_net_bind_service() -> bool {
    let needed = CapabilitySet::NET_BIND_SERVICE;
    capabilities(None).is_ok_and(|sets| sets.effective.contains(needed))
}

/// Returns the nanoseconds since the system was started: the standard library's clock, without the
/// arithmetic around it. A poll that finds nothing reads it once.
pub(crate) fn monotonic() -> u64 {
    nanos_of(ClockId::Monotonic)
}

/// Returns the time that processors have worked for this process.
pub(crate) fn processor_time() -> Duration {
    Duration::from_nanos(nanos_of(ClockId::ProcessCPUTime))
}

fn nanos_of(clock: ClockId) -> u64 {
    // `clock_gettime` of `rustix` panics where a sandbox refuses the call.
    let Ok(time) = clock_gettime_dynamic(DynamicClockId::Known(clock)) else { return 0 };
    let (seconds, nanos) = (u64::try_from(time.tv_sec), u64::try_from(time.tv_nsec));
    seconds.unwrap_or_default() * 1_000_000_000 + nanos.unwrap_or_default()
}

/// Held for writing while a test starts a process, which has all descriptors for a moment; and for reading by tests in
/// which a descriptor that was dropped must be closed.
#[cfg(test)]
pub(crate) static PROCESS_START: std::sync::RwLock<()> = std::sync::RwLock::new(());

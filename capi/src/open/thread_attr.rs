//! Attributes of the calling thread that new threads inherit.

use nix::sched::{CpuSet, sched_getaffinity, sched_setaffinity};
use nix::sys::signal::{SigSet, SigmaskHow, Signal};
use nix::unistd::Pid;

/// Sets attributes of the calling thread for threads that are started from it, and restores them when it
/// is dropped.
///
/// A thread inherits the signal mask: signals of the program must not be delivered to threads of the
/// device. It inherits the CPU affinity too, which the program may have set for one of its own threads.
/// Threads of the device run where the first thread of the process may run, because `taskset` and
/// launchers of MPI bind a process by that thread.
pub(super) struct ThreadAttrGuard {
    signals: Option<SigSet>,
    affinity: Option<CpuSet>,
}

/// The calling thread, for the calls of `sched.h`.
const CALLING_THREAD: Pid = Pid::from_raw(0);

impl ThreadAttrGuard {
    /// Blocks signals, and sets the affinity to that of the first thread.
    pub(super) fn new() -> Self {
        let mut blocked = SigSet::all();
        // A thread raises these itself. The library may handle them as missing memory.
        blocked.remove(Signal::SIGSEGV);
        blocked.remove(Signal::SIGBUS);
        let signals = blocked.thread_swap_mask(SigmaskHow::SIG_SETMASK).ok();
        let affinity = sched_getaffinity(CALLING_THREAD).ok();
        if affinity.is_some()
            && let Ok(of_first) = sched_getaffinity(Pid::this())
        {
            let _ = sched_setaffinity(CALLING_THREAD, &of_first);
        }
        Self { signals, affinity }
    }
}

impl Drop for ThreadAttrGuard {
    fn drop(&mut self) {
        if let Some(affinity) = &self.affinity {
            let _ = sched_setaffinity(CALLING_THREAD, affinity);
        }
        if let Some(signals) = &self.signals {
            let _ = signals.thread_set_mask();
        }
    }
}

//! A signal that wakes a sleeping thread.
//!
//! ```text
//! ringer              sleeper
//! the reason          sleep until it is raised
//! ring                raised? silence
//!                     look for the reason
//! ```
//!
//! A sleeper that has found the signal raised silences it, whatever the ringer does next. A flag beside the signal, to save
//! the system call to look at it, would leave it raised as long as the ringer is preempted before it sets the flag: the
//! woken thread may run on the CPU of the ringer, and its sleeps would all end at once.

/// A signal between threads: raised until it is silenced, no matter how often it was rung.
pub(crate) trait Signal {
    /// Wakes the sleeper, now or at its next sleep.
    fn ring(&self);

    /// Clears the signal. The caller then checks the reason of each ring before it sleeps again.
    fn silence(&self);
}

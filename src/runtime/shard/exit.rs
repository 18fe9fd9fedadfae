//! What a shard sends at the end of the process.

use std::sync::TryLockError;
use std::sync::atomic::Ordering;
use std::thread;
use std::time::Duration;

use crate::runtime::clock;
use crate::runtime::device_error::DeviceError;
use crate::runtime::shard::Shard;
use crate::sync::signal::Signal;

/// Longest wait for a turn at the end of the process: the thread that has it may be waiting for a CPU.
const EXIT_LOCK_TIMEOUT: Duration = Duration::from_millis(20);

/// Longest wait until the device's thread has sent the requests that wait for others, at the end of the process.
const EXIT_FLUSH_TIMEOUT: Duration = Duration::from_millis(500);

impl Shard {
    /// Sends pending packets at the end of the process. The wait for the lock is limited, because the calling thread
    /// may hold it. Returns whether the lock was free.
    pub(crate) fn flush_at_exit(&self) -> bool {
        let until = clock::now() + EXIT_LOCK_TIMEOUT;
        while self.check().is_ok() {
            match self.core.try_lock() {
                Ok(mut core) => {
                    core.flush_at_exit(clock::now());
                    return true;
                }
                Err(TryLockError::WouldBlock) if clock::now() < until => thread::yield_now(),
                Err(_) => return false,
            }
        }
        false
    }

    /// Sends pending acknowledgements, at most `max`, unless a thread holds the lock, and returns their number. For the
    /// end of the process in a signal handler: every step is async-signal-safe.
    pub(crate) fn send_last(&self, max: usize) -> usize {
        if self.check().is_err() {
            return 0;
        }
        // Before the last packets, after which the engine does not go on.
        if self.has_exit_work.load(Ordering::Relaxed) {
            self.flush_by_thread();
        }
        // The thread that holds the lock may be the one that the signal has interrupted.
        self.core.try_lock().map_or(0, |mut core| core.send_last(max))
    }

    /// Lets the device's thread send the requests that wait for others and end connections, because it may allocate and
    /// lock. Waits for that with a limit: the thread may need a lock of the thread that the signal has interrupted.
    fn flush_by_thread(&self) {
        self.wants_flush.store(true, Ordering::Release);
        self.thread.event_fd.ring();
        let until = clock::now() + EXIT_FLUSH_TIMEOUT;
        let is_done = || {
            !self.wants_flush.load(Ordering::Acquire) || !self.has_exit_work.load(Ordering::Relaxed)
        };
        while !is_done() && clock::now() < until {
            thread::yield_now();
        }
    }

    /// Sends everything if the end of the process waits for that.
    pub(in crate::runtime) fn flush_if_wanted(&self) -> Result<(), DeviceError> {
        if self.wants_flush.load(Ordering::Acquire) {
            self.with(|core, now| core.flush_at_exit(now))?;
            self.wants_flush.store(false, Ordering::Release);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::runtime::AckPolicy;
    use crate::runtime::core::Core;
    use crate::runtime::lease::AddressLease;
    use crate::runtime::post_coalescing::Doorbell;
    use crate::runtime::queue::Queue;
    use crate::runtime::shard::tests::{log, shard};
    use crate::runtime::wire_of_tests::pair;
    use crate::time::Instant;
    use crate::transport::work::SendRequest;

    #[test]
    fn the_end_of_the_process_sends_what_is_owed_and_waits_for_no_lock() {
        let (shard, wire, ring) = shard([10, 255, 1, 11]);
        shard.turn_for(&ring.completions).unwrap();
        assert_eq!(log(&wire), ["rx"]);
        let held = shard.lock().unwrap();
        assert_eq!(shard.send_last(8), 0);
        drop(held);
        assert_eq!(shard.send_last(0), 0);
        assert_eq!(log(&wire), [""; 0]);
        assert_eq!([shard.send_last(8), shard.send_last(8)], [1, 0]);
        assert_eq!(log(&wire), ["last 1"]);
    }

    #[test]
    fn end_of_the_process_sends_requests_that_wait() {
        for _ in 0..20 {
            let (a, b) = pair(AckPolicy::Lazy, 16);
            let (qpn, write) = (a.qpn, SendRequest::write(1, a.sge(8), b.remote()));
            let wire = Arc::clone(&a.wire);
            let lease = Arc::new(AddressLease::of_tests([10, 255, 1, 15]));
            let shard = Shard::new(a.core, 0, &lease).unwrap();
            let post = |write: &SendRequest| {
                let write = write.clone();
                // All in one moment: a request that has waited long enough leaves with the next.
                let moment = || Instant::from_nanos(shard.last.read.load(Ordering::Relaxed));
                let post =
                    |core: &mut Core, now| core.post_send(now, qpn, write, Doorbell::MayWait);
                shard.with_time(moment, post, Shard::release).unwrap()
            };
            thread::scope(|scope| {
                shard.turn_for(&Queue::<()>::new(1)).unwrap();
                (0..3).for_each(|_| post(&write).unwrap());
                assert_eq!(log(&wire).last().unwrap(), "tx 1");
                // It may begin as late as this.
                scope.spawn(|| shard.run());
                shard.send_last(8);
                assert_eq!(log(&wire)[0], "tx 2");
                shard.stop();
            });
        }
    }
}

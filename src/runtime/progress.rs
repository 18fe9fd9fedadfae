//! Progress: the device's thread drives the engine, or threads of the program do.
//!
//! A thread that polls for completions takes turns itself ([`Shard::turn_for`]), which is the fast way. The device's
//! thread answers peers while no other thread polls, and leaves the processor to the others while they do:
//!
//! ```text
//!        packet, deadline, event: turn until there is nothing
//!                       ┌─────┐
//!                       ▼     │
//!   start ────────▶  Socket ──┘
//!                     │   ▲
//!    woken, and       │   │ 1 to 4 ms without a turn of
//!    another thread   │   │ another thread, none waiting
//!    took a turn      ▼   │
//!                    Watch ◀──────────────────┐
//!                     │                       │ event: the waiting
//!                     │ 1 to 4 ms without a   │ thread has left
//!                     │ turn of another       │
//!                     │ thread, one waiting   │
//!                     └──────────────────▶ Parked
//! ```
//!
//! * **Socket**: the thread sleeps on the port's descriptors and its eventfd, until the engine's next deadline. If the
//!   program polled a short time ago, the thread does not receive UC or UD messages beyond the last receive request: the
//!   program is waiting for a CPU and will post more. If packets had waited when the thread came back from Watch, it
//!   stays on the socket for a while although other threads take turns: the program polls for completions rarely, and
//!   waits for its memory to change. The stay ends early if polling threads take all packets before the thread.
//! * **Watch**: the thread sleeps on its eventfd only, until a millisecond after the last turn of another thread; then
//!   two and four milliseconds while turns are taken, because each check takes the CPU from the polling thread. So the
//!   thread sends pending packets of a turn after four milliseconds at the latest. After two checks in a row that find
//!   waiting packets and no recent turn it returns to the socket: the program polls too rarely.
//! * **Parked**: the thread sleeps on its eventfd without limit. A waiting thread of the program drives the device: it
//!   sleeps on the port's descriptors itself, because a wake-up by another thread takes ten times as long. If its last
//!   wait was short it polls for a short time before it sleeps ([`BusyPoll`]).
//!
//! One of the waiting threads is the driver of the device. The others are passengers and sleep on their queues. While
//! there are passengers, the device's thread stays on the socket, so that it can take over when the driver leaves.
//! Tasks, and threads that sleep on the descriptors of completion channels ([`Shard::register_waiter`]), never drive:
//! while no other thread is on the socket, the device's thread is. The channel of a program that blocks in
//! `ibv_get_cq_event` registers nothing when a queue is armed: the program is about to drive, and would compete with the
//! device's thread.
//!
//! A program may leave a queue armed for ever and poll others meanwhile, as UCX does. Each packet would wake the thread, and
//! a polling thread would have taken it. So after [`MAX_LATE_WAKEUPS`] wake-ups in a row, each just after a new turn or post
//! of another thread, and without a new registration, the thread goes to Watch. It stays there while turns are taken, and
//! checks every millisecond.
//!
//! A device with several shards has such a thread for each. A thread that polls a queue which several shards fill takes a
//! turn of each. A thread that waits for the queue drives one of the shards and registers at the others ([`Shards`]).
//!
//! The thread of the first shard also waits for clients of the device's [control socket](crate::runtime::control), in
//! each of its states.
//!
//! On an idle device no thread sleeps with a timeout.
//!
//! [`MAX_LATE_WAKEUPS`]: crate::runtime::idle_backoff::MAX_LATE_WAKEUPS
//! [`Shards`]: crate::runtime::shards::Shards
//! [`BusyPoll`]: crate::runtime::busy_poll::BusyPoll

use std::os::fd::AsRawFd;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::Ordering;
use std::thread;
use std::time::Duration;

use smallvec::SmallVec;

use crate::runtime::core::{MAX_ACK_DELAY, PollOutcome};
use crate::runtime::device_error::DeviceError;
use crate::runtime::idle_backoff::IdleBackoff;
use crate::runtime::queue::{OnSignal, Queue, WaitOutcome};
use crate::runtime::shard::{AtomicDeadline, Driver, PanicGuard, Shard, Sleeper};
use crate::runtime::{clock, signals};
use crate::sync::progress::{Role, ThreadState};
use crate::sync::signal::Signal;
use crate::sys::{DeferredSignals, Woken, processor_time, sleep_on_also};
use crate::time::Instant;

/// Longest interval of the checks in Watch.
const MAX_WATCH_INTERVAL: Duration = Duration::from_millis(4);

/// Time in which a polling program may post receive requests of UC and UD before messages are dropped: longer than it
/// waits for a CPU.
const POLLER_GRACE: Duration = Duration::from_millis(20);

/// Number of turns without a sleep after which the thread looks at its further descriptor.
const TURNS_PER_LISTENER_POLL: u32 = 256;

/// Number of sleeps in a row that end at once because a descriptor is closed, after which the device fails. Before, turns
/// notice a closed socket, or replace one that they can do without.
const MAX_CLOSED_SLEEPS: u32 = 10_000;

/// A turn is recent for this long.
const RECENT_TURN: Duration = Duration::from_micros(100);

impl Shard {
    /// Runs the device's thread until the device is closed.
    pub(crate) fn run(&self) {
        let body = AssertUnwindSafe(|| {
            let mut state = ThreadState::Socket;
            let mut backoff = IdleBackoff::new();
            while self.progress.enter(state) {
                if self.flush_if_wanted().is_err() {
                    return;
                }
                let next = match state {
                    ThreadState::Socket => self.socket(&mut backoff),
                    ThreadState::Watch => self.watch(&mut backoff),
                    ThreadState::Parked => Ok(self.parked()),
                };
                match next {
                    Ok(next) => state = next,
                    Err(DeviceError::Failed | DeviceError::SocketClosed | DeviceError::Forked) => {
                        return;
                    }
                }
            }
        });
        if catch_unwind(body).is_err() {
            self.fail(DeviceError::Failed);
        }
    }

    /// Ends [`run`](Self::run). Returns whether the thread hears of it: not if other code of the process has closed the
    /// descriptor that wakes it.
    pub(crate) fn stop(&self) -> bool {
        self.progress.close();
        let is_heard = self.thread.event_fd.is_own();
        if is_heard {
            self.thread.event_fd.ring();
        }
        is_heard
    }

    pub(super) fn socket(&self, backoff: &mut IdleBackoff) -> Result<ThreadState, DeviceError> {
        let (mut turns, mut left_lock) = (0_u32, false);
        loop {
            turns = turns.wrapping_add(1);
            // The loop may never run out of work: a port that stays busy or broken.
            if self.progress.is_closing() {
                return Ok(ThreadState::Socket);
            }
            if turns.is_multiple_of(TURNS_PER_LISTENER_POLL) {
                self.poll_listener();
            }
            let locked = self.lock_unless(|| backoff.polls_on(clock::now()))?;
            let Some((mut core, after_others)) = locked else {
                // The owner of the lock makes progress, and would lose time by waking this thread.
                left_lock = true;
                thread::yield_now();
                continue;
            };
            let now = clock::now();
            // A turn may take longer than `MAX_ACK_DELAY`; the thread that had the lock has just ended one.
            let others = after_others
                || std::mem::take(&mut left_lock)
                || self.idle_for(now) < MAX_ACK_DELAY;
            if others && !self.progress.is_waited_for(backoff.served) && now >= backoff.stays_until
            {
                backoff.left_socket();
                return Ok(ThreadState::Watch);
            }
            if core.engine.is_short_of_receives() && self.idle_for(now) < POLLER_GRACE {
                core.turn_without_receiving(now);
                self.release(core, now);
                self.sleep(&self.thread, false, Some(now + MAX_ACK_DELAY), now);
                return Ok(ThreadState::Socket);
            }
            let found = core.turn_of_thread(now);
            backoff.turned(now, found == PollOutcome::Work);
            if found == PollOutcome::Nothing && backoff.polls_again(now) {
                self.release(core, now);
                // With more threads than CPUs, another one may have work.
                thread::yield_now();
                continue;
            }
            if found == PollOutcome::Nothing {
                // Under the lock, so that a thread that sets an earlier deadline sees it.
                let until = core.deadline(now);
                self.thread.sleep.set(Some(until.unwrap_or(AtomicDeadline::NEVER)));
                self.release(core, now);
                if self.progress.is_closing() {
                    return Ok(ThreadState::Socket);
                }
                let woken = self.sleep(&self.thread, true, until, now);
                self.thread.sleep.set(None);
                backoff.is_woken = woken == Woken::Ready;
                let registrations = self.progress.registrations();
                backoff.woken(clock::now(), self.last_use(), registrations);
                return Ok(ThreadState::Socket);
            }
            backoff.found_work(now);
            self.release(core, now);
            if found == PollOutcome::BrokenPort {
                self.sleep(&self.thread, false, Some(now + MAX_ACK_DELAY), now);
                return Ok(ThreadState::Socket);
            }
        }
    }

    pub(super) fn watch(&self, backoff: &mut IdleBackoff) -> Result<ThreadState, DeviceError> {
        if self.progress.needs_thread(backoff.served) {
            return Ok(ThreadState::Socket);
        }
        let now = clock::now();
        let idle = self.idle_for(now);
        let ran = backoff.has_run(now, processor_time());
        let began = backoff.has_turn_begun(self.last_turn());
        if idle >= backoff.watch_interval && !began && !self.is_locked() {
            let waiting = self.has_packets()?;
            backoff.polling_ended(now, ran && waiting);
            let driven = self.progress.is_driven();
            return Ok(if driven { ThreadState::Parked } else { ThreadState::Socket });
        }
        let is_idle = idle >= RECENT_TURN && !self.is_locked();
        if backoff.polls_rarely(is_idle && self.has_packets()?) {
            backoff.polling_ended(now, true);
            return Ok(ThreadState::Socket);
        }
        // The thread that takes turns also sends due packets. A wake-up for that would take the CPU from it.
        let rest = match backoff.watch_interval.saturating_sub(idle) {
            // That turn is still running.
            Duration::ZERO => backoff.watch_interval,
            rest => rest,
        };
        self.sleep(&self.thread, false, Some(now + rest), now);
        if !self.progress.has_waiters() {
            backoff.watch_interval = (backoff.watch_interval * 2).min(MAX_WATCH_INTERVAL);
        }
        Ok(ThreadState::Watch)
    }

    /// Registers a task, or a thread that sleeps on a descriptor of the program, until
    /// [`unregister_waiter`](Self::unregister_waiter).
    pub(crate) fn register_waiter(&self) {
        if self.progress.register_task() {
            self.wake(&self.thread);
        }
    }

    /// Ends [`register_waiter`](Self::register_waiter).
    pub(crate) fn unregister_waiter(&self) {
        self.progress.unregister_task();
    }

    /// Returns whether passengers, tasks or threads at descriptors wait.
    #[cfg(test)]
    pub(crate) fn has_waiters(&self) -> bool {
        self.progress.has_waiters()
    }

    /// Returns whether a waiting thread drives the shard.
    pub(crate) fn is_driven(&self) -> bool {
        self.progress.is_driven()
    }

    fn parked(&self) -> ThreadState {
        if self.progress.is_driven() {
            self.sleep(&self.thread, false, None, Instant::ZERO);
        }
        ThreadState::Watch
    }

    /// Waits for an item in `queue`, until `until`, and drives the device meanwhile if no other thread does.
    pub(crate) fn wait<T>(
        &self,
        queue: &Queue<T>,
        until: Option<Instant>,
        on_signal: OnSignal,
    ) -> Result<WaitOutcome<T>, DeviceError> {
        if let Err(down) = self.check() {
            return self.pop_after_failure(queue, down);
        }
        if let Some(item) = queue.pop() {
            return Ok(WaitOutcome::Item(item));
        }
        if self.progress.join() == Role::Passenger {
            let waited = self.block(queue, until, on_signal);
            self.progress.leave_passenger();
            return waited;
        }
        let guard = DriverGuard { shard: self, queue };
        queue.set_driven(self.set(), true);
        let _guard = PanicGuard(self);
        let waited = self.drive(queue, until, on_signal);
        drop(guard);
        waited.or_else(|down| self.pop_after_failure(queue, down))
    }

    /// Waits for an item in `queue` from other threads.
    pub(super) fn block<T>(
        &self,
        queue: &Queue<T>,
        until: Option<Instant>,
        on_signal: OnSignal,
    ) -> Result<WaitOutcome<T>, DeviceError> {
        let waited = queue.block(until, on_signal);
        match self.check() {
            Err(down) if !matches!(waited, WaitOutcome::Item(_)) => {
                self.pop_after_failure(queue, down)
            }
            _ => Ok(waited),
        }
    }

    /// Takes an item that a failed device has left in `queue`, such as a flushed request. A forked child takes none.
    fn pop_after_failure<T>(
        &self,
        queue: &Queue<T>,
        down: DeviceError,
    ) -> Result<WaitOutcome<T>, DeviceError> {
        if down == DeviceError::Forked {
            return Err(down);
        }
        // Other shards that fill the queue may still be flushing.
        self.fail(down);
        queue.pop().map(WaitOutcome::Item).ok_or(down)
    }

    fn drive<T>(
        &self,
        queue: &Queue<T>,
        until: Option<Instant>,
        on_signal: OnSignal,
    ) -> Result<WaitOutcome<T>, DeviceError> {
        let Driver { sleeper, waits } = &self.driver;
        let mut wait = waits.begin(clock::now());
        let as_read = on_signal == OnSignal::AsRead;
        let mut deferred = if wait.polls() && as_read { signals::defer() } else { None };
        loop {
            self.check()?;
            let mut core = self.lock()?;
            let now = clock::now();
            self.record_turn(now);
            let found = core.turn(now);
            let over = until.is_some_and(|until| until <= now);
            let polls_again = waits.polls_again(&mut wait, now) && found == PollOutcome::Nothing;
            let may_sleep = found != PollOutcome::Work && !polls_again && queue.is_empty() && !over;
            let sleep_until = core.deadline(now).into_iter().chain(until).min();
            if may_sleep {
                sleeper.sleep.set(Some(sleep_until.unwrap_or(AtomicDeadline::NEVER)));
            }
            // This thread need not be woken for items that it has found itself.
            self.release_except(self.set(), core, now);
            if let Some(item) = queue.pop() {
                sleeper.sleep.set(None);
                waits.found(&wait, now);
                return Ok(WaitOutcome::Item(item));
            }
            if over {
                waits.gave_up();
                return Ok(WaitOutcome::Ended);
            }
            if may_sleep {
                let until = match found {
                    PollOutcome::BrokenPort => Some(now + MAX_ACK_DELAY),
                    _ => sleep_until,
                };
                let on_port = found != PollOutcome::BrokenPort;
                let woken =
                    self.sleep_with_signals(sleeper, on_port, until, now, deferred.as_ref());
                sleeper.sleep.set(None);
                if woken == Woken::Interrupted {
                    deferred = None;
                    if as_read && signals::ends_call() {
                        waits.gave_up();
                        return Ok(queue.pop().map_or(WaitOutcome::Interrupted, WaitOutcome::Item));
                    }
                }
            }
        }
    }

    /// Returns the time since a thread other than the device's began a turn.
    pub(super) fn idle_for(&self, now: Instant) -> Duration {
        now - self.last_turn()
    }

    pub(super) fn last_turn(&self) -> Instant {
        Instant::from_nanos(self.last.turn.load(Ordering::Relaxed))
    }

    /// Returns the time at which another thread has last begun a turn or posted requests.
    fn last_use(&self) -> Instant {
        self.last_turn().max(Instant::from_nanos(self.last.post.load(Ordering::Relaxed)))
    }

    /// Sleeps until the eventfd of `sleeper` is rung, a packet if `on_port`, `until`, or a signal. Meanwhile handles the
    /// further descriptor of `sleeper`.
    fn sleep(
        &self,
        sleeper: &Sleeper,
        on_port: bool,
        until: Option<Instant>,
        now: Instant,
    ) -> Woken {
        self.sleep_with_signals(sleeper, on_port, until, now, None)
    }

    /// The same. Takes deferred signals meanwhile.
    fn sleep_with_signals(
        &self,
        sleeper: &Sleeper,
        on_port: bool,
        until: Option<Instant>,
        now: Instant,
        deferred: Option<&DeferredSignals>,
    ) -> Woken {
        if sleeper.event_fd.is_lost() {
            self.fail(DeviceError::SocketClosed);
            return Woken::Closed;
        }
        let timeout = until.map(|until| until - now);
        let listener = sleeper.listener.get();
        let also = [
            Some(sleeper.event_fd.as_raw_fd()),
            listener.and_then(|listener| listener.descriptor()),
        ];
        let port = if on_port { self.port_descriptors().clone() } else { SmallVec::new() };
        let woken = sleep_on_also(&port, also, timeout, deferred);
        // If the kernel refuses to wait, try again.
        let (woken, [is_rung, is_also_ready]) = woken.unwrap_or((Woken::TimedOut, [false; 2]));
        // The number may be that of a file of the program, whose data the program must get.
        if is_rung && sleeper.event_fd.is_own() {
            sleeper.event_fd.silence();
        }
        if woken != Woken::Closed {
            sleeper.closed_sleeps.store(0, Ordering::Relaxed);
        } else if sleeper.closed_sleeps.fetch_add(1, Ordering::Relaxed) >= MAX_CLOSED_SLEEPS {
            self.fail(DeviceError::SocketClosed);
        }
        if let (Some(listener), true) = (listener, is_also_ready) {
            listener.handle_ready();
        }
        woken
    }

    /// Handles the further descriptor of the device's thread if it is ready.
    fn poll_listener(&self) {
        let Some(listener) = self.thread.listener.get() else { return };
        let ready = sleep_on_also(&[], [listener.descriptor()], Some(Duration::ZERO), None);
        if ready.is_ok_and(|(_, [is_ready])| is_ready) {
            listener.handle_ready();
        }
    }
}

/// Role of the driver. Its end wakes the device's thread if that has to take over.
struct DriverGuard<'a, T> {
    shard: &'a Shard,
    queue: &'a Queue<T>,
}

impl<T> Drop for DriverGuard<'_, T> {
    fn drop(&mut self) {
        let shard = self.shard;
        self.queue.set_driven(shard.set(), false);
        if shard.progress.leave_driver() {
            shard.wake(&shard.thread);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::io::Write;
    use std::os::fd::{AsFd, OwnedFd, RawFd};
    use std::os::unix::net::UnixStream;

    use super::*;
    use crate::port::EventFd;
    use crate::runtime::shard::BUSY_POLL_TIME;
    use crate::runtime::shard::tests::shard;

    /// Sleeps on the port with the eventfd of the device's thread, which is readable.
    fn sleep_on_port(shard: &Shard) -> Woken {
        shard.thread.event_fd.ring();
        shard.sleep(&shard.thread, true, None, Instant::ZERO)
    }

    #[test]
    fn descriptor_that_stays_closed_fails_the_device() {
        let (shard, _, _) = shard([10, 255, 1, 17]);
        for is_last in [false, true] {
            // A process has no descriptor with this number.
            shard.port_descriptors().push(RawFd::MAX);
            for _ in 0..MAX_CLOSED_SLEEPS {
                assert_eq!(sleep_on_port(&shard), Woken::Closed);
            }
            assert_eq!(shard.check(), Ok(()));
            if !is_last {
                // A turn has replaced it.
                shard.port_descriptors().pop();
                assert_eq!(sleep_on_port(&shard), Woken::Ready);
            }
        }
        sleep_on_port(&shard);
        assert_eq!(shard.check(), Err(DeviceError::SocketClosed));
    }

    /// The woken thread may run on the CPU of the ringer, which then goes on later.
    #[test]
    fn ring_ends_one_sleep_even_if_its_call_has_not_returned() {
        let (shard, _, _) = shard([10, 255, 1, 19]);
        let mut event_fd = File::from(shard.thread.event_fd.as_fd().try_clone_to_owned().unwrap());
        event_fd.write_all(&1_u64.to_ne_bytes()).unwrap();
        let sleep = || shard.sleep(&shard.thread, false, Some(Instant::ZERO), Instant::ZERO);
        assert_eq!([sleep(), sleep()], [Woken::Ready, Woken::TimedOut]);
    }

    #[test]
    fn wait_after_a_short_one_ends_at_its_time() {
        let (shard, _, _) = shard([10, 255, 1, 21]);
        let waits = &shard.driver.waits;
        waits.found(&waits.begin(clock::now()), clock::now());
        let until = clock::now() + 2 * BUSY_POLL_TIME;
        for on_signal in [OnSignal::Wait, OnSignal::AsRead] {
            let ended = shard.wait(&Queue::<()>::new(1), Some(until), on_signal).unwrap();
            assert!(matches!(ended, WaitOutcome::Ended));
            assert!(clock::now() >= until && !waits.begin(until).polls(), "it was long");
        }
    }

    #[test]
    fn lost_eventfd_fails_the_device() {
        for sleeps in [false, true] {
            let (mut shard, _, _) = shard([10, 255, 1, 18]);
            let (foreign, _program) = UnixStream::pair().unwrap();
            shard.thread.event_fd = EventFd::replaced_by(File::from(OwnedFd::from(foreign)));
            match sleeps {
                true => assert_eq!(sleep_on_port(&shard), Woken::Closed),
                false => shard.wake(&shard.thread),
            }
            assert_eq!(shard.check(), Err(DeviceError::SocketClosed), "{sleeps}");
        }
    }

    #[test]
    fn sleep_reads_nothing_from_a_file_that_has_just_got_the_number_of_the_eventfd() {
        let (mut shard, _, _) = shard([10, 255, 1, 20]);
        let (foreign, mut program) = UnixStream::pair().unwrap();
        let event_fd = EventFd::replaced_by(File::from(OwnedFd::from(foreign)));
        shard.thread.event_fd = event_fd.just_checked();
        program.write_all(b"12345678").unwrap();
        let sleep = || shard.sleep(&shard.thread, false, Some(Instant::ZERO), Instant::ZERO);
        assert_eq!([sleep(), sleep()], [Woken::Ready; 2]);
    }
}

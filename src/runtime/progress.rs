//! Who makes progress: the device's thread, and threads that wait.
//!
//! Everybody who looks for completions takes turns ([`Shard::turn_for`]), and that is the fast way.
//! The thread sees to it that the device answers while nobody does, and keeps out of the way while
//! somebody does:
//!
//! ```text
//!        packet, deadline, bell: turn until there is nothing
//!                       ┌─────┐
//!                       ▼     │
//!   start ────────▶  Socket ──┘
//!                     │   ▲
//!    woken, and some- │   │ 1 to 4 ms without a turn by
//!    body else took a │   │ anybody, and nobody waits
//!    turn just now    ▼   │
//!                    Watch ◀──────────────────┐
//!                     │                       │ bell: the one who waited
//!                     │ 1 to 4 ms without a   │ has left
//!                     │ turn by anybody, and  │
//!                     │ somebody waits        │
//!                     └──────────────────▶ Parked
//! ```
//!
//! * **Socket**: asleep on the port's descriptors and the bell, until the engine's next deadline. A
//!   stream of UC or UD messages it does not receive to the last receive request when somebody polled
//!   just now: that program has lost the CPU, not its interest.
//!   It stays there a while, whoever takes turns, if packets had waited for it when it came back from
//!   watching: the program looks for completions now and then only, and waits for its memory to change.
//! * **Watch**: off the descriptors, asleep on the bell until a millisecond after the last turn that
//!   was taken; two, then four, while it finds that turns are taken, because each look takes the CPU
//!   from whoever polls. So what a turn leaves owed is sent after four milliseconds at the latest.
//! * **Parked**: asleep on the bell alone. A thread that waits drives the device: it sleeps on the
//!   descriptors itself, because to be woken by another thread takes ten times as long.
//!
//! Only one of those who wait drives; the others are passengers and sleep on the queue they wait
//! for. While there are any, the thread stays on the socket in case the driver gets off. Tasks and
//! the descriptors of completion channels ([`Shard::board`]) never drive: for them the thread is on the
//! socket while nobody else is, however often they look.
//!
//! Of a device with several shards each has such a thread. Who looks for what several of them bring takes a
//! turn of each, and who waits for it drives one of them and is aboard the others ([`Shards`]).
//!
//! Nobody sleeps with a timeout on an idle device.
//!
//! [`Shards`]: crate::runtime::shards::Shards

use std::os::fd::AsRawFd;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::Ordering;
use std::thread;
use std::time::Duration;

use crate::io::Bell;
use crate::runtime::core::{Found, LINGER};
use crate::runtime::down::Down;
use crate::runtime::queue::{OnSignal, Queue, Waited};
use crate::runtime::shard::{Due, Shard, Watch};
use crate::runtime::{clock, signals};
use crate::sync::progress::{Role, ThreadState};
use crate::sys::{Woken, processor_time, sleep_on};
use crate::time::Instant;

/// How long the thread may watch without a look.
const MOST_PATIENCE: Duration = Duration::from_millis(4);

/// How long a program that polls is waited for when UC and UD run out of receive requests: longer than
/// it loses the CPU for.
const SPARED: Duration = Duration::from_millis(20);

/// How long the thread stays on the socket when packets have waited for it; twice as long each time that
/// this happens again, up to the second.
const STAY: Duration = Duration::from_millis(16);
const LONGEST_STAY: Duration = Duration::from_secs(1);

/// How long the thread looks again and again when what comes next may come at once: as long as it takes to
/// be woken.
const SPIN: Duration = Duration::from_micros(50);

/// What the thread makes of those who take turns.
#[derive(Debug)]
pub(super) struct Vigil {
    /// How long it watches without a look.
    patience: Duration,
    /// How long it stayed on the socket when packets had waited last.
    stay: Duration,
    /// Until when it stays there.
    stays_until: Instant,
    /// When the last turn of somebody else had begun that the last look found.
    turn: Instant,
    /// The last look, and what the process had of the processor by then.
    looked: (Instant, Duration),
    /// Since when there is nothing to do on the socket.
    idle_since: Option<Instant>,
    /// The last time there was something to do again within [`SPIN`].
    is_busy: bool,
}

impl Vigil {
    pub(super) const fn new() -> Self {
        Self {
            patience: LINGER,
            stay: Duration::ZERO,
            stays_until: Instant::ZERO,
            turn: Instant::ZERO,
            looked: (Instant::ZERO, Duration::ZERO),
            idle_since: None,
            is_busy: false,
        }
    }

    /// Whether the program has run since the last look, given what it has had of the processor. A program
    /// that was waiting for the processor looks as if it did not poll, and is not to be helped by taking
    /// more of that from it.
    fn ran(&mut self, now: Instant, processor: Duration) -> bool {
        let (before, had) = std::mem::replace(&mut self.looked, (now, processor));
        processor.saturating_sub(had) * 2 > now - before
    }

    /// Whether somebody has begun a turn since the last look, given when the last one began.
    fn sees(&mut self, turn: Instant) -> bool {
        std::mem::replace(&mut self.turn, turn) != turn
    }

    /// There was something to do.
    fn works(&mut self, now: Instant) {
        if let Some(since) = self.idle_since.take() {
            self.is_busy = now - since < SPIN;
        }
    }

    /// There is nothing to do: whether to look again at once.
    fn spins(&mut self, now: Instant) -> bool {
        let since = *self.idle_since.get_or_insert(now);
        self.is_busy && now - since < SPIN
    }

    /// Nobody has taken a turn for longer than the thread is patient; packets may have waited meanwhile.
    fn ends(&mut self, now: Instant, packets_waited: bool) {
        self.patience = LINGER;
        if packets_waited {
            self.stay = (self.stay * 2).clamp(STAY, LONGEST_STAY);
            self.stays_until = now + self.stay;
        } else {
            self.stay = Duration::ZERO;
        }
    }
}

impl Shard {
    /// The body of the device's thread, until the device is closed.
    pub(crate) fn run(&self) {
        let body = AssertUnwindSafe(|| {
            let mut state = ThreadState::Socket;
            let mut vigil = Vigil::new();
            while self.progress.enter(state) {
                let next = match state {
                    ThreadState::Socket => self.socket(&mut vigil),
                    ThreadState::Watch => self.watch(&mut vigil),
                    ThreadState::Parked => Ok(self.parked()),
                };
                match next {
                    Ok(next) => state = next,
                    Err(Down::Failed | Down::SocketClosed | Down::Forked) => return,
                }
            }
        });
        if catch_unwind(body).is_err() {
            self.fail(Down::Failed);
        }
    }

    /// Ends [`run`](Self::run).
    pub(crate) fn stop(&self) {
        self.progress.close();
        self.thread_bell.ring();
    }

    pub(super) fn socket(&self, vigil: &mut Vigil) -> Result<ThreadState, Down> {
        loop {
            // There may be something to do without end: a port that stays busy or broken.
            if self.progress.is_closing() {
                return Ok(ThreadState::Socket);
            }
            let (mut core, after_others) = self.lock_after_others()?;
            let now = clock::now();
            // A turn may take longer than `LINGER`; whoever had the lock has just ended one.
            let others = after_others || self.idle_for(now) < LINGER;
            if others && !self.progress.is_waited_for() && now >= vigil.stays_until {
                return Ok(ThreadState::Watch);
            }
            if core.engine.is_short_of_receives() && self.idle_for(now) < SPARED {
                core.turn_without_receiving(now);
                self.release(core, now);
                self.sleep(&self.thread_bell, false, Some(now + LINGER), now);
                self.thread_bell.silence();
                return Ok(ThreadState::Socket);
            }
            let found = core.turn(now);
            if found == Found::Nothing && vigil.spins(now) {
                self.release(core, now);
                // Where there are more threads than processors, others have something to do.
                thread::yield_now();
                continue;
            }
            if found == Found::Nothing {
                // Under the lock, so that whoever brings an earlier deadline sees it.
                let until = core.deadline(now);
                self.thread_sleep.set(Some(until.unwrap_or(Due::NEVER)));
                self.release(core, now);
                if self.progress.is_closing() {
                    return Ok(ThreadState::Socket);
                }
                self.sleep(&self.thread_bell, true, until, now);
                self.thread_sleep.set(None);
                self.thread_bell.silence();
                return Ok(ThreadState::Socket);
            }
            vigil.works(now);
            self.release(core, now);
            if found == Found::BrokenPort {
                self.sleep(&self.thread_bell, false, Some(now + LINGER), now);
                self.thread_bell.silence();
                return Ok(ThreadState::Socket);
            }
        }
    }

    pub(super) fn watch(&self, vigil: &mut Vigil) -> Result<ThreadState, Down> {
        if self.progress.needs_thread() {
            return Ok(ThreadState::Socket);
        }
        let now = clock::now();
        let idle = self.idle_for(now);
        let ran = vigil.ran(now, processor_time());
        let began = vigil.sees(self.last_turn());
        if idle >= vigil.patience && !began && !self.is_locked() {
            let waiting = self.has_waiting()?;
            vigil.ends(now, ran && waiting);
            let driven = self.progress.is_driven();
            return Ok(if driven { ThreadState::Parked } else { ThreadState::Socket });
        }
        // Whoever takes turns sends what is due as well. To wake up for that would take the CPU from him.
        let rest = match vigil.patience.saturating_sub(idle) {
            // That turn takes long.
            Duration::ZERO => vigil.patience,
            rest => rest,
        };
        self.sleep(&self.thread_bell, false, Some(now + rest), now);
        self.thread_bell.silence();
        vigil.patience = (vigil.patience * 2).min(MOST_PATIENCE);
        Ok(ThreadState::Watch)
    }

    /// A task waits, or a descriptor, until [`alight`](Self::alight).
    pub(crate) fn board(&self) {
        if self.progress.register_task() {
            self.thread_bell.ring();
        }
    }

    /// It waits no more.
    pub(crate) fn alight(&self) {
        self.progress.unregister_task();
    }

    /// Whether a thread that waits for something drives it.
    pub(crate) fn is_driven(&self) -> bool {
        self.progress.is_driven()
    }

    fn parked(&self) -> ThreadState {
        if self.progress.is_driven() {
            self.sleep(&self.thread_bell, false, None, Instant::ZERO);
            self.thread_bell.silence();
        }
        ThreadState::Watch
    }

    /// Waits for something in `queue`, until `until`, and drives the device meanwhile if nobody else
    /// does.
    pub(crate) fn wait<T>(
        &self,
        queue: &Queue<T>,
        until: Option<Instant>,
        on_signal: OnSignal,
    ) -> Result<Waited<T>, Down> {
        if let Err(down) = self.check() {
            return self.rest(queue, down);
        }
        if let Some(item) = queue.pop() {
            return Ok(Waited::Item(item));
        }
        if self.progress.join() == Role::Passenger {
            let waited = self.block(queue, until, on_signal);
            self.progress.leave_passenger();
            return waited;
        }
        let seat = Seat { shard: self, queue };
        queue.set_driven(self.set(), true);
        let _watch = Watch(self);
        let waited = self.drive(queue, until, on_signal);
        drop(seat);
        waited.or_else(|down| self.rest(queue, down))
    }

    /// Waits for something in `queue` that others bring.
    pub(super) fn block<T>(
        &self,
        queue: &Queue<T>,
        until: Option<Instant>,
        on_signal: OnSignal,
    ) -> Result<Waited<T>, Down> {
        let waited = queue.block(until, on_signal);
        match self.check() {
            Err(down) if !matches!(waited, Waited::Item(_)) => self.rest(queue, down),
            _ => Ok(waited),
        }
    }

    /// Takes an item that a failed device has left in `queue`, above all a flushed request. A forked child
    /// takes none.
    fn rest<T>(&self, queue: &Queue<T>, down: Down) -> Result<Waited<T>, Down> {
        if down == Down::Forked {
            return Err(down);
        }
        // Other shards that fill the queue may still be flushing.
        self.fail(down);
        queue.pop().map(Waited::Item).ok_or(down)
    }

    fn drive<T>(
        &self,
        queue: &Queue<T>,
        until: Option<Instant>,
        on_signal: OnSignal,
    ) -> Result<Waited<T>, Down> {
        loop {
            self.check()?;
            let mut core = self.lock()?;
            let now = clock::now();
            self.takes_turn(now);
            let found = core.turn(now);
            // Nobody else need wake us for what we have found ourselves.
            core.spare_driver(self.set());
            let over = until.is_some_and(|until| until <= now);
            let may_sleep = found != Found::Work && queue.is_empty() && !over;
            let sleep_until = core.deadline(now).into_iter().chain(until).min();
            if may_sleep {
                self.driver_sleep.set(Some(sleep_until.unwrap_or(Due::NEVER)));
            }
            self.release(core, now);
            if let Some(item) = queue.pop() {
                self.driver_sleep.set(None);
                return Ok(Waited::Item(item));
            }
            if over {
                return Ok(Waited::Over);
            }
            if may_sleep {
                let until = match found {
                    Found::BrokenPort => Some(now + LINGER),
                    _ => sleep_until,
                };
                let woken = self.sleep(&self.driver_bell, found != Found::BrokenPort, until, now);
                self.driver_sleep.set(None);
                self.driver_bell.silence();
                if woken == Woken::Interrupted
                    && on_signal == OnSignal::AsRead
                    && signals::has_ended_the_call()
                {
                    return Ok(queue.pop().map_or(Waited::Interrupted, Waited::Item));
                }
            }
        }
    }

    /// How long ago somebody else than the thread began a turn.
    pub(super) fn idle_for(&self, now: Instant) -> Duration {
        now - self.last_turn()
    }

    fn last_turn(&self) -> Instant {
        Instant::from_nanos(self.last_turn.load(Ordering::Relaxed))
    }

    /// Sleeps until `bell`, a packet if `on_port`, or `until`; or until a signal interrupts it.
    fn sleep(&self, bell: &Bell, on_port: bool, until: Option<Instant>, now: Instant) -> Woken {
        let timeout = until.map(|until| until - now);
        let woken = if on_port {
            sleep_on(&self.descriptors_and(bell), timeout)
        } else {
            sleep_on(&[bell.as_raw_fd()], timeout)
        };
        // When the kernel refuses to wait there is no better than to look again.
        woken.unwrap_or(Woken::TimedOut)
    }
}

/// The driver's. Whoever leaves it tells the thread, if that relies on it.
struct Seat<'a, T> {
    shard: &'a Shard,
    queue: &'a Queue<T>,
}

impl<T> Drop for Seat<'_, T> {
    fn drop(&mut self) {
        let shard = self.shard;
        self.queue.set_driven(shard.set(), false);
        if shard.progress.leave_driver() {
            shard.thread_bell.ring();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_finds_packets_waiting_stays_for_them_ever_longer() {
        let mut vigil = Vigil::new();
        let now = Instant::ZERO + Duration::from_secs(9);
        let mut stays = |waited| {
            vigil.ends(now, waited);
            vigil.stays_until - now
        };
        let milliseconds = [16, 32, 64, 128, 256, 512, 1000, 1000].map(Duration::from_millis);
        assert_eq!([(); 8].map(|()| stays(true)), milliseconds);
        stays(false);
        assert_eq!(stays(true), STAY, "it begins anew");
    }

    #[test]
    fn the_thread_looks_again_at_once_where_there_was_something_soon() {
        let mut vigil = Vigil::new();
        let at = |us| Instant::ZERO + Duration::from_micros(us);
        assert!(!vigil.spins(at(100)), "nothing is known yet");
        vigil.works(at(149));
        assert!(vigil.spins(at(200)) && vigil.spins(at(249)));
        assert!(!vigil.spins(at(250)), "long enough");
        vigil.works(at(251));
        assert!(!vigil.spins(at(300)), "it was not soon");
    }

    #[test]
    fn a_program_that_had_less_than_half_of_a_processor_has_not_run() {
        let mut vigil = Vigil::new();
        let mut ran = |now, had| vigil.ran(Instant::from_millis(now), Duration::from_millis(had));
        assert!(ran(10, 6));
        assert!(!ran(20, 11), "5 of 10");
        assert!(ran(30, 31), "two threads");
    }
}

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
//! Nobody sleeps with a timeout on an idle device.

use std::os::fd::AsRawFd;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::Ordering;
use std::time::Duration;

use crate::io::wait_readable;
use crate::runtime::bell::Bell;
use crate::runtime::clock;
use crate::runtime::core::{Found, LINGER};
use crate::runtime::queue::Queue;
use crate::runtime::shard::{Down, Due, Shard, Watch};
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

/// What the thread does.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub(crate) enum State {
    Socket = 0,
    Watch = 1,
    Parked = 2,
}

/// What the thread makes of those who take turns.
#[derive(Debug)]
pub(super) struct Vigil {
    /// How long it watches without a look.
    patience: Duration,
    /// How long it stayed on the socket when packets had waited last.
    stay: Duration,
    /// Until when it stays there.
    stays_until: Instant,
}

impl Vigil {
    pub(super) const fn new() -> Self {
        Self { patience: LINGER, stay: Duration::ZERO, stays_until: Instant::ZERO }
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
            let mut state = State::Socket;
            let mut vigil = Vigil::new();
            while !self.closing.load(Ordering::SeqCst) {
                self.thread.store(state as u8, Ordering::SeqCst);
                let next = match state {
                    State::Socket => self.socket(&vigil),
                    State::Watch => self.watch(&mut vigil),
                    State::Parked => Ok(self.parked()),
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
        self.closing.store(true, Ordering::SeqCst);
        self.thread_bell.ring();
    }

    pub(super) fn socket(&self, vigil: &Vigil) -> Result<State, Down> {
        loop {
            let mut core = self.lock()?;
            let now = clock::now();
            if self.idle_for(now) < LINGER && !self.is_waited_for() && now >= vigil.stays_until {
                return Ok(State::Watch);
            }
            if core.engine.is_short_of_receives() && self.idle_for(now) < SPARED {
                core.turn_without_receiving(now);
                self.release(core, now);
                self.sleep(&self.thread_bell, false, Some(now + LINGER), now);
                self.thread_bell.silence();
                return Ok(State::Socket);
            }
            let found = core.turn(now);
            if found == Found::Nothing {
                // Under the lock, so that whoever brings an earlier deadline sees it.
                let until = core.deadline(now);
                self.thread_sleep.set(Some(until.unwrap_or(Due::NEVER)));
                self.release(core, now);
                if self.closing.load(Ordering::SeqCst) {
                    return Ok(State::Socket);
                }
                self.sleep(&self.thread_bell, true, until, now);
                self.thread_sleep.set(None);
                self.thread_bell.silence();
                return Ok(State::Socket);
            }
            self.release(core, now);
            if found == Found::BrokenPort {
                self.sleep(&self.thread_bell, false, Some(now + LINGER), now);
            }
        }
    }

    pub(super) fn watch(&self, vigil: &mut Vigil) -> Result<State, Down> {
        if !self.driven.load(Ordering::SeqCst) && self.is_waited_for() {
            return Ok(State::Socket);
        }
        let now = clock::now();
        let idle = self.idle_for(now);
        if idle >= vigil.patience {
            let waiting = wait_readable(&self.port_descriptors(), Some(Duration::ZERO));
            vigil.ends(now, waiting.unwrap_or(false));
            let driven = self.driven.load(Ordering::SeqCst);
            return Ok(if driven { State::Parked } else { State::Socket });
        }
        // Whoever takes turns sends what is due as well. To wake up for that would take the CPU from him.
        self.sleep(&self.thread_bell, false, Some(now + (vigil.patience - idle)), now);
        self.thread_bell.silence();
        vigil.patience = (vigil.patience * 2).min(MOST_PATIENCE);
        Ok(State::Watch)
    }

    /// Whether there is somebody who waits and leaves it to others to drive. A task does not mind
    /// who does; a passenger relies on the thread even while there is a driver.
    fn is_waited_for(&self) -> bool {
        self.passengers.load(Ordering::SeqCst) > 0
            || (self.tasks.load(Ordering::SeqCst) > 0 && !self.driven.load(Ordering::SeqCst))
    }

    /// A task waits, or a descriptor, until [`alight`](Self::alight).
    pub(crate) fn board(&self) {
        self.tasks.fetch_add(1, Ordering::SeqCst);
        // The thread looks for them after it has said that it watches.
        if self.thread.load(Ordering::SeqCst) == State::Watch as u8 {
            self.thread_bell.ring();
        }
    }

    /// It waits no more.
    pub(crate) fn alight(&self) {
        self.tasks.fetch_sub(1, Ordering::SeqCst);
    }

    fn parked(&self) -> State {
        // Whoever gets off looks at the state after that; the state was set before this look.
        if self.driven.load(Ordering::SeqCst) {
            self.sleep(&self.thread_bell, false, None, Instant::ZERO);
            self.thread_bell.silence();
        }
        State::Watch
    }

    /// Waits for something in `queue`, until `until`, and drives the device meanwhile if nobody else
    /// does. `None` when the time is over.
    pub(crate) fn wait<T>(
        &self,
        queue: &Queue<T>,
        until: Option<Instant>,
    ) -> Result<Option<T>, Down> {
        if let Err(down) = self.check() {
            return rest(queue, down);
        }
        if let Some(item) = queue.pop() {
            return Ok(Some(item));
        }
        self.passengers.fetch_add(1, Ordering::SeqCst);
        let driving = !self.driven.swap(true, Ordering::SeqCst);
        if !driving {
            let item = queue.block(until);
            self.passengers.fetch_sub(1, Ordering::SeqCst);
            return match self.check() {
                Err(down) if item.is_none() => rest(queue, down),
                _ => Ok(item),
            };
        }
        self.passengers.fetch_sub(1, Ordering::SeqCst);
        let seat = Seat { shard: self, queue };
        queue.set_driven(true);
        let _watch = Watch(self);
        let item = self.drive(queue, until);
        drop(seat);
        item.or_else(|down| rest(queue, down))
    }

    fn drive<T>(&self, queue: &Queue<T>, until: Option<Instant>) -> Result<Option<T>, Down> {
        loop {
            self.check()?;
            let mut core = self.lock()?;
            let now = clock::now();
            let found = core.turn(now);
            // Nobody else need wake us for what we have found ourselves.
            core.spare_driver();
            self.last_turn.store(now.as_nanos(), Ordering::Relaxed);
            let over = until.is_some_and(|until| until <= now);
            let may_sleep = found != Found::Work && queue.is_empty() && !over;
            let sleep_until = core.deadline(now).into_iter().chain(until).min();
            if may_sleep {
                self.driver_sleep.set(Some(sleep_until.unwrap_or(Due::NEVER)));
            }
            self.release(core, now);
            if let Some(item) = queue.pop() {
                self.driver_sleep.set(None);
                return Ok(Some(item));
            }
            if over {
                return Ok(None);
            }
            if may_sleep {
                let until = match found {
                    Found::BrokenPort => Some(now + LINGER),
                    _ => sleep_until,
                };
                self.sleep(&self.driver_bell, found != Found::BrokenPort, until, now);
                self.driver_sleep.set(None);
                self.driver_bell.silence();
            }
        }
    }

    /// How long ago somebody else than the thread took a turn.
    pub(super) fn idle_for(&self, now: Instant) -> Duration {
        now - Instant::from_nanos(self.last_turn.load(Ordering::Relaxed))
    }

    /// Sleeps until `bell`, a packet if `on_port`, or `until`.
    fn sleep(&self, bell: &Bell, on_port: bool, until: Option<Instant>, now: Instant) {
        let timeout = until.map(|until| until - now);
        // When the kernel refuses to wait there is no better than to look again.
        let _ = if on_port {
            wait_readable(&self.descriptors_and(bell), timeout)
        } else {
            wait_readable(&[bell.as_raw_fd()], timeout)
        };
    }
}

/// What is left in a queue of a device that has failed: above all what it has flushed. A forked child has
/// no part in it.
fn rest<T>(queue: &Queue<T>, down: Down) -> Result<Option<T>, Down> {
    match down {
        Down::Forked => Err(down),
        Down::Failed | Down::SocketClosed => queue.pop().map(Some).ok_or(down),
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
        self.queue.set_driven(false);
        shard.driven.store(false, Ordering::SeqCst);
        let thread = shard.thread.load(Ordering::SeqCst);
        if thread == State::Parked as u8 || (thread == State::Watch as u8 && shard.is_waited_for())
        {
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
}

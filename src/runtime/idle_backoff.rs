//! How long the device's thread stays on its socket and off it, while other threads poll.

use std::time::Duration;

use crate::runtime::busy_poll::{BusyPoll, Wait};
use crate::runtime::core::MAX_ACK_DELAY;
use crate::time::Instant;

/// Time that the thread stays on the socket after packets have waited for it. It doubles each time in a row that this
/// happens, up to the maximum.
const MIN_SOCKET_STAY: Duration = Duration::from_millis(16);
const MAX_SOCKET_STAY: Duration = Duration::from_secs(1);

/// Time that the thread polls before it sleeps: more than a round trip in which each packet wakes this
/// thread and then one of the program, at both ends.
const THREAD_BUSY_POLL_TIME: Duration = Duration::from_micros(200);

/// After a turn or a post of another thread, a wake-up is late for this long: that thread would have taken the packet.
const LATE_TIME: Duration = Duration::from_micros(50);

/// Number of wake-ups in a row, each within [`LATE_TIME`] of a new turn or post of a polling thread, after which the thread
/// leaves the socket to that thread.
pub(super) const MAX_LATE_WAKEUPS: u32 = 16;

/// Number of checks in a row in Watch that find waiting packets and no recent turn, after which the thread returns to the
/// socket: the program polls too rarely to answer its peers.
const MAX_RARE_POLLS: u32 = 2;

/// Number of wake-ups in a row by packets that another thread has taken first, which ends a stay on the socket: the program
/// polls often again.
const MAX_USELESS_WAKEUPS: u32 = 16;

/// Wake-ups of the device's thread in a row, each just after a new turn or post of another thread.
#[derive(Debug)]
struct LateWakeups {
    count: u32,
    /// Time of the last turn or post at the last wake-up.
    used: Instant,
    /// Number of registrations of tasks at the last wake-up.
    registrations: usize,
}

/// Decides how long the device's thread stays off the socket while other threads poll.
#[derive(Debug)]
pub(super) struct IdleBackoff {
    /// Interval until the next check in Watch.
    pub(super) watch_interval: Duration,
    /// Length of the last stay on the socket, and the time of the last check that found waiting packets.
    stay: Duration,
    packets_waited_at: Instant,
    /// End of the current stay.
    pub(super) stays_until: Instant,
    /// Start of the last turn of another thread at the last check.
    turn: Instant,
    /// Time of the last check, and CPU time of the process until then.
    last_check: (Instant, Duration),
    /// Idle periods on the socket, and the current one.
    waits: BusyPoll,
    wait: Option<Wait>,
    late_wakeups: LateWakeups,
    /// Number of registered tasks that polling threads serve ([`Progress::is_waited_for`]).
    ///
    /// [`Progress::is_waited_for`]: crate::sync::progress::Progress::is_waited_for
    pub(super) served: usize,
    /// Number of checks in a row that found waiting packets and no recent turn.
    rare_polls: u32,
    /// The thread was woken, and has taken no turn since.
    pub(super) is_woken: bool,
    /// Number of wake-ups in a row without work.
    useless_wakeups: u32,
}

impl IdleBackoff {
    pub(super) const fn new() -> Self {
        Self {
            watch_interval: MAX_ACK_DELAY,
            stay: Duration::ZERO,
            packets_waited_at: Instant::ZERO,
            stays_until: Instant::ZERO,
            turn: Instant::ZERO,
            last_check: (Instant::ZERO, Duration::ZERO),
            waits: BusyPoll::new(THREAD_BUSY_POLL_TIME, true),
            wait: None,
            late_wakeups: LateWakeups { count: 0, used: Instant::ZERO, registrations: 0 },
            served: 0,
            rare_polls: 0,
            is_woken: false,
            useless_wakeups: 0,
        }
    }

    /// Reports a wake-up on the socket. `used` is the time of the last turn or post of another thread, and
    /// `registrations` the number of registrations of tasks until now.
    pub(super) fn woken(&mut self, now: Instant, used: Instant, registrations: usize) {
        let last = &self.late_wakeups;
        let is_late =
            used != last.used && now - used < LATE_TIME && registrations == last.registrations;
        let count = if is_late { last.count + 1 } else { 0 };
        self.late_wakeups = LateWakeups { count, used, registrations };
        if count >= MAX_LATE_WAKEUPS {
            self.served = registrations;
        }
    }

    /// Reports a turn on the socket, and whether there was work. After wake-ups without work the stay ends.
    pub(super) fn turned(&mut self, now: Instant, had_work: bool) {
        if !std::mem::take(&mut self.is_woken) {
            return;
        }
        self.useless_wakeups = if had_work { 0 } else { self.useless_wakeups + 1 };
        if self.useless_wakeups >= MAX_USELESS_WAKEUPS {
            self.stays_until = now;
        }
    }

    /// Reports a check in Watch, and whether it found waiting packets and no recent turn. Returns whether the program
    /// polls too rarely.
    pub(super) fn polls_rarely(&mut self, found: bool) -> bool {
        self.rare_polls = if found { self.rare_polls + 1 } else { 0 };
        self.rare_polls >= MAX_RARE_POLLS
    }

    /// Returns whether the program has used the CPU since the last check, given the CPU time of the process. A program
    /// that waits for a CPU appears not to poll, and must not lose more CPU time to this thread.
    pub(super) fn has_run(&mut self, now: Instant, processor: Duration) -> bool {
        let (before, had) = std::mem::replace(&mut self.last_check, (now, processor));
        processor.saturating_sub(had) * 2 > now - before
    }

    /// Returns whether another thread has begun a turn since the last check. `turn` is the start of the last one.
    pub(super) fn has_turn_begun(&mut self, turn: Instant) -> bool {
        std::mem::replace(&mut self.turn, turn) != turn
    }

    /// Reports work.
    pub(super) fn found_work(&mut self, now: Instant) {
        if let Some(wait) = self.wait.take() {
            self.waits.found(&wait, now);
        }
    }

    /// Reports that there is no work. Returns whether the thread polls again before it sleeps.
    pub(super) fn polls_again(&mut self, now: Instant) -> bool {
        let Self { waits, wait, .. } = self;
        waits.polls_again(wait.get_or_insert_with(|| waits.begin(now)), now)
    }

    /// Reports that another thread has the lock. Returns whether the thread polls on instead of waiting for the lock.
    pub(super) fn polls_on(&mut self, now: Instant) -> bool {
        let Self { waits, wait, .. } = self;
        waits.is_polling(wait.get_or_insert_with(|| waits.begin(now)), now)
    }

    /// Reports that other threads take turns, which ends the idle period: the thread does not poll until its end.
    pub(super) fn left_socket(&mut self) {
        self.wait = None;
    }

    /// Reports that no thread has polled for the watch interval, and whether packets have waited meanwhile.
    ///
    /// Without waiting packets the program may still be one that polls rarely: its peer may do the same, and both wait
    /// for the same packet. So the length of the stay is kept for some time.
    pub(super) fn polling_ended(&mut self, now: Instant, packets_waited: bool) {
        self.watch_interval = MAX_ACK_DELAY;
        (self.late_wakeups.count, self.served, self.rare_polls) = (0, 0, 0);
        self.useless_wakeups = 0;
        if packets_waited {
            self.stay = (self.stay * 2).clamp(MIN_SOCKET_STAY, MAX_SOCKET_STAY);
            self.packets_waited_at = now;
        } else if now - self.packets_waited_at > MAX_SOCKET_STAY {
            self.stay = Duration::ZERO;
        }
        self.stays_until = now + self.stay;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stay_on_the_socket_doubles_while_packets_wait() {
        let mut backoff = IdleBackoff::new();
        let mut stays = |seconds, waited| {
            let now = Instant::ZERO + Duration::from_secs(seconds);
            backoff.polling_ended(now, waited);
            backoff.stays_until - now
        };
        let milliseconds = [16, 32, 64, 128, 256, 512, 1000, 1000].map(Duration::from_millis);
        assert_eq!([(); 8].map(|()| stays(9, true)), milliseconds);
        assert_eq!(stays(10, false), MAX_SOCKET_STAY, "packets waited a second ago");
        assert_eq!(stays(11, false), Duration::ZERO);
        assert_eq!(stays(12, true), MIN_SOCKET_STAY, "it begins anew");
    }

    #[test]
    fn stay_grows_while_each_of_two_peers_finds_packets_in_every_other_check() {
        let mut backoff = IdleBackoff::new();
        for check in 0..12 {
            let now = Instant::ZERO + Duration::from_millis(2 * check);
            backoff.polling_ended(now, check % 2 == 0);
        }
        assert_eq!(backoff.stay, MIN_SOCKET_STAY * 32);
    }

    #[test]
    fn the_thread_polls_again_where_there_was_something_soon() {
        let mut backoff = IdleBackoff::new();
        let at = |us| Instant::ZERO + Duration::from_micros(us);
        assert!(!backoff.polls_again(at(100)), "nothing is known yet");
        backoff.found_work(at(299));
        assert!(backoff.polls_again(at(300)) && backoff.polls_again(at(499)));
        assert!(!backoff.polls_again(at(500)), "long enough");
        backoff.found_work(at(501));
        assert!(!backoff.polls_again(at(600)), "it was not soon");
        let mut backoff = IdleBackoff::new();
        assert!(!backoff.polls_again(at(100)));
        backoff.found_work(at(101));
        assert!(backoff.polls_again(at(102)));
        backoff.left_socket();
        assert!(backoff.polls_again(at(9000)), "the time in Watch is not lost by polling");
    }

    #[test]
    fn the_thread_waits_for_the_lock_unless_it_polls() {
        let mut backoff = IdleBackoff::new();
        let at = |us| Instant::ZERO + Duration::from_micros(us);
        assert!(!backoff.polls_on(at(100)), "nothing is known yet");
        backoff.found_work(at(101));
        assert!(backoff.polls_on(at(102)) && backoff.polls_on(at(301)));
        assert!(!backoff.polls_on(at(302)), "long enough");
        assert!(!backoff.polls_again(at(303)), "the time without the lock counts");
    }

    #[test]
    fn polling_threads_serve_tasks_after_late_wakeups_in_a_row() {
        let mut backoff = IdleBackoff::new();
        let mut turn = Instant::from_millis(1);
        let mut served =
            |backoff: &mut IdleBackoff, wakeups, new_turns, since_turn, registrations| {
                for _ in 0..wakeups {
                    if new_turns {
                        turn += Duration::from_micros(10);
                    }
                    backoff.woken(turn + since_turn, turn, registrations);
                }
                backoff.served
            };
        let soon = Duration::from_micros(1);
        assert_eq!(
            served(&mut backoff, MAX_LATE_WAKEUPS, true, soon, 1),
            0,
            "the first counts no turns"
        );
        assert_eq!(served(&mut backoff, 1, true, LATE_TIME, 1), 0, "the turn was long ago");
        assert_eq!(served(&mut backoff, MAX_LATE_WAKEUPS - 1, true, soon, 1), 0);
        assert_eq!(served(&mut backoff, 1, true, soon, 2), 0, "another task was registered");
        assert_eq!(served(&mut backoff, MAX_LATE_WAKEUPS - 1, true, soon, 2), 0);
        assert_eq!(served(&mut backoff, 1, true, soon, 2), 2);
        backoff.polling_ended(Instant::ZERO, false);
        assert_eq!(backoff.served, 0);
        assert_eq!(
            served(&mut backoff, MAX_LATE_WAKEUPS + 1, false, soon, 2),
            0,
            "no turn between wake-ups"
        );
    }

    #[test]
    fn program_polls_rarely_if_two_checks_in_a_row_find_packets() {
        let mut backoff = IdleBackoff::new();
        let found = [true, false, true, true].map(|found| backoff.polls_rarely(found));
        assert_eq!(found, [false, false, false, true]);
        backoff.polling_ended(Instant::ZERO, true);
        assert!(!backoff.polls_rarely(true), "it begins anew");
    }

    #[test]
    fn stay_on_the_socket_ends_after_useless_wakeups_in_a_row() {
        let mut backoff = IdleBackoff::new();
        let now = Instant::from_millis(5);
        backoff.polling_ended(Instant::ZERO, true);
        let mut wake = |had_work, wakeups| {
            for _ in 0..wakeups {
                backoff.is_woken = true;
                backoff.turned(now, had_work);
                // Further turns without a wake-up do not count.
                backoff.turned(now, false);
            }
            backoff.stays_until
        };
        let end = Instant::ZERO + MIN_SOCKET_STAY;
        assert_eq!(wake(false, MAX_USELESS_WAKEUPS - 1), end);
        assert_eq!(wake(true, 1), end);
        assert_eq!(wake(false, MAX_USELESS_WAKEUPS - 1), end);
        assert_eq!(wake(false, 1), now);
        backoff.polling_ended(Instant::ZERO, true);
        backoff.is_woken = true;
        backoff.turned(now, false);
        assert!(backoff.stays_until > now, "a new stay begins to count anew");
    }

    #[test]
    fn a_program_that_had_less_than_half_of_a_processor_has_not_run() {
        let mut backoff = IdleBackoff::new();
        let mut ran =
            |now, had| backoff.has_run(Instant::from_millis(now), Duration::from_millis(had));
        assert!(ran(10, 6));
        assert!(!ran(20, 11), "5 of 10");
        assert!(ran(30, 31), "two threads");
    }
}

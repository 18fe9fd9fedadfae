//! When a thread that waits looks for packets before it sleeps.
//!
//! A wake-up takes longer than many responses. So a thread whose last wait was short looks for packets again and again for
//! [`SPIN_TIME`] before it sleeps, and yields the processor after each look. If nothing comes, that time of a processor is
//! lost. If the yield is to a program that computes, the wait lasts a time slice. So after each time in vain twice as many
//! short waits sleep at once, and after each success half as many.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

/// Time that a thread looks for the next packet before it sleeps: as long as a wake-up takes.
pub(super) const SPIN_TIME: Duration = Duration::from_micros(50);

/// Maximum number of short waits in a row that sleep at once.
const MAX_SLEEPS: u32 = 1023;

/// The waits of the threads that drive a shard, one after the other.
#[derive(Debug)]
pub(super) struct ShortWaits {
    /// The last wait was shorter than [`SPIN_TIME`].
    was_short: AtomicBool,
    /// Number of short waits that sleep at once after a time in vain: doubled by each of those, halved by each success.
    sleeps: AtomicU32,
    /// How many of them are left.
    sleeps_left: AtomicU32,
}

impl ShortWaits {
    pub(super) const fn new() -> Self {
        Self {
            was_short: AtomicBool::new(false),
            sleeps: AtomicU32::new(0),
            sleeps_left: AtomicU32::new(0),
        }
    }

    /// Reports that a wait begins. Returns whether the thread looks for packets before it sleeps.
    pub(super) fn begin(&self) -> bool {
        if !self.was_short.load(Ordering::Relaxed) {
            return false;
        }
        let left = self.sleeps_left.load(Ordering::Relaxed);
        self.sleeps_left.store(left.saturating_sub(1), Ordering::Relaxed);
        left == 0
    }

    /// Reports the end of a wait, which has [begun](Self::begin) with this result, and whether it has found something within
    /// [`SPIN_TIME`].
    pub(super) fn end(&self, looked: bool, is_short: bool) {
        self.was_short.store(is_short, Ordering::Relaxed);
        if looked {
            let before = self.sleeps.load(Ordering::Relaxed);
            let sleeps = if is_short { before / 2 } else { MAX_SLEEPS.min(2 * before + 1) };
            self.sleeps.store(sleeps, Ordering::Relaxed);
            self.sleeps_left.store(if is_short { 0 } else { sleeps }, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Waits for a short time or a long one, and returns whether the thread has looked for packets before.
    fn wait(waits: &ShortWaits, is_short: bool) -> bool {
        let looks = waits.begin();
        waits.end(looks, is_short);
        looks
    }

    /// Returns the number of short waits that sleep before one looks. That one is long.
    fn sleeps_before_a_look_in_vain(waits: &ShortWaits) -> usize {
        let sleeps = (0..).take_while(|_| {
            let looks = waits.begin();
            waits.end(looks, !looks);
            !looks
        });
        sleeps.count()
    }

    #[test]
    fn wait_after_a_short_one_looks_for_packets() {
        let waits = ShortWaits::new();
        let looks = [false, false, true, true, true].map(|is_short| wait(&waits, is_short));
        assert_eq!(looks, [false, false, false, true, true]);
    }

    #[test]
    fn looks_in_vain_become_rare() {
        let waits = ShortWaits::new();
        let sleeps = [(); 12].map(|()| sleeps_before_a_look_in_vain(&waits));
        // The short wait after each long one sleeps, too.
        assert_eq!(sleeps, [1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 1024]);
        assert_eq!(
            (0..2000).find(|_| wait(&waits, true)),
            Some(1024),
            "the program that computes has ended"
        );
        assert!((0..10).all(|_| wait(&waits, true)));
        assert_eq!([(); 2].map(|()| sleeps_before_a_look_in_vain(&waits)), [0, 2]);
    }
}

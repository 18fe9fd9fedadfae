//! Whether the kernel is to merge what arrives (`UDP_GRO`).
//!
//! Merging is what makes streams fast. A lone datagram gains nothing by it and pays: the network stack looks
//! for others to merge it with, and each receive has to be ready to be told how long the parts are.

use std::mem;

/// Messages that may be received without a break and are lone ones still. They follow on each other when the
/// program was held up, and did not look for a while.
const LONE: usize = 64;

/// Bytes of them at most.
const LONE_BYTES: usize = 16 << 10;

/// Times in a row that lone datagrams came, after which the kernel is not to merge. The first burst of a
/// stream comes in pieces then, which costs what some fifty lone datagrams have gained.
const ENOUGH: u32 = 256;

/// Whether to merge, learnt from what was received.
#[derive(Debug)]
pub(super) struct Merging {
    /// What the kernel does.
    on: bool,
    /// Whether that can be changed.
    fixed: bool,
    /// Messages received since nothing was there, and bytes.
    run: (usize, usize),
    /// Times in a row that these were lone ones.
    lone: u32,
}

impl Merging {
    /// Of a socket that merges, or of one that never does.
    pub(super) const fn new(able: bool) -> Self {
        Self { on: able, fixed: !able, run: (0, 0), lone: 0 }
    }

    /// Whether what is received may be merged.
    pub(super) const fn is_on(&self) -> bool {
        self.on
    }

    /// Whether it is not merged now, and could be.
    pub(super) const fn is_paused(&self) -> bool {
        !self.on && !self.fixed
    }

    /// So many messages were received in one call. Returns what the kernel is to do from now on, when that is
    /// something else.
    pub(super) fn received(
        &mut self,
        messages: usize,
        datagrams: usize,
        bytes: usize,
    ) -> Option<bool> {
        let wanted = match messages {
            0 => self.nothing(),
            _ => self.something(messages, datagrams, bytes),
        };
        wanted.filter(|wanted| !self.fixed && *wanted != self.on)
    }

    fn something(&mut self, messages: usize, datagrams: usize, bytes: usize) -> Option<bool> {
        let (run, run_bytes) = self.run;
        self.run = (run.saturating_add(messages), run_bytes.saturating_add(bytes));
        let is_stream = datagrams > messages || self.run.0 > LONE || self.run.1 > LONE_BYTES;
        is_stream.then(|| {
            self.lone = 0;
            true
        })
    }

    fn nothing(&mut self) -> Option<bool> {
        if mem::take(&mut self.run) != (0, 0) {
            self.lone += 1
        }
        (self.lone >= ENOUGH).then_some(false)
    }

    /// The kernel does so now.
    pub(super) fn set(&mut self, on: bool) {
        self.on = on;
        self.lone = 0;
    }

    /// The kernel does not let itself be told.
    pub(super) fn fix(&mut self) {
        self.fixed = true;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Receives one message of so many datagrams of 80 bytes, and does what is wanted.
    fn one(merging: &mut Merging, datagrams: usize) -> Option<bool> {
        let change = merging.received(datagrams.min(1), datagrams, 80 * datagrams);
        change.inspect(|on| merging.set(*on))
    }

    /// Messages of one datagram, with a look that finds nothing behind so many of them each time. Returns
    /// what was wanted.
    fn lone(merging: &mut Merging, messages: usize, at_once: usize) -> Vec<bool> {
        let mut wanted = Vec::new();
        for number in 1..=messages {
            wanted.extend(one(merging, 1));
            if number % at_once == 0 {
                wanted.extend(one(merging, 0));
            }
        }
        wanted
    }

    const ENOUGH: usize = super::ENOUGH as usize;

    fn without() -> Merging {
        let mut merging = Merging::new(true);
        assert_eq!(lone(&mut merging, ENOUGH, 1), [false]);
        merging
    }

    #[test]
    fn it_ends_when_many_lone_messages_have_come_and_nothing_else() {
        let mut merging = Merging::new(true);
        let none: [bool; 0] = [];
        assert_eq!(lone(&mut merging, ENOUGH - 1, 1), none);
        // Merged: counted from the start.
        assert_eq!(one(&mut merging, 2), None);
        assert_eq!(one(&mut merging, 0), None);
        assert_eq!(lone(&mut merging, LONE * (ENOUGH - 2), LONE), none);
        assert!(merging.is_on());
        assert_eq!(lone(&mut merging, LONE, LONE), [false]);
    }

    #[test]
    fn it_ends_at_a_time_when_nothing_is_there() {
        let mut merging = Merging::new(true);
        lone(&mut merging, ENOUGH - 1, 1);
        assert_eq!([(); 2].map(|()| one(&mut merging, 1)), [None; 2]);
        assert_eq!(one(&mut merging, 0), Some(false));
    }

    #[test]
    fn it_begins_when_messages_follow_on_each_other() {
        let mut merging = without();
        let none: [bool; 0] = [];
        assert_eq!(lone(&mut merging, 4 * LONE, LONE), none);
        assert_eq!(lone(&mut merging, LONE + 1, LONE + 2), [true]);
        assert!(merging.is_on());
        // Many small ones, or a few long ones, and several in one call count each.
        let mut merging = without();
        assert_eq!(merging.received(1, 1, LONE_BYTES), None);
        assert_eq!(merging.received(1, 1, 1), Some(true));
        assert_eq!(without().received(LONE + 1, LONE + 1, 80), Some(true));
    }

    #[test]
    fn nothing_alone_is_no_reason() {
        let mut merging = Merging::new(true);
        assert!((0..2 * ENOUGH).all(|_| one(&mut merging, 0).is_none()));
    }

    #[test]
    fn what_cannot_be_changed_is_not_asked_for() {
        let none: [bool; 0] = [];
        let mut never = Merging::new(false);
        assert_eq!(lone(&mut never, 2 * ENOUGH, 2 * LONE), none);
        assert!(!never.is_on());
        let mut always = Merging::new(true);
        always.fix();
        assert_eq!(lone(&mut always, 2 * ENOUGH, 1), none);
        assert!(always.is_on());
    }
}

//! Whether only what is missing is sent again, or everything behind it as well.
//!
//! A peer that drops what comes behind a lost packet needs all of it again (go-back-N). One that keeps it, as
//! ours do (`ahead`), needs only the lost packet, and its acknowledgement then names one that was not
//! sent again. Nothing on the wire tells the two apart before, so that is tried: one packet goes alone, and more with
//! each answer, like after a timeout. With a peer that turns out to have kept nothing, that took some round trips
//! longer than to send everything at once, and it is tried more and more rarely.

/// Losses before a peer is tried for the first time, for most losses of a connection are its only ones.
const FIRST: u8 = 2;

/// Losses after which a peer that has kept nothing is tried again, at most.
const RARELY: u8 = 64;

/// What a requester has found out about what its peer keeps.
#[derive(Clone, Copy, Debug)]
pub(super) struct Repair {
    /// What is missing is being sent again, and nothing behind it so far.
    trying: bool,
    /// The peer has acknowledged more than was sent again.
    kept: bool,
    /// Losses for which everything is sent again.
    rests: u8,
    /// So many were to be last time.
    rested: u8,
}

impl Default for Repair {
    fn default() -> Self {
        Self { trying: false, kept: false, rests: FIRST, rested: FIRST }
    }
}

impl Repair {
    /// A packet is missing. Whether to send it alone.
    pub(super) fn begins(&mut self) -> bool {
        self.trying = self.rests == 0;
        self.rests = self.rests.saturating_sub(1);
        self.kept = false;
        self.trying
    }

    /// The peer has acknowledged packets that were not sent again.
    pub(super) fn jumped(&mut self) {
        self.kept = true;
    }

    /// Everything that was in flight when the packet was missed has been acknowledged, or another is missing.
    pub(super) fn ends(&mut self) {
        if std::mem::take(&mut self.trying) {
            self.rested = if self.kept { 0 } else { (self.rested * 2).clamp(FIRST, RARELY) };
            self.rests = self.rested;
        }
    }

    /// Everything is to be sent again for another reason, and nothing was found out.
    pub(super) fn stops(&mut self) {
        self.trying = false;
    }

    /// Whether the peer keeps what comes behind a lost packet, as far as known.
    pub(super) fn is_selective(&self) -> bool {
        self.rested == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_peer_that_keeps_nothing_is_tried_more_and_more_rarely() {
        let mut repair = Repair::default();
        let mut is_tried = |_: &u32| {
            let tried = repair.begins();
            repair.ends();
            tried
        };
        let tries: Vec<_> = (0..200).filter(&mut is_tried).collect();
        assert_eq!(tries, [2, 7, 16, 33, 66, 131, 196]);
        assert!(!repair.is_selective());
    }

    #[test]
    fn one_that_keeps_something_is_sent_only_what_is_missing() {
        let mut repair = Repair::default();
        assert!(!repair.begins() && !repair.begins() && repair.begins());
        repair.jumped();
        repair.ends();
        for _ in 0..10 {
            assert!(repair.begins() && repair.is_selective());
            repair.jumped();
            repair.ends();
            assert!(repair.begins());
            repair.stops();
            repair.ends();
        }
    }
}

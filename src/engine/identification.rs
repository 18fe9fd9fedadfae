//! How far to trust an IPv4 identification that was solved for.
//!
//! A socket hides the identification, and the ICRC covers it. It can be solved for, at the price of
//! 16 of the ICRC's 32 bits. A peer that numbers its packets predictably, as this stack does and any
//! unconnected UDP socket, is held to that, and the price is saved.

use crate::wire::icrc::Verdict;

/// Identifications up to this come from the place in a burst.
const SMALL: u16 = 64;

/// Predictable packets after which a peer is held to it.
const HABIT: u8 = 16;

/// Unpredictable ones in a row after which it is let off: a route may have changed. Corruption
/// passes for one of them once in 65,536.
const CHANGE: u8 = 4;

/// What one peer's packets have looked like.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Identification {
    predictable: u8,
    surprises: u8,
}

impl Identification {
    /// Whether a packet with this verdict is to be taken.
    pub(crate) fn admits(&mut self, verdict: Verdict) -> bool {
        match verdict {
            Verdict::Good => self.expected(),
            Verdict::Recovered { id } if id < SMALL => self.expected(),
            Verdict::Recovered { .. } => self.surprised(),
            Verdict::Bad => false,
        }
    }

    fn expected(&mut self) -> bool {
        self.predictable = self.predictable.saturating_add(1);
        self.surprises = 0;
        true
    }

    fn surprised(&mut self) -> bool {
        if self.predictable < HABIT {
            self.predictable = 0;
            return true;
        }
        self.surprises += 1;
        if self.surprises < CHANGE {
            return false;
        }
        *self = Self::default();
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ODD: Verdict = Verdict::Recovered { id: 0xbeef };

    #[test]
    fn a_peer_with_varying_identifications_is_taken_as_it_is() {
        let mut peer = Identification::default();
        assert!((0..100).all(|_| peer.admits(ODD)));
    }

    #[test]
    fn a_predictable_peer_is_held_to_it_until_it_has_clearly_changed() {
        let mut peer = Identification::default();
        assert!((0..HABIT).all(|_| peer.admits(Verdict::Good)));
        assert!(!peer.admits(ODD), "more likely corrupt than true");
        assert!(peer.admits(Verdict::Recovered { id: 3 }));
        let taken: Vec<_> = (0..5).map(|_| peer.admits(ODD)).collect();
        assert_eq!(taken, [false, false, false, true, true]);
    }
}

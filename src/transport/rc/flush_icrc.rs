//! Which ICRC the peer takes on a FLUSH.
//!
//! Kernel rxe covers the headers of a FLUSH twice (see [`Flow::set_rxe_flush_icrc`]), and drops one with the
//! ICRC of the specification as if it were corrupt, in silence. Nobody says which of the two a peer
//! wants. So a requester guesses, and while a FLUSH goes unanswered it tries the other.
//!
//! The guess: rxe clears MigReq in every packet, which the specification has set in a connection
//! that never migrates. A peer that does so is taken for rxe.
//!
//! [`Flow::set_rxe_flush_icrc`]: crate::wire::icrc::Flow::set_rxe_flush_icrc

use crate::wire::Bth;

/// The ICRC that a peer is assumed to expect.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct FlushIcrc {
    twice: bool,
    evidence: Evidence,
}

/// How far a guess is to be trusted.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
enum Evidence {
    /// No FLUSH has gone unanswered yet, nor has one been answered.
    #[default]
    None,
    /// The last one went unanswered.
    Contradicted,
    /// The last one was answered: the next that is not has probably been lost.
    Confirmed,
}

impl FlushIcrc {
    /// A packet of the peer, which may tell what the peer is.
    pub(crate) fn observe(&mut self, bth: &Bth) {
        if self.evidence == Evidence::None {
            self.twice = !bth.migreq;
        }
    }

    /// Whether a FLUSH is to be covered twice.
    pub(crate) fn is_twice(self) -> bool {
        self.twice
    }

    /// A FLUSH was answered.
    pub(crate) fn answered(&mut self) {
        self.evidence = Evidence::Confirmed;
    }

    /// The oldest request is a FLUSH, and the peer seems not to have got it.
    pub(crate) fn unanswered(&mut self) {
        if self.evidence != Evidence::Confirmed {
            self.twice = !self.twice;
        }
        self.evidence = Evidence::Contradicted;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(migreq: bool) -> FlushIcrc {
        let mut icrc = FlushIcrc::default();
        icrc.observe(&Bth { migreq, ..Bth::default() });
        icrc
    }

    #[test]
    fn who_clears_migreq_is_taken_for_rxe() {
        assert!(!FlushIcrc::default().is_twice());
        assert!(!seen(true).is_twice());
        assert!(seen(false).is_twice());
    }

    #[test]
    fn a_wrong_guess_is_left_at_the_first_silence_and_a_proven_one_at_the_second() {
        let mut icrc = seen(true);
        icrc.unanswered();
        assert!(icrc.is_twice());
        icrc.observe(&Bth::default());
        assert!(icrc.is_twice(), "what was tried counts more than what was guessed");
        icrc.answered();
        icrc.unanswered();
        assert!(icrc.is_twice(), "it was probably lost");
        icrc.unanswered();
        assert!(!icrc.is_twice());
    }
}

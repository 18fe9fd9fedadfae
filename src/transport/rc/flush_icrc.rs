//! Detection of the ICRC that the peer expects in a FLUSH.
//!
//! Kernel rxe covers the headers of a FLUSH twice (see [`Flow::set_rxe_flush_icrc`]), and silently
//! drops a FLUSH with the ICRC of the specification. The protocol does not announce the variant of
//! a peer. A requester therefore starts with an assumption, and switches to the other variant while
//! a FLUSH remains unanswered.
//!
//! The assumption: rxe clears MigReq in every packet, while the specification requires it to be set
//! in a connection that never migrates. A peer that clears it is assumed to be rxe.
//!
//! [`Flow::set_rxe_flush_icrc`]: crate::wire::icrc::Flow::set_rxe_flush_icrc

use crate::wire::Bth;

/// ICRC variant assumed for a peer.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct FlushIcrc {
    twice: bool,
    evidence: Evidence,
}

/// Evidence for the assumed variant.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
enum Evidence {
    /// No FLUSH has been answered or has timed out yet.
    #[default]
    None,
    /// The last FLUSH timed out.
    Contradicted,
    /// The last FLUSH was answered, so a timeout of the next one is probably a loss.
    Confirmed,
}

impl FlushIcrc {
    /// Inspects a packet of the peer for signs of rxe.
    pub(crate) fn observe(&mut self, bth: &Bth) {
        if self.evidence == Evidence::None {
            self.twice = !bth.migreq;
        }
    }

    /// Whether the headers of a FLUSH are covered twice.
    pub(crate) fn is_twice(self) -> bool {
        self.twice
    }

    /// Records a response to a FLUSH.
    pub(crate) fn answered(&mut self) {
        self.evidence = Evidence::Confirmed;
    }

    /// Records that the oldest request is a FLUSH and was probably not received.
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

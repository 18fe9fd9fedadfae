//! Whether bursts get through, or only what goes alone.
//!
//! Packet `i` of a burst is sealed with IPv4 identification `i`, which is what whoever cuts it gives it. Some
//! do not: then a receiver that sees IP headers finds the ICRC of every packet wrong but that of the first,
//! maybe. What is sent again then goes alone and gets through, so the connection lives, at the price of a retry
//! for each burst. After a few of them in a row nothing is sent in bursts any more. Where packets are merely lost, those
//! of the burst before the lost one have got through, and what is sent again goes in bursts too.
//!
//! Requests are acknowledged. Of the answers to READs the requester says what it has by asking for the rest
//! again, or for more than it may have outstanding.

use crate::psn::Psn;

/// Bursts in a row of which nothing got through that followed another packet, after which no more are sent.
/// Where one packet in ten is lost, that happens to one burst in 10⁸ by chance.
const ENOUGH: u8 = 8;

/// What has become of the bursts of a requester, or a responder.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Bursts {
    /// The oldest packet that was sent behind another, of which the peer has not said anything yet.
    follower: Option<Psn>,
    /// Bursts in a row whose followers were lost.
    broken: u8,
}

impl Bursts {
    /// A packet is sent behind another for the first time.
    pub(super) fn followed(&mut self, psn: Psn) {
        self.follower.get_or_insert(psn);
    }

    /// The peer has everything before `una`.
    pub(super) fn acknowledged(&mut self, una: Psn) {
        if self.follower.is_some_and(|psn| psn.is_before(una)) {
            self.arrived();
        }
    }

    /// The peer has what was sent in a burst and not again.
    pub(super) fn arrived(&mut self) {
        *self = Self::default();
    }

    /// What the peer has not acknowledged is lost. Whether no more bursts are sent from now on.
    pub(super) fn lost(&mut self) -> bool {
        let counts = self.follower.take().is_some() && self.broken < ENOUGH;
        self.broken += u8::from(counts);
        counts && self.broken == ENOUGH
    }

    /// What the peer has not acknowledged is sent again, whether or not it was lost.
    pub(super) fn repeated(&mut self) {
        self.follower = None;
    }

    /// Whether nothing speaks against what follows another packet: the last burst of which some was lost was not
    /// lost behind its first packet.
    pub(super) fn get_through(&self) -> bool {
        self.broken == 0
    }

    /// Whether every packet goes alone.
    pub(super) fn are_given_up(&self) -> bool {
        self.broken == ENOUGH
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bursts_are_given_up_when_none_gets_through_and_tried_again_when_one_has() {
        let mut bursts = Bursts::default();
        for psn in 1..8 {
            bursts.followed(Psn::new(psn));
            assert!(!bursts.lost());
            assert!(!bursts.lost(), "nothing has been sent since");
        }
        bursts.followed(Psn::new(8));
        bursts.acknowledged(Psn::new(8));
        assert!(bursts.lost() && bursts.are_given_up(), "what is before it proves nothing");
        bursts.followed(Psn::new(9));
        assert!(!bursts.lost() && bursts.are_given_up(), "told once");
        bursts.arrived();
        assert!(!bursts.are_given_up(), "late news");
    }

    #[test]
    fn loss_among_bursts_that_get_through_is_only_loss() {
        let mut bursts = Bursts::default();
        for psn in (0..100).step_by(2) {
            bursts.followed(Psn::new(psn));
            if psn % 10 == 0 {
                bursts.acknowledged(Psn::new(psn + 1));
            }
            assert!(!bursts.lost());
        }
        bursts.followed(Psn::new(200));
        bursts.repeated();
        assert!(!bursts.lost(), "a receiver that is not ready has lost nothing");
    }
}

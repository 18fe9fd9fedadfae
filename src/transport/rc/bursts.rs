//! Detection of paths that renumber the IPv4 identifications of bursts.
//!
//! The ICRC of packet `i` of a burst is for IPv4 identification `i`, which the segmentation (GSO) assigns. Where a network
//! card assigns others, the ICRC of all packets but perhaps the first is wrong. A retransmitted packet then goes alone and
//! arrives, so the connection makes progress, with a retry for each burst. After [`ENOUGH`] such bursts in a row each
//! packet goes alone. Where packets are merely lost, those of the burst before the lost one have arrived, and
//! retransmissions go in bursts too.
//!
//! Acknowledgements say which requests have arrived. For READ responses it follows from the next requests: for the rest
//! of a response, or for more than may be outstanding.

use crate::psn::Psn;

/// BurstDelivery in a row of which nothing got through that followed another packet, after which no more are sent.
/// Where one packet in ten is lost, that happens to one burst in 10⁸ by chance.
const ENOUGH: u8 = 8;

/// What has become of the bursts of a requester, or a responder.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct BurstDelivery {
    /// The oldest packet that was sent behind another, of which the peer has not said anything yet.
    follower: Option<Psn>,
    /// BurstDelivery in a row whose followers were lost.
    broken: u8,
}

impl BurstDelivery {
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

    /// Unacknowledged packets are sent again, whether or not they were lost.
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
        let mut bursts = BurstDelivery::default();
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
        let mut bursts = BurstDelivery::default();
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

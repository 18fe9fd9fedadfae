//! Detection of paths that renumber the IPv4 identifications of bursts.
//!
//! The ICRC of packet `i` of a burst covers IPv4 identification `i`, which segmentation (GSO)
//! assigns. If a network card assigns other values, the ICRC of all packets except perhaps the
//! first is wrong. A retransmitted packet is sent singly and arrives, so the connection makes
//! progress with one retry for each burst. After [`ENOUGH`] such bursts in a row, every packet is
//! sent singly. With ordinary packet loss, the packets of the burst before the lost one arrive, and
//! retransmissions use bursts too.
//!
//! Acknowledgements report the requests that arrived. For READ responses, the next requests imply
//! it: a request for the rest of a response, or a request beyond the number of outstanding ones.

use crate::psn::Psn;

/// Number of bursts in a row with all packets after the first lost, after which bursts are
/// disabled. With a loss rate of one packet in ten, one burst in 10⁸ meets this limit by chance.
const ENOUGH: u8 = 8;

/// Delivery of the bursts of a requester or responder.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct BurstDelivery {
    /// The oldest unacknowledged packet that was sent after another one in a burst.
    follower: Option<Psn>,
    /// Number of bursts in a row of which all packets after the first were lost.
    broken: u8,
}

impl BurstDelivery {
    /// Records the first transmission of a packet after another one in a burst.
    pub(super) fn followed(&mut self, psn: Psn) {
        self.follower.get_or_insert(psn);
    }

    /// Records that the peer has received all packets before `una`.
    pub(super) fn acknowledged(&mut self, una: Psn) {
        if self.follower.is_some_and(|psn| psn.is_before(una)) {
            self.arrived();
        }
    }

    /// Records that the peer has received a packet that was sent in a burst and not retransmitted.
    pub(super) fn arrived(&mut self) {
        *self = Self::default();
    }

    /// Records the loss of the unacknowledged packets. Returns whether this disables bursts.
    pub(super) fn lost(&mut self) -> bool {
        let counts = self.follower.take().is_some() && self.broken < ENOUGH;
        self.broken += u8::from(counts);
        counts && self.broken == ENOUGH
    }

    /// Records that unacknowledged packets are retransmitted, lost or not.
    pub(super) fn repeated(&mut self) {
        self.follower = None;
    }

    /// Whether retransmissions may use bursts: the last burst with a loss did not lose all packets
    /// after the first.
    pub(super) fn get_through(&self) -> bool {
        self.broken == 0
    }

    /// Whether every packet is sent singly.
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

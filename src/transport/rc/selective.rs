//! Detection of peers that keep packets after a lost one, so that only the lost packet needs a
//! retransmission.
//!
//! A peer that drops the packets after a lost one needs all of them again (go-back-N). A peer that
//! keeps them, as this implementation does (`ahead`), needs only the lost packet. Its next
//! acknowledgement then covers packets that were not retransmitted. The protocol does not announce
//! this ability, so a requester probes for it: it sends one packet, and one more with each
//! acknowledgement, as after a timeout. With a peer that kept nothing, the probe takes some round
//! trips longer than go-back-N. The requester therefore backs off exponentially.

/// Losses before the first probe: most losses of a connection are its only ones.
const FIRST_BACKOFF: u8 = 2;

/// Maximum number of losses before a peer that kept nothing is probed again.
const MAX_BACKOFF: u8 = 64;

/// Whether a peer keeps out-of-order packets, as far as it is known.
#[derive(Clone, Copy, Debug)]
pub(super) struct SelectiveSupport {
    /// Losses until the next probe, recovered with go-back-N.
    backoff_left: u8,
    /// Losses between the last probe and the next. 0: the peer kept data at the last probe.
    backoff: u8,
}

impl Default for SelectiveSupport {
    fn default() -> Self {
        Self { backoff_left: FIRST_BACKOFF, backoff: FIRST_BACKOFF }
    }
}

impl SelectiveSupport {
    /// Records a loss. Returns whether to retransmit only the lost packet.
    pub(super) fn tries(&mut self) -> bool {
        let tries = self.backoff_left == 0;
        self.backoff_left = self.backoff_left.saturating_sub(1);
        tries
    }

    /// Ends a probe, because all packets in flight are acknowledged or another packet is lost.
    pub(super) fn conclude(&mut self, peer_kept_data: bool) {
        self.backoff = match peer_kept_data {
            true => 0,
            false => (self.backoff * 2).clamp(FIRST_BACKOFF, MAX_BACKOFF),
        };
        self.backoff_left = self.backoff;
    }

    /// Whether the peer is known to keep data.
    pub(super) fn is_known(&self) -> bool {
        self.backoff == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_peer_that_keeps_nothing_is_tried_more_and_more_rarely() {
        let mut support = SelectiveSupport::default();
        let mut is_tried = |_: &u32| {
            let tried = support.tries();
            if tried {
                support.conclude(false);
            }
            tried
        };
        let tries: Vec<_> = (0..200).filter(&mut is_tried).collect();
        assert_eq!(tries, [2, 7, 16, 33, 66, 131, 196]);
        assert!(!support.is_known());
    }

    #[test]
    fn one_that_keeps_something_is_sent_only_what_is_missing() {
        let mut support = SelectiveSupport::default();
        assert!(!support.tries() && !support.tries() && support.tries());
        support.conclude(true);
        for _ in 0..10 {
            assert!(support.tries() && support.is_known());
            support.conclude(true);
            // This probe ends for another reason, without a result.
            assert!(support.tries());
        }
    }
}

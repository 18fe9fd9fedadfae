//! Whether a peer keeps what was sent behind a lost packet, so that the lost packet alone has to be sent again.
//!
//! A peer that drops what comes behind a lost packet needs all of it again (go-back-N). One that keeps it, as
//! ours do (`ahead`), needs only the lost packet, and its acknowledgement then names one that was not
//! sent again. Nothing on the wire tells the two apart before, so a requester tries it: it sends one packet, and more
//! with each acknowledgement, as after a timeout. With a peer that turns out to have kept nothing, that took some round
//! trips longer than to send everything at once, so it is tried more and more rarely.

/// Losses before a peer is tried for the first time: most losses of a connection are its only ones.
const FIRST_BACKOFF: u8 = 2;

/// Losses after which a peer that has kept nothing is tried again, at most.
const MAX_BACKOFF: u8 = 64;

/// Whether a peer keeps out-of-order packets, as far as the requester has found out.
#[derive(Clone, Copy, Debug)]
pub(super) struct SelectiveSupport {
    /// Losses until the next try: for them everything is sent again.
    backoff_left: u8,
    /// Losses between the last try and the next. 0: the peer has kept data at the last try.
    backoff: u8,
}

impl Default for SelectiveSupport {
    fn default() -> Self {
        Self { backoff_left: FIRST_BACKOFF, backoff: FIRST_BACKOFF }
    }
}

impl SelectiveSupport {
    /// A packet is lost. Returns whether to send it alone.
    pub(super) fn tries(&mut self) -> bool {
        let tries = self.backoff_left == 0;
        self.backoff_left = self.backoff_left.saturating_sub(1);
        tries
    }

    /// A try is over: everything that was in flight has been acknowledged, or another packet is lost.
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
            // This try ends for another reason, and nothing is found out.
            assert!(support.tries());
        }
    }
}

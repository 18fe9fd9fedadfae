//! Congestion control of a requester: limits the data in flight in addition to the peer's receive
//! buffer.
//!
//! The window of a path ([`crate::transport::window`]) protects the receiver, as the receive window
//! of TCP does. A [`CongestionControl`] protects the path, as the congestion window does. The
//! smaller of the two applies.
//!
//! [`Recovery`](super::recovery) selects the packets to retransmit, and the congestion controller
//! limits how many at once. The two are independent.

use std::fmt::Debug;

use crate::time::Instant;
use crate::transport::in_flight::RoundTrip;

/// A congestion controller. All sizes are in bytes as windows count them.
pub(super) trait CongestionControl: Debug {
    /// Returns the controller of a requester with full bursts of `max_burst`. A window should hold
    /// one, because both ends send and receive in bursts.
    fn new(max_burst: u64) -> Self;

    /// Returns the congestion window. `None`: no limit except that of the receiver. A smaller window
    /// than one burst admits one burst at a time.
    fn window(&self) -> Option<u64>;

    /// Handles an acknowledgement of new packets.
    fn on_ack(&mut self, now: Instant, ack: Ack);

    /// Handles a loss that a sequence NAK reported.
    fn on_loss(&mut self, now: Instant, loss: Loss);
}

/// An acknowledgement.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Ack {
    /// Newly acknowledged bytes of whole bursts.
    pub(super) bytes: u64,
    /// Round trip of the last acknowledged packet; `None` within a burst.
    pub(super) round_trip: Option<RoundTrip>,
}

/// A loss.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Loss {
    /// Bytes in flight when the loss was detected, the lost packet included.
    pub(super) in_flight: u64,
    /// Time since the lost packet was sent. A packet that was sent after it caused the NAK, so this
    /// is at least a round trip.
    pub(super) round_trip: RoundTrip,
    /// The peer keeps packets after a lost one, so that only one packet is lost.
    pub(super) peer_keeps_data: bool,
}

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
use std::time::Duration;

use crate::time::Instant;

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
    fn on_loss(&mut self, loss: Loss);
}

/// An acknowledgement.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Ack {
    /// Newly acknowledged bytes of whole bursts.
    pub(super) bytes: u64,
    /// Time since the last acknowledged packet was sent; `None` within a burst, and while packets are
    /// probed or repeated selectively (Karn's algorithm). In go-back-N it is the time since the last
    /// transmission: a flight is seldom without a loss where losses are frequent, so there would be
    /// no other.
    pub(super) round_trip: Option<Duration>,
}

/// A loss.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Loss {
    /// Bytes in flight when the loss was detected, the lost packet included.
    pub(super) in_flight: u64,
    /// Time since the lost packet was sent.
    pub(super) sent_ago: Duration,
    /// The peer keeps packets after a lost one, so that only one packet is lost.
    pub(super) peer_keeps_data: bool,
}

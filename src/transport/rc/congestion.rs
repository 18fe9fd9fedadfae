//! Congestion control of a requester: how much may be in flight, beside what the peer's receive buffer holds.
//!
//! The window of a path ([`crate::transport::window`]) protects the receiver, as the receive window of TCP does. A
//! [`CongestionControl`] protects the path, as its congestion window does. The lower of the two counts.
//!
//! [`Recovery`](super::recovery) decides what is sent again, and a congestion control how much of it at once. Neither
//! asks the other.

use std::fmt::Debug;
use std::time::Duration;

use crate::time::Instant;

/// A congestion controller. All sizes are bytes as windows count them.
pub(super) trait CongestionControl: Debug {
    /// A controller of a requester of which a full burst takes `max_burst`. A window should hold one: ends send and
    /// receive by the burst.
    fn new(max_burst: u64) -> Self;

    /// The congestion window: what may be in flight. `None`: as much as the receiver takes.
    fn window(&self) -> Option<u64>;

    /// The peer has acknowledged packets.
    fn on_ack(&mut self, now: Instant, ack: Ack);

    /// A sequence NAK says that packets were lost.
    fn on_loss(&mut self, loss: Loss);
}

/// An acknowledgement.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Ack {
    /// Newly acknowledged.
    pub(super) bytes: u64,
    /// Time since the last acknowledged packet was sent. It is not known while packets are sent again (Karn).
    pub(super) round_trip: Option<Duration>,
}

/// A loss.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Loss {
    /// In flight when the loss was found, the lost packet included.
    pub(super) in_flight: u64,
    /// Time since the lost packet was sent.
    pub(super) sent_ago: Duration,
    /// The peer keeps what was sent behind the lost packet, so that nothing else is lost with it.
    pub(super) peer_keeps_data: bool,
}

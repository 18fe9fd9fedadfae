//! Peer and path properties that a requester detects, because the protocol does not announce them.

use crate::transport::rc::bursts::BurstDelivery;
use crate::transport::rc::flush_icrc::FlushIcrc;

/// Detected properties of one peer.
#[derive(Debug, Default)]
pub(super) struct PeerTraits {
    /// The ICRC that it expects in a FLUSH.
    pub(super) flush_icrc: FlushIcrc,
    /// Whether bursts reach it intact.
    pub(super) bursts: BurstDelivery,
}

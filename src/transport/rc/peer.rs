//! What a requester finds out about its peer and the path there, and nothing on the wire says.

use crate::transport::rc::bursts::BurstDelivery;
use crate::transport::rc::flush_icrc::FlushIcrc;

/// Known behaviour of one peer.
#[derive(Debug, Default)]
pub(super) struct PeerTraits {
    /// Which ICRC it takes on a FLUSH.
    pub(super) flush_icrc: FlushIcrc,
    /// Whether packets of a burst reach it behind the first.
    pub(super) bursts: BurstDelivery,
}

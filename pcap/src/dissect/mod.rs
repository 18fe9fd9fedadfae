//! Dissection: the RoCEv2 packets in a captured IP packet, and the verdicts on their ICRCs.

mod burst;
mod ip;
mod packet;

pub use burst::Segments;
pub use ip::dissect;
pub use packet::{Extent, Icrc, IcrcCounts, RocePacket};

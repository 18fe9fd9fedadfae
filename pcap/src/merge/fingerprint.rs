//! The identity of a packet at both ends of its path.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::net::IpAddr;

use softroce::wire::packet::{ICRC_LEN, datagram_len};

use crate::dissect::RocePacket;

/// Hashes of a packet that no router changes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Fingerprint {
    /// Hash of addresses, UDP source port, IPv4 identification, headers and length.
    pub(super) path: u64,
    /// Hash of headers and length, which address translation keeps.
    pub(super) content: u64,
    pub(super) source: IpAddr,
    pub(super) destination: IpAddr,
}

/// Byte of the BTH with FECN and BECN, which a switch may set.
const CONGESTION_BYTE: usize = 4;

impl Fingerprint {
    /// Returns the identity of a packet, or `None` if its headers were not captured. Payload has no part in it,
    /// because the two captures may have different snap lengths.
    pub(super) fn of(roce: &RocePacket<'_>) -> Option<Self> {
        let datagram = roce.datagram.as_ref().ok()?;
        let headers = datagram_len(datagram.bth.opcode, 0) - ICRC_LEN;
        let headers = roce.ip.payload.get(..headers)?;
        let (before, after) = headers.split_at_checked(CONGESTION_BYTE)?;
        let mut hasher = DefaultHasher::new();
        before.hash(&mut hasher);
        after.get(1..)?.hash(&mut hasher);
        roce.udp_len.hash(&mut hasher);
        let content = hasher.finish();
        let (source, destination) = (roce.ip.source.ip(), roce.ip.destination.ip());
        (source, destination, roce.ip.source.port()).hash(&mut hasher);
        roce.ip.ipv4.map(|ipv4| ipv4.id).hash(&mut hasher);
        Some(Self { path: hasher.finish(), content, source, destination })
    }
}

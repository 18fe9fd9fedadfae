//! What an IP packet of a capture says, if it is RoCEv2.

use softroce::net::ROCE_PORT;
use softroce::wire::encap::{self, IpDatagram};
use softroce::wire::{Datagram, ParseError, icrc};

/// A RoCEv2 packet as captured.
#[derive(Clone, Copy, Debug)]
pub struct RocePacket<'a> {
    /// Addresses, IP header fields, and the UDP payload.
    pub ip: IpDatagram<'a>,
    /// The packet in it; an error when it is none of RoCE's or was cut.
    pub datagram: Result<Datagram<'a>, ParseError>,
    /// What the ICRC says.
    pub icrc: Icrc,
}

/// The ICRC of a captured packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Icrc {
    /// It holds.
    Good,
    /// It does not: the packet was changed on its way, or its sender computes it otherwise.
    Bad {
        /// The value that the packet ends with.
        found: u32,
        /// The value that belongs to the packet.
        computed: u32,
    },
    /// The packet is too short to have one.
    Missing,
}

/// Takes an IP packet apart. `None` when it is not sent to UDP port 4791.
///
/// # Errors
///
/// The IP or UDP header is malformed, or the capture has cut the packet short. An IP packet of
/// another protocol is no error and gives `None`.
pub fn dissect(ip_packet: &[u8]) -> Result<Option<RocePacket<'_>>, ParseError> {
    if protocol(ip_packet).is_some_and(|protocol| protocol != UDP) {
        return Ok(None);
    }
    let ip = encap::parse_ip(ip_packet)?;
    if ip.destination.port() != ROCE_PORT {
        return Ok(None);
    }
    let icrc = match icrc::of_ip_packet(ip_packet) {
        Some((computed, found)) if computed == found => Icrc::Good,
        Some((computed, found)) => Icrc::Bad { found, computed },
        None => Icrc::Missing,
    };
    Ok(Some(RocePacket { ip, datagram: Datagram::parse(ip.payload), icrc }))
}

const UDP: u8 = 17;

/// What the IP header says it carries, also where the header is one we do not read.
fn protocol(ip_packet: &[u8]) -> Option<u8> {
    let at = if ip_packet.first()? >> 4 == 4 { 9 } else { 6 };
    ip_packet.get(at).copied()
}

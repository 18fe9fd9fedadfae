//! A RoCEv2 packet as captured, and the verdict on its ICRC.

use softroce::net::Ipv4Fields;
use softroce::wire::encap::IpDatagram;
use softroce::wire::icrc::{Flow, Verdict};
use softroce::wire::{Datagram, ParseError};

/// The largest payload of a packet in bytes.
pub(super) const MAX_MTU: usize = 4096;

/// A RoCEv2 packet as captured.
#[derive(Clone, Copy, Debug)]
pub struct RocePacket<'a> {
    /// Addresses, IP header fields, and the UDP payload, or what there is of it.
    pub ip: IpDatagram<'a>,
    /// The packet in it; an error when it is none of RoCE's, or when a capture has cut its headers.
    pub datagram: Result<Datagram<'a>, ParseError>,
    /// What the ICRC says.
    pub icrc: Icrc,
    /// Bytes of UDP payload on the wire.
    pub udp_len: usize,
    /// How the packet and the datagram that was captured belong together.
    pub extent: Extent,
    /// The network of the tunnel that it was captured in.
    pub vni: Option<u32>,
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
    /// The capture has not kept it.
    Cut,
    /// The packet is too short to have one.
    Missing,
}

/// How many packets had which ICRC.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct IcrcCounts {
    /// It holds.
    pub good: u64,
    /// It does not.
    pub bad: u64,
    /// The capture does not hold enough to tell.
    pub unknown: u64,
}

/// How a packet and the UDP datagram in which it was captured belong together.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Extent {
    /// One packet, one datagram.
    Whole,
    /// One of several packets: a burst that was captured before it was cut up.
    Segment {
        /// Its place in the burst, from 0.
        index: usize,
        /// Packets in the burst.
        of: usize,
    },
    /// A burst without an ICRC that proves where its packets end. The fields are those of the first
    /// packet; the payload continues with packets.
    Unsplit,
}

impl RocePacket<'_> {
    /// Whether a bad ICRC is the one that kernel rxe gives a FLUSH, of which it covers the datagram
    /// twice.
    pub fn is_flush_of_rxe(&self) -> bool {
        let fields = self.ip.ipv4.unwrap_or(Ipv4Fields { id: 0, dont_fragment: true });
        let flow = Flow::new(self.ip.source, self.ip.destination);
        matches!(self.icrc, Icrc::Bad { .. })
            && flow.check(Some(fields), 0, self.ip.payload) == Verdict::Good
    }
}

impl Extent {
    /// What a datagram as a whole may be: one packet if its ICRC says so, however long it is.
    pub(super) fn of(datagram: Option<&Datagram<'_>>, icrc: Icrc) -> Self {
        match datagram {
            Some(datagram) if icrc != Icrc::Good && datagram.payload_len > MAX_MTU => Self::Unsplit,
            _ => Self::Whole,
        }
    }
}

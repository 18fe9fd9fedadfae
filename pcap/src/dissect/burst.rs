//! Bursts: many RoCE packets in one captured UDP datagram.
//!
//! A sender hands its stack a burst of packets as one UDP datagram, to be cut into segments of one
//! size (GSO); a receiver's stack may join what arrives (GRO). A capture on a loopback or virtual
//! interface sees the datagram whole:
//!
//! ```text
//!  IP │ UDP │ BTH … ICRC │ BTH … ICRC │ BTH … ICRC │ BTH … ICRC
//!           └─── size ───┴─── size ───┴─── size ───┴─ ≤ size ──┘
//! ```
//!
//! Nothing in it says the size. But each packet's ICRC covers the headers that it has on the wire,
//! and so proves where it ends.

use softroce::net::Ipv4Fields;
use softroce::wire::encap::IpDatagram;
use softroce::wire::icrc::Flow;
use softroce::wire::packet::{ICRC_LEN, datagram_len};
use softroce::wire::{Bth, Datagram};

use super::packet::{Extent, Icrc, MAX_MTU, RocePacket};

/// The packets of a captured UDP datagram; see [`RocePacket::segments`].
#[derive(Clone, Debug)]
pub struct Segments<'a> {
    whole: RocePacket<'a>,
    /// Bytes of each but the last.
    size: usize,
    /// The next one.
    index: usize,
}

impl<'a> RocePacket<'a> {
    /// The packets in a UDP datagram: this one, or those of a burst that was captured before the
    /// network stack cut it up, where their ICRCs prove where they end.
    pub fn segments(&self) -> Segments<'a> {
        let size = match self.icrc {
            Icrc::Good => None,
            _ => size(self),
        };
        Segments { whole: *self, size: size.unwrap_or(usize::MAX), index: 0 }
    }
}

impl<'a> Iterator for Segments<'a> {
    type Item = RocePacket<'a>;

    fn next(&mut self) -> Option<RocePacket<'a>> {
        let index = self.index;
        self.index += 1;
        if self.size >= self.whole.udp_len {
            return (index == 0).then_some(self.whole);
        }
        let start = self.size.checked_mul(index)?;
        let bytes = self.whole.ip.payload.get(start..)?;
        let udp_len = self.size.min(self.whole.udp_len - start);
        // Packets that the capture lacks entirely are left out; the number of packets counts them.
        (!bytes.is_empty()).then(|| self.segment(index, bytes, udp_len))
    }
}

impl<'a> Segments<'a> {
    fn segment(&self, index: usize, bytes: &'a [u8], udp_len: usize) -> RocePacket<'a> {
        let payload = &bytes[..udp_len.min(bytes.len())];
        let whole = &self.whole.ip;
        let (fields, icrc) = if payload.len() < udp_len {
            (numbered(whole, index), Icrc::Cut)
        } else {
            verdict(whole, index, payload)
        };
        let ip = IpDatagram { ipv4: whole.ipv4.map(|_| fields), payload, ..*whole };
        let of = self.whole.udp_len.div_ceil(self.size);
        let extent = Extent::Segment { index, of };
        let datagram = Datagram::parse_cut(payload, udp_len);
        RocePacket { ip, datagram, icrc, udp_len, extent, vni: self.whole.vni }
    }
}

/// The size of the segments, if the ICRC of the first or the second proves it.
fn size(whole: &RocePacket<'_>) -> Option<usize> {
    let datagram = whole.datagram.as_ref().ok()?;
    let bytes = whole.ip.payload;
    let smallest = datagram_len(datagram.bth.opcode, 0);
    let largest = datagram_len(datagram.bth.opcode, MAX_MTU).min(bytes.len());
    (smallest..=largest).step_by(4).find(|size| {
        let (first, rest) = bytes.split_at(*size);
        // Most sizes are ruled out by what then would be a BTH, which spares their ICRC.
        may_follow(&datagram.bth, rest)
            && (verdict(&whole.ip, 0, first).1 == Icrc::Good
                || rest
                    .get(..*size)
                    .is_some_and(|second| verdict(&whole.ip, 1, second).1 == Icrc::Good))
    })
}

/// Whether `bytes` may begin with a packet of the same burst.
fn may_follow(first: &Bth, bytes: &[u8]) -> bool {
    let Some((head, _)) = bytes.split_first_chunk() else { return false };
    Bth::version(head) == 0 && Bth::parse(head).is_ok_and(|bth| bth.pkey == first.pkey)
}

/// What the ICRC of a segment says, and the IPv4 fields for which it does: stacks number the
/// segments, or do not.
fn verdict(ip: &IpDatagram<'_>, index: usize, segment: &[u8]) -> (Ipv4Fields, Icrc) {
    let fields = numbered(ip, index);
    let Some((covered, found)) = segment.split_last_chunk::<ICRC_LEN>() else {
        return (fields, Icrc::Missing);
    };
    let found = u32::from_le_bytes(*found);
    let flow = Flow::new(ip.source, ip.destination);
    let computed = flow.compute(fields, covered);
    let unnumbered = numbered(ip, 0);
    match found {
        _ if computed == found => (fields, Icrc::Good),
        _ if flow.compute(unnumbered, covered) == found => (unnumbered, Icrc::Good),
        _ => (fields, Icrc::Bad { found, computed }),
    }
}

/// The IPv4 fields of a segment if the stack numbers them; of no account over IPv6.
fn numbered(ip: &IpDatagram<'_>, index: usize) -> Ipv4Fields {
    let fields = ip.ipv4.unwrap_or(Ipv4Fields { id: 0, dont_fragment: true });
    // 65507 bytes hold less than 2^16 segments.
    let index = u16::try_from(index).unwrap_or_default();
    Ipv4Fields { id: fields.id.wrapping_add(index), ..fields }
}

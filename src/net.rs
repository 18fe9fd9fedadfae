//! Datagrams: the interface between the engine, which builds packets, and the ports, which send and receive them.
//!
//! A port passes an [`RxBuffer`] to the engine and sends a [`Burst`]. The ICRC covers fields of the IP header, so
//! both carry these fields as far as they are known (IBTA vol 1, annex A17).

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use crate::ids::{Gid, Qpn};
use crate::sys::DatagramMemory;

/// Destination UDP port of RoCEv2, assigned by IANA.
pub const ROCE_PORT: u16 = 4791;

/// Maximum number of UDP payload bytes in a burst: an IP packet of 65,535 bytes minus an IPv6 header and a UDP
/// header.
pub const MAX_BURST_BYTES: usize = 65_535 - 40 - 8;

/// Maximum number of segments in a burst (`UDP_MAX_SEGMENTS` since Linux 6.10). A port may take
/// [fewer](crate::port::PortInfo::max_burst_segments).
pub const MAX_BURST_SEGMENTS: usize = 128;

/// Maximum length in bytes of a short datagram.
pub(crate) const SHORT: usize = 256;

/// IP version of a packet.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum IpVersion {
    /// IPv4.
    V4,
    /// IPv6.
    V6,
}

impl From<IpAddr> for IpVersion {
    fn from(ip: IpAddr) -> Self {
        match ip {
            IpAddr::V4(_) => Self::V4,
            IpAddr::V6(_) => Self::V6,
        }
    }
}

/// Source, destination and IP header fields of a burst.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Path {
    /// Source address: the local address that the queue pair's GID index selects.
    pub source: IpAddr,
    /// Address of the peer, of the same IP version as `source`.
    pub destination: IpAddr,
    /// UDP source port, as granted by the port (see `port::Control::source_port`).
    pub source_port: u16,
    /// IPv4 TOS or IPv6 traffic class: DSCP in bits 7:2, ECN in bits 1:0.
    pub traffic_class: u8,
    /// TTL or hop limit.
    pub hop_limit: u8,
}

/// Address of a peer, as in `ibv_ah_attr`.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[doc(alias = "ibv_ah_attr")]
pub struct AddressVector {
    /// GID of the peer: its IP address, of the same IP version as the source GID.
    pub gid: Gid,
    /// Index of the source GID.
    pub sgid_index: u8,
    /// IPv4 TOS or IPv6 traffic class: DSCP in bits 7:2, ECN in bits 1:0.
    pub traffic_class: u8,
    /// TTL or hop limit.
    pub hop_limit: u8,
    /// Flow label of 20 bits, which determines the UDP source port. With 0, the queue pair numbers determine it.
    pub flow_label: u32,
}

impl AddressVector {
    /// Default hop limit of hosts.
    pub const DEFAULT_HOP_LIMIT: u8 = 64;

    /// Returns the address of `gid` with source GID 0, traffic class 0 and the default hop limit.
    pub const fn to(gid: Gid) -> Self {
        Self {
            gid,
            sgid_index: 0,
            traffic_class: 0,
            hop_limit: Self::DEFAULT_HOP_LIMIT,
            flow_label: 0,
        }
    }

    /// Returns the address of the sender from the 40 bytes before a UD payload: an IPv6 header, or an IPv4 header in
    /// the last 20 bytes. Traffic class, hop limit and flow label are those of the header, as far as present. `None`
    /// for other bytes.
    pub fn to_sender(header: &[u8; 40]) -> Option<Self> {
        Some(Self::between(header)?.0)
    }

    /// Returns the address of the sender. The source GID is the entry of `ours` to which the message was sent, or for
    /// a message to a multicast group the first entry of its IP version. `None` without such an entry.
    pub fn to_sender_from(header: &[u8; 40], ours: &[Gid]) -> Option<Self> {
        let (av, sent_to) = Self::between(header)?;
        let is_source = |gid: &Gid| {
            let same = gid.ip().is_ipv4() == sent_to.is_ipv4();
            gid.ip() == sent_to || (sent_to.is_multicast() && same)
        };
        let index = ours.iter().position(is_source)?;
        Some(Self { sgid_index: u8::try_from(index).ok()?, ..av })
    }

    /// Returns the address of the sender, and the destination of the message.
    fn between(header: &[u8; 40]) -> Option<(Self, IpAddr)> {
        let (version, hop_limit, traffic_class, flow_label) =
            match (header[0] >> 4, header[20] >> 4) {
                (6, _) => {
                    let label = u32::from_be_bytes([0, header[1] & 0xf, header[2], header[3]]);
                    (6, header[7], header[0] << 4 | header[1] >> 4, label)
                }
                (0, 4) => (4, header[28], header[21], 0),
                _ => return None,
            };
        let (gid, sent_to): (Gid, IpAddr) = if version == 6 {
            let [source, destination]: [[u8; 16]; 2] =
                [*header[8..].first_chunk()?, *header[24..].first_chunk()?];
            (Gid(source), Ipv6Addr::from(destination).into())
        } else {
            let [source, destination]: [[u8; 4]; 2] =
                [*header[32..].first_chunk()?, *header[36..].first_chunk()?];
            (Ipv4Addr::from(source).into(), Ipv4Addr::from(destination).into())
        };
        // The hop limit is 0 where the system does not report it.
        let hop_limit = if hop_limit == 0 { Self::DEFAULT_HOP_LIMIT } else { hop_limit };
        Some((Self { traffic_class, hop_limit, flow_label, ..Self::to(gid) }, sent_to))
    }
}

/// Returns the UDP source port of a connection. It depends on the flow label, or if this is 0 on both queue pair
/// numbers, so that both directions hash alike (`rdma_get_udp_sport` of Linux).
///
/// The result is in the range 0xC000 to 0xFFFF.
pub const fn source_port(flow_label: u32, local: Qpn, remote: Qpn) -> u16 {
    let label = if flow_label & 0xf_ffff != 0 {
        flow_label & 0xf_ffff
    } else {
        let product = local.value() as u64 * remote.value() as u64;
        let folded = product ^ (product >> 20);
        ((folded ^ (folded >> 40)) & 0xf_ffff) as u32
    };
    let [_, _, high, low] = (((label & 0x3fff) ^ (label >> 14)) | 0xc000).to_be_bytes();
    u16::from_be_bytes([high, low])
}

/// Returns the UDP source port of a UD queue pair, which depends only on its number because its peers vary (as in
/// kernel rxe).
pub const fn datagram_source_port(local: Qpn) -> u16 {
    let hash = local.value().wrapping_mul(0x61c8_8647) >> 18;
    let [_, _, high, low] = (hash | 0xc000).to_be_bytes();
    u16::from_be_bytes([high, low])
}

/// IPv4 header fields under the ICRC that a UDP socket does not report.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Ipv4Fields {
    /// Identification.
    pub id: u16,
    /// The DF bit.
    pub dont_fragment: bool,
}

/// Known fields of the IP and UDP headers of a received buffer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RxMeta {
    /// Source address and UDP port.
    pub source: SocketAddr,
    /// Destination address.
    pub destination: IpAddr,
    /// IPv4 TOS or IPv6 traffic class, the same for every segment. Zero unless the port
    /// [reports](crate::port::Control::report_ip_fields) it.
    pub traffic_class: u8,
    /// TTL or hop limit as received. Zero unless the port reports it.
    pub hop_limit: u8,
    /// IPv4 fields under the ICRC, if the port sees the IP header; a UDP socket does not. Segment `i` of a buffer has
    /// identification `id + i`.
    pub ipv4: Option<Ipv4Fields>,
    /// The datagrams came through the memory of this host, not over a network: an [omitted](crate::wire::icrc::OMITTED)
    /// ICRC is valid.
    pub may_omit_icrc: bool,
}

/// A received buffer: one datagram, or several of one size that the kernel merged (GRO).
#[derive(Clone, Copy, Debug)]
pub struct RxBuffer<'a> {
    /// UDP payloads, one after the other.
    pub data: &'a [u8],
    /// Length of every segment except the last, which may be shorter. At least `data.len()`, or zero, for a single
    /// datagram.
    pub segment_len: usize,
    /// Addresses and IP header fields.
    pub meta: RxMeta,
}

impl<'a> RxBuffer<'a> {
    /// The datagrams, in the order received.
    pub fn segments(&self) -> impl ExactSizeIterator<Item = &'a [u8]> {
        self.data.chunks(self.stride().max(1))
    }

    /// Distance from the start of a datagram to the start of the next.
    pub(crate) fn stride(&self) -> usize {
        if self.segment_len == 0 { self.data.len() } else { self.segment_len }
    }
}

/// Identifies the origin of a burst, for the report of a transmit error.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct BurstToken(pub u64);

/// Datagrams to one destination: segments of one length, of which the last may be shorter. One UDP GSO send can carry
/// a burst.
///
/// The buffer is reused, so a burst needs no allocation.
#[derive(Clone, Debug)]
pub struct Burst {
    /// Path of the burst.
    pub path: Path,
    /// Value that the port returns with a [`TransmitErrorKind`].
    pub token: BurstToken,
    buffer: DatagramMemory,
    used: usize,
    /// Maximum number of bytes, which only the first segment may exceed.
    limit: usize,
    segment_len: usize,
    segments: usize,
    /// Maximum number of segments of this burst, up to `max_segments`.
    segment_limit: usize,
    /// Maximum number of segments of any burst of the port.
    max_segments: usize,
    /// The ICRCs are omitted.
    omits_icrcs: bool,
}

impl Burst {
    /// Returns an empty burst of at most [`MAX_BURST_SEGMENTS`] segments.
    pub fn new() -> Self {
        Self::with_max_segments(MAX_BURST_SEGMENTS)
    }

    /// Returns an empty burst of at most `max_segments` segments, 1 to [`MAX_BURST_SEGMENTS`].
    pub fn with_max_segments(max_segments: usize) -> Self {
        let max_segments = max_segments.clamp(1, MAX_BURST_SEGMENTS);
        let unset = IpAddr::V4(Ipv4Addr::UNSPECIFIED);
        Self {
            path: Path {
                source: unset,
                destination: unset,
                source_port: ROCE_PORT,
                traffic_class: 0,
                hop_limit: 0,
            },
            token: BurstToken(0),
            buffer: DatagramMemory::new(MAX_BURST_BYTES),
            used: 0,
            limit: MAX_BURST_BYTES,
            segment_len: 0,
            segments: 0,
            segment_limit: max_segments,
            max_segments,
            omits_icrcs: false,
        }
    }

    /// Returns the burst with or without ICRCs, for a [port](crate::port::PortInfo::omits_icrcs) that may do without.
    pub fn omitting_icrcs(self, omits_icrcs: bool) -> Self {
        Self { omits_icrcs, ..self }
    }

    /// Returns whether the engine [omits](crate::wire::icrc::OMITTED) the ICRCs of RC, UC, XRC and UD packets in this
    /// burst.
    pub fn omits_icrcs(&self) -> bool {
        self.omits_icrcs
    }

    /// Empties the burst for a new path. Its limit is the capacity of one send.
    pub fn reset(&mut self, path: Path, token: BurstToken) {
        self.begin(&path, token, MAX_BURST_BYTES, MAX_BURST_SEGMENTS);
    }

    /// Starts a burst of at most `limit` bytes and `segments` segments, but at least one segment.
    #[inline]
    pub(crate) fn begin(&mut self, path: &Path, token: BurstToken, limit: usize, segments: usize) {
        self.path = *path;
        self.token = token;
        self.empty(limit, segments);
    }

    /// Empties the burst. Its limit is the capacity of one send.
    pub fn clear(&mut self) {
        self.empty(MAX_BURST_BYTES, MAX_BURST_SEGMENTS);
    }

    #[inline]
    fn empty(&mut self, limit: usize, segments: usize) {
        (self.used, self.segments, self.segment_len) = (0, 0, 0);
        self.limit = limit.min(MAX_BURST_BYTES);
        self.segment_limit = segments.clamp(1, self.max_segments);
    }

    /// Calls `fill` with the limit lowered to `more` bytes above the present length, but at least one segment.
    pub(crate) fn fill_within<T>(&mut self, more: usize, fill: impl FnOnce(&mut Self) -> T) -> T {
        let limit = self.limit;
        self.shorten(more);
        let filled = fill(self);
        self.limit = limit;
        filled
    }

    /// Lowers the limit to `more` bytes above the present length, but at least one segment.
    pub(crate) fn shorten(&mut self, more: usize) {
        self.limit = self.limit.min(self.used.saturating_add(more));
    }

    /// Returns whether a segment of `len` bytes fits: not longer than the first, not behind a shorter one, and within
    /// the limit.
    pub fn has_room(&self, len: usize) -> bool {
        if self.segments == 0 {
            return len <= MAX_BURST_BYTES;
        }
        let full = self.used == self.segments * self.segment_len;
        full && len <= self.segment_len
            && self.segments < self.segment_limit
            && self.used + len <= self.limit
    }

    /// Returns the number of further segments of full length that fit.
    pub fn room(&self) -> usize {
        if self.used != self.segments * self.segment_len {
            return 0;
        }
        let bytes = self.limit.saturating_sub(self.used) / self.segment_len.max(1);
        bytes.min(self.segment_limit - self.segments)
    }

    /// Returns whether a segment of `next` bytes fits behind one of `len` bytes, which fits.
    pub fn has_room_behind(&self, len: usize, next: usize) -> bool {
        next <= len
            && (self.segments == 0 || len == self.segment_len)
            && self.segments + 2 <= self.segment_limit
            && self.used + len + next <= self.limit
    }

    /// Appends a segment of `len` bytes and returns it. The caller must overwrite every byte: the segment contains
    /// bytes of an earlier burst.
    ///
    /// The caller has checked [`has_room`](Self::has_room).
    pub fn push(&mut self, len: usize) -> &mut [u8] {
        debug_assert!(self.has_room(len), "segment of {len} bytes does not fit the burst");
        if self.segments == 0 {
            self.segment_len = len;
        }
        self.segments += 1;
        let start = self.used;
        self.used += len;
        self.buffer.part_mut(start..self.used)
    }

    /// Removes the last segment, of length `len`, after it could not be built.
    pub fn unpush(&mut self, len: usize) {
        self.segments = self.segments.saturating_sub(1);
        self.used = self.used.saturating_sub(len);
    }

    /// Returns the last datagram, or no bytes if the burst is empty.
    pub fn last(&self) -> &[u8] {
        let before = self.segments.saturating_sub(1) * self.segment_len;
        self.data().get(before..).unwrap_or_default()
    }

    /// Returns the datagrams, one after the other.
    #[inline]
    pub fn data(&self) -> &[u8] {
        self.buffer.part(0..self.used)
    }

    /// Returns the length of all datagrams together.
    pub fn byte_len(&self) -> usize {
        self.used
    }

    /// Returns the length of every segment except the last.
    pub fn segment_len(&self) -> usize {
        self.segment_len
    }

    /// Returns the number of datagrams.
    pub fn len(&self) -> usize {
        self.segments
    }

    /// Returns whether the burst contains no datagrams.
    pub fn is_empty(&self) -> bool {
        self.segments == 0
    }

    /// Returns the datagrams in order. The ICRC of segment `i` is for IPv4 identification `i` with DF set, which the
    /// port uses unless it [recomputes the ICRC](crate::port::Control::keep_identifications).
    pub fn segments(&self) -> impl ExactSizeIterator<Item = &[u8]> {
        self.data().chunks(self.segment_len.max(1))
    }
}

impl Default for Burst {
    fn default() -> Self {
        Self::new()
    }
}

/// Cause of a burst that the port cannot send.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum TransmitErrorKind {
    /// The destination has no route (`ENETUNREACH`, `EHOSTUNREACH`, `ENETDOWN`).
    Unreachable,
    /// A datagram exceeds the MTU of the path (`EMSGSIZE`).
    TooLong,
    /// The host forbids it (`EPERM`, `EACCES`).
    Forbidden,
    /// Code outside of the device has closed the socket (`EBADF`, `ENOTSOCK`).
    Closed,
    /// The host has lacked buffer space for two seconds (`ENOBUFS`, `ENOMEM`, `EAGAIN`).
    NoRoom,
    /// Another error.
    Other,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn source_ports_follow_the_formula_of_linux() {
        let port = |label, local, remote| source_port(label, Qpn::new(local), Qpn::new(remote));
        assert_eq!(port(0, 0x11, 0x12), 0xc132);
        assert_eq!(port(0, 0xab_cdef, 0x12_3456), 0xc3c8);
        assert_eq!(port(0, 0x12_3456, 0xab_cdef), 0xc3c8);
        assert_eq!(port(0x12345, 1, 2), 0xe341);
        assert_eq!(datagram_source_port(Qpn::GSI), 0xd872);
    }

    /// Returns the 40 bytes before a message over IPv4, with TOS 0x48 and this TTL.
    fn ipv4_header(hops: u8, source: [u8; 4], destination: [u8; 4]) -> [u8; 40] {
        let mut header = [0; 40];
        header[20..22].copy_from_slice(&[0x45, 0x48]);
        header[28] = hops;
        header[32..36].copy_from_slice(&source);
        header[36..].copy_from_slice(&destination);
        header
    }

    #[test]
    fn reply_starts_from_the_destination_gid_of_the_message() {
        let ip = |text: &str| text.parse::<IpAddr>().unwrap();
        let ours: Vec<Gid> = ["2001:db8::1", "10.0.0.1", "10.0.0.2"]
            .into_iter()
            .map(|text| ip(text).into())
            .collect();
        let (us, peer) = ([10, 0, 0, 2], [10, 0, 0, 9]);
        let back = AddressVector {
            sgid_index: 2,
            traffic_class: 0x48,
            hop_limit: 61,
            ..AddressVector::to(Ipv4Addr::from(peer).into())
        };
        let to_sender = |header| AddressVector::to_sender_from(&header, &ours);
        assert_eq!(to_sender(ipv4_header(61, peer, us)), Some(back));
        let untold = AddressVector { hop_limit: 64, ..back };
        assert_eq!(to_sender(ipv4_header(0, peer, us)), Some(untold));
        let group = AddressVector { sgid_index: 1, ..back };
        assert_eq!(to_sender(ipv4_header(61, peer, [239, 1, 2, 3])), Some(group));
        assert_eq!(to_sender(ipv4_header(61, peer, [10, 0, 0, 3])), None, "not for us");
        assert_eq!(to_sender([0; 40]), None);
    }

    #[test]
    fn reply_over_ipv6_keeps_the_flow_label() {
        let [us, peer] = ["2001:db8::1", "2001:db8::2"].map(|ip| ip.parse::<Ipv6Addr>().unwrap());
        let mut header = [0; 40];
        header[..8].copy_from_slice(&[0x6b, 0x91, 0x23, 0x45, 0, 40, 17, 3]);
        header[8..24].copy_from_slice(&peer.octets());
        header[24..].copy_from_slice(&us.octets());
        let back = AddressVector {
            traffic_class: 0xb9,
            flow_label: 0x12345,
            hop_limit: 3,
            ..AddressVector::to(peer.into())
        };
        assert_eq!(AddressVector::to_sender_from(&header, &[us.into()]), Some(back));
        assert_eq!(AddressVector::to_sender_from(&header, &[peer.into()]), None);
        header[24..].copy_from_slice(&"ff15::1".parse::<Ipv6Addr>().unwrap().octets());
        assert_eq!(AddressVector::to_sender_from(&header, &[us.into()]), Some(back));
    }

    #[test]
    fn burst_takes_equal_segments_and_one_shorter_at_the_end() {
        let mut burst = Burst::new();
        burst.push(100).fill(1);
        assert!(!burst.has_room(101), "longer than the first");
        assert!(burst.has_room_behind(100, 99) && !burst.has_room_behind(99, 99));
        burst.push(100).fill(2);
        assert!(burst.has_room(20));
        burst.push(20).fill(3);
        assert!(!burst.has_room(20) && burst.room() == 0, "a shorter one closes it");
        assert_eq!(burst.last(), [3; 20]);
        let segments: Vec<_> = burst.segments().map(|s| (s.len(), s[0])).collect();
        assert_eq!(segments, [(100, 1), (100, 2), (20, 3)]);
    }

    #[test]
    fn burst_ends_at_the_limits_of_one_send() {
        let mut burst = Burst::new();
        while burst.has_room_behind(4112, 4112) {
            burst.push(4112);
        }
        assert_eq!((burst.len(), burst.has_room(4112), burst.room()), (14, true, 1));
        burst.push(4112).fill(7);
        assert!(!burst.has_room(4112) && burst.room() == 0);
        assert_eq!(burst.last(), [7; 4112]);
        for (max_segments, granted) in [(0, 1), (64, 64), (usize::MAX, MAX_BURST_SEGMENTS)] {
            let mut burst = Burst::with_max_segments(max_segments);
            while burst.has_room(80) {
                assert!(burst.is_empty() || burst.room() == granted - burst.len());
                burst.push(80);
            }
            assert_eq!((burst.len(), burst.room()), (granted, 0));
            assert!(!burst.has_room_behind(80, 80));
        }
    }

    #[test]
    fn reset_restores_the_limit_of_a_burst() {
        let mut burst = Burst::new();
        let (path, token) = (Path { hop_limit: 7, ..burst.path }, BurstToken(9));
        burst.begin(&path, token, 250, MAX_BURST_SEGMENTS);
        assert_eq!((burst.path, burst.token), (path, token));
        burst.push(100);
        let room = burst.fill_within(99, |burst| burst.room());
        assert_eq!((room, burst.room()), (0, 1), "only `fill` has the lower limit");
        burst.begin(&path, token, 0, 0);
        assert!(burst.has_room(100), "one segment always fits");
        burst.push(100);
        assert!(!burst.has_room(100));
        let empty: [fn(&mut Burst); 2] =
            [Burst::clear, |burst| burst.reset(burst.path, burst.token)];
        for empty in empty {
            burst.begin(&path, token, 1000, 1);
            empty(&mut burst);
            burst.push(100);
            assert_eq!(burst.room(), MAX_BURST_SEGMENTS.min(MAX_BURST_BYTES / 100) - 1);
        }
    }
}

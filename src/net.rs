//! What a datagram is: the contract between the engine, which makes packets, and the ports, which
//! carry them.
//!
//! The two never see each other. A port hands up an [`RxBuffer`] and takes a [`Burst`]; the ICRC
//! covers IP header fields, so both say what is known about them.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use crate::ids::{Gid, Qpn};

/// The UDP port of RoCEv2.
pub const ROCE_PORT: u16 = 4791;

/// Bytes of UDP payload that one burst may carry: a 65,535-byte IP packet less the larger of the
/// two IP headers and the UDP header.
pub const MAX_BURST_BYTES: usize = 65_535 - 40 - 8;

/// Segments that one burst may carry (`UDP_MAX_SEGMENTS` of older kernels).
pub const MAX_BURST_SEGMENTS: usize = 64;

/// Bytes of a datagram that is short, at most.
pub(crate) const SHORT: usize = 256;

/// Which IP header a packet has.
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

/// Where a burst goes and how it looks at the IP layer.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Path {
    /// The source address: the one of ours that the queue pair's GID index names.
    pub source: IpAddr,
    /// The peer. Same family as `source`.
    pub destination: IpAddr,
    /// The UDP source port, which the port has agreed to (see `port::Control::source_port`).
    pub source_port: u16,
    /// IPv4 TOS or IPv6 traffic class: DSCP in bits 7:2, ECN in bits 1:0.
    pub traffic_class: u8,
    /// TTL or hop limit.
    pub hop_limit: u8,
}

/// The way to a peer.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[doc(alias = "ibv_ah_attr")]
pub struct AddressVector {
    /// The peer's GID, of the same family as ours: its IP address.
    pub gid: Gid,
    /// Which of our GIDs is the source.
    pub sgid_index: u8,
    /// IPv4 TOS or IPv6 traffic class: DSCP in bits 7:2, ECN in bits 1:0.
    pub traffic_class: u8,
    /// TTL or hop limit.
    pub hop_limit: u8,
    /// 20 bits, from which the UDP source port follows; 0 lets it follow from the queue pair
    /// numbers.
    pub flow_label: u32,
}

impl AddressVector {
    /// The hop limit that hosts use.
    pub const DEFAULT_HOP_LIMIT: u8 = 64;

    /// The way to `gid` from our first GID, best effort.
    pub const fn to(gid: Gid) -> Self {
        Self {
            gid,
            sgid_index: 0,
            traffic_class: 0,
            hop_limit: Self::DEFAULT_HOP_LIMIT,
            flow_label: 0,
        }
    }

    /// The way back, from the 40 bytes before a UD payload: an IPv6 header, or an IPv4 header in the
    /// last 20. Traffic class, hop limit and flow label are those of the header, as far as it has them.
    /// `None` when they are neither.
    pub fn to_sender(header: &[u8; 40]) -> Option<Self> {
        Some(Self::between(header)?.0)
    }

    /// The same from the source GID that the message was sent to, one of `ours`; of a message to a
    /// multicast group, from the first of its IP version. `None` when there is no such GID.
    pub fn to_sender_from(header: &[u8; 40], ours: &[Gid]) -> Option<Self> {
        let (av, sent_to) = Self::between(header)?;
        let is_source = |gid: &Gid| {
            let same = gid.ip().is_ipv4() == sent_to.is_ipv4();
            gid.ip() == sent_to || (sent_to.is_multicast() && same)
        };
        let index = ours.iter().position(is_source)?;
        Some(Self { sgid_index: u8::try_from(index).ok()?, ..av })
    }

    /// The way back, and where the message was sent to.
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
        // Not every system tells the hop limit.
        let hop_limit = if hop_limit == 0 { Self::DEFAULT_HOP_LIMIT } else { hop_limit };
        Some((Self { traffic_class, hop_limit, flow_label, ..Self::to(gid) }, sent_to))
    }
}

/// The UDP source port of a connection, from its flow label or, when that is 0, from both queue pair
/// numbers, so that both directions hash alike (the formula of Linux's RoCE drivers).
///
/// The result lies in 0xC000 to 0xFFFF.
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

/// The UDP source port of a UD queue pair, from its number alone: its peers change (the hash of
/// kernel rxe).
pub const fn datagram_source_port(local: Qpn) -> u16 {
    let hash = local.value().wrapping_mul(0x61c8_8647) >> 18;
    let [_, _, high, low] = (hash | 0xc000).to_be_bytes();
    u16::from_be_bytes([high, low])
}

/// IPv4 header fields that the ICRC covers and that a UDP socket hides.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Ipv4Fields {
    /// The identification.
    pub id: u16,
    /// The DF bit.
    pub dont_fragment: bool,
}

/// What is known of the IP and UDP headers of a received buffer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RxMeta {
    /// The sender's address and UDP port.
    pub source: SocketAddr,
    /// The address it was sent to.
    pub destination: IpAddr,
    /// IPv4 TOS or IPv6 traffic class. Holds for every segment. Zero when the port has not been
    /// [asked](crate::port::Control::report_ip_fields) for it.
    pub traffic_class: u8,
    /// TTL or hop limit as received, or zero likewise.
    pub hop_limit: u8,
    /// The IPv4 fields under the ICRC, when the port sees the header; a UDP socket does not.
    /// Segment `i` of a buffer then has identification `id + i`.
    pub ipv4: Option<Ipv4Fields>,
}

/// A received buffer: one datagram, or several of one size that the kernel merged (GRO).
#[derive(Clone, Copy, Debug)]
pub struct RxBuffer<'a> {
    /// The UDP payloads, one after the other.
    pub data: &'a [u8],
    /// The size of every segment but the last, which may be shorter. At least `data.len()` for a
    /// lone datagram. Zero counts as a lone datagram.
    pub segment_len: usize,
    /// Addresses and IP header fields.
    pub meta: RxMeta,
}

impl<'a> RxBuffer<'a> {
    /// The datagrams, in the order received.
    pub fn segments(&self) -> impl ExactSizeIterator<Item = &'a [u8]> {
        self.data.chunks(self.stride().max(1))
    }

    /// From the beginning of a datagram to that of the next.
    pub(crate) fn stride(&self) -> usize {
        if self.segment_len == 0 { self.data.len() } else { self.segment_len }
    }
}

/// Names the work behind a burst, so that a port's refusal finds its way back to it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct BurstToken(pub u64);

/// Datagrams to one destination: segments of one size, of which the last may be shorter. This is
/// what one UDP GSO send can carry.
///
/// The buffer is the caller's and is used again, so nothing is allocated per burst.
#[derive(Clone, Debug)]
pub struct Burst {
    /// Where it goes.
    pub path: Path,
    /// What the engine wants back with [`TransmitErrorKind`].
    pub token: BurstToken,
    buffer: Box<[u8]>,
    used: usize,
    /// Bytes that it takes, but for a first segment that is longer.
    limit: usize,
    segment_len: usize,
    segments: usize,
}

impl Burst {
    /// An empty burst with room for the largest.
    pub fn new() -> Self {
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
            buffer: vec![0; MAX_BURST_BYTES].into_boxed_slice(),
            used: 0,
            limit: MAX_BURST_BYTES,
            segment_len: 0,
            segments: 0,
        }
    }

    /// Empties it for a new path. It takes as much as one send carries.
    pub fn reset(&mut self, path: Path, token: BurstToken) {
        self.begin(path, token, MAX_BURST_BYTES);
    }

    /// Begins a burst of at most `limit` bytes, but of at least one segment.
    pub(crate) fn begin(&mut self, path: Path, token: BurstToken, limit: usize) {
        self.clear();
        self.path = path;
        self.token = token;
        self.limit = limit.min(MAX_BURST_BYTES);
    }

    /// Empties it. It takes as much as one send carries.
    pub fn clear(&mut self) {
        self.used = 0;
        self.limit = MAX_BURST_BYTES;
        self.segment_len = 0;
        self.segments = 0;
    }

    /// Calls `fill` with a burst that takes at most `more` bytes than it has now, but at least one segment.
    pub(crate) fn fill_within<T>(&mut self, more: usize, fill: impl FnOnce(&mut Self) -> T) -> T {
        let limit = self.limit;
        self.shorten(more);
        let filled = fill(self);
        self.limit = limit;
        filled
    }

    /// Lowers the limit to `more` bytes than it has now, but to no less than one segment.
    pub(crate) fn shorten(&mut self, more: usize) {
        self.limit = self.limit.min(self.used.saturating_add(more));
    }

    /// Whether a segment of `len` bytes may follow what is here: no longer than the first, none
    /// after a shorter one, and within the limits of one send.
    pub fn has_room(&self, len: usize) -> bool {
        if self.segments == 0 {
            return len <= MAX_BURST_BYTES;
        }
        let full = self.used == self.segments * self.segment_len;
        full && len <= self.segment_len
            && self.segments < MAX_BURST_SEGMENTS
            && self.used + len <= self.limit
    }

    /// How many more segments as long as the first there is room for.
    pub fn room(&self) -> usize {
        if self.used != self.segments * self.segment_len {
            return 0;
        }
        let bytes = self.limit.saturating_sub(self.used) / self.segment_len.max(1);
        bytes.min(MAX_BURST_SEGMENTS - self.segments)
    }

    /// Whether a segment of `next` bytes may follow one of `len`, for which there is room.
    pub fn has_room_behind(&self, len: usize, next: usize) -> bool {
        next <= len
            && (self.segments == 0 || len == self.segment_len)
            && self.segments + 2 <= MAX_BURST_SEGMENTS
            && self.used + len + next <= self.limit
    }

    /// Appends a segment of `len` bytes and lends it to be written, every byte of it: it holds what
    /// an earlier burst left there.
    ///
    /// The caller has asked [`has_room`](Self::has_room).
    pub fn push(&mut self, len: usize) -> &mut [u8] {
        debug_assert!(self.has_room(len), "segment of {len} bytes does not fit the burst");
        if self.segments == 0 {
            self.segment_len = len;
        }
        self.segments += 1;
        let start = self.used;
        self.used += len;
        &mut self.buffer[start..self.used]
    }

    /// Takes back the last segment pushed, of which the length is given: it could not be built.
    pub fn unpush(&mut self, len: usize) {
        self.segments = self.segments.saturating_sub(1);
        self.used = self.used.saturating_sub(len);
    }

    /// The last datagram; no bytes of an empty burst.
    pub fn last(&self) -> &[u8] {
        let before = self.segments.saturating_sub(1) * self.segment_len;
        self.data().get(before..).unwrap_or_default()
    }

    /// The datagrams, one after the other.
    pub fn data(&self) -> &[u8] {
        &self.buffer[..self.used]
    }

    /// The size of every segment but the last.
    pub fn segment_len(&self) -> usize {
        self.segment_len
    }

    /// How many datagrams there are.
    pub fn len(&self) -> usize {
        self.segments
    }

    /// Whether there is nothing to send.
    pub fn is_empty(&self) -> bool {
        self.segments == 0
    }

    /// The datagrams in order. Segment `i` is sealed for IPv4 identification `i`, and leaves with that, DF
    /// set, unless the port [seals it anew](crate::port::Control::keep_identifications).
    pub fn segments(&self) -> impl ExactSizeIterator<Item = &[u8]> {
        self.data().chunks(self.segment_len.max(1))
    }
}

impl Default for Burst {
    fn default() -> Self {
        Self::new()
    }
}

/// Why a port will never send a burst that it was given.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum TransmitErrorKind {
    /// No way to the destination (`ENETUNREACH`, `EHOSTUNREACH`, `ENETDOWN`).
    Unreachable,
    /// A datagram is longer than the path carries (`EMSGSIZE`).
    TooLong,
    /// The host does not allow it (`EPERM`, `EACCES`).
    Forbidden,
    /// Somebody else in this process has closed the port's socket (`EBADF`, `ENOTSOCK`).
    Closed,
    /// The host has had no room for a burst for two seconds (`ENOBUFS`, `ENOMEM`, `EAGAIN`).
    NoRoom,
    /// Anything else.
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

    /// The 40 bytes before a message over IPv4: TOS 0x48, so many hops left.
    fn ipv4_header(hops: u8, source: [u8; 4], destination: [u8; 4]) -> [u8; 40] {
        let mut header = [0; 40];
        header[20..22].copy_from_slice(&[0x45, 0x48]);
        header[28] = hops;
        header[32..36].copy_from_slice(&source);
        header[36..].copy_from_slice(&destination);
        header
    }

    #[test]
    fn the_way_back_begins_at_the_gid_that_the_message_was_sent_to() {
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
    fn the_way_back_over_ipv6_keeps_the_flow_label() {
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
    fn a_burst_takes_equal_segments_and_one_shorter_at_the_end() {
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
    fn a_burst_ends_at_the_limits_of_one_send() {
        let mut burst = Burst::new();
        while burst.has_room_behind(4112, 4112) {
            burst.push(4112);
        }
        assert_eq!((burst.len(), burst.has_room(4112), burst.room()), (14, true, 1));
        burst.push(4112).fill(7);
        assert!(!burst.has_room(4112) && burst.room() == 0);
        assert_eq!(burst.last(), [7; 4112]);
        burst.reset(burst.path, BurstToken(0));
        while burst.has_room(80) {
            burst.push(80);
        }
        assert_eq!(burst.len(), MAX_BURST_SEGMENTS);
    }

    #[test]
    fn limits_of_one_burst_do_not_outlive_it() {
        let mut burst = Burst::new();
        let (path, token) = (Path { hop_limit: 7, ..burst.path }, BurstToken(9));
        burst.begin(path, token, 250);
        assert_eq!((burst.path, burst.token), (path, token));
        burst.push(100);
        let room = burst.fill_within(99, |burst| burst.room());
        assert_eq!((room, burst.room()), (0, 1), "only `fill` has the lower limit");
        burst.begin(path, token, 0);
        assert!(burst.has_room(100), "one segment always fits");
        burst.push(100);
        assert!(!burst.has_room(100));
        let empty: [fn(&mut Burst); 2] =
            [Burst::clear, |burst| burst.reset(burst.path, burst.token)];
        for empty in empty {
            burst.shorten(0);
            empty(&mut burst);
            burst.push(100);
            assert_eq!(burst.room(), MAX_BURST_SEGMENTS.min(MAX_BURST_BYTES / 100) - 1);
        }
    }
}

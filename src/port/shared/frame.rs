//! Frames with a `virtio_net_hdr`: what a packet socket with `PACKET_VNET_HDR` and a TAP with `IFF_VNET_HDR` read and
//! write.
//!
//! ```text
//!  0      1      2         4          6            8             10           24
//! ┌──────┬──────┬─────────┬──────────┬────────────┬─────────────┬────────────┬────┬─────┬─────────┐
//! │flags │ GSO  │ hdr_len │ gso_size │ csum_start │ csum_offset │ Ethernet   │ IP │ UDP │ payload │
//! │      │ type │         │          │            │             │            │    │     │         │
//! └──────┴──────┴─────────┴──────────┴────────────┴─────────────┴────────────┴────┴─────┴─────────┘
//!  └ virtio_net_hdr, in the byte order of this machine ─────────┘
//! ```
//!
//! A frame may hold several datagrams of one size, one after the other behind one header, as a burst does. The kernel
//! or the adapter splits the frame (UDP GSO) and numbers the IPv4 identifications.

use std::io;
use std::net::{IpAddr, SocketAddr};

#[cfg(feature = "tap")]
use bytes::Bytes;

use super::send_failure::SendFailure;
use crate::net::{Burst, Path, RxBuffer, RxMeta};
use crate::wire::encap::{self, ETHERNET_LEN, Headers, IPV4_LEN, IPV6_LEN, IpDatagram, UDP_LEN};

/// Length of the `virtio_net_hdr`.
pub(in crate::port) const VNET_HDR_LEN: usize = 10;

/// Maximum length of a read: a `virtio_net_hdr`, an Ethernet frame with a VLAN tag, an IP packet.
pub(in crate::port) const MAX_FRAME_LEN: usize = VNET_HDR_LEN + ETHERNET_LEN + 4 + 65_535;

/// `VIRTIO_NET_HDR_F_NEEDS_CSUM`: the kernel computes the UDP checksum.
const NEEDS_CHECKSUM: u8 = 1;
/// `VIRTIO_NET_HDR_GSO_NONE` and `VIRTIO_NET_HDR_GSO_UDP_L4`.
const GSO_NONE: u8 = 0;
const GSO_UDP_L4: u8 = 5;
/// `VIRTIO_NET_HDR_GSO_ECN`, which may be set beside a type.
const GSO_ECN: u8 = 0x80;

/// Offset of the checksum in the UDP header.
const CHECKSUM_OFFSET: usize = 6;

/// Returns the EtherType of IPv4 or IPv6.
pub(in crate::port) const fn ethertype(is_ipv4: bool) -> u16 {
    if is_ipv4 { 0x0800 } else { 0x86dd }
}

/// Source and destination MAC address of a frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::port) struct Link {
    pub(in crate::port) source: [u8; 6],
    pub(in crate::port) destination: [u8; 6],
}

/// Datagrams of one size along one path: those of a burst, or of a queued copy of a burst.
#[derive(Clone, Copy, Debug)]
pub(in crate::port) struct Datagrams<'a> {
    pub(in crate::port) path: &'a Path,
    /// Size of each but the last.
    pub(in crate::port) segment_len: usize,
    /// The datagrams, concatenated.
    pub(in crate::port) data: &'a [u8],
}

impl<'a> From<&'a Burst> for Datagrams<'a> {
    fn from(burst: &'a Burst) -> Self {
        Self { path: &burst.path, segment_len: burst.segment_len(), data: burst.data() }
    }
}

impl Datagrams<'_> {
    /// Returns the length of the longest IP packet of these datagrams.
    pub(in crate::port) fn packet_len(&self) -> usize {
        ip_header_len(self.path.destination) + UDP_LEN + self.segment_len
    }
}

/// Copy of a burst that waits in a queue.
#[cfg(feature = "tap")]
#[derive(Debug)]
pub(in crate::port) struct QueuedBurst {
    pub(in crate::port) path: Path,
    pub(in crate::port) segment_len: usize,
    pub(in crate::port) data: Bytes,
}

#[cfg(feature = "tap")]
impl QueuedBurst {
    pub(in crate::port) fn datagrams(&self) -> Datagrams<'_> {
        Datagrams { path: &self.path, segment_len: self.segment_len, data: &self.data }
    }

    /// Returns the memory that the burst takes, in bytes.
    pub(in crate::port) fn memory(&self) -> usize {
        self.data.len() + 1024
    }
}

#[cfg(feature = "tap")]
impl From<&Burst> for QueuedBurst {
    fn from(burst: &Burst) -> Self {
        let (path, segment_len) = (burst.path, burst.segment_len());
        Self { path, segment_len, data: Bytes::copy_from_slice(burst.data()) }
    }
}

fn ip_header_len(ip: IpAddr) -> usize {
    if ip.is_ipv4() { IPV4_LEN } else { IPV6_LEN }
}

/// Builds frames from datagrams.
#[derive(Debug)]
pub(in crate::port) struct Framer {
    /// Frames may hold several datagrams.
    pub(in crate::port) gso: bool,
    /// Headers of the frame under construction.
    head: Vec<u8>,
}

impl Framer {
    pub(in crate::port) fn new(gso: bool) -> Self {
        Self { gso, head: Vec::new() }
    }

    /// Passes datagrams to `put`, in one frame if GSO is allowed and otherwise in one frame each. A frame has two
    /// parts: headers and payload. Returns `true` if several datagrams had a frame each.
    pub(in crate::port) fn send(
        &mut self,
        link: Link,
        datagrams: Datagrams<'_>,
        mut put: impl FnMut(&[u8], &[u8]) -> io::Result<()>,
    ) -> Result<bool, SendFailure> {
        let Datagrams { segment_len, data, .. } = datagrams;
        let mut put = |id: u16, payload: &[u8]| {
            write(link, datagrams, id, payload, &mut self.head);
            let segments = payload.len() / segment_len.max(1);
            put(&self.head, payload).map_err(|error| SendFailure::from_os(&error, segments))
        };
        let is_burst = data.len() > segment_len;
        if is_burst && self.gso {
            match put(0, data) {
                // The kernel is too old for such frames, or the interface rejects them.
                Err(SendFailure::GsoUnsupported) => self.gso = false,
                sent => return sent.map(|()| false),
            }
        }
        for (id, datagram) in (0..).zip(data.chunks(segment_len.max(1))) {
            match put(id, datagram) {
                Ok(()) => {}
                Err(failure) if id == 0 => return Err(failure),
                // Frames that the kernel has taken cannot be recalled: the rest is lost, as in a full queue.
                Err(_) => break,
            }
        }
        Ok(is_burst)
    }
}

/// Writes the headers of a frame with `payload`: datagrams from IPv4 identification `id` on, or one of them.
fn write(link: Link, datagrams: Datagrams<'_>, id: u16, payload: &[u8], out: &mut Vec<u8>) {
    let Datagrams { path, segment_len, .. } = datagrams;
    let is_ipv4 = path.destination.is_ipv4();
    let udp = ETHERNET_LEN + ip_header_len(path.destination);
    let is_gso = payload.len() > segment_len;
    let length = |len: usize| u16::try_from(len).unwrap_or(u16::MAX).to_ne_bytes();
    out.clear();
    out.extend([NEEDS_CHECKSUM, if is_gso { GSO_UDP_L4 } else { GSO_NONE }]);
    out.extend(length(udp + UDP_LEN));
    out.extend(if is_gso { length(segment_len) } else { [0; 2] });
    out.extend(length(udp));
    out.extend(length(CHECKSUM_OFFSET));
    out.extend(link.destination);
    out.extend(link.source);
    out.extend(ethertype(is_ipv4).to_be_bytes());
    Headers::write(path, id, payload.len(), out);
    let checksum = encap::pseudo_sum(path, payload.len());
    if let Some(field) =
        out.get_mut(VNET_HDR_LEN + udp + CHECKSUM_OFFSET..).and_then(<[u8]>::first_chunk_mut)
    {
        *field = checksum.to_be_bytes();
    }
}

/// A parsed frame: datagrams of one size, and the headers of the first.
#[derive(Clone, Copy, Debug)]
pub(in crate::port) struct ParsedFrame<'a> {
    pub(in crate::port) datagram: IpDatagram<'a>,
    segment_len: usize,
}

impl<'a> ParsedFrame<'a> {
    pub(in crate::port) fn buffer(&self) -> RxBuffer<'a> {
        let IpDatagram { source, destination, traffic_class, hop_limit, ipv4, .. } = self.datagram;
        // Without flow label and scope.
        let source = SocketAddr::new(source.ip(), source.port());
        let destination = destination.ip();
        let meta =
            RxMeta { source, destination, traffic_class, hop_limit, ipv4, may_omit_icrc: false };
        RxBuffer { data: self.datagram.payload, segment_len: self.segment_len, meta }
    }
}

/// Parses a frame. `None` if it holds no datagram.
pub(in crate::port) fn parse(bytes: &[u8]) -> Option<ParsedFrame<'_>> {
    let (&[_, kind, _, _, size0, size1, ..], frame) = bytes.split_first_chunk::<VNET_HDR_LEN>()?;
    let segment_len = match kind & !GSO_ECN {
        GSO_NONE => None,
        GSO_UDP_L4 => Some(usize::from(u16::from_ne_bytes([size0, size1]))),
        _ => return None,
    };
    let (_, packet) = encap::ethernet(frame).ok()?;
    let datagram = encap::parse_ip(packet).ok()?;
    Some(ParsedFrame { datagram, segment_len: segment_len.unwrap_or(datagram.payload.len()) })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::net::{BurstToken, Ipv4Fields};

    const LINK: Link = Link { source: [2, 0, 0, 0, 0, 1], destination: [2, 0, 0, 0, 0, 2] };

    fn burst(source: &str, destination: &str, lens: &[usize]) -> Burst {
        let mut burst = Burst::new();
        let path = Path {
            source: source.parse().unwrap(),
            destination: destination.parse().unwrap(),
            source_port: 0xc123,
            traffic_class: 0x48,
            hop_limit: 64,
        };
        burst.reset(path, BurstToken::default());
        for (index, len) in (1..).zip(lens) {
            burst.push(*len).fill(index);
        }
        burst
    }

    /// Returns a frame as the kernel gets it, from its `virtio_net_hdr` on.
    fn frame(burst: &Burst, id: u16, payload: &[u8]) -> Vec<u8> {
        let mut bytes = Vec::new();
        write(LINK, burst.into(), id, payload, &mut bytes);
        bytes.extend(payload);
        bytes
    }

    #[test]
    fn written_frame_can_be_parsed() {
        for (source, destination) in [("10.0.0.1", "10.0.0.2"), ("fd00::1", "fd00::2")] {
            let burst = burst(source, destination, &[100, 100, 20]);
            let bytes = frame(&burst, 0, burst.data());
            let buffer = parse(&bytes).unwrap().buffer();
            assert!(buffer.segments().eq(burst.segments()));
            let meta = buffer.meta;
            assert_eq!(meta.source, SocketAddr::new(burst.path.source, 0xc123));
            assert_eq!(meta.destination, burst.path.destination);
            assert_eq!((meta.traffic_class, meta.hop_limit), (0x48, 64));
            let fields = Ipv4Fields { id: 0, dont_fragment: true };
            assert_eq!(meta.ipv4, meta.destination.is_ipv4().then_some(fields));

            let last = burst.segments().last().unwrap();
            let bytes = frame(&burst, 2, last);
            let buffer = parse(&bytes).unwrap().buffer();
            assert!(buffer.segments().eq([last]), "one of them, by itself");
            assert_eq!(buffer.meta.ipv4.map(|ipv4| ipv4.id), meta.ipv4.map(|_| 2));
        }
    }

    #[test]
    fn virtio_net_hdr_requests_checksum_and_gso() {
        let burst = burst("10.0.0.1", "10.0.0.2", &[100, 100]);
        let bytes = frame(&burst, 0, burst.data());
        let words = |at: usize| u16::from_ne_bytes([bytes[at], bytes[at + 1]]);
        assert_eq!(bytes[..2], [NEEDS_CHECKSUM, GSO_UDP_L4]);
        assert_eq!([words(2), words(4), words(6), words(8)], [14 + 20 + 8, 100, 14 + 20, 6]);
        assert_eq!(bytes[10..24], [2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 8, 0]);
        // 10.0.0.1, 10.0.0.2, protocol 17, 208 bytes.
        let sum: u16 = 0x0a00 + 1 + 0x0a00 + 2 + 17 + 208;
        assert_eq!(bytes[10 + 14 + 20 + 6..][..2], sum.to_be_bytes());
    }

    #[test]
    fn framer_splits_bursts_without_gso() {
        let burst = burst("10.0.0.1", "10.0.0.2", &[100, 100, 20]);
        let mut framer = Framer::new(true);
        let mut sends = |takes_whole: bool, takes: usize| {
            let mut lens = Vec::new();
            let cut = framer.send(LINK, (&burst).into(), |_, payload| {
                let refused = io::Error::from_raw_os_error(libc::EINVAL);
                if payload.len() > 100 && !takes_whole || lens.len() == takes {
                    return Err(refused);
                }
                lens.push(payload.len());
                Ok(())
            });
            (cut, lens)
        };
        assert_eq!(sends(true, 9), (Ok(false), vec![220]));
        assert_eq!(sends(false, 9), (Ok(true), vec![100, 100, 20]));
        assert_eq!(sends(true, 9), (Ok(true), vec![100, 100, 20]), "it is not tried again");
        assert_eq!(sends(true, 2), (Ok(true), vec![100, 100]), "the last is lost");
        let (failure, lens) = sends(true, 0);
        assert!(matches!(failure, Err(SendFailure::Refused(_))) && lens.is_empty());
    }

    #[test]
    fn frame_without_datagram_is_rejected() {
        let burst = burst("10.0.0.1", "10.0.0.2", &[100]);
        let bytes = frame(&burst, 0, burst.data());
        for len in 0..bytes.len() {
            assert!(parse(&bytes[..len]).is_none(), "{len} bytes of it");
        }
        let mut other = bytes;
        other[1] = 3;
        assert!(parse(&other).is_none(), "fragments that the kernel was to cut");
    }
}

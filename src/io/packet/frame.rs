//! What a packet socket with `PACKET_VNET_HDR` reads and writes: a note for the kernel, and a frame.
//!
//! ```text
//!  0      1      2         4          6            8             10           24
//! ┌──────┬──────┬─────────┬──────────┬────────────┬─────────────┬────────────┬────┬─────┬─────────┐
//! │flags │ GSO  │ headers │ segments │ checksum   │ … where, in │ Ethernet   │ IP │ UDP │ payload │
//! │      │ type │ (bytes) │ of bytes │ from here  │ these bytes │            │    │     │         │
//! └──────┴──────┴─────────┴──────────┴────────────┴─────────────┴────────────┴────┴─────┴─────────┘
//!  └ virtio_net_hdr, in the byte order of this machine ─────────┘
//! ```
//!
//! A frame may hold several datagrams of one size, one after the other behind one header, as a burst does:
//! the kernel or the adapter cuts them on their way, and numbers them in the IPv4 identification.

use std::net::SocketAddr;

use crate::net::{Burst, RxBuffer, RxMeta};
use crate::wire::encap::{self, ETHERNET_LEN, Headers, IPV4_LEN, IPV6_LEN, UDP_LEN};

/// Bytes of the note.
const NOTE_LEN: usize = 10;

/// The most that is read: a note, an Ethernet frame with a tag, an IP packet.
pub(super) const MAX_LEN: usize = NOTE_LEN + ETHERNET_LEN + 4 + 65_535;

/// `VIRTIO_NET_HDR_F_NEEDS_CSUM`: the UDP checksum is to be computed.
const NEEDS_CHECKSUM: u8 = 1;
/// `VIRTIO_NET_HDR_GSO_NONE` and `VIRTIO_NET_HDR_GSO_UDP_L4`.
const WHOLE: u8 = 0;
const CUT: u8 = 5;
/// `VIRTIO_NET_HDR_GSO_ECN`, which may be set beside a type.
const ECN: u8 = 0x80;

/// Where the UDP header holds its checksum.
const CHECKSUM: usize = 6;

/// The EtherType of IPv4, and of IPv6.
pub(super) const fn ethertype(is_ipv4: bool) -> u16 {
    if is_ipv4 { 0x0800 } else { 0x86dd }
}

/// The addresses of both ends of a link.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Link {
    pub(super) source: [u8; 6],
    pub(super) destination: [u8; 6],
}

/// Writes what comes before `payload`, the datagrams of `burst` from identification `id` on, or one of them.
pub(super) fn write(link: Link, burst: &Burst, id: u16, payload: &[u8], out: &mut Vec<u8>) {
    let is_ipv4 = burst.path.destination.is_ipv4();
    let udp = ETHERNET_LEN + if is_ipv4 { IPV4_LEN } else { IPV6_LEN };
    let is_cut = payload.len() > burst.segment_len();
    let length = |len: usize| u16::try_from(len).unwrap_or(u16::MAX).to_ne_bytes();
    out.clear();
    out.extend([NEEDS_CHECKSUM, if is_cut { CUT } else { WHOLE }]);
    out.extend(length(udp + UDP_LEN));
    out.extend(if is_cut { length(burst.segment_len()) } else { [0; 2] });
    out.extend(length(udp));
    out.extend(length(CHECKSUM));
    out.extend(link.destination);
    out.extend(link.source);
    out.extend(ethertype(is_ipv4).to_be_bytes());
    Headers::write(&burst.path, id, payload.len(), out);
    let checksum = encap::pseudo_sum(&burst.path, payload.len());
    if let Some(field) = out.get_mut(NOTE_LEN + udp + CHECKSUM..).and_then(<[u8]>::first_chunk_mut)
    {
        *field = checksum.to_be_bytes();
    }
}

/// The datagrams of a frame that was read; `None` when there are none.
pub(super) fn read(bytes: &[u8]) -> Option<RxBuffer<'_>> {
    let (&[_, kind, _, _, size0, size1, ..], frame) = bytes.split_first_chunk::<NOTE_LEN>()?;
    let segment_len = match kind & !ECN {
        WHOLE => None,
        CUT => Some(usize::from(u16::from_ne_bytes([size0, size1]))),
        _ => return None,
    };
    let (_, packet) = encap::ethernet(frame).ok()?;
    let datagram = encap::parse_ip(packet).ok()?;
    let data = datagram.payload;
    let meta = RxMeta {
        source: SocketAddr::new(datagram.source.ip(), datagram.source.port()),
        destination: datagram.destination.ip(),
        traffic_class: datagram.traffic_class,
        hop_limit: datagram.hop_limit,
        ipv4: datagram.ipv4,
    };
    Some(RxBuffer { data, segment_len: segment_len.unwrap_or(data.len()), meta })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::net::{BurstToken, Ipv4Fields, Path};

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

    /// The frame as the kernel gets it, from its note on.
    fn frame(burst: &Burst, id: u16, payload: &[u8]) -> Vec<u8> {
        let mut bytes = Vec::new();
        write(LINK, burst, id, payload, &mut bytes);
        bytes.extend(payload);
        bytes
    }

    #[test]
    fn what_is_written_can_be_read() {
        for (source, destination) in [("10.0.0.1", "10.0.0.2"), ("fd00::1", "fd00::2")] {
            let burst = burst(source, destination, &[100, 100, 20]);
            let bytes = frame(&burst, 0, burst.data());
            let buffer = read(&bytes).unwrap();
            assert!(buffer.segments().eq(burst.segments()));
            let meta = buffer.meta;
            assert_eq!(meta.source, SocketAddr::new(burst.path.source, 0xc123));
            assert_eq!(meta.destination, burst.path.destination);
            assert_eq!((meta.traffic_class, meta.hop_limit), (0x48, 64));
            let fields = Ipv4Fields { id: 0, dont_fragment: true };
            assert_eq!(meta.ipv4, meta.destination.is_ipv4().then_some(fields));

            let last = burst.segments().last().unwrap();
            let bytes = frame(&burst, 2, last);
            let buffer = read(&bytes).unwrap();
            assert!(buffer.segments().eq([last]), "one of them, by itself");
            assert_eq!(buffer.meta.ipv4.map(|ipv4| ipv4.id), meta.ipv4.map(|_| 2));
        }
    }

    #[test]
    fn the_kernel_is_told_what_to_compute_and_what_to_cut() {
        let burst = burst("10.0.0.1", "10.0.0.2", &[100, 100]);
        let bytes = frame(&burst, 0, burst.data());
        let words = |at: usize| u16::from_ne_bytes([bytes[at], bytes[at + 1]]);
        assert_eq!(bytes[..2], [NEEDS_CHECKSUM, CUT]);
        assert_eq!([words(2), words(4), words(6), words(8)], [14 + 20 + 8, 100, 14 + 20, 6]);
        assert_eq!(bytes[10..24], [2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 8, 0]);
        // 10.0.0.1, 10.0.0.2, protocol 17, 208 bytes.
        let sum: u16 = 0x0a00 + 1 + 0x0a00 + 2 + 17 + 208;
        assert_eq!(bytes[10 + 14 + 20 + 6..][..2], sum.to_be_bytes());
    }

    #[test]
    fn what_is_no_datagram_is_not_read() {
        let burst = burst("10.0.0.1", "10.0.0.2", &[100]);
        let bytes = frame(&burst, 0, burst.data());
        for len in 0..bytes.len() {
            assert!(read(&bytes[..len]).is_none(), "{len} bytes of it");
        }
        let mut other = bytes;
        other[1] = 3;
        assert!(read(&other).is_none(), "fragments that the kernel was to cut");
    }
}

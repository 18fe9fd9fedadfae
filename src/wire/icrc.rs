//! The invariant CRC (ICRC): a CRC-32 over all parts of a packet that routers do not change.
//!
//! It covers the IP header, the UDP header and the datagram up to its padding, with ones in place of the fields that
//! routers change (`▒`). Eight bytes of ones precede them, in place of the LRH of a native InfiniBand packet (IBTA
//! vol 1, annex A17):
//!
//! ```text
//!   IPv4   45 ▒▒ length  ident. flags+offset  ▒▒ 11 ▒▒ ▒▒  source  destination
//!   IPv6   6▒ ▒▒ ▒▒ ▒▒  length  11 ▒▒  source  destination
//!   UDP    source port  destination port  length  ▒▒ ▒▒
//!   BTH    opcode flags P_Key  ▒▒ destination QP  A+reserved PSN
//!   extension headers, payload, padding
//! ```
//!
//! The CRC is that of Ethernet and zlib. It is at the end of the packet in little-endian byte order, unlike all other
//! fields.

mod crc32;
mod header_crc;
mod incremental;
mod ip_id;

use std::net::SocketAddr;

use crate::net::{Ipv4Fields, Path, ROCE_PORT, RxMeta};

use super::Opcode;
use super::encap::{self, Addresses, IPV4_LEN, IPV6_LEN, IpDatagram, UDP_LEN};
use super::packet::ICRC_LEN;
use header_crc::{HeaderCrc, SEED, over_bth, over_word};
pub(crate) use incremental::IncrementalIcrc;
use ip_id::id_difference;

pub use crc32::{crc32, crc32_by_shifts};
pub use ip_id::IcrcIdPatch;

/// ICRC of a datagram without one: zero, as the UDP checksum of a datagram without one (RFC 768). It is valid on the
/// way between two processes of one host only ([`RxMeta::may_omit_icrc`]).
///
/// [`RxMeta::may_omit_icrc`]: crate::net::RxMeta::may_omit_icrc
pub const OMITTED: [u8; ICRC_LEN] = [0; ICRC_LEN];

/// Returns whether the ICRC of a datagram is [`OMITTED`].
pub fn is_omitted(datagram: &[u8]) -> bool {
    datagram.ends_with(&OMITTED)
}

/// Returns whether a received datagram has no ICRC and needs none.
pub(crate) fn is_exempt(meta: &RxMeta, datagram: &[u8]) -> bool {
    meta.may_omit_icrc && is_omitted(datagram)
}

/// Writes [`OMITTED`] to the last four bytes of a datagram. Does nothing to a datagram of less than four bytes.
pub fn omit(datagram: &mut [u8]) {
    if let Some(icrc) = datagram.last_chunk_mut() {
        *icrc = OMITTED;
    }
}

/// Result of [`Flow::check`].
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Verdict {
    /// The ICRC is valid for the known IPv4 header, or for the expected identification; over IPv6 there is no
    /// identification.
    Good,
    /// The ICRC is valid for this identification, which the port has not seen and which is not the expected one.
    Recovered {
        /// Identification.
        id: u16,
    },
    /// The ICRC is not valid.
    Bad,
}

/// Computes the ICRCs of packets from one address to another.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Flow {
    head: HeaderCrc,
}

impl Flow {
    /// Returns the flow from `source` to `destination`. IPv4-mapped IPv6 addresses are IPv4 on the wire.
    pub fn new(source: SocketAddr, destination: SocketAddr) -> Self {
        let addresses = Addresses::new(source.ip(), destination.ip());
        Self { head: HeaderCrc::new(addresses, source.port(), destination.port()) }
    }

    /// Returns the flow of the datagrams on a path.
    pub fn of_path(path: &Path) -> Self {
        let destination = SocketAddr::new(path.destination, ROCE_PORT);
        Self::new(SocketAddr::new(path.source, path.source_port), destination)
    }

    /// Returns the ICRC of a datagram, given from the BTH to the padding. `fields` apply to IPv4 only.
    pub fn compute(&self, fields: Ipv4Fields, datagram_without_icrc: &[u8]) -> u32 {
        let udp_len = UDP_LEN + datagram_without_icrc.len() + ICRC_LEN;
        over_datagram(self.head.of(fields, udp_len), datagram_without_icrc)
    }

    /// Writes the ICRC to the last four bytes of a datagram that leaves with identification `id` and DF set. Does
    /// nothing to a datagram of less than four bytes.
    #[inline]
    pub fn seal(&self, id: u16, datagram: &mut [u8]) {
        if let Some((covered, icrc)) = datagram.split_last_chunk_mut::<ICRC_LEN>() {
            *icrc = self.compute(Ipv4Fields { id, dont_fragment: true }, covered).to_le_bytes();
        }
    }

    /// Writes the ICRC in the variant of kernel rxe for FLUSH packets. rxe covers the datagram a second time,
    /// unmasked, because its header length is missing in a table of rxe.
    pub fn set_rxe_flush_icrc(&self, id: u16, datagram: &mut [u8]) {
        if let Some((covered, icrc)) = datagram.split_last_chunk_mut::<ICRC_LEN>() {
            let once = self.compute(Ipv4Fields { id, dont_fragment: true }, covered);
            *icrc = crc32(once, covered).to_le_bytes();
        }
    }

    /// Checks the ICRC of a received datagram.
    ///
    /// `seen` contains the IPv4 fields of the buffer if the port knows them. `segment` is the index of the datagram
    /// in the buffer, which GSO of the sender has added to the identification. Without `seen`, the expected
    /// identification is `segment`, with DF set; if the ICRC is not valid for it, the check searches the
    /// identification for which it is.
    ///
    /// For a FLUSH, the [variant of kernel rxe](Self::set_rxe_flush_icrc) is valid too.
    pub fn check(&self, seen: Option<Ipv4Fields>, segment: u16, datagram: &[u8]) -> Verdict {
        let Some((covered, found)) = datagram.split_last_chunk::<ICRC_LEN>() else {
            return Verdict::Bad;
        };
        let expected = expected_fields(seen, segment);
        let (computed, found) = (self.compute(expected, covered), u32::from_le_bytes(*found));
        let id_is_unknown = seen.is_none() && self.is_ipv4();
        let judge = |difference, len| match difference {
            0 => Verdict::Good,
            _ if !id_is_unknown => Verdict::Bad,
            _ => match id_difference(difference, len) {
                Some(bits) => Verdict::Recovered { id: expected.id ^ bits },
                None => Verdict::Bad,
            },
        };
        let verdict = judge(computed ^ found, datagram.len());
        if verdict == Verdict::Bad && covered.first() == Some(&Opcode::RcFlush.byte()) {
            return judge(crc32(computed, covered) ^ found, datagram.len() + covered.len());
        }
        verdict
    }

    /// Checks the ICRC of a received datagram, unless it [needs none](is_exempt).
    pub(crate) fn check_received(&self, meta: &RxMeta, segment: u16, datagram: &[u8]) -> Verdict {
        if is_exempt(meta, datagram) {
            return Verdict::Good;
        }
        self.check(meta.ipv4, segment, datagram)
    }

    fn is_ipv4(&self) -> bool {
        self.head.is_ipv4()
    }
}

/// Returns the expected IPv4 fields of a segment.
fn expected_fields(seen: Option<Ipv4Fields>, segment: u16) -> Ipv4Fields {
    let first = seen.unwrap_or(Ipv4Fields { id: 0, dont_fragment: true });
    Ipv4Fields { id: first.id.wrapping_add(segment), ..first }
}

/// Returns the ICRC of a captured packet, as computed and as found.
///
/// `ip_packet` starts with the IP header. `None` when [`encap::parse_ip`] finds no UDP datagram in it, or one that is
/// too short for an ICRC.
pub fn of_ip_packet(ip_packet: &[u8]) -> Option<(u32, u32)> {
    of_datagram(ip_packet, &encap::parse_ip(ip_packet).ok()?)
}

/// Returns the ICRCs as [`of_ip_packet`], for a packet that [`encap::parse_ip`] has parsed to `ip`.
pub fn of_datagram(ip_packet: &[u8], ip: &IpDatagram<'_>) -> Option<(u32, u32)> {
    let (covered, found) = ip.payload.split_last_chunk::<ICRC_LEN>()?;
    let (udp, masked) = match ip.ipv4 {
        Some(_) => (IPV4_LEN, [1, 8, 10, 11]),
        None => (IPV6_LEN, [1, 2, 3, 7]),
    };
    let mut head = [0; IPV6_LEN + UDP_LEN];
    let head = &mut head[..udp + UDP_LEN];
    head.copy_from_slice(ip_packet.get(..udp + UDP_LEN)?);
    for at in masked.into_iter().chain([udp + 6, udp + 7]) {
        head[at] = 0xff;
    }
    if ip.ipv4.is_none() {
        // Upper half of the traffic class.
        head[0] |= 0x0f;
    }
    let computed = over_datagram(crc32(SEED, head), covered);
    Some((computed, u32::from_le_bytes(*found)))
}

/// Continues a CRC over a datagram without its ICRC.
#[inline]
fn over_datagram(crc: u32, datagram: &[u8]) -> u32 {
    let Some((bth, rest)) = datagram.split_first_chunk() else {
        return crc32(crc, datagram);
    };
    let mut masked = *bth;
    // FECN, BECN and six reserved bits.
    masked[4] = 0xff;
    let crc = over_bth(crc, &masked);
    // The AETH of an acknowledgement takes fewer instructions than a call.
    match rest.try_into() {
        Ok(word) => over_word(crc, word),
        Err(_) => crc32(crc, rest),
    }
}

#[cfg(test)]
mod tests {
    use crc32fast::Hasher;

    use super::super::encap::length;
    use super::ip_id::MAX_DATAGRAM_BYTES;
    use super::*;

    const NONE: Ipv4Fields = Ipv4Fields { id: 0, dont_fragment: true };

    fn ipv4() -> Flow {
        Flow::new("10.0.0.1:49443".parse().unwrap(), "10.0.0.2:4791".parse().unwrap())
    }

    fn hello() -> Vec<u8> {
        let mut bytes = vec![0x04, 0xf0, 0xff, 0xff, 0, 0, 0, 0x12, 0x80, 0, 0, 1];
        bytes.extend_from_slice(b"hello\0\0\0");
        bytes.extend_from_slice(&[0x87, 0x8f, 0x76, 0x05]);
        bytes
    }

    #[test]
    fn golden() {
        let mut bytes = hello();
        assert_eq!(ipv4().compute(NONE, &bytes[..20]), 0x0576_8f87);
        assert_eq!(ipv4().check(Some(NONE), 0, &bytes), Verdict::Good);
        assert_eq!(ipv4().check(None, 0, &bytes), Verdict::Good);
        bytes[20..].fill(0);
        ipv4().seal(0, &mut bytes);
        assert_eq!(bytes, hello());
    }

    #[test]
    fn seed_is_the_crc_of_eight_bytes_of_ones() {
        assert_eq!(crc32fast::hash(&[0xff; 8]), SEED);
        assert_eq!(!SEED, 0xdebb_20e3);
    }

    #[test]
    fn ipv6_check_recovers_no_identification() {
        let ipv6 = Flow::new("[fd00::1]:49443".parse().unwrap(), "[fd00::2]:4791".parse().unwrap());
        let sealed = |flow: &Flow, id| {
            let mut bytes = hello();
            flow.seal(id, &mut bytes);
            bytes
        };
        let (id_0, id_7, mut bytes) = (sealed(&ipv4(), 0), sealed(&ipv4(), 7), sealed(&ipv6, 0));
        assert_eq!(ipv4().check(None, 0, &id_7), Verdict::Recovered { id: 7 });
        assert_eq!(ipv6.check(None, 0, &bytes), Verdict::Good);
        // The difference that another identification would make over IPv4.
        let differences = id_0.iter().zip(&id_7).map(|(a, b)| a ^ b);
        bytes.iter_mut().zip(differences).for_each(|(byte, difference)| *byte ^= difference);
        assert_eq!(ipv6.check(None, 0, &bytes), Verdict::Bad);
    }

    /// CRC-12, CRC-13
    #[test]
    fn check_recovers_any_identification_and_expects_any_segment() {
        let mut bytes = hello();
        for id in 0..=u16::MAX {
            ipv4().seal(id, &mut bytes);
            assert_eq!(ipv4().check(None, id, &bytes), Verdict::Good);
            if id != 0 {
                assert_eq!(ipv4().check(None, 0, &bytes), Verdict::Recovered { id });
                assert_eq!(ipv4().check(Some(NONE), 0, &bytes), Verdict::Bad);
            }
        }
        let base = Ipv4Fields { id: u16::MAX, ..NONE };
        ipv4().seal(2, &mut bytes);
        assert_eq!(ipv4().check(Some(base), 3, &bytes), Verdict::Good, "identifications wrap");
        assert_eq!(ipv4().check(None, 7, &bytes), Verdict::Recovered { id: 2 });
    }

    #[test]
    fn check_recovers_the_identification_at_any_length() {
        for len in (16..1500).chain([4124, 65_000, MAX_DATAGRAM_BYTES]) {
            let mut bytes = vec![0x5a; len];
            ipv4().seal(0xbeef, &mut bytes);
            let verdict = ipv4().check(None, 0, &bytes);
            assert_eq!(verdict, Verdict::Recovered { id: 0xbeef }, "{len} bytes");
        }
    }

    /// CRC-05, CRC-13
    #[test]
    fn flipped_bit_never_passes_as_another_identification() {
        // The distance of the bit from the identification matters, so the longest packet covers all.
        for len in [16, 24, 4096 + 16] {
            let mut bytes = vec![0xa5; len];
            ipv4().seal(0, &mut bytes);
            for bit in 0..len * 8 {
                bytes[bit / 8] ^= 1 << (bit % 8);
                let expected = if bit / 8 == 4 { Verdict::Good } else { Verdict::Bad };
                assert_eq!(ipv4().check(None, 0, &bytes), expected, "bit {bit} of {len} bytes");
                bytes[bit / 8] ^= 1 << (bit % 8);
            }
        }
    }

    /// From `pcap/captures/rxe/k612_flush_persist.pcap`.
    #[test]
    fn flush_of_rxe_passes_the_check() {
        let rxe = Flow::new("10.77.0.2:50176".parse().unwrap(), "10.77.0.3:4791".parse().unwrap());
        let mut flush = [
            0x1c, 0x00, 0xff, 0xff, 0x00, 0x00, 0x00, 0x20, 0x80, 0x11, 0x11, 0x11, 0x00, 0x00,
            0x00, 0x02, 0x00, 0x00, 0x7f, 0xc1, 0x26, 0x1f, 0xf0, 0x00, 0x00, 0x00, 0x20, 0x34,
            0x00, 0x00, 0x00, 0x64, 0x51, 0xf3, 0x78, 0x49,
        ];
        let fields = Ipv4Fields { id: 0x43c0, dont_fragment: true };
        assert_eq!(rxe.check(Some(fields), 0, &flush), Verdict::Good);
        assert_eq!(rxe.check(None, 0, &flush), Verdict::Recovered { id: 0x43c0 });
        let mut sealed = flush;
        sealed[32..].fill(0);
        rxe.set_rxe_flush_icrc(fields.id, &mut sealed);
        assert_eq!(sealed, flush);
        flush[20] ^= 1;
        assert_eq!(rxe.check(Some(fields), 0, &flush), Verdict::Bad);
        assert_eq!(rxe.check(None, 0, &flush), Verdict::Bad);
        rxe.seal(0x43c0, &mut flush);
        assert_eq!(rxe.check(None, 0, &flush), Verdict::Recovered { id: 0x43c0 });

        flush[0] = Opcode::RcAtomicWrite.byte();
        rxe.set_rxe_flush_icrc(fields.id, &mut flush);
        assert_eq!(rxe.check(Some(fields), 0, &flush), Verdict::Bad, "only a FLUSH has two ways");
    }

    #[test]
    fn df_is_checked_when_the_port_sees_it() {
        let fields = Ipv4Fields { id: 7, dont_fragment: false };
        let mut bytes = hello();
        let icrc = ipv4().compute(fields, &bytes[..20]);
        bytes[20..].copy_from_slice(&icrc.to_le_bytes());
        assert_eq!(ipv4().check(Some(fields), 0, &bytes), Verdict::Good);
        let with_df = Ipv4Fields { dont_fragment: true, ..fields };
        assert_eq!(ipv4().check(Some(with_df), 0, &bytes), Verdict::Bad);
    }

    /// CRC-06
    #[test]
    fn ipv6_packet_has_no_identification_to_recover() {
        let flow = Flow::new("[fd00::1]:49443".parse().unwrap(), "[fd00::2]:4791".parse().unwrap());
        let mut bytes = hello();
        flow.seal(5, &mut bytes);
        assert_eq!(flow.check(None, 9, &bytes), Verdict::Good);
        bytes[12] ^= 1;
        assert_eq!(flow.check(None, 0, &bytes), Verdict::Bad);
    }

    #[test]
    fn mapped_addresses_are_ipv4() {
        let source = "[::ffff:10.0.0.1]:49443".parse().unwrap();
        assert_eq!(Flow::new(source, "[::ffff:10.0.0.2]:4791".parse().unwrap()), ipv4());
    }

    /// CRC-10
    #[test]
    fn header_and_payload_crcs_combine() {
        let payload: Vec<u8> = (0..4096_u32).map(|i| i.to_be_bytes()[3] ^ 0x3c).collect();
        for len in 0..=payload.len() {
            let bytes = [&hello()[..12], &payload[..len]].concat();
            // The header contains the length, so its CRC differs for each length.
            let mut head = Hasher::new_with_initial(SEED);
            let ip_and_udp = [
                [0x45, 0xff],
                length(20 + 8 + 12 + len + 4).to_be_bytes(),
                [0, 0],
                [0x40, 0],
                [0xff, 17],
                [0xff, 0xff],
                [10, 0],
                [0, 1],
                [10, 0],
                [0, 2],
                49443_u16.to_be_bytes(),
                4791_u16.to_be_bytes(),
                length(8 + 12 + len + 4).to_be_bytes(),
                [0xff, 0xff],
            ];
            head.update(ip_and_udp.as_flattened());
            head.update(&bytes[..4]);
            head.update(&[0xff]);
            head.update(&bytes[5..12]);
            let mut tail = Hasher::new();
            tail.update(&payload[..len]);
            head.combine(&tail);
            assert_eq!(head.finalize(), ipv4().compute(NONE, &bytes), "{len} bytes");
        }
    }

    #[test]
    fn short_and_overlong_datagrams_fail_the_check() {
        for len in (0..16).chain([MAX_DATAGRAM_BYTES + 1, 70_000]) {
            let mut bytes = vec![0; len];
            assert_eq!(ipv4().check(None, 0, &bytes), Verdict::Bad);
            assert_eq!(ipv4().check(Some(NONE), 0, &bytes), Verdict::Bad);
            ipv4().seal(0, &mut bytes);
        }
    }
}

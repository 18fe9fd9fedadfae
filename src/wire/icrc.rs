//! The invariant CRC: a CRC-32 over all that no router may change.
//!
//! It covers the IP header, the UDP header and the datagram up to its padding; the fields that
//! change on the way are taken as ones (`▒`). Before them come 8 bytes of ones, which stand for the
//! header that a native InfiniBand packet has there (IBTA vol 1, annex A17):
//!
//! ```text
//!   IPv4   45 ▒▒ length  ident. flags+offset  ▒▒ 11 ▒▒ ▒▒  source  destination
//!   IPv6   6▒ ▒▒ ▒▒ ▒▒  length  11 ▒▒  source  destination
//!   UDP    source port  destination port  length  ▒▒ ▒▒
//!   BTH    opcode flags P_Key  ▒▒ destination QP  A+reserved PSN
//!   extension headers, payload, padding
//! ```
//!
//! The CRC is that of Ethernet and zlib. It stands at the end of the packet with its least
//! significant byte first, although every other field is big-endian.

mod crc32;
mod head;
mod hidden;
mod series;

use std::net::SocketAddr;

use crate::net::Ipv4Fields;

use super::Opcode;
use super::encap::{self, Addresses, IPV4_LEN, IPV6_LEN, IpDatagram, UDP_LEN};
use super::packet::ICRC_LEN;
use head::{Head, SEED, over_bth};
use hidden::id_difference;
pub(crate) use series::Series;

pub use crc32::{by_shifts, crc32};
pub use hidden::Renumbering;

/// What [`Flow::check`] says of a packet.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Verdict {
    /// The ICRC holds for the IPv4 header seen, or for the identification that was to be expected;
    /// over IPv6 there is none.
    Good,
    /// The ICRC holds for this identification, which the port has not seen and which is not the
    /// one that was to be expected.
    Recovered {
        /// The identification.
        id: u16,
    },
    /// The packet is not what was sent.
    Bad,
}

/// What all packets from one address to another have in common. Computes their ICRC.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Flow {
    head: Head,
}

impl Flow {
    /// The flow from `source` to `destination`. IPv4-mapped IPv6 addresses are IPv4 on the wire.
    pub fn new(source: SocketAddr, destination: SocketAddr) -> Self {
        let addresses = Addresses::new(source.ip(), destination.ip());
        Self { head: Head::new(addresses, source.port(), destination.port()) }
    }

    /// The ICRC of a datagram, given from the BTH to the padding. `fields` count over IPv4 only.
    pub fn compute(&self, fields: Ipv4Fields, datagram_without_icrc: &[u8]) -> u32 {
        let udp_len = UDP_LEN + datagram_without_icrc.len() + ICRC_LEN;
        over_datagram(self.head.of(fields, udp_len), datagram_without_icrc)
    }

    /// Writes the ICRC to the last four bytes of a datagram that leaves with identification `id`
    /// and DF set. A datagram of less than four bytes is left alone.
    pub fn seal(&self, id: u16, datagram: &mut [u8]) {
        if let Some((covered, icrc)) = datagram.split_last_chunk_mut::<ICRC_LEN>() {
            *icrc = self.compute(Ipv4Fields { id, dont_fragment: true }, covered).to_le_bytes();
        }
    }

    /// The same as kernel rxe does it in a FLUSH, and wants it: the datagram is covered a second time,
    /// with nothing masked, because the length of its headers is missing in a table there.
    pub fn seal_twice(&self, id: u16, datagram: &mut [u8]) {
        if let Some((covered, icrc)) = datagram.split_last_chunk_mut::<ICRC_LEN>() {
            let once = self.compute(Ipv4Fields { id, dont_fragment: true }, covered);
            *icrc = crc32(once, covered).to_le_bytes();
        }
    }

    /// Whether a received datagram, ICRC included, is what was sent.
    ///
    /// `seen` is what the port knows of the IPv4 header of the buffer, and `segment` the place of
    /// the datagram in that buffer, which the sender's stack has added to the identification.
    /// Without `seen` the identification should be `segment`, and DF set; if it is not, the
    /// identification that the ICRC holds for is found, if there is one.
    ///
    /// A FLUSH may also be [as kernel rxe has it](Self::seal_twice).
    pub fn check(&self, seen: Option<Ipv4Fields>, segment: u16, datagram: &[u8]) -> Verdict {
        let Some((covered, found)) = datagram.split_last_chunk::<ICRC_LEN>() else {
            return Verdict::Bad;
        };
        let expected = expected_fields(seen, segment);
        let (computed, found) = (self.compute(expected, covered), u32::from_le_bytes(*found));
        let is_hidden = seen.is_none() && self.is_ipv4();
        let judge = |difference, len| match difference {
            0 => Verdict::Good,
            _ if !is_hidden => Verdict::Bad,
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

    fn is_ipv4(&self) -> bool {
        self.head.is_ipv4()
    }
}

/// What an IPv4 header should have, of a segment of a buffer of which the port knows so much.
fn expected_fields(seen: Option<Ipv4Fields>, segment: u16) -> Ipv4Fields {
    let first = seen.unwrap_or(Ipv4Fields { id: 0, dont_fragment: true });
    Ipv4Fields { id: first.id.wrapping_add(segment), ..first }
}

/// The ICRC of a captured packet, computed and found, in this order.
///
/// `ip_packet` starts with the IP header. `None` when [`encap::parse_ip`] finds no UDP datagram in
/// it, or one too short for an ICRC.
pub fn of_ip_packet(ip_packet: &[u8]) -> Option<(u32, u32)> {
    of_datagram(ip_packet, &encap::parse_ip(ip_packet).ok()?)
}

/// As [`of_ip_packet`], of a packet of which [`encap::parse_ip`] has made `ip`.
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
        // The upper half of the traffic class.
        head[0] |= 0x0f;
    }
    let computed = over_datagram(crc32(SEED, head), covered);
    Some((computed, u32::from_le_bytes(*found)))
}

/// The ICRC that goes on from `crc`, that of the headers before, over a datagram without its own.
fn over_datagram(crc: u32, datagram: &[u8]) -> u32 {
    let Some((bth, rest)) = datagram.split_first_chunk() else {
        return crc32(crc, datagram);
    };
    let mut masked = *bth;
    // FECN, BECN and six reserved bits.
    masked[4] = 0xff;
    crc32(over_bth(crc, &masked), rest)
}

#[cfg(test)]
mod tests {
    use crc32fast::Hasher;

    use super::super::encap::length;
    use super::hidden::MAX_DATAGRAM;
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
    fn the_seed_is_the_crc_of_eight_bytes_of_ones() {
        assert_eq!(crc32fast::hash(&[0xff; 8]), SEED);
        assert_eq!(!SEED, 0xdebb_20e3);
    }

    #[test]
    fn no_identification_is_recovered_over_ipv6() {
        let ipv6 = Flow::new("[fd00::1]:49443".parse().unwrap(), "[fd00::2]:4791".parse().unwrap());
        let sealed = |flow: &Flow, id| {
            let mut bytes = hello();
            flow.seal(id, &mut bytes);
            bytes
        };
        let (id_0, id_7, mut bytes) = (sealed(&ipv4(), 0), sealed(&ipv4(), 7), sealed(&ipv6, 0));
        assert_eq!(ipv4().check(None, 0, &id_7), Verdict::Recovered { id: 7 });
        assert_eq!(ipv6.check(None, 0, &bytes), Verdict::Good);
        // The difference that another identification makes over IPv4.
        let differences = id_0.iter().zip(&id_7).map(|(a, b)| a ^ b);
        bytes.iter_mut().zip(differences).for_each(|(byte, difference)| *byte ^= difference);
        assert_eq!(ipv6.check(None, 0, &bytes), Verdict::Bad);
    }

    /// CRC-12, CRC-13
    #[test]
    fn any_identification_is_recovered_and_any_segment_is_expected() {
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
    fn the_identification_is_recovered_at_any_length() {
        for len in (16..1500).chain([4124, 65_000, MAX_DATAGRAM]) {
            let mut bytes = vec![0x5a; len];
            ipv4().seal(0xbeef, &mut bytes);
            let verdict = ipv4().check(None, 0, &bytes);
            assert_eq!(verdict, Verdict::Recovered { id: 0xbeef }, "{len} bytes");
        }
    }

    /// CRC-05, CRC-13
    #[test]
    fn no_flipped_bit_hides_behind_an_identification() {
        // What counts is how far the bit is from the identification, so the longest packet speaks
        // for all.
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
    fn a_flush_of_rxe_is_good() {
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
        rxe.seal_twice(fields.id, &mut sealed);
        assert_eq!(sealed, flush);
        flush[20] ^= 1;
        assert_eq!(rxe.check(Some(fields), 0, &flush), Verdict::Bad);
        assert_eq!(rxe.check(None, 0, &flush), Verdict::Bad);
        rxe.seal(0x43c0, &mut flush);
        assert_eq!(rxe.check(None, 0, &flush), Verdict::Recovered { id: 0x43c0 });

        flush[0] = Opcode::RcAtomicWrite.byte();
        rxe.seal_twice(fields.id, &mut flush);
        assert_eq!(rxe.check(Some(fields), 0, &flush), Verdict::Bad, "only a FLUSH has two ways");
    }

    #[test]
    fn df_counts_when_it_is_seen() {
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
    fn ipv6_has_nothing_to_recover() {
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
    fn header_and_payload_may_be_hashed_apart() {
        let payload: Vec<u8> = (0..4096_u32).map(|i| i.to_be_bytes()[3] ^ 0x3c).collect();
        for len in 0..=payload.len() {
            let bytes = [&hello()[..12], &payload[..len]].concat();
            // The length is part of the header, so the header's CRC is not the same for any two.
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
    fn short_and_overlong_datagrams_are_bad() {
        for len in (0..16).chain([MAX_DATAGRAM + 1, 70_000]) {
            let mut bytes = vec![0; len];
            assert_eq!(ipv4().check(None, 0, &bytes), Verdict::Bad);
            assert_eq!(ipv4().check(Some(NONE), 0, &bytes), Verdict::Bad);
            ipv4().seal(0, &mut bytes);
        }
    }
}

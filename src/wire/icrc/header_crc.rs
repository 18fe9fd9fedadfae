//! CRC over the headers up to the end of the BTH, from tables.
//!
//! Between two addresses the IP and UDP headers differ in lengths and identification only. A CRC is affine: the
//! contribution of a byte depends only on its value and the number of bytes that follow. So the CRC of these headers
//! is the CRC with zeros in these fields plus the contribution of each of their bytes.

use crate::net::Ipv4Fields;
use crate::wire::Bth;
use crate::wire::encap::{Addresses, IPV4_LEN, IPV6_LEN, UDP, UDP_LEN, length};

use super::crc32;
use super::ip_id::POLYNOMIAL;

/// CRC-32 of the 8 bytes of ones at the start.
pub(super) const SEED: u32 = 0x2144_df1c;

/// Flags and fragment offset of an IPv4 header with DF.
const DONT_FRAGMENT: [u8; 2] = [0x40, 0];

/// CRC over the headers between two addresses, with zeros for the lengths and the identification, and with DF set.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct HeaderCrc {
    crc: u32,
    is_ipv4: bool,
}

impl HeaderCrc {
    pub(super) fn new(addresses: Addresses, source_port: u16, destination_port: u16) -> Self {
        let mut header = [0xff; IPV6_LEN + UDP_LEN];
        let (udp, is_ipv4) = match addresses {
            Addresses::V4(from, to) => {
                header[0] = 0x45;
                header[2..6].fill(0);
                header[6..8].copy_from_slice(&DONT_FRAGMENT);
                header[9] = UDP;
                header[12..16].copy_from_slice(&from.octets());
                header[16..20].copy_from_slice(&to.octets());
                (IPV4_LEN, true)
            }
            Addresses::V6(from, to) => {
                header[0] = 0x6f;
                header[4..7].copy_from_slice(&[0, 0, UDP]);
                header[8..24].copy_from_slice(&from.octets());
                header[24..40].copy_from_slice(&to.octets());
                (IPV6_LEN, false)
            }
        };
        header[udp..udp + 2].copy_from_slice(&source_port.to_be_bytes());
        header[udp + 2..udp + 4].copy_from_slice(&destination_port.to_be_bytes());
        header[udp + 4..udp + 6].fill(0);
        Self { crc: crc32(SEED, &header[..udp + UDP_LEN]), is_ipv4 }
    }

    pub(super) fn is_ipv4(&self) -> bool {
        self.is_ipv4
    }

    /// Returns the CRC over the headers of a packet with this UDP length. `fields` apply to IPv4 only.
    pub(super) fn of(&self, fields: Ipv4Fields, udp_len: usize) -> u32 {
        let crc = self.crc ^ TRAILING_BYTES.of(length(udp_len).to_be_bytes(), 2);
        if !self.is_ipv4 {
            return crc ^ IPV6_LENGTH.of(length(udp_len).to_be_bytes(), 42);
        }
        let crc = crc
            ^ IPV4_FIELDS.of(length(IPV4_LEN + udp_len).to_be_bytes(), 24)
            ^ IPV4_FIELDS.of(fields.id.to_be_bytes(), 22);
        if fields.dont_fragment { crc } else { crc ^ IPV4_FIELDS.of(DONT_FRAGMENT, 20) }
    }

    /// Returns the contribution of these fields to the CRC after a BTH.
    pub(super) fn before_bth(&self, fields: Ipv4Fields) -> u32 {
        if !self.is_ipv4 {
            return 0;
        }
        let id = IPV4_FIELDS_BEFORE_BTH.of(fields.id.to_be_bytes(), 34);
        if fields.dont_fragment { id } else { id ^ IPV4_FIELDS_BEFORE_BTH.of(DONT_FRAGMENT, 32) }
    }
}

/// Returns the contribution of the last four bytes of a BTH, AckReq and PSN, to the CRC after it.
pub(super) fn end_of_bth([a, psn0, psn1, psn2]: [u8; 4]) -> u32 {
    TRAILING_BYTES.of([a, psn0], 2) ^ TRAILING_BYTES.of([psn1, psn2], 0)
}

/// Continues a CRC over four bytes.
pub(super) fn over_word(crc: u32, word: [u8; 4]) -> u32 {
    !end_of_bth((u32::from_le_bytes(word) ^ !crc).to_le_bytes())
}

/// Continues a CRC over a BTH.
pub(super) fn over_bth(crc: u32, bth: &[u8; Bth::LEN]) -> u32 {
    let [a, b, c, d, rest @ ..] = *bth;
    // The four bytes that combine with the CRC so far.
    let met = u32::from_le_bytes([a, b, c, d]) ^ !crc;
    let first = met.to_le_bytes().into_iter().chain(rest);
    let tables = TRAILING_BYTES.0.iter().rev();
    !first.zip(tables).fold(0, |sum, (byte, table)| sum ^ table[usize::from(byte)])
}

/// Contributions of a byte to a CRC, by its value and the number of bytes that follow: `FROM`, `FROM + 1`, and so on.
struct ContributionTable<const FROM: usize, const COUNT: usize>([[u32; 256]; COUNT]);

/// Table for the bytes of a BTH, and for the last ones of a UDP header.
static TRAILING_BYTES: ContributionTable<0, { Bth::LEN }> = ContributionTable::new();

/// Table for length, identification and fragment fields of an IPv4 header.
static IPV4_FIELDS: ContributionTable<20, 6> = ContributionTable::new();

/// Table for identification and fragment fields of an IPv4 header before a BTH.
static IPV4_FIELDS_BEFORE_BTH: ContributionTable<32, 4> = ContributionTable::new();

/// Table for the length of an IPv6 header.
static IPV6_LENGTH: ContributionTable<42, 2> = ContributionTable::new();

impl<const FROM: usize, const COUNT: usize> ContributionTable<FROM, COUNT> {
    const fn new() -> Self {
        let mut tables = [[0; 256]; COUNT];
        let mut byte: u8 = 0;
        loop {
            let mut crc = over_byte(byte as u32);
            let mut following = 0;
            while following < FROM + COUNT {
                if following >= FROM {
                    tables[following - FROM][byte as usize] = crc;
                }
                crc = over_byte(crc);
                following += 1;
            }
            if byte == u8::MAX {
                return Self(tables);
            }
            byte += 1;
        }
    }

    /// Returns the contribution of a field that `following` bytes follow.
    #[inline]
    fn of(&self, [high, low]: [u8; 2], following: usize) -> u32 {
        let at = following - FROM;
        self.0[at + 1][usize::from(high)] ^ self.0[at][usize::from(low)]
    }
}

/// Continues a CRC over eight zero bits.
const fn over_byte(mut crc: u32) -> u32 {
    let mut bit = 0;
    while bit < 8 {
        crc = crc >> 1 ^ POLYNOMIAL & (crc & 1).wrapping_neg();
        bit += 1;
    }
    crc
}

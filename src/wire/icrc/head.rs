//! The CRC up to the end of a BTH, from tables.
//!
//! Between two addresses the IP and UDP headers differ in lengths and identification alone. A CRC is
//! affine: what a byte adds to it depends on that byte and on how many bytes follow, whatever the others
//! are. So the CRC of these headers is that with zeros in these fields, and what each of their bytes adds.

use crate::net::Ipv4Fields;
use crate::wire::Bth;
use crate::wire::encap::{Addresses, IPV4_LEN, IPV6_LEN, UDP, UDP_LEN, length};

use super::crc32;
use super::hidden::POLYNOMIAL;

/// The CRC-32 of the 8 bytes of ones at the start.
pub(super) const SEED: u32 = 0x2144_df1c;

/// Flags and fragment offset of an IPv4 header with DF.
const DONT_FRAGMENT: [u8; 2] = [0x40, 0];

/// The CRC after the headers between two addresses, with zeros for the lengths and the identification,
/// and DF set.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Head {
    crc: u32,
    is_ipv4: bool,
}

impl Head {
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

    /// The CRC after the headers of a packet of which the UDP length is `udp_len`. `fields` count over
    /// IPv4 only.
    pub(super) fn of(&self, fields: Ipv4Fields, udp_len: usize) -> u32 {
        let crc = self.crc ^ LAST.of(length(udp_len).to_be_bytes(), 2);
        if !self.is_ipv4 {
            return crc ^ IPV6.of(length(udp_len).to_be_bytes(), 42);
        }
        let crc = crc
            ^ IPV4.of(length(IPV4_LEN + udp_len).to_be_bytes(), 24)
            ^ IPV4.of(fields.id.to_be_bytes(), 22);
        if fields.dont_fragment { crc } else { crc ^ IPV4.of(DONT_FRAGMENT, 20) }
    }

    /// What these fields add to the CRC after a BTH.
    pub(super) fn before_bth(&self, fields: Ipv4Fields) -> u32 {
        if !self.is_ipv4 {
            return 0;
        }
        let id = BEFORE_BTH.of(fields.id.to_be_bytes(), 34);
        if fields.dont_fragment { id } else { id ^ BEFORE_BTH.of(DONT_FRAGMENT, 32) }
    }
}

/// What the last four bytes of a BTH, A and PSN, add to the CRC after it.
pub(super) fn end_of_bth([a, psn0, psn1, psn2]: [u8; 4]) -> u32 {
    LAST.of([a, psn0], 2) ^ LAST.of([psn1, psn2], 0)
}

/// The CRC that goes on from `crc` over a BTH.
pub(super) fn over_bth(crc: u32, bth: &[u8; Bth::LEN]) -> u32 {
    let [a, b, c, d, rest @ ..] = *bth;
    // The four bytes that the CRC so far meets.
    let met = u32::from_le_bytes([a, b, c, d]) ^ !crc;
    let first = met.to_le_bytes().into_iter().chain(rest);
    let tables = LAST.0.iter().rev();
    !first.zip(tables).fold(0, |sum, (byte, table)| sum ^ table[usize::from(byte)])
}

/// What a byte adds to a CRC when `FROM` bytes follow it, or one more, and so on.
struct Added<const FROM: usize, const COUNT: usize>([[u32; 256]; COUNT]);

/// The bytes of a BTH, and the last ones of a UDP header.
static LAST: Added<0, { Bth::LEN }> = Added::new();

/// Length, identification and fragmentation in an IPv4 header.
static IPV4: Added<20, 6> = Added::new();

/// Identification and fragmentation in an IPv4 header, when a BTH follows.
static BEFORE_BTH: Added<32, 4> = Added::new();

/// The length in an IPv6 header.
static IPV6: Added<42, 2> = Added::new();

impl<const FROM: usize, const COUNT: usize> Added<FROM, COUNT> {
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

    /// What a field adds that so many bytes follow.
    #[inline]
    fn of(&self, [high, low]: [u8; 2], following: usize) -> u32 {
        let at = following - FROM;
        self.0[at + 1][usize::from(high)] ^ self.0[at][usize::from(low)]
    }
}

/// Goes on over eight zeros.
const fn over_byte(mut crc: u32) -> u32 {
    let mut bit = 0;
    while bit < 8 {
        crc = crc >> 1 ^ POLYNOMIAL & (crc & 1).wrapping_neg();
        bit += 1;
    }
    crc
}

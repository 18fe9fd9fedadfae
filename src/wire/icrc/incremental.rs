//! Incremental ICRCs of similar packets.

use crate::net::Ipv4Fields;
use crate::wire::Bth;
use crate::wire::packet::ICRC_LEN;

use super::header_crc::{self, HeaderCrc, over_bth};
use super::{Flow, UDP_LEN, crc32, expected_fields};

/// ICRCs of packets of one length with headers that differ in identification, AckReq and PSN only: MIDDLEs of a
/// message, or messages of one kind.
///
/// The contribution of these fields to the CRC is independent of all others, as in [`HeaderCrc`].
#[derive(Clone, Copy, Debug)]
pub(crate) struct IncrementalIcrc {
    head: HeaderCrc,
    /// CRC up to the end of a BTH, with zeros in these fields and DF set.
    crc: u32,
    /// Length of a datagram in bytes.
    len: usize,
}

impl Flow {
    /// Returns the incremental ICRC for datagrams like this one, which contains its ICRC. `None` when it is too
    /// short.
    pub(crate) fn incremental(&self, like: &[u8]) -> Option<IncrementalIcrc> {
        let mut bth = *like.first_chunk::<{ Bth::LEN }>()?;
        bth[4] = 0xff;
        bth[8..].fill(0);
        let zeros = Ipv4Fields { id: 0, dont_fragment: true };
        let crc = over_bth(self.head.of(zeros, UDP_LEN + like.len()), &bth);
        Some(IncrementalIcrc { head: self.head, crc, len: like.len() })
    }
}

impl IncrementalIcrc {
    /// Writes the ICRC as [`Flow::seal`].
    pub(crate) fn seal(&self, id: u16, datagram: &mut [u8]) {
        if let Some((covered, icrc)) = datagram.split_last_chunk_mut::<ICRC_LEN>() {
            *icrc = self.compute(Ipv4Fields { id, dont_fragment: true }, covered).to_le_bytes();
        }
    }

    /// Returns whether [`Flow::check`] would return `Good`.
    pub(crate) fn holds(&self, seen: Option<Ipv4Fields>, segment: u16, datagram: &[u8]) -> bool {
        let Some((covered, icrc)) = datagram.split_last_chunk::<ICRC_LEN>() else { return false };
        self.compute(expected_fields(seen, segment), covered).to_le_bytes() == *icrc
    }

    fn compute(&self, fields: Ipv4Fields, covered: &[u8]) -> u32 {
        debug_assert_eq!(covered.len() + ICRC_LEN, self.len, "all of a series are of one length");
        let Some((bth, rest)) = covered.split_first_chunk::<{ Bth::LEN }>() else { return 0 };
        let [.., a, psn0, psn1, psn2] = *bth;
        let differs = self.head.before_bth(fields) ^ header_crc::end_of_bth([a, psn0, psn1, psn2]);
        crc32(self.crc ^ differs, rest)
    }
}

#[cfg(test)]
mod tests {
    use super::super::Verdict;
    use super::*;

    #[test]
    fn incremental_icrc_agrees_with_flow() {
        for [from, to] in
            [["10.0.0.1:49443", "10.0.0.2:4791"], ["[fd00::1]:49443", "[fd00::2]:4791"]]
        {
            let flow = Flow::new(from.parse().unwrap(), to.parse().unwrap());
            for len in [16, 20, 80, 4112] {
                let mut datagram: Vec<_> =
                    (0..len).map(|i| u8::try_from(i * 7 % 251).unwrap()).collect();
                let series = flow.incremental(&datagram).unwrap();
                for round in 0..300_u16 {
                    let id = round.wrapping_mul(0x2f1d);
                    datagram[9..12]
                        .copy_from_slice(&u32::from(id).wrapping_mul(77).to_be_bytes()[1..]);
                    datagram[8] = if round % 3 == 0 { 0x80 } else { 0 };
                    let last = datagram.len() - ICRC_LEN;
                    datagram[12..last].fill(round.to_be_bytes()[1]);
                    series.seal(id, &mut datagram);
                    let seen = Ipv4Fields { id, dont_fragment: true };
                    assert_eq!(flow.check(Some(seen), 0, &datagram), Verdict::Good);
                    assert!(series.holds(Some(seen), 0, &datagram));
                    let fragile = Ipv4Fields { id: id.wrapping_sub(1), dont_fragment: false };
                    let icrc = flow.compute(Ipv4Fields { id, ..fragile }, &datagram[..last]);
                    datagram[last..].copy_from_slice(&icrc.to_le_bytes());
                    assert!(series.holds(Some(fragile), 1, &datagram));
                    datagram[last - 1] ^= 1;
                    assert!(!series.holds(Some(fragile), 1, &datagram));
                }
            }
        }
    }
}

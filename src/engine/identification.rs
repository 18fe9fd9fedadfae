//! Prediction of IPv4 identifications that a socket does not report.
//!
//! The ICRC covers the identification. It can be recovered from the ICRC, but then 16 of the 32
//! bits check nothing. The receiver therefore predicts the identifications of a peer, and rejects
//! others once its predictions are correct. Identifications of this implementation are predictable:
//! a packet from an unconnected socket has its index in the burst, and the kernel counts the
//! packets of a connected socket from a random number. The first counted packets are copies of
//! packets that have just arrived with an index.

use crate::net::{Ipv4Fields, MAX_BURST_SEGMENTS, SHORT};
use crate::wire::icrc::{Flow, Verdict};
use crate::wire::packet::ICRC_LEN;

/// Maximum distance between successive counted identifications: up to this number of packets may be
/// lost or late.
const ID_WINDOW: u16 = 64;

/// Number of bursts after which identifications other than indexes are rejected. A packet sent singly is a burst.
const PREDICTABLE_AFTER: u8 = 16;

/// Number of successive unpredicted packets after which prediction restarts, because a route may
/// have changed. One in 65,536 corrupt packets counts as an unpredicted one.
const RESET_AFTER: u8 = 4;

/// History of the identifications of one peer.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Identification {
    predictable: u8,
    surprises: u8,
    /// Last counted identification.
    count: Option<u16>,
    /// Index of the last packet that seemed to have one.
    index: u16,
    /// ICRC of the last packet with the expected index.
    last: u32,
}

impl Identification {
    /// Checks the ICRC of a datagram as [`Flow::check`] does. A rejected identification is bad too.
    #[inline]
    pub(crate) fn check(
        &mut self,
        flow: &Flow,
        seen: Option<Ipv4Fields>,
        segment: u16,
        datagram: &[u8],
    ) -> Verdict {
        if seen.is_none()
            && segment == 0
            && datagram.len() <= SHORT
            && let Some(id) = self.counts_on(flow, datagram)
        {
            return Verdict::Recovered { id };
        }
        let verdict = flow.check(seen, segment, datagram);
        let is_admitted = match verdict {
            Verdict::Good => {
                self.last = icrc(datagram);
                self.admits_index(segment)
            }
            Verdict::Recovered { id } => self.admits(id, flow, datagram),
            Verdict::Bad => false,
        };
        if is_admitted { verdict } else { Verdict::Bad }
    }

    /// Returns the next counted identification if the datagram has it.
    fn counts_on(&mut self, flow: &Flow, datagram: &[u8]) -> Option<u16> {
        let id = self.count?.wrapping_add(1);
        let next = Ipv4Fields { id, dont_fragment: true };
        (flow.check(Some(next), 0, datagram) == Verdict::Good).then(|| {
            self.count = Some(id);
            self.surprises = 0;
            id
        })
    }

    /// Returns whether a datagram with this identification is accepted.
    fn admits(&mut self, id: u16, flow: &Flow, datagram: &[u8]) -> bool {
        if self.is_near(id) {
            return true;
        }
        let is_habit = self.predictable >= PREDICTABLE_AFTER;
        // A count may begin at a number that is also an index in a burst.
        if is_habit && datagram.len() <= SHORT && self.is_copy(flow, datagram) {
            (self.count, self.surprises) = (Some(id), 0);
            return true;
        }
        // It may be the index in a burst.
        if usize::from(id) < MAX_BURST_SEGMENTS {
            return self.admits_index(id);
        }
        self.surprises += 1;
        let is_taken = !is_habit || self.surprises >= RESET_AFTER;
        if is_taken {
            // The identifications cannot be predicted. If the peer counts, this is the last one.
            *self = Self { count: Some(id), ..Self::default() };
        }
        is_taken
    }

    /// Accepts a packet with this index in a burst.
    ///
    /// Indexes begin again with each burst. Those that only increase may as well be a count that passes zero, as that of
    /// kernel rxe does, and predict nothing.
    fn admits_index(&mut self, index: u16) -> bool {
        self.predictable = self.predictable.saturating_add(u8::from(index <= self.index));
        (self.index, self.surprises) = (index, 0);
        true
    }

    /// Returns whether the identification is near the last counted one. If it is ahead, it becomes
    /// the last counted one.
    fn is_near(&mut self, id: u16) -> bool {
        let Some(count) = self.count else { return false };
        let (on, back) = (id.wrapping_sub(count), count.wrapping_sub(id));
        if on <= ID_WINDOW {
            self.count = Some(id);
        }
        let is_near = on <= ID_WINDOW || back <= ID_WINDOW;
        if is_near {
            self.surprises = 0;
        }
        is_near
    }

    /// Returns whether the datagram is a copy of the last one with another identification.
    #[cold]
    fn is_copy(&self, flow: &Flow, datagram: &[u8]) -> bool {
        let covered = &datagram[..datagram.len().saturating_sub(ICRC_LEN)];
        flow.compute(Ipv4Fields { id: 0, dont_fragment: true }, covered) == self.last
    }
}

/// Returns the ICRC at the end of a datagram.
fn icrc(datagram: &[u8]) -> u32 {
    datagram.last_chunk::<ICRC_LEN>().map_or(0, |icrc| u32::from_le_bytes(*icrc))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A peer and its datagrams.
    struct Peer {
        flow: Flow,
        seen: Identification,
    }

    impl Peer {
        fn new() -> Self {
            let flow =
                Flow::new("10.0.0.1:49443".parse().unwrap(), "10.0.0.2:4791".parse().unwrap());
            Self { flow, seen: Identification::default() }
        }

        /// Returns a peer that is known to use predictable identifications.
        fn predictable() -> Self {
            let mut peer = Self::new();
            assert!((0..PREDICTABLE_AFTER).all(|number| peer.sends(number, 0)));
            peer
        }

        /// Returns a datagram filled with a number, with this identification.
        fn datagram(&self, number: u8, id: u16) -> [u8; 84] {
            let mut datagram = [number; 84];
            self.flow.seal(id, &mut datagram);
            datagram
        }

        fn check(&mut self, datagram: &[u8]) -> Verdict {
            self.seen.check(&self.flow, None, 0, datagram)
        }

        /// Returns whether the datagram is accepted; also checks its verdict.
        fn sends(&mut self, number: u8, id: u16) -> bool {
            let good = if id == 0 { Verdict::Good } else { Verdict::Recovered { id } };
            let verdict = self.check(&self.datagram(number, id));
            assert!(
                [good, Verdict::Recovered { id }, Verdict::Bad].contains(&verdict),
                "{verdict:?}"
            );
            verdict != Verdict::Bad
        }
    }

    #[test]
    fn a_peer_with_varying_identifications_is_taken_as_it_is() {
        let mut peer = Peer::new();
        let ids = (0..100).map(|n| 0x1234_u16.wrapping_mul(n) | 0x100);
        // A sequence past zero, which looks like burst indexes, and one with gaps.
        let ids = ids.chain(0xffc0..=0xffff).chain(0..400).chain((500..60_000).step_by(777));
        for (id, number) in ids.zip((0..100).cycle()) {
            assert!(peer.sends(number, id), "{id:#x}");
        }
    }

    /// CRC-13
    #[test]
    fn count_that_begins_near_zero_is_followed() {
        let indexes = u16::try_from(MAX_BURST_SEGMENTS).unwrap();
        // The socket hands over some datagrams as segments of one.
        for (start, at_once) in
            (0..=indexes).flat_map(|start| [(start, 1), (start, 7), (start, 64)])
        {
            let mut peer = Peer::new();
            for id in start..400 {
                let segment = (id - start) % at_once;
                let datagram = peer.datagram(7, id);
                let verdict = peer.seen.check(&peer.flow, None, segment, &datagram);
                assert_ne!(verdict, Verdict::Bad, "{id:#x} behind {start}, {at_once} at once");
            }
        }
    }

    #[test]
    fn bursts_are_predictable() {
        let mut peer = Peer::new();
        for _ in 0..=PREDICTABLE_AFTER {
            assert!((0..9).all(|index| peer.sends(7, index)));
        }
        assert!(!peer.sends(8, 0xbeef), "an index is expected");
    }

    #[test]
    fn a_predictable_peer_is_held_to_it_until_it_has_clearly_changed() {
        let mut peer = Peer::predictable();
        assert!(!peer.sends(100, 0xbeef), "more likely corrupt than true");
        assert!(peer.sends(101, 3));
        let taken: Vec<_> = (0..5).map(|number| peer.sends(number, 0xbeef)).collect();
        assert_eq!(taken, [false, false, false, true, true]);
    }

    #[test]
    fn a_predictable_peer_begins_to_count_with_a_copy() {
        let mut peer = Peer::predictable();
        assert!(peer.sends(200, 0) && peer.sends(200, 0xfff0), "the same");
        // Past the end, past lost packets, and late ones; also uncounted packets in between.
        for id in [
            0xfff1, 0xfff2, 0xfff8, 0xfff7, 0, 0xffff, 0, 1, 2, 60, 30, 61, 100, 1, 0, 101, 164,
            228,
        ] {
            assert!(peer.sends(7, id), "{id:#x}");
        }
        assert!(!peer.sends(8, 228 + ID_WINDOW + 1) && !peer.sends(8, 228 - ID_WINDOW - 1));
        assert!(peer.sends(8, 228 + ID_WINDOW));
    }

    #[test]
    fn a_peer_that_counts_is_followed_past_zero_whatever_is_lost() {
        let indexes = u16::try_from(MAX_BURST_SEGMENTS).unwrap();
        for lost in 0..100 {
            let mut peer = Peer::predictable();
            assert!(peer.sends(200, 0) && peer.sends(200, 0xffc0));
            for step in (1..300_u16).filter(|step| *step != lost) {
                let id = 0xffc0_u16.wrapping_add(step);
                assert!(peer.sends(7, id), "{id:#x} behind {lost}");
                assert!(peer.sends(8, 0) && peer.sends(9, step % indexes), "burst behind {id:#x}");
            }
        }
    }

    #[test]
    fn count_may_begin_at_any_identification() {
        for start in (1..200).chain(0xff00..=0xffff) {
            let mut peer = Peer::predictable();
            assert!(peer.sends(200, 0) && peer.sends(200, start), "copy with {start}");
            // The sender repeats its first three datagrams, and sends all later ones once.
            for step in 1..200_u16 {
                let (id, number) = (start.wrapping_add(step), (step % 100) as u8);
                let is_copied = step < 3;
                assert!(!is_copied || peer.sends(number, 0), "{step} behind {start}");
                assert!(peer.sends(number, id), "{step} behind {start}");
            }
        }
    }

    #[test]
    fn what_is_no_copy_begins_no_count() {
        let mut peer = Peer::predictable();
        assert!(peer.sends(200, 0));
        assert!(!peer.sends(201, 0xfff0), "another");
        let mut damaged = peer.datagram(200, 0xfff0);
        damaged[40] ^= 1;
        assert_eq!(peer.check(&damaged), Verdict::Bad);
        assert!(peer.sends(201, 0) && !peer.sends(200, 0xfff0), "not the last");
    }

    #[test]
    fn what_the_port_sees_is_all_that_counts_then() {
        let mut peer = Peer::predictable();
        let datagram = peer.datagram(1, 0xbeef);
        let fields = |id| Some(Ipv4Fields { id, dont_fragment: true });
        for (id, verdict) in [(0xbeef, Verdict::Good), (0xbeee, Verdict::Bad)] {
            assert_eq!(peer.seen.check(&peer.flow, fields(id), 0, &datagram), verdict);
        }
    }
}

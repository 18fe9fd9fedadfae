//! ICRCs of bursts that the engine has built for a ring, and that leave by the port below.

use crate::net::Burst;
use crate::wire::icrc::{self, Flow};

/// Computes omitted ICRCs in copies of bursts.
#[derive(Debug)]
pub(super) struct Sealer {
    /// Copies, at least one, so that the last burst of a process needs no allocation.
    copies: Vec<Burst>,
}

impl Sealer {
    pub(super) fn new() -> Self {
        Self { copies: vec![Burst::new()] }
    }

    /// Returns the bursts with all their ICRCs.
    pub(super) fn sealed<'a>(&'a mut self, bursts: &'a [Burst]) -> &'a [Burst] {
        if !bursts.iter().any(Burst::omits_icrcs) {
            return bursts;
        }
        let missing = bursts.len().saturating_sub(self.copies.len());
        self.copies.extend((0..missing).map(|_| Burst::new()));
        for (burst, copy) in bursts.iter().zip(&mut self.copies) {
            copy_sealed(burst, copy);
        }
        &self.copies[..bursts.len()]
    }
}

fn copy_sealed(burst: &Burst, copy: &mut Burst) {
    let flow = Flow::of_path(&burst.path);
    copy.reset(burst.path, burst.token);
    for (index, datagram) in (0..).zip(burst.segments()) {
        let to = copy.push(datagram.len());
        to.copy_from_slice(datagram);
        // Others, such as that of a FLUSH to kernel rxe or of a damaged datagram, stay as they are.
        if icrc::is_omitted(to) {
            flow.seal(index, to);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::net::{BurstToken, Path, ROCE_PORT};
    use crate::wire::icrc::Verdict;

    const PATH: Path = Path {
        source: std::net::IpAddr::V4(std::net::Ipv4Addr::new(10, 0, 0, 1)),
        destination: std::net::IpAddr::V4(std::net::Ipv4Addr::new(10, 0, 0, 2)),
        source_port: ROCE_PORT,
        traffic_class: 0,
        hop_limit: 64,
    };

    /// Returns a burst of three datagrams, of which the second has an ICRC of its own.
    fn burst(omits_icrcs: bool) -> Burst {
        let mut burst = Burst::new().omitting_icrcs(omits_icrcs);
        burst.reset(PATH, BurstToken(7));
        for (fill, icrc) in [(1, 0), (2, 0xab), (3, 0)] {
            let datagram = burst.push(40);
            datagram.fill(fill);
            datagram[36..].fill(icrc);
        }
        burst
    }

    #[test]
    fn omitted_icrcs_are_computed_and_others_kept() {
        let mut sealer = Sealer::new();
        let bursts = [burst(true), burst(true)];
        let sealed = sealer.sealed(&bursts);
        assert_eq!(sealed.len(), 2);
        for burst in sealed {
            assert_eq!((burst.path, burst.token, burst.segment_len()), (PATH, BurstToken(7), 40));
            let segments: Vec<_> = burst.segments().collect();
            let flow = Flow::of_path(&PATH);
            let verdicts =
                [0, 1, 2].map(|index: u16| flow.check(None, index, segments[usize::from(index)]));
            assert_eq!(verdicts[0], Verdict::Good);
            assert_eq!(segments[1][36..], [0xab; 4]);
            assert_eq!(verdicts[2], Verdict::Good);
        }
    }

    #[test]
    fn bursts_with_icrcs_are_not_copied() {
        let bursts = [burst(false)];
        assert!(std::ptr::eq(Sealer::new().sealed(&bursts), &raw const bursts[..]));
    }
}

//! A port of one shard among several, which hands to the others what has come to it and is theirs.
//!
//! The kernel knows by the first packet of a buffer for which shard it is (`udp::UdpPort::open_shards`). A
//! sender of ours puts packets for one shard into a burst, but a stranger may mix them, and the kernel merges what comes from one
//! socket of his. What is for another shard is copied into a bounded queue of that one's port, whose descriptor
//! wakes who sleeps there, and is received there as if it had come by itself.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;

use smallvec::SmallVec;

use super::layer::{Layer, Middleware};
use crate::net::{Ipv4Fields, RxBuffer, RxMeta};
use crate::port::counters::PortCounters;
use crate::port::shared::event_fd::{EventFd, EventFdSignal};
use crate::port::traits::{Datapath, Port};
use crate::sync::mailbox::Mailbox;
use crate::time::Instant;
use crate::wire::Bth;

/// Bytes that may wait to be received at a shard that have come to others; what comes on top is lost.
const MAX_WAITING: usize = 1 << 20;

/// What has come to one shard and is another's: datagrams of one size.
#[derive(Debug)]
struct Stray {
    data: Vec<u8>,
    segment_len: usize,
    meta: RxMeta,
}

/// A port of one of several shards.
pub(crate) type DemuxPort<P> = Layer<P, ShardDemux>;

/// The [`Middleware`] of a [`DemuxPort`]: hands misrouted datagrams to the shard of their queue pair.
#[derive(Debug)]
pub(crate) struct ShardDemux {
    /// Its place among them.
    index: usize,
    /// What each of them is handed.
    trays: Arc<[Mailbox<Stray, EventFdSignal>]>,
    handed_on: u64,
    lost: u64,
}

impl<P: Port> DemuxPort<P> {
    /// Has ports, of which each is to receive what is for queue pairs of the shard with its index, hand to
    /// each other what they receive instead. There is a power of two of them.
    ///
    /// # Errors
    ///
    /// There are no more descriptors.
    pub(crate) fn all(ports: Vec<P>) -> io::Result<Vec<Self>> {
        let tray = || Ok(Mailbox::new(EventFd::open()?, MAX_WAITING));
        let trays: Arc<[_]> = ports.iter().map(|_| tray()).collect::<io::Result<_>>()?;
        let sorted = |(index, port)| {
            let demux = ShardDemux { index, trays: Arc::clone(&trays), handed_on: 0, lost: 0 };
            Self::over(port, demux)
        };
        Ok(ports.into_iter().enumerate().map(sorted).collect())
    }
}

/// Of so many shards, the one that a datagram is for. What is too short to say so any may look at.
fn shard_of(datagram: &[u8], shards: usize) -> Option<usize> {
    let bth = datagram.first_chunk::<{ Bth::LEN }>()?;
    Some(usize::from(Bth::destination(bth).shard()) % shards)
}

/// The datagrams of a buffer from `start` to before `end`.
fn part<'a>(rx: &RxBuffer<'a>, start: usize, end: usize) -> RxBuffer<'a> {
    let len = if rx.segment_len == 0 { rx.data.len() } else { rx.segment_len };
    let at = |segment: usize| (segment * len).min(rx.data.len());
    let before = u16::try_from(start).unwrap_or(u16::MAX);
    let after = |first: Ipv4Fields| Ipv4Fields { id: first.id.wrapping_add(before), ..first };
    RxBuffer {
        data: rx.data.get(at(start)..at(end)).unwrap_or_default(),
        segment_len: rx.segment_len,
        meta: RxMeta { ipv4: rx.meta.ipv4.map(after), ..rx.meta },
    }
}

impl Middleware for ShardDemux {
    fn receive(
        &mut self,
        below: &mut impl Datapath,
        now: Instant,
        sink: &mut dyn FnMut(RxBuffer<'_>),
    ) -> io::Result<usize> {
        let Self { index, trays, handed_on, lost } = self;
        let (own, shards) = (*index, trays.len());
        let mut count = 0;
        for Stray { data, segment_len, meta } in trays[own].take() {
            sink(RxBuffer { data: &data, segment_len, meta });
            count += 1;
        }
        count += below.receive(now, &mut |rx| {
            let of = |datagram: &[u8]| shard_of(datagram, shards).unwrap_or(own);
            // What goes to a group each shard receives by itself.
            if rx.meta.destination.is_multicast() || rx.segments().all(|one| of(one) == own) {
                return sink(rx);
            }
            let whose: SmallVec<[usize; 64]> = rx.segments().map(of).collect();
            let mut start = 0;
            for run in whose.chunk_by(|one, next| one == next) {
                let end = start + run.len();
                let part = part(&rx, start, end);
                start = end;
                match run.first() {
                    Some(shard) if *shard != own => {
                        let (data, segment_len, meta) =
                            (part.data.to_vec(), part.segment_len, part.meta);
                        let bytes = data.len();
                        let taken = trays[*shard].put(Stray { data, segment_len, meta }, bytes);
                        let strays = run.len() as u64;
                        *(if taken { &mut *handed_on } else { &mut *lost }) += strays;
                    }
                    _ => sink(part),
                }
            }
        })?;
        Ok(count)
    }

    fn counters(&self, below: PortCounters) -> PortCounters {
        PortCounters { strays: self.handed_on, strays_lost: self.lost, ..below }
    }

    fn descriptors<'a>(&'a self, below: &'a impl Datapath) -> SmallVec<[BorrowedFd<'a>; 4]> {
        let mut descriptors = below.descriptors();
        descriptors.push(self.trays[self.index].doorbell().as_fd());
        descriptors
    }
}

#[cfg(test)]
mod tests {
    use std::net::IpAddr;
    use std::time::Duration;

    use super::*;
    use crate::net::{Burst, BurstToken, Path};
    use crate::port::sim::{Network, SimPort};
    use crate::port::wait_readable;

    const NOW: Instant = Instant::ZERO;

    /// The ports of four shards, and who sends to the third.
    fn ports() -> (Network, Vec<DemuxPort<SimPort>>, SimPort) {
        let network = Network::new(0);
        let ips = [1, 2, 3, 4].map(|host| IpAddr::from([10, 0, 0, host]));
        let ports = DemuxPort::all(ips.map(|ip| network.host(ip)).into()).unwrap();
        let peer = network.host([10, 0, 0, 9].into());
        (network, ports, peer)
    }

    /// A burst to the third port with datagrams to these queue pairs, the last of them short.
    fn burst(destinations: &[u32]) -> Burst {
        let path = Path {
            source: [10, 0, 0, 9].into(),
            destination: [10, 0, 0, 3].into(),
            source_port: 0xc123,
            traffic_class: 0,
            hop_limit: 64,
        };
        let mut burst = Burst::new();
        burst.reset(path, BurstToken(0));
        for (at, qpn) in (1..).zip(destinations) {
            let datagram = burst.push(if at == destinations.len() { 60 } else { 64 });
            datagram.fill(0);
            datagram[4..8].copy_from_slice(&qpn.to_be_bytes());
        }
        burst
    }

    /// What one call receives: of each buffer the destinations, and how long it is.
    fn received(port: &mut impl Port) -> Vec<(Vec<u32>, usize)> {
        let mut found = Vec::new();
        let destination = |bytes: &[u8]| Bth::destination(bytes.first_chunk().unwrap()).value();
        port.receive(NOW, &mut |rx| {
            assert_eq!(rx.meta.source, ([10, 0, 0, 9], 0xc123).into());
            found.push((rx.segments().map(destination).collect(), rx.data.len()));
        })
        .unwrap();
        found
    }

    fn readable(port: &impl Port) -> bool {
        wait_readable(&port.descriptors(), Some(Duration::ZERO)).unwrap()
    }

    #[test]
    fn what_is_for_others_is_received_by_them() {
        let (_network, mut ports, mut peer) = ports();
        // Of four shards; 1 is the general services interface, which is the first's.
        let mixed = burst(&[0x42, 0x46, 0x43, 0x47, 0x41, 0x42, 0x01, 0x44]);
        assert_eq!(peer.transmit(NOW, &[mixed]), Ok(1));
        assert_eq!(received(&mut ports[2]), [(vec![0x42, 0x46], 128), (vec![0x42], 64)]);
        assert_eq!([0, 1, 2, 3].map(|at: usize| readable(&ports[at])), [true, true, false, true]);
        assert_eq!(received(&mut ports[0]), [(vec![0x01, 0x44], 124)]);
        assert_eq!(received(&mut ports[1]), [(vec![0x41], 64)]);
        assert_eq!(received(&mut ports[3]), [(vec![0x43, 0x47], 128)]);
        for port in &mut ports {
            assert_eq!((readable(port), received(port)), (false, vec![]));
        }
        let counted: Vec<_> = ports.iter().map(|port| port.counters().strays).collect();
        assert_eq!(counted, [0, 0, 5, 0]);
    }

    #[test]
    fn what_is_all_its_own_stays_whole() {
        let (_network, mut ports, mut peer) = ports();
        let own = [0x42, 0x46, 0x02, 0xff_fffe];
        assert_eq!(peer.transmit(NOW, &[burst(&own)]), Ok(1));
        assert_eq!(received(&mut ports[2]), [(own.to_vec(), 252)]);
        assert_eq!(ports[2].counters().strays, 0);
    }

    #[test]
    fn what_nobody_fetches_is_bounded() {
        let (_network, mut ports, mut peer) = ports();
        let full = MAX_WAITING / 60;
        for _ in 0..full + 2 {
            assert_eq!(peer.transmit(NOW, &[burst(&[0x41])]), Ok(1));
            ports[2].receive(NOW, &mut |_| panic!("a stray")).unwrap();
        }
        let PortCounters { strays, strays_lost, .. } = ports[2].counters();
        assert_eq!((strays, strays_lost), (full as u64, 2));
        assert_eq!(received(&mut ports[1]).len(), full);
        assert_eq!(peer.transmit(NOW, &[burst(&[0x41])]), Ok(1));
        received(&mut ports[2]);
        assert_eq!(received(&mut ports[1]).len(), 1, "there is room again");
    }
}

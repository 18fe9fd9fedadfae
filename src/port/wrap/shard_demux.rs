//! Middleware of a port of one shard: forwards misrouted datagrams to the shard of their queue pair.
//!
//! The kernel selects the shard by the first packet of a buffer (`udp::UdpPort::open_shards`). A softroce sender fills
//! a burst with packets for one shard, but another implementation may mix them, and GRO merges datagrams of one socket.
//! A datagram for another shard is copied into the bounded mailbox of that shard's port, whose descriptor wakes the
//! thread that sleeps there. The other port returns it from its next receive call.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;

use smallvec::SmallVec;

use super::layer::{Layer, Middleware};
use crate::net::{Ipv4Fields, RxBuffer, RxMeta};
use crate::port::counters::PortCounters;
use crate::port::shared::event_fd::EventFd;
use crate::port::traits::{Datapath, Port};
use crate::sync::mailbox::Mailbox;
use crate::time::Instant;
use crate::wire::Bth;

/// Maximum bytes in the mailbox of a shard; datagrams beyond are lost.
const MAX_MAILBOX_BYTES: usize = 1 << 20;

/// Datagrams of one size that arrived at another shard than their own.
#[derive(Debug)]
struct Misrouted {
    data: Vec<u8>,
    segment_len: usize,
    meta: RxMeta,
}

/// A port of one of several shards.
pub(crate) type DemuxPort<P> = Layer<P, ShardDemux>;

/// The [`Middleware`] of a [`DemuxPort`]: hands misrouted datagrams to the shard of their queue pair.
#[derive(Debug)]
pub(crate) struct ShardDemux {
    /// Index of this shard.
    index: usize,
    /// Mailboxes of all shards.
    mailboxes: Arc<[Mailbox<Misrouted, EventFd>]>,
    forwarded: u64,
    lost: u64,
}

impl<P: Port> DemuxPort<P> {
    /// Wraps the ports of all shards, in order of shards. Their number is a power of two.
    ///
    /// # Errors
    ///
    /// The process has no more descriptors.
    pub(crate) fn wrap_all(ports: Vec<P>) -> io::Result<Vec<Self>> {
        let mailbox = || Ok(Mailbox::new(EventFd::open()?, MAX_MAILBOX_BYTES));
        let mailboxes: Arc<[_]> = ports.iter().map(|_| mailbox()).collect::<io::Result<_>>()?;
        let wrap = |(index, port)| {
            let demux =
                ShardDemux { index, mailboxes: Arc::clone(&mailboxes), forwarded: 0, lost: 0 };
            Self::over(port, demux)
        };
        Ok(ports.into_iter().enumerate().map(wrap).collect())
    }
}

/// Returns the shard of a datagram; `None` if the datagram is too short for a BTH.
fn shard_of(datagram: &[u8], shards: usize) -> Option<usize> {
    let bth = datagram.first_chunk::<{ Bth::LEN }>()?;
    Some(usize::from(Bth::destination(bth).shard()) % shards)
}

/// Returns the datagrams `start..end` of a buffer.
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
        let Self { index, mailboxes, forwarded, lost } = self;
        let (own, shards) = (*index, mailboxes.len());
        let mut count = 0;
        for Misrouted { data, segment_len, meta } in mailboxes[own].take() {
            sink(RxBuffer { data: &data, segment_len, meta });
            count += 1;
        }
        count += below.receive(now, &mut |rx| {
            let of = |datagram: &[u8]| shard_of(datagram, shards).unwrap_or(own);
            // Each shard joins multicast groups by itself.
            if rx.meta.destination.is_multicast() || rx.segments().all(|one| of(one) == own) {
                return sink(rx);
            }
            let shards_of: SmallVec<[usize; 64]> = rx.segments().map(of).collect();
            let mut start = 0;
            for run in shards_of.chunk_by(|one, next| one == next) {
                let end = start + run.len();
                let part = part(&rx, start, end);
                start = end;
                match run.first() {
                    Some(shard) if *shard != own => {
                        let (data, segment_len, meta) =
                            (part.data.to_vec(), part.segment_len, part.meta);
                        let bytes = data.len();
                        let taken =
                            mailboxes[*shard].put(Misrouted { data, segment_len, meta }, bytes);
                        let misrouted = run.len() as u64;
                        *(if taken { &mut *forwarded } else { &mut *lost }) += misrouted;
                    }
                    _ => sink(part),
                }
            }
        })?;
        Ok(count)
    }

    fn counters(&self, below: PortCounters) -> PortCounters {
        PortCounters { misrouted: self.forwarded, misrouted_lost: self.lost, ..below }
    }

    fn descriptors<'a>(&'a self, below: &'a impl Datapath) -> SmallVec<[BorrowedFd<'a>; 4]> {
        let mut descriptors = below.descriptors();
        descriptors.push(self.mailboxes[self.index].signal().as_fd());
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

    /// Returns the ports of four shards, and a peer that sends to the third.
    fn ports() -> (Network, Vec<DemuxPort<SimPort>>, SimPort) {
        let network = Network::new(0);
        let ips = [1, 2, 3, 4].map(|host| IpAddr::from([10, 0, 0, host]));
        let ports = DemuxPort::wrap_all(ips.map(|ip| network.host(ip)).into()).unwrap();
        let peer = network.host([10, 0, 0, 9].into());
        (network, ports, peer)
    }

    /// Returns a burst to the third port with datagrams to these queue pairs, the last of them short.
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

    /// Returns the buffers of one receive call: destinations and length.
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
    fn misrouted_datagrams_are_forwarded_to_their_shard() {
        let (_network, mut ports, mut peer) = ports();
        // With four shards; QP 1 is the general services interface, which belongs to the first.
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
        let counted: Vec<_> = ports.iter().map(|port| port.counters().misrouted).collect();
        assert_eq!(counted, [0, 0, 5, 0]);
    }

    #[test]
    fn buffer_for_one_shard_is_not_split() {
        let (_network, mut ports, mut peer) = ports();
        let own = [0x42, 0x46, 0x02, 0xff_fffe];
        assert_eq!(peer.transmit(NOW, &[burst(&own)]), Ok(1));
        assert_eq!(received(&mut ports[2]), [(own.to_vec(), 252)]);
        assert_eq!(ports[2].counters().misrouted, 0);
    }

    #[test]
    fn mailbox_is_bounded() {
        let (_network, mut ports, mut peer) = ports();
        let full = MAX_MAILBOX_BYTES / 60;
        for _ in 0..full + 2 {
            assert_eq!(peer.transmit(NOW, &[burst(&[0x41])]), Ok(1));
            ports[2].receive(NOW, &mut |_| panic!("a stray")).unwrap();
        }
        let PortCounters { misrouted, misrouted_lost, .. } = ports[2].counters();
        assert_eq!((misrouted, misrouted_lost), (full as u64, 2));
        assert_eq!(received(&mut ports[1]).len(), full);
        assert_eq!(peer.transmit(NOW, &[burst(&[0x41])]), Ok(1));
        received(&mut ports[2]);
        assert_eq!(received(&mut ports[1]).len(), 1, "there is room again");
    }
}
